// SPDX-License-Identifier: Apache-2.0
// The C++ interface over tenon.h: the same objects, with ownership, exceptions and typed ops.
// Header-only; programs link libtenon.
//
//   tenon::Runtime runtime;
//   tenon::Graph g("scale");
//   const tenon::Value x = g.input("x", {tenon::f32, {4}});
//   g.output("y", g.relu(2 * x + 1));
//   tenon::Store store(runtime);
//   tenon::Executable exe(runtime, g, store);
//   tenon::Context run(exe);
//   run.set("x", std::vector<float>{-1, 0, 1, 2});
//   run.run();
//   std::vector<float> y = run.get<float>("y");  // 0 1 3 5
//
// Threads, ownership and errors are as in tenon.h. Every failure throws tenon::Error.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "node.hpp"
#include "tenon.h"
#include "tenon_debug.h"
#include "tenon_tune.h"
#include "tensor.hpp"
#include "term.hpp"

namespace tenon {

inline std::string version() { return detail::string(tenon_version()); }
inline std::string code_name(tenon_code code) { return detail::string(tenon_code_name(code)); }

struct DeviceEntry {
  std::string id, kind, name, plugin, reason;
  uint64_t memory_size = 0, max_allocation = 0;
  bool host_addressable = false;
  uint32_t device_class = 0;  // see tenon_device_entry

  std::string class_name() const {
    constexpr const char* names[] = {"unknown", "cpu", "integrated", "discrete", "accelerator"};
    return names[device_class < 5 ? device_class : 0];
  }
};
struct PluginEntry {
  std::string path, stage, text, name, version;
  tenon_code code = TENON_OK;
  uint32_t device_count = 0;
};
struct OpEntry {
  std::string domain, name, family, level, signature;
  uint32_t version = 0;
  bool has_gradient = false, has_decomposition = false;
  std::string values{};  // what string and dtype attributes accept: "kind=sum|mean|max"
  std::string origin{};  // "tenon", "the app", or the name of a plugin
  // In the process for good, so the texts of the parts live as long.
  std::vector<tenon_op_part> parts{};

  // As graph text writes it: "softmax", "my:softcap".
  std::string full_name() const { return domain == "tenon" ? name : domain + ":" + name; }
};

inline std::vector<OpEntry> list_ops() {
  std::vector<OpEntry> out;
  for (uint32_t i = 0; i < tenon_op_count(); ++i) {
    tenon_op_entry e{};
    e.struct_size = sizeof e;
    detail::check(tenon_op(i, &e));
    OpEntry& op = out.emplace_back(OpEntry{detail::string(e.domain),
                                           detail::string(e.name),
                                           detail::string(e.family),
                                           detail::string(e.level),
                                           detail::string(e.signature),
                                           e.version,
                                           e.has_gradient != 0,
                                           e.has_decomposition != 0,
                                           detail::string(e.values),
                                           detail::string(e.origin),
                                           {}});
    const auto* part = reinterpret_cast<const char*>(e.parts);
    for (uint32_t k = 0; k < e.part_count; ++k, part += e.part_stride)
      op.parts.push_back(*reinterpret_cast<const tenon_op_part*>(part));
  }
  return out;
}

struct RuntimeOptions {
  std::vector<std::string> plugin_dirs{};
  std::vector<std::string> plugin_files{};
  uint32_t threads = 0;
  bool use_environment = true;
  bool use_builtin_dir = true;
};

// tenon_fault of tenon_debug.h.
struct Fault {
  std::string device{};  // empty: any device
  uint32_t calls = 0;    // TENON_FAULT_*, combined; 0: all
  uint64_t nth = 1;
  tenon_code code = TENON_INTERNAL;
  bool lasting = false;
};

class Runtime {
 public:
  explicit Runtime(const RuntimeOptions& options = {}) {
    std::vector<tenon_str> dirs, files;
    for (const auto& d : options.plugin_dirs) dirs.push_back(detail::str(d));
    for (const auto& f : options.plugin_files) files.push_back(detail::str(f));
    tenon_runtime_options o{};
    o.struct_size = sizeof o;
    o.plugin_dirs = dirs.data();
    o.plugin_dir_count = static_cast<uint32_t>(dirs.size());
    o.plugin_files = files.data();
    o.plugin_file_count = static_cast<uint32_t>(files.size());
    o.threads = options.threads;
    o.flags = (options.use_environment ? 0 : TENON_RUNTIME_NO_ENVIRONMENT) |
              (options.use_builtin_dir ? 0 : TENON_RUNTIME_NO_BUILTIN);
    tenon_runtime* handle = nullptr;
    detail::check(tenon_runtime_create(&o, &handle));
    handle_.reset(handle);
  }
  // Takes over a handle, not null, which it destroys.
  static Runtime adopt(tenon_runtime* handle) {
    if (!handle) throw Error(TENON_INVALID_ARGUMENT, "Runtime::adopt: the handle is null");
    return {Adopted(), handle};
  }
  tenon_runtime* handle() const { return handle_.get(); }

