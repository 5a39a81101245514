// SPDX-License-Identifier: Apache-2.0
// The list of ops as data: find_op("rms_norm") returns operands, attributes with defaults, and
// outputs. Header-only and constant-initialized, without static destructors.
#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "blob.h"
#include "types.h"

// Default of an F64 attribute: the op chooses the value. Test with is_unset().
#define TENON_UNSET (std::numeric_limits<double>::quiet_NaN())

namespace tenon {

inline bool is_unset(double v) { return std::isnan(v); }

// primitive: without a decomposition. core: may have one. meta: expanded before any plugin. control:
// runs functions; the host does, out of what devices take of them.
enum class OpLevel : uint8_t { primitive, core, meta, control };

// The name of an op. That of its struct ends in _ where C++ keeps the word for itself: op::if_.
constexpr std::string_view op_name(std::string_view struct_name) {
  if (struct_name.ends_with('_')) struct_name.remove_suffix(1);
  return struct_name;
}

// One part of an op's entry.
struct OpPart {
  enum class Kind : uint8_t {
    begin,
    operand,
    optional_operand,
    operand_list,
    optional_list,
    attr,
    output,
    optional_output,
    output_list,
    end
  };
  Kind kind{};
  std::string_view name{};
  uint32_t attr_type = 0;    // TENON_ATTR_*, for attr
  int64_t default_int = 0;   // I64, BOOL, DTYPE
  double default_float = 0;  // F64
  std::string_view default_str{};
  uint32_t version = 0;  // for begin
  std::string_view family{};
  OpLevel level{};

  constexpr bool is_operand_list() const {
    return kind == Kind::operand_list || kind == Kind::optional_list;
  }
  // An attribute that a node must have.
  constexpr bool required() const {
    return kind == Kind::attr && name == "kind" && attr_type == TENON_ATTR_STR &&
           default_str.empty();
  }
};

namespace detail {
inline constexpr OpPart kOpParts[] = {
#define TENON_OP(n, v, f, l)    \
  {.kind = OpPart::Kind::begin, \
   .name = op_name(#n),         \
   .version = v,                \
   .family = #f,                \
   .level = OpLevel::l},
#define TENON_END(n) {.kind = OpPart::Kind::end, .name = #n},
#include "op_parts.inl"
#include "ops.def"
#include "undef_ops.inl"
};

inline constexpr size_t kOpCount = [] {
  size_t n = 0;
  for (const OpPart& p : kOpParts) n += p.kind == OpPart::Kind::begin;
  return n;
}();
}  // namespace detail

// The entry of an op. parts() lists attributes, operands and outputs in the order of ops.def.
struct OpSchema {
  std::string_view name;
  std::string_view family;
  uint32_t version = 0;
  OpLevel level{};
  const OpPart* first = nullptr;
  uint32_t part_count = 0;

  constexpr std::span<const OpPart> parts() const { return {first, part_count}; }
  // Returns the attribute of that name, or nullptr.
  constexpr const OpPart* attr(std::string_view name_) const {
    for (const OpPart& p : parts())
      if (p.kind == OpPart::Kind::attr && p.name == name_) return &p;
    return nullptr;
  }
  // Returns the name of operand or output k, for messages. The name of a list applies to all of its
  // positions. lists: the sizes of the node's operand lists.
  constexpr std::string_view operand_name(size_t k, std::span<const uint32_t> lists) const {
    size_t list = 0;
    for (const OpPart& p : parts()) {
      size_t size = p.kind == OpPart::Kind::operand || p.kind == OpPart::Kind::optional_operand;
      if (p.is_operand_list()) size = list < lists.size() ? lists[list++] : 0;
      if (k < size) return p.name;
      k -= size;
    }
    return "?";
  }
  constexpr std::string_view output_name(size_t k) const {
    for (const OpPart& p : parts()) {
      if (p.kind < OpPart::Kind::output || p.kind > OpPart::Kind::output_list) continue;
      if (k == 0 || p.kind == OpPart::Kind::output_list) return p.name;
      --k;
    }
    return "?";
  }
};

namespace detail {
inline constexpr std::array<OpSchema, kOpCount> kOpSchemas = [] {
  std::array<OpSchema, kOpCount> table{};
  size_t op = 0;
  for (const OpPart& p : kOpParts) {
    if (p.kind == OpPart::Kind::begin) {
      table[op] = {p.name, p.family, p.version, p.level, &p + 1, 0};
    } else if (p.kind == OpPart::Kind::end) {
      ++op;
    } else {
      ++table[op].part_count;
    }
  }
  return table;
}();
}  // namespace detail

inline constexpr std::span<const OpSchema> all_ops() { return detail::kOpSchemas; }

// Returns the newest version of an op, or nullptr.
constexpr const OpSchema* find_op(std::string_view name) {
  for (const OpSchema& s : all_ops())
    if (s.name == name) return &s;
  return nullptr;
}

namespace detail {
template <class Op>
inline constexpr OpSchema kOwnSchema = tenon_schema(static_cast<const Op*>(nullptr));
}  // namespace detail

// Returns the schema of an op struct (op_structs.inl).
template <class Op>
constexpr const OpSchema& schema_of() {
  if constexpr (Op::kDomain == "tenon")
    return *find_op(Op::kName);
  else
    return detail::kOwnSchema<Op>;
}

}  // namespace tenon
