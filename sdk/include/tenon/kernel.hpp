// SPDX-License-Identifier: Apache-2.0
//
// The interface for authors of kernels. A plugin is a table of rows "op -> make". make() inspects
// one node and returns the Kernel that runs it, or throws a Refusal with the reason. The layer
// calls the same make() for query and for compile, so every claim compiles. plugin.hpp turns the
// table into the C ABI.
//
//   Kernel make_relu(const op::unary& n, const Node& node) {
//     if (n.kind != "relu") throw Refusal::attribute("kind", n.kind);
//     const int64_t count = n.x.type().elements();
//     return {.run = [count](const Call& c) { relu(c.in<float>(0), c.out<float>(0), count); },
//             .in_place = {{0, 0}}};
//   }
//   constexpr Row kRows[] = {row<op::unary, make_relu>()};
//
// make() is pure and may be called by any thread. It makes all decisions that depend on shapes;
// run() gets addresses only. A kernel that finds bad data (an index out of range) throws Failure
// before it writes anything. On a device with streams (stream_plugin.hpp) run() only enqueues, and
// bad data is reported through Call::error.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "backend.h"
#include "blob.h"
#include "dtype.hpp"
#include "kernels.h"
#include "ops.hpp"
#include "unary.hpp"

namespace tenon::sdk {

inline constexpr int kMaxRank = TENON_MAX_RANK;
using Dims = std::array<int64_t, kMaxRank>;

// dtype, shape and strides of a tensor. Strides are in elements; they may be 0 or negative.
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
  // True if row-major without gaps. Strides of dims of 1 do not matter; empty tensors are dense.
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

// An operand or output of a node. Converts to false if absent.
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
  int position() const { return type_ ? position_ : -1; }  // for Call::in() and out()
  const void* content() const { return content_; }  // the bytes of a small constant, or nullptr
  // True for a weight that this program does not update: Kernel::derived may name it.
  bool frozen() const { return frozen_; }
  // Alignment of element 0 in bytes, a power of two; 0 = only that of the dtype. It is less than
  // the alignment of the device if the operand is a part of another value, or if the device imports
  // memory of less alignment (DeviceSpec::import_alignment).
  uint64_t alignment() const { return alignment_; }

 private:
  const Type* type_ = nullptr;
  int position_ = -1;
  const void* content_ = nullptr;
  bool frozen_ = false;
  uint64_t alignment_ = 0;
};

// A function of the blob that an attribute refers to. body.hpp reads it.
struct Function {
  const tenon_blob* blob = nullptr;
  uint32_t index = 0;
  explicit operator bool() const { return blob != nullptr; }
};

namespace op {
#include "op_structs.inl"
}  // namespace op

// Thrown by make(): the plugin does not run the node.
class Refusal : public std::runtime_error {
 public:
  Refusal(uint32_t reason, const std::string& text) : std::runtime_error(text), reason_(reason) {}
  uint32_t reason() const { return reason_; }  // TENON_REASON_*

  static Refusal dtype(std::string_view operand, tenon_dtype t) {
    return {TENON_REASON_DTYPE, "operand " + std::string(operand) + " of dtype " +
                                    std::string(dtype_name(t)) + " is not supported"};
  }
  static Refusal shape(const std::string& text) { return {TENON_REASON_SHAPE, text}; }
  static Refusal attribute(std::string_view name, std::string_view value) {
    return {TENON_REASON_ATTRIBUTE,
            "attribute " + std::string(name) + "=" + std::string(value) + " is not supported"};
  }
  static Refusal unknown(std::string_view what, std::string_view name) {
    return {TENON_REASON_UNKNOWN,
            std::string(what) + " '" + std::string(name) + "' is unknown to this plugin"};
  }

 private:
  uint32_t reason_;
};

// Like with_type of dtype.hpp, but refuses dtypes that are not in the list.
template <class... Ts, class F>
auto with_type(Types<Ts...> types, std::string_view operand, tenon_dtype t, F&& f) {
  if (((t != kDtypeOf<Ts>)&&...)) throw Refusal::dtype(operand, t);
  return with_type(types, t, f);
}
// Calls f with the unsigned integer of an element's size, or with Bits128. Refuses i4 and u4, which
// have no address.
template <class F>
auto with_bits(std::string_view operand, tenon_dtype t, F&& f) {
  if (element_bytes(t) == 0) throw Refusal::dtype(operand, t);
  if (element_bytes(t) == sizeof(Bits128)) return f(Bits128{});
  return with_size(element_bytes(t), f);
}

// Thrown by run(): the data is bad, or there is no memory.
class Failure : public std::runtime_error {
 public:
  Failure(tenon_code code, const std::string& text, int64_t index = -1)
      : std::runtime_error(text), code_(code), index_(index) {}
  tenon_code code() const { return code_; }
  int64_t index() const { return index_; }  // flat index of the first bad element, -1 = none

 private:
  tenon_code code_;
  int64_t index_;
};

