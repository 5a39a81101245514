// SPDX-License-Identifier: Apache-2.0
// Claims that a device has withdrawn, because a kernel did not build (PluginSpec::withdraws). Nodes
// of equal form get equal kernels, so a claim is withdrawn for all nodes of its form: op,
// attributes, types, and the strides and alignments that the kernel's maker saw.
#pragma once

#include <map>
#include <mutex>
#include <optional>

#include "../body.hpp"

namespace tenon::sdk::layer {

class Withdrawn {
 public:
  void add(const std::string& form, const std::string& why) {
    const std::lock_guard lock(mutex_);
    why_.emplace(form, why);
  }
  std::optional<std::string> why(const std::string& form) const {
    const std::lock_guard lock(mutex_);
    const auto found = why_.find(form);
    return found == why_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  mutable std::mutex mutex_{};
  std::map<std::string, std::string> why_{};
};

// Writes the parts of a node that its kernel may depend on.
class FormWriter {
 public:
  explicit FormWriter(const tenon_blob& blob) : blob_(blob) {}

  void node(const tenon_blob_function& f, const tenon_blob_node& n, bool inner) {
    add(text(tenon_blob_str(&blob_, n.domain)));
    add(text(tenon_blob_str(&blob_, n.op)));
    number(n.version);
    for (const auto& [list, count] :
         {std::pair{n.operands, n.operand_count}, std::pair{n.outputs, n.output_count}}) {
      number(count);
      for (uint32_t k = 0; k < count; ++k) value(f, tenon_blob_indices(&blob_, list)[k], inner);
    }
    for (const auto& [list, count] : {std::pair{n.operand_lists, n.operand_list_count},
                                      std::pair{n.output_lists, n.output_list_count}})
      for (uint32_t k = 0; k < count; ++k) number(tenon_blob_indices(&blob_, list)[k]);
    for (uint32_t k = 0; k < n.attr_count; ++k) attribute(*tenon_blob_attr_at(&blob_, &n, k));
  }
  void number(uint64_t n) { add({reinterpret_cast<const char*>(&n), sizeof n}); }
  std::string take() { return std::move(form_); }

 private:
  void add(std::string_view bytes) {
    const uint64_t size = bytes.size();
    form_.append(reinterpret_cast<const char*>(&size), sizeof size).append(bytes);
  }
  // Inside a function the number of a value tells which other node makes it.
  void value(const tenon_blob_function& f, uint32_t v, bool inner) {
    if (v == TENON_NONE) return number(TENON_NONE);
    const tenon_blob_value& at = *tenon_blob_value_at(&blob_, &f, v);
    if (inner) number(v);
    number(at.dtype);
    number(at.space == TENON_SPACE_WEIGHT && !(at.flags & TENON_VALUE_UPDATED));
    add({reinterpret_cast<const char*>(tenon_blob_dims(&blob_, &at)), at.rank * sizeof(int64_t)});
    if (at.data) add({static_cast<const char*>(tenon_blob_at(&blob_, at.data)), at.data_size});
  }
  void attribute(const tenon_blob_attr& a) {
    add(text(tenon_blob_str(&blob_, a.name)));
    number(a.type);
    if (a.type == TENON_ATTR_STR) return add(text(tenon_blob_str(&blob_, a.bits)));
    if (a.type == TENON_ATTR_INTS || a.type == TENON_ATTR_FLOATS)
      return add({static_cast<const char*>(tenon_blob_at(&blob_, a.bits)), a.count * 8ull});
    if (a.type != TENON_ATTR_FUNCTION) return number(a.bits);
    const tenon_blob_function& f = *tenon_blob_function_at(&blob_, static_cast<uint32_t>(a.bits));
    for (const auto& [list, count] :
         {std::pair{f.inputs, f.input_count}, std::pair{f.outputs, f.output_count}}) {
      number(count);
      for (uint32_t k = 0; k < count; ++k) value(f, tenon_blob_indices(&blob_, list)[k], true);
    }
    for (uint32_t n = 0; n < f.node_count; ++n) node(f, *tenon_blob_node_at(&blob_, &f, n), true);
  }

  const tenon_blob& blob_;
  std::string form_;
};

// A claim on a node of this form was withdrawn before. Another thread may have done so between this
// thread's query and its compile, which withdraws the claim once more.
class WithdrawnBefore : public Refusal {
 public:
  explicit WithdrawnBefore(const Refusal& why) : Refusal(why) {}
};

// Thrown by compile: the host plans again, and query() refuses the node.
class ClaimWithdrawn : public Failure {
 public:
  explicit ClaimWithdrawn(const std::string& text) : Failure(TENON_UNSUPPORTED, text) {}
};

}  // namespace tenon::sdk::layer