  std::vector<DeviceEntry> devices() const {
    std::vector<DeviceEntry> out;
    for (uint32_t i = 0; i < tenon_runtime_device_count(handle()); ++i) {
      tenon_device_entry e{};
      e.struct_size = sizeof e;
      detail::check(tenon_runtime_device(handle(), i, &e));
      out.push_back({detail::string(e.id), detail::string(e.kind), detail::string(e.name),
                     detail::string(e.plugin), detail::string(e.reason), e.memory_size,
                     e.max_allocation, e.host_addressable != 0, e.device_class});
    }
    return out;
  }
  void set_fault(const Fault& fault) const {
    tenon_fault f{};
    f.struct_size = sizeof f;
    f.device = detail::str(fault.device);
    f.nth = fault.nth;
    f.calls = fault.calls;
    f.flags = fault.lasting ? TENON_FAULT_LASTING : 0;
    f.code = fault.code;
    detail::check(tenon_runtime_fault(handle(), &f, nullptr));
  }
  // Removes the fault. Returns the number of calls that it counted.
  uint64_t lift_fault() const {
    uint64_t met = 0;
    detail::check(tenon_runtime_fault(handle(), nullptr, &met));
    return met;
  }
  std::vector<PluginEntry> plugins() const {
    std::vector<PluginEntry> out;
    for (uint32_t i = 0; i < tenon_runtime_plugin_count(handle()); ++i) {
      tenon_plugin_entry e{};
      e.struct_size = sizeof e;
      detail::check(tenon_runtime_plugin(handle(), i, &e));
      out.push_back({detail::string(e.path), detail::string(e.stage), detail::string(e.text),
                     detail::string(e.name), detail::string(e.version), e.code, e.device_count});
    }
    return out;
  }

  // Returns the rates of a device as JSON, see tenon_runtime_rates().
  std::string rates(std::string_view device) const {
    tenon_text* text = nullptr;
    detail::check(tenon_runtime_rates(handle(), detail::str(device), &text));
    return detail::take(text);
  }
  // Measures the rates and stores them. progress(what, done, total) returns false to stop, which
  // throws CANCELLED. It must not throw.
  using CalibrateProgress = std::function<bool(std::string_view, uint32_t, uint32_t)>;
  std::string calibrate(std::string_view device, double seconds = 0,
                        const CalibrateProgress& progress = {}) const {
    tenon_calibrate_options o{};
    o.struct_size = sizeof o;
    o.seconds = seconds;
    o.user = const_cast<CalibrateProgress*>(&progress);
    if (progress)
      o.progress = [](void* user, tenon_str what, uint32_t done, uint32_t total) noexcept {
        const auto& go_on = *static_cast<const CalibrateProgress*>(user);
        return go_on({what.data, what.size}, done, total) ? uint32_t{0} : uint32_t{1};
      };
    tenon_text* text = nullptr;
    detail::check(tenon_runtime_calibrate(handle(), detail::str(device), &o, &text));
    return detail::take(text);
  }

  // Returns the choices that devices made by timing, as JSON, see tenon_runtime_choices().
  std::string choices() const {
    tenon_text* text = nullptr;
    detail::check(tenon_runtime_choices(handle(), &text));
    return detail::take(text);
  }
  void take_choices(std::string_view json) const {
    detail::check(tenon_runtime_take_choices(handle(), detail::str(json)));
  }

  // Records all runs until stop_trace() or save_trace(), see tenon_trace_start().
  void start_trace(uint64_t most_slices = 0) const {
    const tenon_trace_options o = {sizeof o, most_slices};
    detail::check(tenon_trace_start(handle(), &o));
  }
  std::string stop_trace() const {
    tenon_text* text = nullptr;
    detail::check(tenon_trace_stop(handle(), &text));
    return detail::take(text);
  }
  void save_trace(std::string_view path) const {
    detail::check(tenon_trace_save(handle(), detail::str(path)));
  }

 private:
  struct Adopted {};
  Runtime(Adopted, tenon_runtime* handle) : handle_(handle) {}
  detail::Handle<tenon_runtime, tenon_runtime_destroy> handle_;
};

// Registers an op of the app's own (op.hpp).
inline void register_op(const tenon_op_desc& op) { detail::check(tenon_op_register(&op)); }

struct Optimizer {
  uint32_t kind = TENON_OPTIMIZER_ADAMW;
  Value learning_rate{};  // f32 scalar
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double momentum = 0, dampening = 0;
  bool nesterov = false;
  double weight_decay = 0.01;
  double clip_norm = 0;         // 0 = no clipping
  uint32_t decay_min_rank = 0;  // weights with a lower rank get no decay
  bool skip_nonfinite = false;
  std::vector<Value> weights{};  // empty: all trainable ones
  std::string name{};            // of the step counter; empty = "optimizer"
};

namespace detail {
// The numbers of symbols as parallel arrays. Borrows the names.
struct Numbers {
  explicit Numbers(const std::vector<std::pair<std::string, int64_t>>& pairs) {
    for (const auto& [name, number] : pairs)
      symbols.push_back(str(name)), numbers.push_back(number);
  }
  uint32_t count() const { return static_cast<uint32_t>(symbols.size()); }
  std::vector<tenon_str> symbols;
  std::vector<int64_t> numbers;
};
}  // namespace detail

class Store;

// tenon_graph_import_options.
struct ImportOptions {
  std::vector<std::string> trainable{};                 // patterns of names of weights
  std::vector<std::pair<std::string, Tensor>> fixed{};  // inputs that become constants
};

// tenon_graph_export_options.
struct ExportOptions {
  std::vector<std::string> outputs{};                      // empty: all, and all inputs
  std::vector<std::pair<std::string, int64_t>> symbols{};  // numbers for symbols: all or none
  uint32_t external_data = TENON_EXTERNAL_DATA_AUTO;
};

// Ops are added by functions of their names (builders.inl: g.matmul(a, b)), by operators, and by
// add() with an op struct. Values of another graph are refused.
class Graph {
 public:
  explicit Graph(std::string_view name = "graph") {
    tenon_graph* handle = nullptr;
    detail::check(tenon_graph_create(detail::str(name), &handle));
    handle_.reset(handle);
  }
  static Graph parse(std::string_view text, std::string_view file_name = "text") {
    tenon_graph* handle = nullptr;
    detail::check(tenon_graph_parse(detail::str(text), detail::str(file_name), &handle));
    return Graph(handle);
  }
  // Reads a model file (ONNX) and sets its weights in the store, see tenon_graph_import().
  static Graph import(std::string_view path, Store& store, const ImportOptions& options = {});
  // The graph alone; the contents of weights are not read.
  static Graph import(std::string_view path, const ImportOptions& options = {}) {
    return import(path, nullptr, options);
  }
  // Writes an ONNX model with the weights of the store, see tenon_graph_export().
  void save_onnx(std::string_view path, const Store& store,
                 const ExportOptions& options = {}) const;
  // A graph without weights and state.
  void save_onnx(std::string_view path, const ExportOptions& options = {}) const {
    save_onnx(path, nullptr, options);
  }
  tenon_graph* handle() const { return handle_.get(); }
  std::string print() const {
    tenon_text* text = nullptr;
    detail::check(tenon_graph_print(handle(), &text));
    return detail::take(text);
  }

