// SPDX-License-Identifier: Apache-2.0
// A host of a few lines for testing plugins through the ABI alone: it loads a file, runs one blob
// with every value in a buffer of its own (poisoned before the run), and keeps the text of whatever
// goes wrong.
#pragma once

#include <tenon/backend.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "blob_builder.hpp"

struct tenon_status {
  tenon_code code;
  uint32_t flags;
  std::string text, origin;
  uint64_t run_id;
  uint32_t step;
  int64_t index;
};

namespace tenon::test {

using Bytes = std::vector<unsigned char>;

template <class T>
Bytes bytes_of(const std::vector<T>& list) {
  Bytes b(list.size() * sizeof(T));
  if (!b.empty()) std::memcpy(b.data(), list.data(), b.size());
  return b;
}
template <class T>
std::vector<T> list_of(const Bytes& b) {
  std::vector<T> list(b.size() / sizeof(T));
  if (!b.empty()) std::memcpy(list.data(), b.data(), b.size());
  return list;
}

// A status as a value; code TENON_OK for none.
struct Problem {
  tenon_code code = TENON_OK;
  uint32_t flags = 0;
  std::string text{}, origin{};
  uint64_t run_id = 0;
  uint32_t step = TENON_NONE;
  int64_t index = -1;
};

struct Verdict {
  bool native;
  uint32_t reason;
  std::string text;
};

inline tenon_buffer_options buffer_options(uint64_t size, uint32_t kind = TENON_MEMORY_DEVICE) {
  return {sizeof(tenon_buffer_options), size, {"test", 4}, kind, 0};
}

// The table that the fake host gives; statuses made and not released are counted.
tenon_host host_table();
int live_statuses();
const std::string& last_refusal();

class Plugin {
 public:
  explicit Plugin(const std::string& path);
  explicit Plugin(tenon_backend_entry_fn entry);
  ~Plugin();
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const tenon_backend& table() const { return *table_; }
  tenon_plugin* state() const { return plugin_; }
  tenon_device* device() const { return device_; }

  std::vector<Verdict> query(const BlobBuilder& graph) const;
  // Inputs in the order in which the builder made them (constants too); outputs in theirs.
  std::vector<Bytes> run(const BlobBuilder& graph, const std::vector<Bytes>& inputs,
                         Problem* problem = nullptr) const;
  // Takes over a status.
  static Problem problem(tenon_status* status);

 private:
  tenon_host host_;
  const tenon_backend* table_;
  tenon_plugin* plugin_ = nullptr;
  tenon_device* device_ = nullptr;
};

// A compiled graph with its buffers, for tests that look at steps or run more than once.
class Bound {
 public:
  Bound(const Plugin& plugin, const BlobBuilder& graph);
  ~Bound();
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

  const Problem& compile_problem() const { return compile_problem_; }
  const tenon_program_info& info() const { return *table().program_info(program_); }
  tenon_program* program() const { return program_; }
  tenon_binding binding() const;
  tenon_slot& slot(uint32_t value) { return slots_[value]; }
  void set_input(size_t k, const Bytes& content);
  Bytes output(size_t k) const;
  Problem instantiate();
  Problem rebind();
  Problem run(uint64_t run_id = 1);
  Problem run(const tenon_run_args& args);
  // The program value that stands for a value of the graph: one that a step writes, or one that no
  // step does.
  uint32_t find(uint32_t source, bool written) const;

 private:
  const tenon_backend& table() const { return plugin_.table(); }
  const tenon_program_value& value(uint32_t v) const;
  const tenon_step& step(uint32_t s) const;
  void make_buffers();

  const Plugin& plugin_;
  BlobBuilder graph_;
  tenon_program* program_ = nullptr;
  tenon_instance* instance_ = nullptr;
  Problem compile_problem_;
  std::vector<tenon_buffer*> buffers_;
  std::vector<tenon_slot> slots_, scratch_;
};

}  // namespace tenon::test
