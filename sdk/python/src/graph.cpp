// SPDX-License-Identifier: Apache-2.0
// The classes Graph and Value: what functions of Python are built from.
#include "graph.hpp"

#include "tensor.hpp"

namespace tenon::python {

tenon_dtype dtype_from(nb::handle object) {
  if (nb::isinstance<nb::str>(object)) {
    const auto name = nb::cast<std::string>(object);
    if (const tenon_dtype d = sdk::dtype_named(name)) return d;
    fail(TENON_INVALID_ARGUMENT, "dtype: '" + name + "'; expected a name such as \"f32\"");
  }
  // A dtype of NumPy or PyTorch
  if (!nb::hasattr(object, "value"))
    return dtype_from(nb::handle(Py_TYPE(dtype_object(TENON_DTYPE_F32).ptr())).attr("of")(object));
  const auto number = nb::cast<int64_t>(object.attr("value"));
  if (number <= 0 || number > UINT16_MAX || !tenon_dtype_known(static_cast<tenon_dtype>(number)))
    fail(TENON_INVALID_ARGUMENT, "dtype: number " + std::to_string(number) + " is no dtype");
  return static_cast<tenon_dtype>(number);
}

TensorType type_from(Graph& graph, nb::handle dtype, nb::handle shape) {
  TensorType type(dtype_from(dtype), {});
  for (nb::handle dim : shape) {
    int64_t number = 0;
    if (nb::isinstance<nb::str>(dim))
      number = graph.symbol(nb::cast<std::string>(dim));
    else if (!nb::try_cast(dim, number) || number < 0)
      fail(TENON_SHAPE_MISMATCH, "shape: dim " + nb::cast<std::string>(nb::repr(dim)) +
                                     "; expected an integer that is not negative, or the name of a "
                                     "symbol");
    type.dims.push_back(number);
  }
  return type;
}

nb::tuple shape_object(const Graph& graph, const TensorType& type) {
  nb::list dims;
  for (const int64_t d : type.dims)
    dims.append(d < 0 ? nb::cast(graph.symbol_name(d)) : nb::cast(d));
  return nb::tuple(dims);
}

Value id_in(const Graph& graph, const PyValue& v) {
  if (v.value.graph != graph.handle())
    fail(TENON_INVALID_ARGUMENT, "expected a value of this graph, got one of another");
  return v.value;
}

namespace {

std::vector<Value> ids_in(const Graph& graph, const std::vector<PyValue>& values) {
  std::vector<Value> out;
  for (const PyValue& v : values) out.push_back(id_in(graph, v));
  return out;
}

std::vector<PyValue> values_of(nb::handle self, const std::vector<Value>& values) {
  std::vector<PyValue> out;
  for (const Value v : values) out.push_back(value_of(self, v));
  return out;
}

// ---- Constants, imports

PyValue constant(Self self, nb::handle object) {
  View view;
  const Loan loan = Loan::of(object, view, "constant");
  if (!on_host(view.device))
    fail(TENON_UNSUPPORTED, "constant: it is in memory of a device; expected host memory");
  const TensorType type(view.dtype, {view.dims.begin(), view.dims.begin() + view.rank});
  Graph& graph = graph_of(self);
  Value value;
  {
    const Released unlocked;
    std::vector<std::byte> dense(view.dense() ? 0 : view.bytes());
    if (!view.dense()) copy_dense(view, dense.data());
    value = graph.constant(type, dense.empty() ? view.data : dense.data(), view.bytes());
  }
  return value_of(self, value);
}

Graph import_graph(std::string_view path, Kept<Store>* store, std::vector<std::string> trainable,
                   nb::dict fixed) {
  ImportOptions options;
  options.trainable = std::move(trainable);
  for (const auto& [name, value] : fixed) {
    const auto text = nb::cast<std::string>(name);
    View view;
    const Loan loan = Loan::of(value, view, "fixed input '" + text + "'");
    if (!on_host(view.device))
      fail(TENON_UNSUPPORTED, "fixed input '" + text + "': expected host memory");
    Tensor copy(TensorType(view.dtype, {view.dims.begin(), view.dims.begin() + view.rank}));
    copy_dense(view, copy.data());
    options.fixed.emplace_back(text, std::move(copy));
  }
  Store* into = store ? &**store : nullptr;
  const Unlocked unlocked;
  return into ? Graph::import(path, *into, options) : Graph::import(path, options);
}

void export_graph(const Graph& graph, std::string_view path, Kept<Store>* store,
                  std::vector<std::string> outputs, Symbols symbols) {
  ExportOptions options;
  options.outputs = std::move(outputs);
  options.symbols = std::move(symbols);
  Store* from = store ? &**store : nullptr;
  const Unlocked unlocked;
  if (from)
    graph.save_onnx(path, *from, options);
  else
    graph.save_onnx(path, options);
}

// ---- Training

uint32_t optimizer_kind(std::string_view name) {
  if (name == "sgd") return TENON_OPTIMIZER_SGD;
  if (name == "adamw") return TENON_OPTIMIZER_ADAMW;
  if (name == "lion") return TENON_OPTIMIZER_LION;
  fail(TENON_INVALID_ARGUMENT,
       "optimizer '" + std::string(name) + "'; expected \"sgd\", \"adamw\" or \"lion\"");
}

PyValue minimize(Self self, const PyValue& loss, const PyValue& learning_rate,
                 std::string_view kind, double beta1, double beta2, double eps, double momentum,
                 double dampening, bool nesterov, double weight_decay, double clip_norm,
                 uint32_t decay_min_rank, bool skip_nonfinite, const std::vector<PyValue>& weights,
                 std::string name) {
  Graph& graph = graph_of(self);
  Optimizer o;
  o.kind = optimizer_kind(kind);
  o.learning_rate = id_in(graph, learning_rate);
  o.beta1 = beta1, o.beta2 = beta2, o.eps = eps;
  o.momentum = momentum, o.dampening = dampening, o.nesterov = nesterov;
  o.weight_decay = weight_decay, o.clip_norm = clip_norm;
  o.decay_min_rank = decay_min_rank, o.skip_nonfinite = skip_nonfinite;
  o.weights = ids_in(graph, weights);
  o.name = std::move(name);
  return value_of(self, graph.minimize(id_in(graph, loss), o));
}

uint32_t graph_space(std::string_view name) {
  if (name == "input") return TENON_SPACE_INPUT;
  if (name == "weight") return TENON_SPACE_WEIGHT;
  if (name == "state") return TENON_SPACE_STATE;
  fail(TENON_INVALID_ARGUMENT,
       "graph: space '" + std::string(name) + "'; expected \"input\", \"weight\" or \"state\"");
}

nb::list named(Self self, std::string_view space) {
  nb::list out;
  for (const Graph::Named& n : graph_of(self).named(graph_space(space)))
    out.append(nb::make_tuple(n.name, value_of(self, n.value), n.trainable));
  return out;
}

nb::list outputs(Self self) {
  nb::list out;
  for (const auto& [name, value] : graph_of(self).outputs())
    out.append(nb::make_tuple(name, value_of(self, value)));
  return out;
}

// A subclass of Graph may keep values, which keep the graph.
int traverse_value(PyObject* self, visitproc visit, void* arg) noexcept {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<PyValue>(self)->graph.ptr());
  return 0;
}
int clear_value(PyObject* self) noexcept {
  if (nb::inst_ready(self)) nb::inst_ptr<PyValue>(self)->graph.reset();
  return 0;
}
PyType_Slot value_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_value)},
                             {Py_tp_clear, reinterpret_cast<void*>(clear_value)},
                             {0, nullptr}};