  // Returns a symbolic dim for the shapes of inputs. A run replaces it by a number.
  int64_t symbol(std::string_view name) {
    int64_t dim = 0;
    detail::check(tenon_graph_symbol(handle(), detail::str(name), &dim));
    return dim;
  }
  std::string symbol_name(int64_t dim) const {
    tenon_str name{};
    detail::check(tenon_graph_symbol_name(handle(), dim, &name));
    return detail::string(name);
  }
  Value input(std::string_view name, const TensorType& t) {
    Value v;
    detail::check(
        tenon_graph_input(handle(), detail::str(name), t.dtype, rank(t), t.dims.data(), &v.id));
    return mine(v);
  }
  Value weight(std::string_view name, const TensorType& t, bool trainable = true) {
    Value v;
    detail::check(tenon_graph_weight(handle(), detail::str(name), t.dtype, rank(t), t.dims.data(),
                                     trainable, &v.id));
    return mine(v);
  }
  Value state(std::string_view name, const TensorType& t) {
    Value v;
    detail::check(
        tenon_graph_state(handle(), detail::str(name), t.dtype, rank(t), t.dims.data(), &v.id));
    return mine(v);
  }
  Value constant(const TensorType& t, const void* data, uint64_t size) {
    Value v;
    detail::check(
        tenon_graph_constant(handle(), t.dtype, rank(t), t.dims.data(), data, size, &v.id));
    return mine(v);
  }
  Value constant(const Tensor& t) { return constant(t.type(), t.data(), t.size()); }
  template <class T>
  Value constant(std::vector<int64_t> dims, const std::vector<T>& data) {
    return constant({detail::dtype_of<T>(), std::move(dims)}, data.data(), data.size() * sizeof(T));
  }
  template <class T>
  Value scalar(T value) {
    return constant({detail::dtype_of<T>(), {}}, &value, sizeof value);
  }
  // Rounds to a float dtype; an integer dtype must have the number.
  template <class T>
  requires std::is_arithmetic_v<T> Value scalar(T value, tenon_dtype dtype) {
    return constant(Term(value).number(dtype));
  }

