// SPDX-License-Identifier: Apache-2.0
// Writes the fields of onnx.proto that a model of ours has.
#include "import/onnx/write.hpp"

#include <cstring>
#include <optional>

#include "base/base64.hpp"

namespace tenon::core::onnx {
namespace {

class Writer {
 public:
  std::string bytes;

  void integer(uint32_t field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
  }
  void number(uint32_t field, float value) {
    key(field, 5);
    char at[4];
    std::memcpy(at, &value, sizeof at);
    bytes.append(at, sizeof at);
  }
  void text(uint32_t field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes += value;
  }
  // Left out if empty.
  void some_text(uint32_t field, std::string_view value) {
    if (!value.empty()) text(field, value);
  }
  template <class Fill>
  void message(uint32_t field, Fill&& fill) {
    Writer inner;
    fill(inner);
    text(field, inner.bytes);
  }

  // The begin of a message whose `size` bytes follow.
  void opening(uint32_t field, uint64_t size) {
    key(field, 2);
    varint(size);
  }

 private:
  void key(uint32_t field, uint32_t wire) { varint(field << 3 | wire); }
  void varint(uint64_t v) {
    for (; v >= 0x80; v >>= 7) bytes += static_cast<char>((v & 0x7f) | 0x80);
    bytes += static_cast<char>(v);
  }
};

using Opsets = std::map<std::string, int64_t, std::less<>>;

void write_graph(Writer& w, const Graph& graph);

void write_tensor(Writer& w, const Tensor& t) {
  for (const int64_t d : t.dims) w.integer(1, d);
  w.integer(2, t.element);
  for (const std::string& s : t.strings) w.text(6, s);
  w.some_text(8, t.name);
  if (t.dtype == TENON_DTYPE_NONE) return;
  const Bytes content = t.content();
  w.text(9, {reinterpret_cast<const char*>(content.data()), content.size()});
}

void write_sparse(Writer& w, const SparseTensor& t) {
  w.message(1, [&](Writer& m) { write_tensor(m, t.values); });
  w.message(2, [&](Writer& m) { write_tensor(m, t.indices); });
  for (const int64_t d : t.dims) w.integer(3, d);
}

void write_attribute(Writer& w, const Attribute& a) {
  w.text(1, a.name);
  w.integer(20, a.kind);
  if (!a.refers_to.empty()) {
    w.text(21, a.refers_to);
    return;
  }
  switch (a.kind) {
    case Attribute::f32:
      w.number(2, a.f);
      break;
    case Attribute::i64:
      w.integer(3, a.i);
      break;
    case Attribute::string:
      w.text(4, a.s);
      break;
    case Attribute::tensor:
      if (a.t) w.message(5, [&](Writer& m) { write_tensor(m, *a.t); });
      break;
    case Attribute::graph:
      if (a.g) w.message(6, [&](Writer& m) { write_graph(m, *a.g); });
      break;
    case Attribute::floats:
      for (const float v : a.fs) w.number(7, v);
      break;
    case Attribute::ints:
      for (const int64_t v : a.is) w.integer(8, v);
      break;
    case Attribute::strings_:
      for (const std::string& s : a.strings) w.text(9, s);
      break;
    case Attribute::tensors_:
      for (const Tensor& t : a.tensors) w.message(10, [&](Writer& m) { write_tensor(m, t); });
      break;
    case Attribute::sparse:
      if (a.sparse_t) w.message(22, [&](Writer& m) { write_sparse(m, *a.sparse_t); });
      break;
    default:
      break;  // kinds that no rule reads
  }
}

void write_node(Writer& w, const Node& n) {
  for (const std::string& s : n.inputs) w.text(1, s);
  for (const std::string& s : n.outputs) w.text(2, s);
  w.some_text(3, n.name);
  w.text(4, n.op);
  for (const Attribute& a : n.attributes) w.message(5, [&](Writer& m) { write_attribute(m, a); });
  w.some_text(7, n.domain);
  w.some_text(8, n.overload);
}

void write_value(Writer& w, const ValueInfo& v) {
  w.text(1, v.name);
  if (v.kind != ValueInfo::Kind::tensor) return;
  w.message(2, [&](Writer& type) {
    type.message(1, [&](Writer& tensor) {
      tensor.integer(1, v.element);
      if (!v.dims) return;
      tensor.message(2, [&](Writer& shape) {
        for (const ValueInfo::Dim& d : *v.dims)
          shape.message(1, [&](Writer& dim) {
            if (d.size >= 0)
              dim.integer(1, d.size);
            else
              dim.some_text(2, d.symbol);
          });
      });
    });
  });
}

void write_opsets(Writer& w, uint32_t field, const Opsets& opsets) {
  for (const auto& [domain, version] : opsets)
    w.message(field, [&](Writer& m) {
      m.some_text(1, domain);
      m.integer(2, version);
    });
}

void write_graph(Writer& w, const Graph& g) {
  for (const Node& n : g.nodes) w.message(1, [&](Writer& m) { write_node(m, n); });
  w.text(2, g.name.empty() ? "graph" : g.name);
  for (const Tensor& t : g.initializers) w.message(5, [&](Writer& m) { write_tensor(m, t); });
  for (const ValueInfo& v : g.inputs) w.message(11, [&](Writer& m) { write_value(m, v); });
  for (const ValueInfo& v : g.outputs) w.message(12, [&](Writer& m) { write_value(m, v); });
  for (const auto& [name, t] : g.sparse_initializers)
    w.message(15, [&, name = name](Writer& m) {
      SparseTensor named = t;
      named.values.name = name;
      write_sparse(m, named);
    });
}

void write_function(Writer& w, const Function& f) {
  w.text(1, f.name);
  for (const std::string& s : f.inputs) w.text(4, s);
  for (const std::string& s : f.outputs) w.text(5, s);
  for (const std::string& s : f.attributes) w.text(6, s);
  for (const Node& n : f.nodes) w.message(7, [&](Writer& m) { write_node(m, n); });
  write_opsets(w, 9, f.opsets);
  w.some_text(10, f.domain);
  for (const Attribute& a : f.attribute_defaults)
    w.message(11, [&](Writer& m) { write_attribute(m, a); });
  w.some_text(13, f.overload);
}

// Everything of an initializer but its content.
std::string head_of(const ApartTensor& t) {
  Writer w;
  for (const Dim d : t.type.shape) w.integer(1, d);
  w.integer(2, element_of_dtype(t.type.dtype));
  w.text(8, t.name);
  if (t.file.empty()) {
    w.opening(9, type_bytes(t.type));
    return std::move(w.bytes);
  }
  const auto entry = [&](std::string_view key, const std::string& value) {
    w.message(13, [&](Writer& m) {
      m.text(1, key);
      m.text(2, value);
    });
  };
  entry("location", t.file);
  entry("offset", std::to_string(t.offset));
  entry("length", std::to_string(type_bytes(t.type)));
  w.integer(14, 1);  // external
  return std::move(w.bytes);
}

}  // namespace

std::string write_model(const Model& model) {
  Writer w;
  w.integer(1, model.ir_version);
  w.some_text(2, model.producer);
  w.message(7, [&](Writer& m) { write_graph(m, model.graph); });
  write_opsets(w, 8, model.opsets);
  for (const Function& f : model.functions) w.message(25, [&](Writer& m) { write_function(m, f); });
  return std::move(w.bytes);
}

void write_model(const Model& model, std::span<const ApartTensor> tensors,
                 const std::function<void(std::string_view)>& put,
                 const std::function<void(size_t)>& put_content) {
  Writer graph;
  write_graph(graph, model.graph);
  std::vector<std::string> heads;
  uint64_t size = graph.bytes.size();
  for (const ApartTensor& t : tensors) {
    std::string head = head_of(t);
    Writer opening;
    opening.opening(5, head.size() + (t.file.empty() ? type_bytes(t.type) : 0));
    size += opening.bytes.size() + head.size() + (t.file.empty() ? type_bytes(t.type) : 0);
    heads.push_back(opening.bytes + head);
  }
  Writer begin;
  begin.integer(1, model.ir_version);
  begin.some_text(2, model.producer);
  begin.opening(7, size);
  put(begin.bytes);
  put(graph.bytes);
  for (size_t k = 0; k < tensors.size(); ++k) {
    put(heads[k]);
    if (tensors[k].file.empty()) put_content(k);
  }
  Writer end;
  write_opsets(end, 8, model.opsets);
  for (const Function& f : model.functions)
    end.message(25, [&](Writer& m) { write_function(m, f); });
  put(end.bytes);
}

std::string write_base64(const Model& model) { return to_base64(write_model(model)); }

Model read_base64(std::string_view text) {
  std::optional<std::string> bytes = from_base64(text);
  if (!bytes)
    fail(Code::invalid_argument,
         "onnx: the model's text is not base 64; expected groups of 4 of its "
         "characters, got ",
         text.size(), " characters");
  return read_model(std::move(*bytes), "");
}

}  // namespace tenon::core::onnx