void add_value(nb::module_& m) {
  nb::class_<PyValue>(m, "Value", nb::type_slots(value_slots), nb::is_weak_referenceable(),
                      "A value of a graph, which it keeps.")
      .def_prop_ro(
          "graph", [](const PyValue& v) { return v.graph; }, "Its graph.")
      .def_prop_ro(
          "id", [](const PyValue& v) { return v.value.id; }, "Its number in the graph.")
      .def_prop_ro(
          "dtype", [](const PyValue& v) { return dtype_object(graph_of(v.graph).dtype(v.value)); },
          "Its dtype, also while its type depends on symbols.")
      .def_prop_ro(
          "shape",
          [](const PyValue& v) -> nb::object {
            const Graph& graph = graph_of(v.graph);
            const TensorType type = graph.type(v.value);
            if (type.dtype == TENON_DTYPE_NONE) return nb::none();
            return shape_object(graph, type);
          },
          "Its dims: numbers and names of symbols; None while they depend on symbols.")
      .def(
          "__eq__",
          [](const PyValue& a, nb::handle b) {
            return nb::isinstance<PyValue>(b) && nb::cast<PyValue>(b).value == a.value;
          },
          "Are both the same value?")
      .def(
          "__repr__",
          [](const PyValue& v) {
            const Graph& graph = graph_of(v.graph);
            const TensorType type = graph.type(v.value);
            std::string dims;
            for (const int64_t d : type.dims) {
              if (!dims.empty()) dims += ",";
              dims += d < 0 ? graph.symbol_name(d) : std::to_string(d);
            }
            const bool known = type.dtype != TENON_DTYPE_NONE;
            return "<tenon.Value " + std::to_string(v.value.id) + ": " +
                   std::string(sdk::dtype_name(graph.dtype(v.value))) + "[" + (known ? dims : "?") +
                   "]>";
          },
          "Its number and its type.")
      .def(
          "__hash__", [](const PyValue& v) { return static_cast<int64_t>(v.value.id); },
          "By its number.");
}

}  // namespace