  // Appends a node. Messages and reports quote `provenance`.
  template <class Op>
  requires requires { Op::kDomain; }
  Node add(const Op& op, std::string_view provenance = {}) {
    static_assert(!std::is_same_v<Op, op::grad>, "use gradients()");
    return detail::add_node(handle(), op, provenance);
  }
#include "builders.inl"
  std::vector<Value> gradients(Value loss, const std::vector<Value>& wrt) {
    const std::vector<tenon_value> ids = ids_of(wrt);
    std::vector<tenon_value> out(wrt.size(), TENON_NONE);
    detail::check(tenon_graph_gradients(handle(), id_of(loss), ids.data(),
                                        static_cast<uint32_t>(ids.size()), out.data()));
    std::vector<Value> values;
    for (tenon_value v : out) values.emplace_back(v, handle());
    return values;
  }
  // The directional derivatives of ys along tangents of xs, see tenon_graph_jvp().
  std::vector<Value> jvp(const std::vector<Value>& ys, const std::vector<Value>& xs,
                         const std::vector<Value>& tangents) {
    if (xs.size() != tangents.size())
      throw Error(TENON_INVALID_ARGUMENT, "jvp: expected " + std::to_string(xs.size()) +
                                              " tangents, got " + std::to_string(tangents.size()));
    const std::vector<tenon_value> outputs = ids_of(ys), inputs = ids_of(xs), ts = ids_of(tangents);
    std::vector<tenon_value> out(ys.size(), TENON_NONE);
    detail::check(tenon_graph_jvp(handle(), outputs.data(), static_cast<uint32_t>(outputs.size()),
                                  inputs.data(), ts.data(), static_cast<uint32_t>(inputs.size()),
                                  out.data()));
    std::vector<Value> values;
    for (tenon_value v : out) values.emplace_back(v, handle());
    return values;
  }
  // In gradients, recomputes the nodes between `from` and `to` instead of keeping their values.
  void checkpoint(const std::vector<Value>& from, const std::vector<Value>& to) {
    const std::vector<tenon_value> first = ids_of(from), last = ids_of(to);
    detail::check(tenon_graph_checkpoint(handle(), first.data(),
                                         static_cast<uint32_t>(first.size()), last.data(),
                                         static_cast<uint32_t>(last.size())));
  }
  // Adds one training step. Returns the global norm of the gradients before clipping.
  Value minimize(Value loss, const Optimizer& o) {
    const std::vector<tenon_value> weights = ids_of(o.weights);
    const tenon_optimizer c = optimizer(o, weights);
    Value norm;
    detail::check(tenon_graph_minimize(handle(), id_of(loss), &c, &norm.id));
    return mine(norm);
  }
  // The same, divided between two graphs: accumulate() sums gradients in state, apply() does the
  // step.
  void accumulate(Value loss) { detail::check(tenon_graph_accumulate(handle(), id_of(loss))); }
  Value apply(const Optimizer& o) {
    const std::vector<tenon_value> weights = ids_of(o.weights);
    const tenon_optimizer c = optimizer(o, weights);
    Value norm;
    detail::check(tenon_graph_apply(handle(), &c, &norm.id));
    return mine(norm);
  }
  void output(std::string_view name, Value v) {
    detail::check(tenon_graph_output(handle(), detail::str(name), id_of(v)));
  }
  void update(Value target, Value v) {
    detail::check(tenon_graph_update(handle(), id_of(target), id_of(v)));
  }
  // The dtype is NONE while the type depends on symbols.
  TensorType type(Value v) const {
    tenon_tensor_type t{};
    t.struct_size = sizeof t;
    detail::check(tenon_graph_type(handle(), id_of(v), &t));
    return TensorType(t);
  }
  // Also while the type depends on symbols, see tenon_graph_dtype().
  tenon_dtype dtype(Value v) const {
    tenon_dtype dtype = TENON_DTYPE_NONE;
    detail::check(tenon_graph_dtype(handle(), id_of(v), &dtype));
    return dtype;
  }
  struct Named {
    std::string name;
    Value value;
    bool trainable;
  };
  // space: TENON_SPACE_INPUT, _WEIGHT or _STATE.
  std::vector<Named> named(uint32_t space) const {
    std::vector<Named> out;
    for (uint32_t i = 0; i < tenon_graph_count(handle(), space); ++i) {
      tenon_str name{};
      Value v;
      uint32_t trainable = 0;
      detail::check(tenon_graph_name(handle(), space, i, &name, &v.id, &trainable));
      out.push_back({detail::string(name), mine(v), trainable != 0});
    }
    return out;
  }
  // Names and values of the outputs, in the order in which they were added.
  std::vector<std::pair<std::string, Value>> outputs() const {
    std::vector<std::pair<std::string, Value>> out;
    for (uint32_t i = 0; i < tenon_graph_output_count(handle()); ++i) {
      tenon_str name{};
      Value v;
      detail::check(tenon_graph_output_name(handle(), i, &name, &v.id));
      out.emplace_back(detail::string(name), mine(v));
    }
    return out;
  }
  // The graph in primitives, see tenon_graph_decompose().
  Graph decompose(const std::vector<std::pair<std::string, int64_t>>& symbols = {}) const {
    const detail::Numbers numbers(symbols);
    tenon_graph* handle = nullptr;
    detail::check(tenon_graph_decompose(this->handle(), numbers.symbols.data(),
                                        numbers.numbers.data(), numbers.count(), &handle));
    return Graph(handle);
  }

