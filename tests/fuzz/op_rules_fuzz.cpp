// SPDX-License-Identifier: Apache-2.0
// Any bytes as the description of an op, and as what its rules do: refused with an Error, or a
// registered op whose nodes print and parse back, differentiate and decompose, or are refused.
#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "check.hpp"
#include "grad/grad.hpp"
#include "ir/blob.hpp"
#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "ops/build.hpp"
#include "ops/lower.hpp"
#include "ops/registry.hpp"
#include "plan/rewrite/simplify.hpp"

using namespace tenon::core;
using tenon::fuzz::must;

namespace {

// The bytes, one after the other; zeros behind their end.
struct Source {
  const uint8_t* at = nullptr;
  const uint8_t* end = nullptr;
  int calls = 0;  // of rules
  uint32_t next(uint32_t below) { return at == end ? 0 : *at++ % below; }
  bool empty() const { return at == end; }
};
Source source;

tenon_str str(const char* text) { return {text, std::char_traits<char>::length(text)}; }

tenon_str word() {
  static constexpr const char* words[] = {"x",   "z",   "y",    "kind",    "cap", "",
                                          "f32", "a b", "soft", "a b f16", "1x",  "sum"};
  return str(words[source.next(std::size(words))]);
}

tenon_tensor_type type() {
  tenon_tensor_type t{};
  t.struct_size = source.next(16) == 0 ? source.next(64) : sizeof t;
  t.dtype = static_cast<tenon_dtype>(source.next(22));
  t.rank = static_cast<uint16_t>(source.next(11));
  static constexpr int64_t dims[] = {3, 2, 1, 0, -1, INT64_MAX, 1 << 20};
  for (int64_t& d : t.dims) d = dims[source.next(std::size(dims))];
  return t;
}

// What one rule does: some calls of the host's functions, in any order, with any arguments.
void act(const tenon_op_call* c) {
  if (++source.calls > 200) return;
  std::vector<tenon_value> values(c->operands, c->operands + c->operand_count);
  const auto value = [&] {
    const uint32_t k = source.next(16);
    if (k == 15) return static_cast<tenon_value>(source.next(255)) * 77777u;
    return values.empty() ? TENON_NONE : values[k % values.size()];
  };
  for (uint32_t i = 0; i < c->attribute_count; ++i) {
    const auto& a = *reinterpret_cast<const tenon_arg*>(
        reinterpret_cast<const char*>(c->attributes) + i * c->attribute_stride);
    tenon::fuzz::read(a.str.data, a.type == TENON_ARG_STR ? a.str.size : 0);
    tenon::fuzz::read(a.ints, a.type == TENON_ARG_INTS ? a.count * sizeof *a.ints : 0);
    tenon::fuzz::read(a.floats, a.type == TENON_ARG_FLOATS ? a.count * sizeof *a.floats : 0);
  }
  tenon::fuzz::read(c->operand_types, c->operand_count * c->type_stride);
  if (c->output_types) tenon::fuzz::read(c->output_types, c->output_count * c->type_stride);
  tenon::fuzz::read(c->want, c->output_count);
  tenon::fuzz::read(c->node.data, c->node.size);
  for (int step = 0; step < 12 && !source.empty(); ++step) {
    switch (source.next(12)) {
      case 0:
        if (source.next(4) == 0)
          c->fail(c, static_cast<tenon_code>(1 + source.next(TENON_INTERNAL - 1)), word());
        break;
      case 1:
        must(c->failed(c) <= 1, "failed() is a flag");
        break;
      case 2:
      case 3: {
        const tenon_tensor_type t = source.next(3) && c->operand_count ? *c->operand_types : type();
        c->give_type(c, source.next(4), source.next(30) == 29 ? nullptr : &t);
        break;
      }
      case 4: {
        const tenon_tensor_type t = type();
        const std::vector<char> data(4096);
        const uint64_t size = tenon_dense_bytes(t.dtype, 6);
        values.push_back(c->constant(c, &t, data.data(), source.next(4) ? size : 4));
        break;
      }
      case 5: {
        tenon_tensor_type t{};
        t.struct_size = sizeof t;
        c->value_type(c, value(), &t);
        break;
      }
      case 6:
      case 7: {
        static constexpr const char* ops[] = {"unary", "binary", "copy", "reduce", "own",
                                              "grad",  "split",  "topk", "",       "other"};
        tenon_node_desc n{};
        n.struct_size = sizeof n;
        const uint32_t op = source.next(std::size(ops));
        n.op = str(ops[op]);
        if (op == 4 || op == 9) n.domain = str("fz");
        tenon_arg kind{};
        kind.name = str("kind");
        kind.type = 1 + source.next(8);
        if (kind.type == TENON_ARG_FUNCTION) kind.type = TENON_ARG_STR;
        kind.str = str(source.next(2) ? "exp" : "add");
        n.attributes = &kind;
        n.attribute_stride = sizeof kind;
        n.attribute_count = source.next(2);
        tenon_value in[3] = {value(), value(), value()}, out[4] = {};
        n.operands = in;
        n.operand_count = source.next(4);
        n.output_count = source.next(4);
        c->add_node(c, &n, out);
        values.insert(values.end(), out, out + n.output_count);
        break;
      }
      case 8:
      case 9:
        c->give(c, source.next(4), value());
        break;
      case 10:
        values.push_back(source.next(2) ? c->upstream(c, source.next(4))
                                        : c->forward(c, source.next(4)));
        break;
      default:
        must(c->wants(c, source.next(4)) <= 1, "wants() is a flag");
    }
  }
}

// Without one registered, nothing could be used.
void honest(void*, const tenon_op_call* c) {
  for (uint32_t k = 0; k < c->output_count; ++k)
    if (c->operand_count) c->give_type(c, k, c->operand_types);
}

void add_op() {
  std::vector<tenon_op_part> parts(source.next(8));
  for (tenon_op_part& p : parts) {
    p = {};
    p.name = word();
    p.kind = source.next(10);
    p.type = source.next(10);
    p.default_int = static_cast<int64_t>(source.next(24)) - 2;
    p.default_float = source.next(3) ? 1.5 : __builtin_nan("");
    p.default_str = word();
    if (source.next(3) == 0) p.values = word();
  }
  static constexpr const char* names[] = {"own", "other", "third", "a:b", ""};
  tenon_op_desc op{};
  op.struct_size = source.next(12) == 11 ? source.next(160) : sizeof op;
  op.domain = str(source.next(12) == 11 ? "tenon" : "fz");
  op.name = str(names[source.next(std::size(names))]);
  // Most descriptions are new ones, up to a number of them.
  constexpr size_t kMostOps = 500;
  const std::string fresh = cat("op", registered_records().size());
  if (source.next(4) && registered_records().size() < kMostOps) op.name = str(fresh.c_str());
  op.family = word();
  op.parts = parts.data();
  op.part_stride = source.next(12) == 11 ? source.next(80) : sizeof(tenon_op_part);
  op.part_count = static_cast<uint32_t>(parts.size());
  op.version = source.next(5);
  op.flags = source.next(12) == 11 ? source.next(8) : 0;
  op.shape = [](void*, const tenon_op_call* c) { act(c); };
  if (source.next(3)) op.shape = honest;
  if (source.next(12) == 11) op.shape = nullptr;
  if (source.next(2)) op.decompose = [](void*, const tenon_op_call* c) { act(c); };
  if (source.next(2)) op.gradient = [](void*, const tenon_op_call* c) { act(c); };
  if (source.next(4) == 0) op.flops = [](void*, const tenon_op_call*) { return 7.0; };
  register_ops({&op, 1}, kOfTheApp);
}

void use(const OpRecord& op) {
  Graph g;
  const Value x = g.input("x", {kF32, {2, 3}}), z = g.input("z", {kF64, {3}});
  const Value all[] = {x, z, {}};
  Operands operands;
  if (source.next(4) == 3) {
    for (uint32_t k = source.next(5); k-- > 0;) operands.values.push_back(all[source.next(3)]);
  } else {  // what the schema says
    for (const tenon::OpPart& p : op.schema->parts()) {
      const uint32_t size = 1 + source.next(3);
      if (p.kind == tenon::OpPart::Kind::operand) operands.values.push_back(all[source.next(2)]);
      if (p.kind == tenon::OpPart::Kind::optional_operand)
        operands.values.push_back(all[source.next(3)]);
      if (!p.is_operand_list()) continue;
      operands.values.insert(operands.values.end(), size, x);
      operands.lists.push_back(size);
    }
  }
  std::vector<bool> wanted(output_count(op), true);
  if (has_output_list(op)) wanted.resize(wanted.size() + source.next(3), true);
  Attrs attrs;
  const tenon::OpPart* kind = op.schema->attr("kind");
  if (source.next(8) == 7 || (kind && kind->required()))
    attrs.push_back({"kind", std::string(source.next(2) ? "soft" : "a")});
  const NodeId n = g.add_node(op, std::move(operands), std::move(attrs), wanted, "here");
  Value y;
  for (Value v : g[n].outputs)
    if (v) g.output(cat("y", v.id), y = v);
  must(y.id != kNone, "a node without outputs");
  if (is_float(g.type(y).dtype) && g.type(y).shape.elements() < 1000) {
    Builder b(g);
    Ints axes;
    for (int i = 0; i < g.type(y).shape.rank(); ++i) axes.push_back(i);
    const Value loss = b.sum(y, axes, false);
    const NodeId request = g.add(op::grad{.loss = loss, .wrt = {x, z}});
    g.output("dx", g[request].outputs[0]);
  }
  verify(g);
  const std::string text = print(g);
  must(print(parse(text, "again")) == text, "print and parse disagree");
  const Graph expanded = expand_grads(g);
  verify(expanded);
  const Graph small = simplify(expanded);
  verify(small);
  const RegionBlob written = write_blob(small);
  tenon_blob blob;
  must(tenon_blob_open(written.blob.data(), written.blob.size(), &blob) == nullptr,
       "the reader refuses our blob");
}

template <class Body>
void refused_or_done(Body body) {
  try {
    body();
  } catch (const Error& e) {
    must(e.code() != Code::internal, e.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  source = {data, data + size};
  refused_or_done(add_op);
  const std::vector<const OpRecord*> ops = registered_records();
  if (!ops.empty())
    refused_or_done([&] { use(*ops[source.next(static_cast<uint32_t>(ops.size()))]); });
  return 0;
}
