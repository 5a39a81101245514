// SPDX-License-Identifier: Apache-2.0
// What an author of kernels writes against. A plugin is a table of rows "op -> make"; make looks at
// one node and either returns the Kernel that will run it or refuses with a reason. The same make
// answers query and serves compile, so a claim is kept by construction. plugin.hpp turns the table
// into the C ABI.
//
//   Kernel make_relu(const op::unary& n, const Node& node) {
//     if (n.kind != "relu") throw Refusal::attribute("kind", n.kind);
//     const int64_t count = n.x.type().elements();
//     return {.run = [count](const Call& c) { relu(c.in<float>(0), c.out<float>(0), count); },
//             .in_place = {{0, 0}}};
//   }
//   constexpr Row kRows[] = {row<op::unary, make_relu>()};
//
// make is called from any thread and must be pure; run is called with addresses only: all that
// depends on shapes is decided in make. A kernel that finds bad data (an index out of range) throws
// Failure before it writes anything. On a device with streams (stream_plugin.hpp) run only
// enqueues, and bad data is told through the error word.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "backend.h"
#include "blob.h"
#include "ops.hpp"
#include "unary.hpp"

namespace tenon::sdk {

inline constexpr int kMaxRank = TENON_MAX_RANK;
using Dims = std::array<int64_t, kMaxRank>;

// dtype and shape of a dense or strided tensor. Strides count elements and may be 0 or negative.
struct Type {
  tenon_dtype dtype = TENON_DTYPE_NONE;
  int rank = 0;
  Dims dims{};
  Dims strides{};

  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[i];
    return n;
  }
  uint64_t bytes() const { return tenon_dense_bytes(dtype, elements()); }
  std::span<const int64_t> shape() const { return {dims.data(), static_cast<size_t>(rank)}; }
  // Row-major without gaps? Dims of 1 do not count, empty tensors are dense.
  bool dense() const {
    int64_t expected = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (dims[i] == 0) return true;
      if (dims[i] != 1 && strides[i] != expected) return false;
      expected *= dims[i];
    }
    return true;
  }
  void set_dense_strides() {
    int64_t s = 1;
    for (int i = rank - 1; i >= 0; --i) strides[i] = s, s *= dims[i] == 0 ? 1 : dims[i];
  }
  bool same_shape(const Type& o) const {
    if (rank != o.rank) return false;
    for (int i = 0; i < rank; ++i)
      if (dims[i] != o.dims[i]) return false;
    return true;
  }
};

// An operand or output of the node under consideration; absent when false.
class Value {
 public:
  Value() = default;
  Value(const Type* type, int position, const void* content, bool frozen = false,
        uint64_t alignment = 0)
      : type_(type),
        position_(position),
        content_(content),
        frozen_(frozen),
        alignment_(alignment) {}
  explicit operator bool() const { return type_ != nullptr; }
  const Type& type() const { return *type_; }
  int position() const { return position_; }        // index for Call::in / Call::out
  const void* content() const { return content_; }  // a small constant's bytes, or nullptr
  // A weight that runs of this program only read: Kernel::derived may ask for it.
  bool frozen() const { return frozen_; }
  // Element 0 lies on a multiple of this many bytes, a power of two; 0: only as its dtype asks. A
  // dense operand may be a part of another value, then it is less than the device's alignment.
  uint64_t alignment() const { return alignment_; }

 private:
  const Type* type_ = nullptr;
  int position_ = -1;
  const void* content_ = nullptr;
  bool frozen_ = false;
  uint64_t alignment_ = 0;
};

// A function of the blob, the value of an attribute; body.hpp reads it.
struct Function {
  const tenon_blob* blob = nullptr;
  uint32_t index = 0;
  explicit operator bool() const { return blob != nullptr; }
};

namespace op {
#include "op_structs.inl"
}  // namespace op

// make() throws this: the plugin does not take the node.
class Refusal : public std::runtime_error {
 public:
  Refusal(uint32_t reason, const std::string& text) : std::runtime_error(text), reason_(reason) {}
  uint32_t reason() const { return reason_; }  // TENON_REASON_*