 private:
  explicit Graph(tenon_graph* handle) : handle_(handle) {}
  static Graph import(std::string_view path, tenon_store* store, const ImportOptions& options);
  void save_onnx(std::string_view path, tenon_store* store, const ExportOptions& options) const;
  static uint32_t rank(const TensorType& t) { return static_cast<uint32_t>(t.dims.size()); }
  Value mine(Value v) const { return Value(v.id, handle()); }
  tenon_value id_of(Value v) const {
    if (v.graph && v.graph != handle())
      throw Error(TENON_INVALID_ARGUMENT, "expected a value of this graph, got one of another");
    return v.id;
  }
  std::vector<tenon_value> ids_of(const std::vector<Value>& values) const {
    std::vector<tenon_value> ids;
    for (Value v : values) ids.push_back(id_of(v));
    return ids;
  }
  // Two operands of a node of this graph.
  std::pair<Value, Value> values(Term a, Term b) const {
    (void)id_of(a.value()), (void)id_of(b.value());
    return detail::values(a, b);
  }
  static size_t outputs_of(const Function& f, int64_t times = 1) {
    return times > 0 ? tenon_graph_output_count(f.graph) * static_cast<size_t>(times) : 0;
  }
  tenon_optimizer optimizer(const Optimizer& o, const std::vector<tenon_value>& weights) const {
    tenon_optimizer c{};
    c.struct_size = sizeof c;
    c.kind = o.kind;
    c.skip_nonfinite = o.skip_nonfinite;
    c.learning_rate = id_of(o.learning_rate);
    c.nesterov = o.nesterov;
    c.beta1 = o.beta1;
    c.beta2 = o.beta2;
    c.eps = o.eps;
    c.momentum = o.momentum;
    c.dampening = o.dampening;
    c.weight_decay = o.weight_decay;
    c.clip_norm = o.clip_norm;
    c.decay_min_rank = o.decay_min_rank;
    c.name = detail::str(o.name);
    c.weights = weights.empty() ? nullptr : weights.data();
    c.weight_count = static_cast<uint32_t>(weights.size());
    return c;
  }
  detail::Handle<tenon_graph, tenon_graph_destroy> handle_;
};

inline Function::Function(const Graph& body) : graph(body.handle()) {}

namespace detail {
inline tenon_tensor tensor(const TensorType& t, const void* data, uint64_t size,
                           const int64_t* strides = nullptr) {
  tenon_tensor out{};
  out.struct_size = sizeof out;
  out.dims = t.dims.data();
  out.strides = strides;
  out.data = const_cast<void*>(data);  // inputs are only read
  out.size = size;
  out.rank = static_cast<uint32_t>(t.dims.size());
  out.dtype = t.dtype;
  return out;
}
}  // namespace detail

class Store {
 public:
  explicit Store(const Runtime& runtime) {
    tenon_store* handle = nullptr;
    detail::check(tenon_store_create(runtime.handle(), &handle));
    handle_.reset(handle);
  }
  tenon_store* handle() const { return handle_.get(); }
  void set(uint32_t space, std::string_view name, const TensorType& t, const void* data,
           uint64_t size) {
    const tenon_tensor x = detail::tensor(t, data, size);
    detail::check(tenon_store_set(handle(), space, detail::str(name), &x));
  }
  template <class T>
  void set(uint32_t space, std::string_view name, std::vector<int64_t> dims,
           const std::vector<T>& data) {
    set(space, name, {detail::dtype_of<T>(), std::move(dims)}, data.data(),
        data.size() * sizeof(T));
  }
  void set(uint32_t space, std::string_view name, const Tensor& t) {
    set(space, name, t.type(), t.data(), t.size());
  }
  // Keeps `t`, which is not copied: see tenon_store_borrow().
  void borrow(uint32_t space, std::string_view name, std::shared_ptr<const Tensor> t) {
    const tenon_tensor x = detail::tensor(t->type(), t->data(), t->size());
    auto keeper = std::make_unique<std::shared_ptr<const Tensor>>(std::move(t));
    const auto release = [](void* user) {
      delete static_cast<std::shared_ptr<const Tensor>*>(user);
    };
    detail::check(
        tenon_store_borrow(handle(), space, detail::str(name), &x, release, keeper.get()));
    static_cast<void>(keeper.release());
  }
  TensorType type(uint32_t space, std::string_view name) const {
    tenon_tensor_type t{};
    t.struct_size = sizeof t;
    detail::check(tenon_store_type(handle(), space, detail::str(name), &t));
    return TensorType(t);
  }
  void get(uint32_t space, std::string_view name, void* data, uint64_t size) const {
    detail::check(tenon_store_get(handle(), space, detail::str(name), data, size));
  }
  Tensor get(uint32_t space, std::string_view name) const {
    Tensor out(type(space, name));
    get(space, name, out.data(), out.size());
    return out;
  }
  template <class T>
  std::vector<T> get(uint32_t space, std::string_view name) const {
    const TensorType t = type(space, name);
    if (t.dtype != detail::dtype_of<T>())
      throw Error(TENON_DTYPE_MISMATCH, "store: '" + std::string(name) + "' has another dtype");
    std::vector<T> out(static_cast<size_t>(t.elements()));
    get(space, name, out.data(), out.size() * sizeof(T));
    return out;
  }
  std::vector<std::string> names(uint32_t space) const {
    std::vector<std::string> out;
    for (uint32_t i = 0; i < tenon_store_count(handle(), space); ++i) {
      tenon_text* text = nullptr;
      detail::check(tenon_store_name(handle(), space, i, &text));
      out.push_back(detail::take(text));
    }
    return out;
  }
  void remove(uint32_t space, std::string_view name) {
    detail::check(tenon_store_remove(handle(), space, detail::str(name)));
  }
  void add_missing(const Graph& graph) {
    detail::check(tenon_store_add_missing(handle(), graph.handle()));
  }
  void load(uint32_t space, std::string_view path) {
    detail::check(tenon_store_load(handle(), space, detail::str(path)));
  }
  void save(uint32_t space, std::string_view path,
            const std::vector<std::pair<std::string, std::string>>& metadata = {}) const {
    std::vector<tenon_str> pairs;
    for (const auto& [key, value] : metadata)
      pairs.push_back(detail::str(key)), pairs.push_back(detail::str(value));
    detail::check(tenon_store_save(handle(), space, detail::str(path), pairs.data(),
                                   static_cast<uint32_t>(metadata.size())));
  }

