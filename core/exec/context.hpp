// SPDX-License-Identifier: Apache-2.0
// A context: what one run in flight owns. Inputs, outputs, working memory and the programs'
// instances, so that contexts of one executable never see each other's data.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exec/executable.hpp"

namespace tenon::core {

// One run from its place in line to its end. Drives itself: blocking in the caller's thread, or
// from worker to worker.
class Flight;
// The buffers and instances of a context for one plan.
struct Lease;

class Context {
 public:
  explicit Context(std::shared_ptr<Executable> executable);
  ~Context();  // waits for a run under way

  // dense content; strides are the caller's business.
  void set(std::string_view input, const Type& type, std::span<const std::byte> content);
  void run();
  void run_async();
  bool done();
  void wait();  // throws the run's failure, once
  Type output_type(std::string_view output);
  void get(std::string_view output, void* data, uint64_t size);
  Executable& executable() const { return *executable_; }

 private:
  friend class Flight;
  struct Input {
    Type type;
    Bytes content;
    uint64_t version = 0;  // 0: not set
  };
  Lease& prepare();
  void bind(Lease& lease, RunTrace* trace);
  void bind_entries(Lease& lease, RunTrace* trace);
  uint32_t number_of(std::string_view output);  // in Plan::outputs
  void forbid_in_flight(const char* what);
  std::shared_ptr<Flight> launch();

  std::shared_ptr<Executable> executable_;
  std::map<std::string, Input, std::less<>> inputs_;
  std::vector<std::shared_ptr<Stream>> streams_;  // [device], null where the plugin has none
  std::vector<std::shared_ptr<Lease>> leases_;    // last used first
  std::shared_ptr<Lease> last_;                   // of the run under way, or the last one
  bool has_results_ = false;                      // it went well
  uint64_t last_run_ = 0;                         // its number
  std::shared_ptr<Flight> flight_;
};

}  // namespace tenon::core