  static Refusal dtype(std::string_view operand, tenon_dtype t);
  static Refusal shape(const std::string& text) { return {TENON_REASON_SHAPE, text}; }
  static Refusal attribute(std::string_view name, std::string_view value) {
    return {TENON_REASON_ATTRIBUTE,
            "attribute " + std::string(name) + "=" + std::string(value) + " is not taken"};
  }
  static Refusal unknown(std::string_view what, std::string_view name) {
    return {TENON_REASON_UNKNOWN,
            std::string(what) + " '" + std::string(name) + "' is not known to this plugin"};
  }

 private:
  uint32_t reason_;
};

// run() throws this: the data has no answer, or memory ran out.
class Failure : public std::runtime_error {
 public:
  Failure(tenon_code code, const std::string& text, int64_t index = -1)
      : std::runtime_error(text), code_(code), index_(index) {}
  tenon_code code() const { return code_; }
  int64_t index() const { return index_; }  // first bad flat index, -1 = none

 private:
  tenon_code code_;
  int64_t index_;
};

inline std::string_view dtype_name(tenon_dtype t) {
  constexpr std::string_view names[TENON_DTYPE_COUNT] = {
      "none", "f32", "f16", "bf16", "f64", "i8",   "i16", "i32",    "i64",   "u8",
      "u16",  "u32", "u64", "i4",   "u4",  "bool", "c64", "f8e4m3", "f8e5m2"};
  return t < TENON_DTYPE_COUNT ? names[t] : "unknown";
}
inline Refusal Refusal::dtype(std::string_view operand, tenon_dtype t) {
  return {TENON_REASON_DTYPE, "operand " + std::string(operand) + " of dtype " +
                                  std::string(dtype_name(t)) + " is not taken"};
}

// Addresses of one run, by position; nullptr for an absent operand or an output that is not wanted.
struct Call {
  void* const* inputs = nullptr;
  void* const* outputs = nullptr;
  void* scratch = nullptr;  // Kernel::scratch bytes, aligned as the device says
  // Of a device with streams: the native stream, the error word of the run (device memory, there
  // when the kernel says can_fail) and which step of the program this is.
  void* stream = nullptr;
  void* error = nullptr;
  uint32_t step = 0;

  template <class T>
  const T* in(int k) const {
    return static_cast<const T*>(inputs[k]);
  }
  template <class T>
  T* out(int k) const {
    return static_cast<T*>(outputs[k]);
  }
};

// Output `output` may be written over operand `input` (same address).
struct InPlace {
  int input;
  int output;
};

// Output 0 is operand 0 seen otherwise: nothing runs.
struct View {
  Dims strides{};      // of the output, in elements
  int64_t offset = 0;  // in elements
};

// Operand `input`, which is frozen, in a layout of the kernel's own: Call::in(input) is then `size`
// bytes that `make` wrote once, from the dense weight. Equal layouts of equal types must mean equal
// bytes: kernels share them.
struct Derived {
  int input;
  std::string layout;
  uint64_t size;  // bytes, > 0
  std::function<void(const void* dense, void* derived)> make;
};

class Device;  // plugin.hpp

struct Kernel {
  std::function<void(const Call&)> run{};
  // What takes long before the first run: generating code, choosing among algorithms. Called by
  // compile when all code is wanted at once, and whenever addresses are bound; from any thread, so
  // it remembers what it has done. May throw Failure.
  std::function<void()> prepare{};
  uint64_t scratch = 0;  // bytes
  // (optional) Chooses among ways that only trying tells apart, in memory of the device's own.
  // Called by compile alone, once, before prepare and run, from any thread. Takes the most bytes of
  // scratch that there may be, at most `scratch`; returns what the chosen way needs, which is
  // final. Equal kernels should choose equally, in later processes too. May throw Failure.
  std::function<uint64_t(uint64_t)> tune{};
  std::vector<InPlace> in_place{};
  std::vector<View> view{};  // empty, or one View, and then run is not called
  std::vector<Derived> derived{};
  std::string label{};    // for reports; empty = the op's name
  double cost = 0;        // seconds, estimated; 0 = unknown
  bool can_fail = false;  // on a device with streams: writes the error word when the data is bad
};

