// SPDX-License-Identifier: Apache-2.0
// Reads the caller's descriptions of nodes and types, and checks them.
#include "ops/node_desc.hpp"

#include "base/c_struct.hpp"
#include "ops/table.hpp"

namespace tenon::core {

Shape shape_from(uint32_t rank, const int64_t* dims) {
  if (rank && !dims) fail(Code::invalid_argument, "dims is NULL with rank ", rank);
  return Shape(std::span<const Dim>(dims, rank));
}

tenon_tensor_type to_c(const Type& type) {
  tenon_tensor_type out{};
  out.struct_size = sizeof out;
  out.dtype = type.dtype;
  out.rank = static_cast<uint16_t>(type.shape.rank());
  std::copy(type.shape.begin(), type.shape.end(), out.dims);
  return out;
}

Type numeric_type(const tenon_tensor_type* given, std::string_view what) {
  const tenon_tensor_type t = taken(&need(given, what), what);
  if (!tenon_dtype_known(t.dtype))
    fail(Code::dtype_mismatch, what, ": the dtype ", t.dtype, " is unknown");
  if (t.rank > TENON_MAX_RANK)
    fail(Code::unsupported, what, ": expected at most ", TENON_MAX_RANK, " axes, got ", t.rank);
  for (uint16_t i = 0; i < t.rank; ++i)
    if (t.dims[i] < 0)
      fail(Code::shape_mismatch, what, ": expected dims >= 0, got ", t.dims[i], " on axis ", i);
  const Type type{t.dtype, shape_from(t.rank, t.dims)};
  type.shape.elements();  // fails on overflow
  want_whole_blocks(type, what);
  return type;
}

namespace {

AttrValue attr_value(const tenon_arg& a) {
  switch (a.type) {
    case TENON_ARG_I64:
      return a.i64;
    case TENON_ARG_F64:
      return a.f64;
    case TENON_ARG_BOOL:
      return a.i64 != 0;
    case TENON_ARG_STR:
      return std::string(view(a.str));
    case TENON_ARG_INTS:
      return a.count ? std::vector<int64_t>(&need(a.ints, "ints"), a.ints + a.count)
                     : std::vector<int64_t>{};
    case TENON_ARG_FLOATS:
      return a.count ? std::vector<double>(&need(a.floats, "floats"), a.floats + a.count)
                     : std::vector<double>{};
    case TENON_ARG_DTYPE:
      if (a.i64 < 0 || a.i64 > UINT16_MAX ||
          (a.i64 != TENON_DTYPE_NONE && !tenon_dtype_known(static_cast<DType>(a.i64))))
        fail(Code::invalid_argument, "attribute ", view(a.name), ": ", a.i64, " is no dtype");
      return DTypeAttr{static_cast<DType>(a.i64)};
    case TENON_ARG_FUNCTION:
      return std::make_shared<const Graph>(need(a.function, "function").graph);
    default:
      fail(Code::invalid_argument, "attribute ", view(a.name), ": type ", a.type, " is unknown");
  }
}

Attrs attrs_of(const tenon_node_desc& node) {
  Attrs attrs;
  for (uint32_t i = 0; i < node.attribute_count; ++i) {
    const tenon_arg arg =
        element(node.attributes, node.attribute_stride, TENON_ARG_SIZE_V1, i, "attributes");
    attrs.push_back({std::string(view(arg.name)), attr_value(arg)});
  }
  return attrs;
}

}  // namespace

NodeId add_node(Graph& graph, const tenon_node_desc* node, tenon_value* out_values,
                std::string_view requests) {
  const tenon_node_desc desc = taken(&need(node, "node"), "node");
  const std::string_view domain = desc.domain.size ? view(desc.domain) : "tenon";
  const std::string_view op = view(desc.op);
  const uint32_t output_count = desc.output_count;
  if (desc.operand_count) need(desc.operands, "operands");
  if (output_count) need(out_values, "out_values");
  const OpRecord* record = find_record(domain, op, desc.version);
  if (!record) {
    if (find_record(domain, op))
      fail(Code::unsupported, "op ", op, ": version ", desc.version, " is not known here");
    fail(Code::not_found, "op '", op, "' of domain '", domain, "' is not known here");
  }
  if (record == &grad_def) fail(Code::invalid_argument, "op ", op, ": ", requests);
  Operands operands;
  for (uint32_t i = 0; i < desc.operand_count; ++i) operands.values.push_back({desc.operands[i]});
  if (desc.list_count) need(desc.lists, "lists");
  if (desc.lists) operands.lists.assign(desc.lists, desc.lists + desc.list_count);
  Attrs attrs = attrs_of(desc);
  std::vector<bool> outputs;
  for (const tenon::OpPart& p : record->schema->parts()) {
    const bool optional = p.kind == tenon::OpPart::Kind::optional_output;
    if (p.kind != tenon::OpPart::Kind::output && !optional) continue;
    const size_t k = outputs.size();
    outputs.push_back(desc.want && k < output_count ? desc.want[k] != 0 : !optional);
  }
  if (has_output_list(*record))
    outputs.resize(std::max<size_t>(outputs.size(), output_count), true);
  if (output_count != outputs.size())
    fail(Code::invalid_argument, "op ", op, ": has ", outputs.size(), " outputs, got room for ",
         output_count);
  const NodeId n = graph.add_node(*record, std::move(operands), std::move(attrs), outputs,
                                  view(desc.provenance));
  for (uint32_t k = 0; k < output_count; ++k)
    out_values[k] = k < graph[n].outputs.size() ? graph[n].outputs[k].id : TENON_NONE;
  return n;
}

}  // namespace tenon::core