// A place in the memory of a device: `offset` bytes from the start of `handle`, which allocate() or
// import_memory() returned. Without a handle there is no memory: the operand is absent, the output
// is not wanted, or the tensor has no elements.
struct Place {
  void* handle = nullptr;
  uint64_t offset = 0;  // bytes
  explicit operator bool() const { return handle != nullptr; }
  // The address, if the device's memory has addresses (StreamDevice::has_addresses).
  void* address() const { return handle ? static_cast<unsigned char*>(handle) + offset : nullptr; }
};

// The memory of one run, by position. nullptr = an absent operand or an unwanted output, whose
// position is -1. On a device with streams, a tensor without elements is nullptr, too.
struct Call {
  void* const* inputs = nullptr;
  void* const* outputs = nullptr;
  void* scratch = nullptr;  // Kernel::scratch bytes, with the alignment of the device
  // Only on a device with streams:
  void* stream = nullptr;  // handle of the driver
  // Where a kernel with Kernel::can_fail reports bad data, in device memory: the error word of the
  // run, or the error record of this step (StreamDevice::error_scheme). An address, or the handle
  // of error_place.
  void* error = nullptr;
  uint32_t step = 0;  // index of this step in the program
  // Only on a device whose memory has no addresses; `inputs`, `outputs` and `scratch` are not set
  // there.
  const Place* input_places = nullptr;
  const Place* output_places = nullptr;
  Place scratch_place{};
  // `error` as a place. Only on a device with streams, with and without addresses.
  Place error_place{};

  Place input(int k) const { return k < 0 ? Place{} : input_places[k]; }
  Place output(int k) const { return k < 0 ? Place{} : output_places[k]; }

  template <class T = void>
  const T* in(int k) const {
    return k < 0 ? nullptr : static_cast<const T*>(inputs[k]);
  }
  template <class T = void>
  T* out(int k) const {
    return k < 0 ? nullptr : static_cast<T*>(outputs[k]);
  }
};

// Output `output` may have the same address as operand `input`.
struct InPlace {
  int input;
  int output;
};

// Output 0 is a view of operand 0: nothing runs.
struct View {
  Dims strides{};      // strides of the output, in elements
  int64_t offset = 0;  // of its first element, in elements
};

// Operand `input`, a frozen weight, in a layout of the kernel's choice. Call::in(input) then points
// to `size` bytes that were made once, from the dense weight. Kernels share the bytes of equal
// layouts of equal types.
struct Derived {
  int input;
  std::string layout;  // not empty
  uint64_t size;       // bytes, > 0
  // On a device with host memory: writes the bytes.
  std::function<void(const void* dense, void* derived)> make{};
  // On a device with streams instead: enqueues work that writes the bytes. Operand 0 is the dense
  // weight, output 0 the target. Prepares what it needs by itself; it cannot fail because of data.
  std::function<void(const Call&)> enqueue{};
};

class Device;  // plugin.hpp

// Where a launcher enqueues its work: in a stream, or at the end of a recording that is being built
// (StreamDevice::recording_begin). Both are handles of the driver, one of them is set. On a device
// with host memory neither is: the launcher computes.
struct Launch {
  void* stream = nullptr;
  void* recording = nullptr;
};
// A kernel with all its arguments.
using Launcher = std::function<void(const Launch&)>;

// What a kernel on a device with streams has reported about its data.
struct BadData {
  tenon_code code = TENON_INDEX_OUT_OF_RANGE;
  // Flat index of the bad element, as Failure::index().
  int64_t position = 0;
  // The bad element, if it is an integer and the kernel reported it.
  std::optional<int64_t> value{};
};

// How a node runs.
struct Kernel {
  std::function<void(const Call&)> run{};

  // (optional) Does slow work before the first run, such as generating code. Called during compile
  // if the program is compiled ahead of time, and each time addresses are bound, by any thread; so
  // it remembers what is done. May throw Failure.
  std::function<void()> prepare{};

  uint64_t scratch = 0;  // bytes of memory that run() needs

  // (optional) Chooses an algorithm by timing, in memory that the device allocates for this. Called
  // once, during compile, before prepare() and run(), by any thread. limit: the most scratch that
  // may be used, at most `scratch`. Returns the scratch that the chosen algorithm needs, which is
  // final. Equal kernels should choose equally, in later processes too. May throw Failure.
  std::function<uint64_t(uint64_t /*limit*/)> tune{};

  std::vector<InPlace> in_place{};
  std::vector<View> view{};  // empty, or one View; run() is then never called
  std::vector<Derived> derived{};
  std::string label{};    // for reports; empty = the name of the op
  double cost = 0;        // estimated seconds, 0 = unknown
  bool can_fail = false;  // on a device with streams: may report bad data to Call::error

  // (optional) On a device with streams: the text of a failure, for a kernel that can_fail. Any
  // thread calls it, after the run. Without it, the layer describes the operands of tenon's own ops
  // as the cpu plugin does ("operand indices: index 113 at position 5 is outside axis 0 of length
  // 100"), and others by the position alone.
  std::function<std::string(const BadData&)> describe{};