 private:
  detail::Handle<tenon_store, tenon_store_destroy> handle_;
};

inline Graph Graph::import(std::string_view path, tenon_store* store,
                           const ImportOptions& options) {
  std::vector<tenon_str> patterns, names;
  std::vector<tenon_tensor> tensors;
  std::vector<const tenon_tensor*> pointers;
  for (const std::string& p : options.trainable) patterns.push_back(detail::str(p));
  for (const auto& [name, t] : options.fixed) {
    names.push_back(detail::str(name));
    tensors.push_back(detail::tensor(t.type(), t.data(), t.size()));
  }
  for (const tenon_tensor& t : tensors) pointers.push_back(&t);
  tenon_graph_import_options o{};
  o.struct_size = sizeof o;
  o.trainable = patterns.data();
  o.fixed_names = names.data();
  o.fixed_tensors = pointers.data();
  o.trainable_count = static_cast<uint32_t>(patterns.size());
  o.fixed_count = static_cast<uint32_t>(names.size());
  tenon_graph* handle = nullptr;
  detail::check(tenon_graph_import(detail::str(path), &o, store, &handle));
  return Graph(handle);
}
inline Graph Graph::import(std::string_view path, Store& store, const ImportOptions& options) {
  return import(path, store.handle(), options);
}

inline void Graph::save_onnx(std::string_view path, tenon_store* store,
                             const ExportOptions& options) const {
  std::vector<tenon_str> outputs;
  for (const std::string& name : options.outputs) outputs.push_back(detail::str(name));
  const detail::Numbers numbers(options.symbols);
  tenon_graph_export_options o{};
  o.struct_size = sizeof o;
  o.outputs = outputs.empty() ? nullptr : outputs.data();
  o.output_count = static_cast<uint32_t>(outputs.size());
  o.symbols = numbers.symbols.data();
  o.numbers = numbers.numbers.data();
  o.symbol_count = numbers.count();
  o.external_data = options.external_data;
  detail::check(tenon_graph_export(handle(), store, detail::str(path), &o));
}
inline void Graph::save_onnx(std::string_view path, const Store& store,
                             const ExportOptions& options) const {
  save_onnx(path, store.handle(), options);
}

// Names and types of the tensors of a safetensors file, without their contents.
inline std::map<std::string, TensorType, std::less<>> safetensors_tensors(std::string_view path) {
  struct Found {
    std::map<std::string, TensorType, std::less<>> tensors{};
    std::exception_ptr failure{};
  } found;
  const auto add = [](void* user, tenon_str name, const tenon_tensor_type* type) {
    Found& to = *static_cast<Found*>(user);
    try {
      to.tensors.emplace(std::string(name.data, name.size), TensorType(*type));
    } catch (...) {  // it must not pass through the library
      to.failure = std::current_exception();
    }
  };
  detail::check(tenon_safetensors_tensors(detail::str(path), add, &found));
  if (found.failure) std::rethrow_exception(found.failure);
  return std::move(found.tensors);
}

inline std::string safetensors_metadata(std::string_view path) {
  tenon_text* text = nullptr;
  detail::check(tenon_safetensors_metadata(detail::str(path), &text));
  return detail::take(text);
}

// An open safetensors file: see tenon_safetensors_open(). Data lives as long as the file is open.
class Safetensors {
 public:
  struct Entry {
    std::string name{};
    TensorType type{};
    std::span<const std::byte> data{};  // may not be aligned to its elements
  };
  explicit Safetensors(std::string_view path) {
    tenon_safetensors* handle = nullptr;
    detail::check(tenon_safetensors_open(detail::str(path), &handle));
    handle_.reset(handle);
  }
  tenon_safetensors* handle() const { return handle_.get(); }
  std::vector<Entry> entries() const {
    std::vector<Entry> out;
    for (uint32_t i = 0; i < tenon_safetensors_count(handle()); ++i) {
      tenon_str name{};
      tenon_tensor t{};
      t.struct_size = sizeof t;
      detail::check(tenon_safetensors_get(handle(), i, &name, &t));
      out.push_back({detail::string(name),
                     TensorType(t.dtype, {t.dims, t.dims + t.rank}),
                     {static_cast<const std::byte*>(t.data), t.size}});
    }
    return out;
  }
  // Puts entry `index` of entries() into a store, without a copy.
  void load(size_t index, const Store& store, uint32_t space, std::string_view name) const {
    detail::check(tenon_safetensors_load(handle(), static_cast<uint32_t>(index), store.handle(),
                                         space, detail::str(name)));
  }

