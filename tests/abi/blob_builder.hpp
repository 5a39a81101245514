// SPDX-License-Identifier: Apache-2.0
// Builds small graph blobs byte by byte, independently of core's writer.
#pragma once

#include <tenon/blob.h>

#include <cstring>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tenon::test {

struct Attr {
  std::string name;
  std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, tenon_dtype> value;
};
struct Shape {
  tenon_dtype dtype;
  std::vector<int64_t> dims;
};
// What a later version of the format may say of a value.
struct Later {
  uint16_t scheme = 0, value_flags = 0;
};

class BlobBuilder {
 public:
  uint32_t input(Shape s, uint8_t space = TENON_SPACE_INPUT) {
    const uint32_t v = value(std::move(s), space);
    inputs_.push_back(v);
    return v;
  }
  template <class T>
  uint32_t constant(Shape s, const std::vector<T>& content) {
    const uint32_t v = input(std::move(s), TENON_SPACE_CONSTANT);
    values_[v].content.resize(content.size() * sizeof(T));
    std::memcpy(values_[v].content.data(), content.data(), values_[v].content.size());
    return v;
  }
  // Returns the index of the first output.
  uint32_t node(const std::string& op, std::vector<uint32_t> operands, std::vector<Shape> outputs,
                std::vector<Attr> attrs = {}, uint32_t version = 1,
                const std::string& domain = "tenon", std::vector<uint32_t> lists = {}) {
    Node n{op, domain, version, std::move(operands), {}, std::move(attrs), std::move(lists)};
    for (Shape& s : outputs) {
      const auto position = static_cast<uint32_t>(n.outputs.size());
      n.outputs.push_back(
          value(std::move(s), TENON_SPACE_NODE, static_cast<uint32_t>(nodes_.size()), position));
    }
    if (op == "concat" && n.lists.empty()) n.lists = {static_cast<uint32_t>(n.operands.size())};
    nodes_.push_back(std::move(n));
    return nodes_.back().outputs.empty() ? TENON_NONE : nodes_.back().outputs[0];
  }
  void output(uint32_t value) { outputs_.push_back(value); }
  // Marks a value or a node with what a later version may say of it.
  void mark_value(uint32_t v, Later later) { values_[v].later = later; }
  void mark_space(uint32_t v, uint8_t space) { values_[v].space = space; }
  void mark_node(uint32_t n, uint32_t flags) { nodes_[n].flags = flags; }
  const std::vector<uint32_t>& inputs() const { return inputs_; }
  const std::vector<uint32_t>& outputs() const { return outputs_; }

  // Makes each struct longer than this header's by so many bytes, which are filled with ones.
  void grow(uint32_t bytes) { grown_ = bytes; }

  // The bytes, 8-aligned.
  std::vector<uint64_t> bytes() const {
    const uint32_t grown = grown_;
    Writer w;
    w.grown = grown;
    w.take(sizeof(tenon_blob_header) + grown, 0xFF);
    const uint64_t function_at = w.take(sizeof(tenon_blob_function) + grown, 0xFF);
    tenon_blob_function f{};
    f.name = w.string("main");
    f.inputs = w.array(inputs_);
    f.outputs = w.array(outputs_);
    std::vector<tenon_blob_value> values;
    for (const Value& v : values_) values.push_back(v.write(w));
    std::vector<tenon_blob_node> nodes;
    for (const Node& n : nodes_) nodes.push_back(n.write(w));
    f.values = w.structs(values);
    f.nodes = w.structs(nodes);
    f.value_count = static_cast<uint32_t>(values_.size());
    f.node_count = static_cast<uint32_t>(nodes_.size());
    f.input_count = static_cast<uint32_t>(inputs_.size());
    f.output_count = static_cast<uint32_t>(outputs_.size());
    tenon_blob_header h{};
    h.magic = TENON_BLOB_MAGIC;
    h.version = TENON_BLOB_VERSION;
    h.header_size = sizeof h + grown;
    h.functions = function_at;
    h.name = w.string("case");
    h.function_count = 1;
    h.function_stride = sizeof(tenon_blob_function) + grown;
    h.value_stride = sizeof(tenon_blob_value) + grown;
    h.node_stride = sizeof(tenon_blob_node) + grown;
    h.attr_stride = sizeof(tenon_blob_attr) + grown;
    h.size = w.size();
    w.put(0, &h, sizeof(h));
    w.put(function_at, &f, sizeof(f));
    return w.words();
  }

