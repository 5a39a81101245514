// SPDX-License-Identifier: Apache-2.0
// ModelProto and the messages in it, except tensors. Checks what the format of a file demands, and
// leaves what nodes mean to the translation.
#include "import/onnx/model.hpp"

#include <utility>

#include "import/onnx/tensor.hpp"

namespace tenon::core::onnx {
namespace {

constexpr int kMostNested = 32;  // graphs within graphs

std::string plain_domain(std::string domain) {
  return domain == "ai.onnx" ? std::string() : domain;
}

class Reader {
 public:
  Model model(Message m);

 private:
  Graph graph(Message m);
  Node node(Message m);
  Attribute attribute(Message m);
  SparseTensor sparse(Message m);
  ValueInfo value(Message m);
  Function function(Message m);

  template <class T>
  void push(const Message& m, std::vector<T>& list, T entry) {
    if (++entries_ > kMostEntries)
      m.fail_at(m.at(), Code::unsupported, "the model has more than ", kMostEntries,
                " nodes, attributes, values and names");
    list.push_back(std::move(entry));
  }

  size_t entries_ = 0;
  int nested_ = 0;
};

// A message that a field holds once. Refuses the second one, where the format would merge both.
Message once(Message& m, const char* name, bool& seen) {
  if (std::exchange(seen, true)) m.corrupt("field ", name, " is there twice");
  return m.message(name);
}

void take_opset(Message m, std::map<std::string, int64_t, std::less<>>& opsets) {
  std::string domain;
  int64_t version = 0;
  while (m.next()) switch (m.field()) {
      case 1:
        domain = plain_domain(m.text("domain"));
        break;
      case 2:
        version = m.integer("version");
        break;
      default:
        m.skip();
    }
  const auto [at, added] = opsets.emplace(domain, version);
  if (!added && at->second != version)
    m.corrupt("opset_import: domain '", domain, "' has versions ", at->second, " and ", version);
}

void take_shape(Message m, std::vector<ValueInfo::Dim>& dims) {
  while (m.next()) {
    if (m.field() != 1) {
      m.skip();
      continue;
    }
    if (dims.size() == 1024) m.corrupt("more than 1024 dims");
    ValueInfo::Dim dim;
    Message d = m.message("dim", static_cast<int64_t>(dims.size()));
    while (d.next()) switch (d.field()) {
        case 1:
          dim = {.size = d.integer("dim_value")};
          // Some exporters write -1 for a dim that they do not know.
          if (dim.size < -1) d.corrupt("dim_value ", dim.size, " is negative");
          break;
        case 2:
          dim = {.symbol = d.text("dim_param")};
          break;
        default:
          d.skip();
      }
    dims.push_back(std::move(dim));
  }
}

// TypeProto.Tensor and TypeProto.SparseTensor.
void take_tensor_type(Message m, ValueInfo& v) {
  bool shape = false;
  while (m.next()) switch (m.field()) {
      case 1:
        v.element = m.int32("elem_type");
        break;
      case 2:
        take_shape(once(m, "shape", shape), v.dims.emplace());
        break;
      default:
        m.skip();
    }
  v.dtype = element_dtype(v.element);
}

void take_type(Message m, ValueInfo& v) {
  bool seen = false;
  while (m.next()) switch (m.field()) {
      case 1:
        v.kind = ValueInfo::Kind::tensor;
        take_tensor_type(once(m, "tensor_type", seen), v);
        break;
      case 8:
        v.kind = ValueInfo::Kind::sparse;
        take_tensor_type(once(m, "sparse_tensor_type", seen), v);
        break;
      case 4:
        v.kind = ValueInfo::Kind::sequence;
        m.skip();
        break;
      case 5:
        v.kind = ValueInfo::Kind::map;
        m.skip();
        break;
      case 9:
        v.kind = ValueInfo::Kind::optional;
        m.skip();
        break;
      default:
        m.skip();
    }
}

ValueInfo Reader::value(Message m) {
  ValueInfo v;
  bool type = false;
  while (m.next()) switch (m.field()) {
      case 1:
        v.name = m.text("name");
        break;
      case 2:
        take_type(once(m, "type", type), v);
        break;
      default:
        m.skip();
    }
  return v;
}

SparseTensor Reader::sparse(Message m) {
  SparseTensor t;
  bool values = false, indices = false;
  while (m.next()) switch (m.field()) {
      case 1:
        t.values = take_tensor(once(m, "values", values));
        break;
      case 2:
        t.indices = take_tensor(once(m, "indices", indices));
        break;
      case 3:
        m.varints("dims", [&](uint64_t v) {
          if (t.dims.size() == 1024) m.corrupt("more than 1024 dims");
          t.dims.push_back(static_cast<int64_t>(v));
          if (t.dims.back() < 0) m.corrupt("dim ", t.dims.back(), " is negative");
        });
        break;
      default:
        m.skip();
    }
  if (!values || !indices) m.corrupt("a sparse tensor lacks ", values ? "indices" : "values");
  return t;
}

Attribute Reader::attribute(Message m) {
  Attribute a;
  Attribute::Kind present = Attribute::none;  // by the field, for files before IR version 2
  bool typed = false, tensor = false, graph = false, sparse = false;
  while (m.next()) {
    const auto holds = [&](Attribute::Kind kind) { present = kind; };
    switch (m.field()) {
      case 1:
        a.name = m.text("name");
        break;
      case 21:
        a.refers_to = m.text("ref_attr_name");
        break;
      case 20: {
        const int32_t kind = m.int32("type");
        if (kind < 0 || kind > Attribute::types)
          m.fail_at(m.at(), Code::unsupported, "attribute '", a.name, "': type ", kind,
                    " is not known; expected 0 to ", static_cast<int>(Attribute::types));
        a.kind = static_cast<Attribute::Kind>(kind);
        typed = kind != 0;
        break;
      }
      case 2:
        holds(Attribute::f32);
        a.f = m.real("f");
        break;
      case 3:
        holds(Attribute::i64);
        a.i = m.integer("i");
        break;
      case 4:
        holds(Attribute::string);
        a.s = m.bytes("s");
        break;
      case 5:
        holds(Attribute::tensor);
        a.t = std::make_shared<Tensor>(take_tensor(once(m, "t", tensor)));
        break;
      case 6:
        holds(Attribute::graph);
        a.g = std::make_shared<Graph>(this->graph(once(m, "g", graph)));
        break;
      case 22:
        holds(Attribute::sparse);
        a.sparse_t = std::make_shared<SparseTensor>(this->sparse(once(m, "sparse_tensor", sparse)));
        break;
      case 7:
        holds(Attribute::floats);
        m.fixed32s("floats", [&](uint32_t v) { a.fs.push_back(std::bit_cast<float>(v)); });
        break;
      case 8:
        holds(Attribute::ints);
        m.varints("ints", [&](uint64_t v) { a.is.push_back(static_cast<int64_t>(v)); });
        break;
      case 9:
        holds(Attribute::strings_);
        push(m, a.strings, m.bytes("strings"));
        break;
      case 10:
        holds(Attribute::tensors_);
        push(m, a.tensors,
             take_tensor(m.message("tensors", static_cast<int64_t>(a.tensors.size()))));
        break;
      case 11:
      case 23:
      case 14:
      case 15:
        holds(m.field() == 11   ? Attribute::graphs_
              : m.field() == 23 ? Attribute::sparses
              : m.field() == 14 ? Attribute::type
                                : Attribute::types);
        m.skip();
        break;
      default:
        m.skip();
    }
  }
  if (a.name.empty()) m.corrupt("an attribute has no name");
  if (!typed) a.kind = present;
  if (a.refers_to.empty() &&
      ((a.kind == Attribute::tensor && !a.t) || (a.kind == Attribute::graph && !a.g) ||
       (a.kind == Attribute::sparse && !a.sparse_t)))
    m.corrupt("attribute '", a.name, "' lacks the value of its type ", static_cast<int>(a.kind));
  return a;
}

Node Reader::node(Message m) {
  Node n;
  while (m.next()) switch (m.field()) {
      case 1:
        push(m, n.inputs, m.text("input"));
        break;
      case 2:
        push(m, n.outputs, m.text("output"));
        break;
      case 3:
        n.name = m.text("name");
        break;
      case 4:
        n.op = m.text("op_type");
        break;
      case 5:
        push(m, n.attributes,
             attribute(m.message("attribute", static_cast<int64_t>(n.attributes.size()))));
        break;
      case 7:
        n.domain = plain_domain(m.text("domain"));
        break;
      case 8:
        n.overload = m.text("overload");
        break;
      default:
        m.skip();
    }
  if (n.op.empty()) m.corrupt("node '", n.name, "' has no op_type");
  return n;
}

Graph Reader::graph(Message m) {
  if (++nested_ > kMostNested)
    m.fail_at(m.at(), Code::unsupported, "graphs are nested more than ", kMostNested, " deep");
  Graph g;
  const auto next = [](const auto& list) { return static_cast<int64_t>(list.size()); };
  while (m.next()) switch (m.field()) {
      case 1:
        push(m, g.nodes, node(m.message("node", next(g.nodes))));
        break;
      case 2:
        g.name = m.text("name");
        break;
      case 5:
        push(m, g.initializers, take_tensor(m.message("initializer", next(g.initializers))));
        break;
      case 15: {
        // Its name is that of its values.
        SparseTensor t = sparse(m.message("sparse_initializer", next(g.sparse_initializers)));
        std::string name = t.values.name;
        push(m, g.sparse_initializers, std::pair(std::move(name), std::move(t)));
        break;
      }
      case 11:
        push(m, g.inputs, value(m.message("input", next(g.inputs))));
        break;
      case 12:
        push(m, g.outputs, value(m.message("output", next(g.outputs))));
        break;
      case 13:
        push(m, g.values, value(m.message("value_info", next(g.values))));
        break;
      default:
        m.skip();
    }
  --nested_;
  return g;
}

Function Reader::function(Message m) {
  Function f;
  const auto next = [](const auto& list) { return static_cast<int64_t>(list.size()); };
  while (m.next()) switch (m.field()) {
      case 1:
        f.name = m.text("name");
        break;
      case 4:
        push(m, f.inputs, m.text("input"));
        break;
      case 5:
        push(m, f.outputs, m.text("output"));
        break;
      case 6:
        push(m, f.attributes, m.text("attribute"));
        break;
      case 7:
        push(m, f.nodes, node(m.message("node", next(f.nodes))));
        break;
      case 9:
        take_opset(m.message("opset_import"), f.opsets);
        break;
      case 10:
        f.domain = plain_domain(m.text("domain"));
        break;
      case 11:
        push(m, f.attribute_defaults,
             attribute(m.message("attribute_proto", next(f.attribute_defaults))));
        break;
      case 13:
        f.overload = m.text("overload");
        break;
      default:
        m.skip();
    }
  return f;
}

Model Reader::model(Message m) {
  Model model;
  bool graph = false;
  while (m.next()) switch (m.field()) {
      case 1:
        model.ir_version = m.integer("ir_version");
        break;
      case 2:
        model.producer = m.text("producer_name");
        break;
      case 7:
        model.graph = this->graph(once(m, "graph", graph));
        break;
      case 8:
        take_opset(m.message("opset_import"), model.opsets);
        break;
      case 25:
        push(m, model.functions,
             function(m.message("functions", static_cast<int64_t>(model.functions.size()))));
        break;
      default:
        m.skip();
    }
  if (!graph) m.corrupt("is no ONNX model: it has no graph");
  // The first versions of the format had one set of ops.
  if (model.opsets.empty() && model.ir_version < 3) model.opsets.emplace("", 1);
  return model;
}

Model read(std::shared_ptr<const Input> input) {
  Cursor cursor(std::move(input));
  return Reader().model(Message(cursor));
}

}  // namespace

Model read_model(const std::string& path) { return read(std::make_shared<Input>(path)); }

Model read_model(std::string bytes, const std::string& folder) {
  return read(std::make_shared<Input>(std::move(bytes), folder));
}

}  // namespace tenon::core::onnx