 private:
  detail::Handle<tenon_safetensors, tenon_safetensors_destroy> handle_;
};

// All tensors of a file, see tenon_tensors_read(). The tensor of a .npy file has no name.
inline std::vector<std::pair<std::string, Tensor>> read_tensors(std::string_view path) {
  tenon_tensors* handle = nullptr;
  detail::check(tenon_tensors_read(detail::str(path), &handle));
  const detail::Handle<tenon_tensors, tenon_tensors_destroy> tensors(handle);
  std::vector<std::pair<std::string, Tensor>> out;
  for (uint32_t i = 0; i < tenon_tensors_count(handle); ++i) {
    tenon_str name{};
    tenon_tensor t{};
    t.struct_size = sizeof t;
    detail::check(tenon_tensors_get(handle, i, &name, &t));
    Tensor copy(TensorType(t.dtype, {t.dims, t.dims + t.rank}));
    if (copy.size() > 0) std::memcpy(copy.data(), t.data, copy.size());
    out.emplace_back(detail::string(name), std::move(copy));
  }
  return out;
}

// Writes a file of NumPy, see tenon_tensors_write(): one tensor to .npy, any number to .npz.
inline void write_tensors(std::string_view path,
                          const std::vector<std::pair<std::string, Tensor>>& tensors,
                          bool deflate = false) {
  std::vector<tenon_str> names;
  std::vector<tenon_tensor> views;
  std::vector<const tenon_tensor*> pointers;
  for (const auto& [name, t] : tensors) {
    names.push_back(detail::str(name));
    views.push_back(detail::tensor(t.type(), t.data(), t.size()));
  }
  for (const tenon_tensor& v : views) pointers.push_back(&v);
  detail::check(tenon_tensors_write(detail::str(path), names.data(), pointers.data(),
                                    static_cast<uint32_t>(names.size()), deflate));
}

// See tenon_available_memory.
inline uint64_t available_memory() { return tenon_available_memory(); }

// See tenon_report_crashes and tenon_active_calls.
inline void report_crashes() { detail::check(tenon_report_crashes()); }
inline std::string active_calls() {
  std::string text(1024, '\0');
  if (tenon_active_calls(text.data(), text.size(), nullptr) == 0) return {};
  text.resize(text.find('\0'));
  return text;
}

struct ExecutableOptions {
  std::string device = "auto";  // or several: "cuda:0,cuda:1", see tenon_executable_options
  bool allow_fallback = true;
  bool simplify = true;
  bool fuse = true;
  bool decompose_all = false;  // for tests: writes every op in primitives
  // A hint: bits of rows are not to depend on other rows (TENON_COMPILE_BATCH_INVARIANT).
  bool batch_invariant = false;
  uint32_t exec_mode = TENON_EXEC_DEFAULT;
  uint32_t lanes = 0;  // for TENON_EXEC_MULTI_STREAM; 0 = 4
  bool aot = false;    // generate all code when the graph is compiled
  // Reports the progress of `aot`: parts done, parts in total. Returns false to stop. Must not
  // throw. See tenon_executable_options.
  std::function<bool(uint32_t done, uint32_t total)> progress{};
  // Nodes that go to a device of the list: pattern of names as in fnmatch(3), device.
  std::vector<std::pair<std::string, std::string>> pins{};
  // The most bytes on each device of the list, or on all of them; 0 = no limit.
  std::vector<uint64_t> memory_limits{};
  // Sizes to which numbers of symbols are rounded up: {"N", "pow2"}, {"T", "64,128,512"}.
  std::vector<std::pair<std::string, std::string>> buckets{};
};

class Executable {
 public:
  Executable(const Runtime& runtime, const Graph& graph, const Store& store,
             const ExecutableOptions& options = {}) {
    tenon_executable_options o{};
    o.struct_size = sizeof o;
    o.device = detail::str(options.device);
    o.fallback = options.allow_fallback ? TENON_FALLBACK_ALLOW : TENON_FALLBACK_DENY;
    o.flags = (options.simplify ? 0 : TENON_COMPILE_NO_SIMPLIFY) |
              (options.fuse ? 0 : TENON_COMPILE_NO_FUSE) |
              (options.decompose_all ? TENON_COMPILE_DECOMPOSE_ALL : 0) |
              (options.batch_invariant ? TENON_COMPILE_BATCH_INVARIANT : 0);
    o.exec_mode = options.exec_mode;
    o.lanes = options.lanes;
    o.compile_mode = options.aot ? TENON_COMPILE_MODE_AOT : TENON_COMPILE_MODE_JIT;
    std::vector<tenon_str> patterns, devices;
    for (const auto& [pattern, device] : options.pins) {
      patterns.push_back(detail::str(pattern));
      devices.push_back(detail::str(device));
    }
    o.pin_patterns = patterns.data();
    o.pin_devices = devices.data();
    o.pin_count = static_cast<uint32_t>(patterns.size());
    o.memory_limits = options.memory_limits.data();
    o.memory_limit_count = static_cast<uint32_t>(options.memory_limits.size());
    std::vector<tenon_str> symbols, sizes;
    for (const auto& [symbol, size] : options.buckets) {
      symbols.push_back(detail::str(symbol));
      sizes.push_back(detail::str(size));
    }
    o.bucket_symbols = symbols.data();
    o.bucket_sizes = sizes.data();
    o.bucket_count = static_cast<uint32_t>(symbols.size());
    if (options.progress) {
      progress_ = std::make_shared<Progress>(options.progress);
      o.progress = [](void* user, uint32_t done, uint32_t total) noexcept {
        return (*static_cast<Progress*>(user))(done, total) ? uint32_t{0} : uint32_t{1};
      };
      o.progress_user = progress_.get();
    }
    tenon_executable* handle = nullptr;
    detail::check(
        tenon_executable_create(runtime.handle(), graph.handle(), store.handle(), &o, &handle));
    handle_.reset(handle);
  }
  tenon_executable* handle() const { return handle_.get(); }
  // Returns the report as JSON, see tenon_executable_report().
  std::string report(const std::vector<std::pair<std::string, int64_t>>& symbols = {}) const {
    const detail::Numbers numbers(symbols);
    tenon_text* text = nullptr;
    detail::check(tenon_executable_report(handle(), numbers.symbols.data(), numbers.numbers.data(),
                                          numbers.count(), &text));
    return detail::take(text);
  }

 private:
  friend class Context;
  using Progress = std::function<bool(uint32_t, uint32_t)>;
  std::shared_ptr<Progress> progress_;  // shared with all contexts
  detail::Handle<tenon_executable, tenon_executable_destroy> handle_;
};

class Context {
 public:
  explicit Context(const Executable& executable) : progress_(executable.progress_) {
    tenon_context* handle = nullptr;
    detail::check(tenon_context_create(executable.handle(), &handle));
    handle_.reset(handle);
  }
  Context(Context&&) = default;
  Context& operator=(Context&& other) noexcept {
    handle_ = std::move(other.handle_);  // first: its end may call on_end_
    on_end_ = std::move(other.on_end_);
    progress_ = std::move(other.progress_);
    return *this;
  }
  tenon_context* handle() const { return handle_.get(); }

  void set(std::string_view input, const TensorType& t, const void* data, uint64_t size,
           const int64_t* strides = nullptr) {
    const tenon_tensor x = detail::tensor(t, data, size, strides);
    detail::check(tenon_context_set(handle(), detail::str(input), &x));
  }
  void set(std::string_view input, const Tensor& t) { set(input, t.type(), t.data(), t.size()); }
  template <class T>
  void set(std::string_view input, std::vector<int64_t> dims, const std::vector<T>& data) {
    set(input, {detail::dtype_of<T>(), std::move(dims)}, data.data(), data.size() * sizeof(T));
  }
  template <class T>
  void set(std::string_view input, const std::vector<T>& data) {
    set(input, {static_cast<int64_t>(data.size())}, data);
  }
  template <class T>
  requires std::is_arithmetic_v<T>
  void set(std::string_view input, T scalar) {
    set(input, {detail::dtype_of<T>(), {}}, &scalar, sizeof scalar);
  }