// One node, decoded. Values are described by type; strided() inputs appear only to rows that take
// strides.
class Node {
 public:
  Node(std::string_view domain, std::string_view op, uint32_t version)
      : domain_(domain), op_(op), version_(version) {}
  std::string_view domain() const { return domain_; }
  std::string_view op() const { return op_; }
  uint32_t version() const { return version_; }
  size_t input_count() const { return inputs_.size(); }
  size_t output_count() const { return outputs_.size(); }
  Value in(size_t k) const { return k < inputs_.size() ? inputs_[k] : Value{}; }
  Value out(size_t k) const {
    return k < outputs_.size() ? outputs_[k] : Value{};
  }  // false = not wanted
  // The device that asks, as PluginSpec::open made it; nullptr inside a body.
  Device* device() const { return device_; }

 private:
  friend class NodeReader;
  std::string_view domain_, op_;
  uint32_t version_;
  std::vector<Value> inputs_, outputs_;
  Device* device_ = nullptr;
};

// A table row. Flags: kStrided = operands may have any strides (else the layer inserts a copy and
// all are dense).
inline constexpr uint32_t kStrided = 1;
struct Row {
  std::string_view op;
  uint32_t version;
  uint32_t flags;
  // Decodes the node into its op struct and calls the author's make.
  Kernel (*make)(tenon_node_view& view, const Node& node);
};

// The rows of one op family, for a plugin that has a file per family.
using FamilyRows = std::span<const Row> (*)();

// Fills an op struct from a node: what is left out gets its default, what is known is marked as
// seen.
class Decoder {
 public:
  Decoder(tenon_node_view& view, const Node& node) : view_(view), node_(node) {}
  void attr(const char* name, std::string& field, const std::string& otherwise) {
    const tenon_str s = tenon_node_str(&view_, name, otherwise.c_str());
    field.assign(s.data, s.size);
  }
  void attr(const char* name, int64_t& field, int64_t otherwise) {
    field = tenon_node_i64(&view_, name, otherwise);
  }
  void attr(const char* name, double& field, double otherwise) {
    field = tenon_node_f64(&view_, name, otherwise);
  }
  void attr(const char* name, bool& field, bool otherwise) {
    field = tenon_node_bool(&view_, name, otherwise) != 0;
  }
  void attr(const char* name, tenon_dtype& field, tenon_dtype otherwise) {
    field = tenon_node_dtype(&view_, name, otherwise);
  }
  void attr(const char* name, std::vector<int64_t>& field, const std::vector<int64_t>&) {
    uint32_t count = 0;
    const int64_t* list = tenon_node_ints(&view_, name, &count);
    field.assign(list, list + count);
  }
  void attr(const char* name, Function& field, const Function& otherwise) {
    const uint32_t index = tenon_node_function(&view_, name);
    field = index == TENON_NONE ? otherwise : Function{view_.blob, index};
  }
  void operand(const char*, Value& field) { field = next_input(); }
  void optional(const char*, Value& field) { field = next_input(); }
  void list(const char*, std::vector<Value>& field) {
    while (input_ < node_.input_count()) field.push_back(next_input());
  }
  void output(const char*) { next_output(); }
  void output(const char*, bool& want) { want = next_output(); }
  void output_list(const char*, size_t& count) {
    for (; output_ < node_.output_count(); ++count) next_output();
  }

 private:
  Value next_input() {
    tenon_node_operand(&view_, static_cast<uint32_t>(input_));  // marks it as seen
    return node_.in(input_++);
  }
  bool next_output() {
    tenon_node_output(&view_, static_cast<uint32_t>(output_));
    return static_cast<bool>(node_.out(output_++));
  }
  tenon_node_view& view_;
  const Node& node_;
  size_t input_ = 0, output_ = 0;
};

template <class Op, Kernel (*make)(const Op&, const Node&)>
constexpr Row row(uint32_t flags = 0) {
  return {Op::kName, Op::kVersion, flags, [](tenon_node_view& view, const Node& node) {
            Op op;
            visit(op, Decoder(view, node));
            return make(op, node);
          }};
}

}  // namespace tenon::sdk