 private:
  class Writer {
   public:
    uint64_t size() const { return words_.size() * 8; }
    uint32_t grown = 0;
    uint64_t take(uint64_t bytes, unsigned char fill = 0) {
      const uint64_t at = size();
      words_.resize(words_.size() + (bytes + 7) / 8, fill * UINT64_C(0x0101010101010101));
      return at;
    }
    template <class T>
    uint64_t structs(const std::vector<T>& list) {
      const uint64_t at = take(list.size() * (sizeof(T) + grown), 0xFF);
      for (size_t i = 0; i < list.size(); ++i)
        put(at + i * (sizeof(T) + grown), &list[i], sizeof(T));
      return at;
    }
    void put(uint64_t at, const void* from, uint64_t bytes) {
      if (bytes) std::memcpy(reinterpret_cast<char*>(words_.data()) + at, from, bytes);
    }
    template <class T>
    uint64_t array(const std::vector<T>& list) {
      const uint64_t at = take(list.size() * sizeof(T));
      put(at, list.data(), list.size() * sizeof(T));
      return at;
    }
    uint64_t string(const std::string& s) {
      if (s.empty()) return 0;
      const uint64_t at = take(4 + s.size());
      const auto size = static_cast<uint32_t>(s.size());
      put(at, &size, 4);
      put(at + 4, s.data(), s.size());
      return at;
    }
    std::vector<uint64_t> words() const { return words_; }

   private:
    std::vector<uint64_t> words_;
  };

  struct Value {
    Shape shape;
    uint8_t space;
    uint32_t node, position;
    std::vector<char> content{};
    Later later{};

    tenon_blob_value write(Writer& w) const {
      tenon_blob_value v{};
      v.dtype = shape.dtype;
      v.scheme = later.scheme;
      v.flags = later.value_flags;
      v.space = space;
      v.rank = static_cast<uint8_t>(shape.dims.size());
      v.node = node;
      v.output = position;
      v.dims = w.array(shape.dims);
      if (!content.empty()) {
        v.data = w.array(content);
        v.data_size = content.size();
      }
      return v;
    }
  };

  struct Node {
    std::string op, domain;
    uint32_t version;
    std::vector<uint32_t> operands, outputs;
    std::vector<Attr> attrs;
    std::vector<uint32_t> lists;
    uint32_t flags = 0;

    tenon_blob_node write(Writer& w) const {
      tenon_blob_node n{};
      n.domain = w.string(domain);
      n.op = w.string(op);
      n.version = version;
      n.operands = w.array(operands);
      n.outputs = w.array(outputs);
      n.operand_count = static_cast<uint32_t>(operands.size());
      n.output_count = static_cast<uint32_t>(outputs.size());
      std::vector<tenon_blob_attr> list;
      for (const Attr& a : attrs) list.push_back(write_attr(a, w));
      n.attrs = w.structs(list);
      n.operand_lists = w.array(lists);
      n.operand_list_count = static_cast<uint32_t>(lists.size());
      n.flags = flags;
      n.attr_count = static_cast<uint32_t>(list.size());
      return n;
    }
    static tenon_blob_attr write_attr(const Attr& a, Writer& w) {
      tenon_blob_attr out{w.string(a.name), 0, 0, 0};
      if (const auto* i = std::get_if<int64_t>(&a.value)) {
        out.type = TENON_ATTR_I64, out.bits = static_cast<uint64_t>(*i);
      } else if (const auto* f = std::get_if<double>(&a.value)) {
        out.type = TENON_ATTR_F64;
        std::memcpy(&out.bits, f, 8);
      } else if (const auto* b = std::get_if<bool>(&a.value)) {
        out.type = TENON_ATTR_BOOL, out.bits = *b;
      } else if (const auto* s = std::get_if<std::string>(&a.value)) {
        out.type = TENON_ATTR_STR, out.bits = w.string(*s);
      } else if (const auto* l = std::get_if<std::vector<int64_t>>(&a.value)) {
        out.type = TENON_ATTR_INTS, out.bits = w.array(*l),
        out.count = static_cast<uint32_t>(l->size());
      } else {
        out.type = TENON_ATTR_DTYPE, out.bits = std::get<tenon_dtype>(a.value);
      }
      return out;
    }
  };

  uint32_t value(Shape s, uint8_t space, uint32_t node = TENON_NONE, uint32_t position = 0) {
    values_.push_back({std::move(s), space, node, position});
    return static_cast<uint32_t>(values_.size() - 1);
  }

  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> inputs_, outputs_;
  uint32_t grown_ = 0;
};

}  // namespace tenon::test