void add_graph(nb::module_& m) {
  nb::class_<Graph> graph(
      m, "Graph", nb::is_weak_referenceable(),
      "What to compute: inputs, weights, state, nodes, outputs. str() is its text form.\n"
      "\n"
      "Dims are numbers, or names of symbols, which runs replace by numbers. A graph is used by "
      "one thread at a time.");
  add_value(m);
  graph
      .def(
          "__init__", [](Graph* self, std::string_view name) { new (self) Graph(name); },
          nb::arg("name") = "graph", "An empty graph.")
      .def_static(
          "parse",
          [](std::string_view text, std::string_view file) {
            const Unlocked unlocked;
            return Graph::parse(text, file);
          },
          nb::arg("text"), nb::arg("file_name") = "text",
          "Reads the text form of a graph. file_name appears in messages.")
      .def_static("_import", import_graph, nb::arg("path"), nb::arg("store").none(),
                  nb::arg("trainable") = std::vector<std::string>(), nb::arg("fixed") = nb::dict(),
                  "Reads an ONNX file; the store gets its weights.")
      .def("_export", export_graph, nb::arg("path"), nb::arg("store").none(),
           nb::arg("outputs") = std::vector<std::string>(), nb::arg("symbols") = Symbols(),
           "Writes an ONNX file.")
      .def(
          "__str__",
          [](const Graph& g) {
            const Unlocked unlocked;
            return g.print();
          },
          "The text form.")
      .def(
          "input",
          [](Self self, std::string_view name, nb::handle dtype, nb::handle shape) {
            Graph& g = graph_of(self);
            return value_of(self, g.input(name, type_from(g, dtype, shape)));
          },
          nb::arg("name"), nb::arg("dtype"), nb::arg("shape"),
          "Adds an input: a tensor that is passed to each run.")
      .def(
          "weight",
          [](Self self, std::string_view name, nb::handle dtype, nb::handle shape, bool trainable) {
            Graph& g = graph_of(self);
            return value_of(self, g.weight(name, type_from(g, dtype, shape), trainable));
          },
          nb::arg("name"), nb::arg("dtype"), nb::arg("shape"), nb::arg("trainable") = true,
          "Adds a weight, whose content is in the store. Optimizers update trainable ones.")
      .def(
          "state",
          [](Self self, std::string_view name, nb::handle dtype, nb::handle shape) {
            Graph& g = graph_of(self);
            return value_of(self, g.state(name, type_from(g, dtype, shape)));
          },
          nb::arg("name"), nb::arg("dtype"), nb::arg("shape"),
          "Adds state: content of the store that runs update.")
      .def("constant", constant, nb::arg("value"), "Adds a constant: an array or a tensor, copied.")
      .def("add", add_graph_node, nb::arg("op"), nb::arg("operands"),
           nb::arg("attributes") = nb::dict(), nb::arg("want") = nb::none(),
           nb::arg("domain") = "tenon", nb::arg("version") = 0, nb::arg("provenance") = "",
           "Adds a node and returns its outputs, None for those left out.\n"
           "\n"
           "operands: a value or None each, a list for a list of operands. attributes: by name; a "
           "graph for a function. want: one\n"
           "bool per output; by default all that are not optional. provenance: appears in messages "
           "and reports.")
      .def(
          "output",
          [](Self self, std::string_view name, const PyValue& v) {
            graph_of(self).output(name, id_in(graph_of(self), v));
          },
          nb::arg("name"), nb::arg("value"), "Makes a value an output.")
      .def(
          "update",
          [](Self self, const PyValue& target, const PyValue& v) {
            Graph& g = graph_of(self);
            g.update(id_in(g, target), id_in(g, v));
          },
          nb::arg("target"), nb::arg("value"),
          "Updates a weight or state: after the run, target holds value.")
      .def(
          "gradients",
          [](Self self, const PyValue& loss, const std::vector<PyValue>& wrt) {
            Graph& g = graph_of(self);
            return values_of(self, g.gradients(id_in(g, loss), ids_in(g, wrt)));
          },
          nb::arg("loss"), nb::arg("wrt"),
          "Adds the gradients of a loss, which has one element. Values that do not affect it get "
          "zeros.")
      .def(
          "jvp",
          [](Self self, const std::vector<PyValue>& ys, const std::vector<PyValue>& xs,
             const std::vector<PyValue>& ts) {
            Graph& g = graph_of(self);
            return values_of(self, g.jvp(ids_in(g, ys), ids_in(g, xs), ids_in(g, ts)));
          },
          nb::arg("outputs"), nb::arg("inputs"), nb::arg("tangents"),
          "Adds the directional derivatives of outputs along tangents of inputs (forward mode).")
      .def(
          "checkpoint",
          [](Self self, const std::vector<PyValue>& from, const std::vector<PyValue>& to) {
            Graph& g = graph_of(self);
            g.checkpoint(ids_in(g, from), ids_in(g, to));
          },
          nb::arg("start"), nb::arg("end"),
          "In gradients, recomputes the nodes between start and end instead of keeping their "
          "values.")
      .def("minimize", minimize, nb::arg("loss"), nb::arg("learning_rate"), nb::kw_only(),
           nb::arg("kind") = "adamw", nb::arg("beta1") = 0.9, nb::arg("beta2") = 0.999,
           nb::arg("eps") = 1e-8, nb::arg("momentum") = 0.0, nb::arg("dampening") = 0.0,
           nb::arg("nesterov") = false, nb::arg("weight_decay") = 0.01, nb::arg("clip_norm") = 0.0,
           nb::arg("decay_min_rank") = 0, nb::arg("skip_nonfinite") = false,
           nb::arg("weights") = std::vector<PyValue>(), nb::arg("name") = "",
           "Adds a training step: gradients, clipping, optimizer (sgd, adamw or lion), updates. "
           "Returns the global norm of the\n"
           "gradients before clipping. Store.add_missing() creates its state.")
      .def("named", named, nb::arg("space"),
           "Triples of name, value and trainable. space: input, weight or state.")
      .def("outputs", outputs, "Pairs of name and value, in the order in which they were added.")
      .def(
          "decompose", [](const Graph& g, const Symbols& symbols) { return g.decompose(symbols); },
          nb::arg("symbols") = Symbols(),
          "A new graph in primitives, with numbers for all symbols.");
}

}  // namespace tenon::python