  // ---- Memory of the app, without a copy. tenon.h states how long it must stay valid.

  // device: where data is, empty = host memory.
  void bind(std::string_view name, const TensorType& t, void* data, uint64_t size,
            std::string_view device = {}) {
    tenon_tensor x = detail::tensor(t, data, size);
    x.device = detail::str(device);
    detail::check(tenon_context_bind(handle(), detail::str(name), &x));
  }
  // Of const elements: an input that nobody writes.
  template <class T>
  void bind(std::string_view name, std::vector<int64_t> dims, std::span<T> data) {
    const TensorType t(detail::dtype_of<std::remove_const_t<T>>(), std::move(dims));
    tenon_tensor x = detail::tensor(t, data.data(), data.size_bytes());
    if (std::is_const_v<T>) x.flags = TENON_TENSOR_READ_ONLY;
    detail::check(tenon_context_bind(handle(), detail::str(name), &x));
  }
  void unbind(std::string_view name) {
    detail::check(tenon_context_unbind(handle(), detail::str(name)));
  }
  // Takes over the tensor, unless it throws.
  void bind_dlpack(std::string_view name, DLManagedTensorVersioned* tensor) {
    detail::check(tenon_context_bind_dlpack(handle(), detail::str(name), tensor));
  }
  // The caller calls the deleter of the result.
  DLManagedTensorVersioned* output_dlpack(std::string_view output) {
    DLManagedTensorVersioned* tensor = nullptr;
    detail::check(tenon_context_output_dlpack(handle(), detail::str(output), &tensor));
    return tensor;
  }
  // Where an output of the last run is; valid until the next run.
  tenon_tensor output(std::string_view output) {
    tenon_tensor x{};
    x.struct_size = sizeof x;
    detail::check(tenon_context_output(handle(), detail::str(output), &x));
    return x;
  }

  // ---- Streams and events of the app

  void use_stream(std::string_view device, void* native_stream) {
    detail::check(tenon_context_use_stream(handle(), detail::str(device), native_stream));
  }
  void* stream(std::string_view device) {
    void* native = nullptr;
    detail::check(tenon_context_stream(handle(), detail::str(device), &native));
    return native;
  }
  void wait_event(std::string_view device, void* native_event) {
    detail::check(tenon_context_wait_event(handle(), detail::str(device), native_event));
  }
  void record_event(std::string_view device, void* native_event) {
    detail::check(tenon_context_record_event(handle(), detail::str(device), native_event));
  }

  // ---- Runs

  void run() { detail::check(tenon_context_run(handle())); }
  // Called when an asynchronous run ends. It only signals: it does not call tenon, and does not
  // throw. Empty removes it.
  void on_end(std::function<void(tenon_code)> callback) {
    auto kept =
        callback ? std::make_unique<std::function<void(tenon_code)>>(std::move(callback)) : nullptr;
    const auto call = [](void* user, tenon_code code) {
      (*static_cast<std::function<void(tenon_code)>*>(user))(code);
    };
    detail::check(kept ? tenon_context_on_end(handle(), call, kept.get())
                       : tenon_context_on_end(handle(), nullptr, nullptr));
    on_end_ = std::move(kept);
  }
  // [any-thread]
  void cancel() { tenon_context_cancel(handle()); }
  void run_async() { detail::check(tenon_context_run_async(handle())); }
  bool done() {
    uint32_t done = 0;
    detail::check(tenon_context_query(handle(), &done));
    return done != 0;
  }
  void wait() { detail::check(tenon_context_wait(handle())); }

  TensorType output_type(std::string_view output) {
    tenon_tensor_type t{};
    t.struct_size = sizeof t;
    detail::check(tenon_context_output_type(handle(), detail::str(output), &t));
    return TensorType(t);
  }
  void get(std::string_view output, void* data, uint64_t size) {
    detail::check(tenon_context_get(handle(), detail::str(output), data, size));
  }
  Tensor get(std::string_view output) {
    Tensor out(output_type(output));
    get(output, out.data(), out.size());
    return out;
  }
  template <class T>
  std::vector<T> get(std::string_view output) {
    const TensorType t = output_type(output);
    if (t.dtype != detail::dtype_of<T>())
      throw Error(TENON_DTYPE_MISMATCH, "output '" + std::string(output) + "' has another dtype");
    std::vector<T> out(static_cast<size_t>(t.elements()));
    get(output, out.data(), out.size() * sizeof(T));
    return out;
  }
  template <class T>
  T get_scalar(std::string_view output) {
    const std::vector<T> all = get<T>(output);
    if (all.size() != 1)
      throw Error(TENON_SHAPE_MISMATCH, "output '" + std::string(output) + "' is no scalar");
    return all[0];
  }

 private:
  std::shared_ptr<std::function<bool(uint32_t, uint32_t)>> progress_;
  std::unique_ptr<std::function<void(tenon_code)>> on_end_;
  detail::Handle<tenon_context, tenon_context_destroy>
      handle_;  // first to go: it waits for the run
};

}  // namespace tenon

#include "gguf.hpp"
