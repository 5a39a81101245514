// SPDX-License-Identifier: Apache-2.0
// Nodes, names and constants of an ONNX model that is being written.
#include "export/emitter.hpp"

#include <cstring>

#include "base/number.hpp"

namespace tenon::core::onnx {

Attribute attribute(std::string name, int64_t value) {
  return {.name = std::move(name), .kind = Attribute::i64, .i = value};
}
Attribute attribute(std::string name, double value) {
  return {.name = std::move(name), .kind = Attribute::f32, .f = static_cast<float>(value)};
}
Attribute attribute(std::string name, const std::string& value) {
  return {.name = std::move(name), .kind = Attribute::string, .s = value};
}
Attribute attribute(std::string name, const Ints& value) {
  return {.name = std::move(name), .kind = Attribute::ints, .is = value};
}
Attribute attribute(std::string name, Graph value) {
  return {.name = std::move(name),
          .kind = Attribute::graph,
          .g = std::make_shared<const Graph>(std::move(value))};
}

std::string Emitter::unique(std::string_view wanted) {
  std::string name(wanted.empty() ? "value" : wanted);
  if (taken_.insert(name).second) return name;
  int64_t& last = last_[name];
  for (;;)
    if (std::string numbered = cat(name, "_", ++last); taken_.insert(numbered).second)
      return numbered;
}

std::vector<Ref> Emitter::add_plain(std::string_view op, const std::vector<Ref>& inputs,
                                    std::vector<Attribute> attributes,
                                    const std::vector<DType>& dtypes) {
  Node n{.op = std::string(op), .attributes = std::move(attributes)};
  for (const Ref& r : inputs) n.inputs.push_back(r.name);
  while (!n.inputs.empty() && n.inputs.back().empty()) n.inputs.pop_back();
  std::vector<Ref> out;
  for (const DType t : dtypes) {
    out.push_back({unique(prefix_.empty() ? op : prefix_), t});
    n.outputs.push_back(out.back().name);
  }
  n.name = n.outputs.empty() ? std::string() : n.outputs[0];
  nodes.push_back(std::move(n));
  return out;
}

std::vector<Ref> Emitter::add_all(std::string_view op, std::vector<Ref> inputs,
                                  std::vector<Attribute> attributes, size_t outputs) {
  const TypeLimits& limits = type_limits(op);
  const auto letter = [&](size_t k) { return limits.in[std::min(k, limits.in.size() - 1)]; };
  DType given = TENON_DTYPE_NONE, now = TENON_DTYPE_NONE;
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (letter(k) != 'T' || !inputs[k]) continue;
    if (given == TENON_DTYPE_NONE) {
      given = inputs[k].dtype;
      now = fitting_dtype(limits, given);
      if (now == TENON_DTYPE_NONE)
        throw NoForm{cat("ONNX's ", op, " does not take ", dtype_name(given))};
    }
    inputs[k] = cast(inputs[k], now);
  }
  std::vector<DType> dtypes;
  for (size_t k = 0; k < outputs; ++k) switch (limits.out[k]) {
      case 'b':
        dtypes.push_back(kBool);
        break;
      case 'l':
        dtypes.push_back(kI64);
        break;
      case 'w':
        dtypes.push_back(kI32);
        break;
      default:
        dtypes.push_back(now);
    }
  std::vector<Ref> out = add_plain(op, inputs, std::move(attributes), dtypes);
  for (size_t k = 0; k < outputs; ++k)
    if (limits.out[k] == 'T') out[k] = cast(out[k], given);
  return out;
}

Ref Emitter::constant(const Type& type, std::shared_ptr<const Bytes> data, std::string_view name) {
  constexpr size_t kSmall = 64;
  const bool small = data->size() <= kSmall;
  const std::string form = type.text();
  std::string& known =
      small ? small_[form + std::string(reinterpret_cast<const char*>(data->data()), data->size())]
            : large_[{data.get(), form}];
  if (known.empty()) {
    known = unique(name.empty() ? "constant" : name);
    constants.push_back({.name = known, .type = type, .data = std::move(data)});
  }
  return {known, type.dtype};
}

Ref Emitter::ints(const Ints& values) {
  Bytes bytes(values.size() * sizeof(int64_t));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return constant({kI64, {static_cast<int64_t>(values.size())}},
                  std::make_shared<const Bytes>(std::move(bytes)));
}

Ref Emitter::scalar(DType dtype, double value) {
  Bytes bytes(tenon_dtype_bits(dtype) / 8);
  check(!bytes.empty() && store_number(dtype, bytes.data(), value), "export: a number of ",
        dtype_name(dtype));
  return constant({dtype, {}}, std::make_shared<const Bytes>(std::move(bytes)));
}

Ref Emitter::integer(int64_t value) {
  Bytes bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return constant({kI64, {}}, std::make_shared<const Bytes>(std::move(bytes)));
}

Ref Emitter::cast(const Ref& x, DType to) {
  if (x.dtype == to || !x) return x;
  if (is_complex(x.dtype) || is_complex(to)) throw NoForm{"ONNX converts no complex numbers"};
  return add_plain("Cast", {x}, {attribute("to", int64_t{element_of_dtype(to)})}, {to})[0];
}

Ref Emitter::reshape(const Ref& x, const Ints& shape) { return add("Reshape", {x, ints(shape)}); }

Ref Emitter::transpose(const Ref& x, const Ints& perm) {
  for (size_t k = 0; k < perm.size(); ++k)
    if (perm[k] != static_cast<int64_t>(k)) return add("Transpose", {x}, {attribute("perm", perm)});
  return x;
}

Ref Emitter::unsqueeze(const Ref& x, const Ints& axes) {
  return axes.empty() ? x : add("Unsqueeze", {x, ints(axes)});
}

Ref Emitter::slice(const Ref& x, int64_t axis, int64_t start, int64_t end, int64_t step) {
  return add("Slice", {x, ints({start}), ints({end}), ints({axis}), ints({step})});
}

Ref Emitter::concat(const std::vector<Ref>& xs, int64_t axis) {
  return xs.size() == 1 ? xs[0] : add("Concat", xs, {attribute("axis", axis)});
}

Ref Emitter::range(const Ref& count) { return add("Range", {integer(0), count, integer(1)}); }

}  // namespace tenon::core::onnx