  // (optional) Instead of run(). All addresses of an instance are fixed, so bind() may set the
  // arguments of a kernel of the driver once, and the launcher only launches it. Called each time
  // addresses are bound, after prepare(), by any thread. The Call has all but `stream`; its tables
  // live as long as the launcher. A launcher is called by one thread at a time and belongs to one
  // instance, so it may own things that are not safe for threads (a cl_kernel). Several launchers
  // of one kernel may live. May throw Failure.
  std::function<Launcher(const Call&)> bind{};
};

// A decoded node. Inputs are strided only for rows with kStrided.
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
  // Converts to false if the output is not wanted.
  Value out(size_t k) const { return k < outputs_.size() ? outputs_[k] : Value{}; }
  // The device that asks, as PluginSpec::open made it; nullptr inside a body.
  Device* device() const { return device_; }
  // The minor version of the ABI that host and plugin speak.
  uint32_t abi_minor() const { return abi_minor_; }
  // What the app wishes of the whole graph: TENON_HINT_*; 0 inside a body.
  uint32_t hints() const { return hints_; }

 private:
  friend class NodeReader;
  std::string_view domain_, op_;
  uint32_t version_;
  std::vector<Value> inputs_, outputs_;
  Device* device_ = nullptr;
  uint32_t abi_minor_ = TENON_ABI_MINOR, hints_ = 0;
};

// Row::flags: operands may have any strides. Without it all operands are dense: the layer inserts
// copies.
inline constexpr uint32_t kStrided = 1;
// Row::flags: operands and results may be blocks (is_blocks()), and make() looks at their dtypes.
// Without it the layer refuses blocks, except for the ops of family dequant.
inline constexpr uint32_t kBlocks = 2;

// A row of the table; row() makes it.
struct Row {
  std::string_view op;
  uint32_t version;  // the highest that it runs; it runs all versions below, too
  uint32_t flags;
  // Decodes the node into its op struct and calls the author's make.
  Kernel (*make)(tenon_node_view& view, const Node& node);
  std::string_view domain = "tenon";
  // (optional) The op, of this version: a node without a required operand or output is refused.
  const OpSchema* schema = nullptr;
  const tenon_kernel_row* guest = nullptr;  // set by the layer: a kernel of another plugin
  bool host_only = false;                   // kHostOnly of its maker
};

// True for makers whose kernels compute in host memory, such as strided_copy. A plugin for devices
// with streams that lists one does not compile. To protect a maker of your own:
//   template <> inline constexpr bool tenon::sdk::kHostOnly<make_mine> = true;
template <auto make>
inline constexpr bool kHostOnly = false;

// The rows of one op family, for a plugin that has one source file per family.
using FamilyRows = std::span<const Row> (*)();

// Fills an op struct from a node. Attributes that are left out get their defaults. Everything that
// the struct knows is marked as read.
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
  void attr(const char* name, std::vector<double>& field, const std::vector<double>&) {
    uint32_t count = 0;
    const double* list = tenon_node_floats(&view_, name, &count);
    field.assign(list, list + count);
  }
  void attr(const char* name, Function& field, const Function& otherwise) {
    const uint32_t index = tenon_node_function(&view_, name);
    field = index == TENON_NONE ? otherwise : Function{view_.blob, index};
  }
  void operand(const char*, Value& field) { field = next_input(); }
  void optional(const char*, Value& field) { field = next_input(); }
  void list(const char*, std::vector<Value>& field) {
    const uint32_t size = tenon_node_operand_list(&view_, list_++);
    for (uint32_t k = 0; k < size; ++k) field.push_back(next_input());
  }
  void output(const char*) { next_output(); }
  void output(const char*, bool& want) { want = next_output(); }
  void output_list(const char*, size_t& count) {
    for (count = tenon_node_output_list(&view_, 0); listed_ < count; ++listed_) next_output();
  }

 private:
  Value next_input() {
    tenon_node_operand(&view_, static_cast<uint32_t>(input_));  // marks it as read
    return node_.in(input_++);
  }
  bool next_output() {
    tenon_node_output(&view_, static_cast<uint32_t>(output_));
    return static_cast<bool>(node_.out(output_++));
  }
  tenon_node_view& view_;
  const Node& node_;
  size_t input_ = 0, output_ = 0, listed_ = 0;
  uint32_t list_ = 0;
};

// Makes a row: row<op::unary, make_unary>(). For an op of one's own, the op struct comes from the
// list of its domain (op_structs.inl): row<my::softcap, make_softcap>().
template <class Op, Kernel (*make)(const Op&, const Node&)>
constexpr Row row(uint32_t flags = 0) {
  return {Op::kName,
          Op::kVersion,
          flags,
          [](tenon_node_view& view, const Node& node) {
            Op op;
            visit(op, Decoder(view, node));
            return make(op, node);
          },
          Op::kDomain,
          &schema_of<Op>(),
          nullptr,
          kHostOnly<make>};
}

}  // namespace tenon::sdk
