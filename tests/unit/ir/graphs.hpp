// SPDX-License-Identifier: Apache-2.0
// Graphs that several tests need, and a way to look at them.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <string_view>

#include "ir/text.hpp"
#include "ops/record.hpp"

namespace tenon::core {

// Text of the graph form, as a test writes it.
inline Graph graph_of(std::string_view text) { return parse(text, "test"); }

// The ops of a graph, in order: "binary scan".
inline std::string ops_of(const Graph& g) {
  std::string names;
  for (NodeId n = 0; n < g.node_count(); ++n)
    names += (n ? " " : "") + std::string(g[n].op->name());
  return names;
}

inline std::shared_ptr<const Bytes> bytes_of(std::initializer_list<float> numbers) {
  auto data = std::make_shared<Bytes>(numbers.size() * 4);
  std::memcpy(data->data(), std::data(numbers), data->size());
  return data;
}

// An op of another domain that has an attribute of every type, and writes its operand through.
inline const OpRecord& every_attr_op() {
  using K = OpPart::Kind;
  static constexpr OpPart parts[] = {
      {.kind = K::attr, .name = "i", .attr_type = TENON_ATTR_I64},
      {.kind = K::attr, .name = "f", .attr_type = TENON_ATTR_F64},
      {.kind = K::attr, .name = "b", .attr_type = TENON_ATTR_BOOL},
      {.kind = K::attr, .name = "s", .attr_type = TENON_ATTR_STR},
      {.kind = K::attr, .name = "is", .attr_type = TENON_ATTR_INTS},
      {.kind = K::attr, .name = "fs", .attr_type = TENON_ATTR_FLOATS},
      {.kind = K::attr, .name = "d", .attr_type = TENON_ATTR_DTYPE},
      {.kind = K::attr, .name = "fn", .attr_type = TENON_ATTR_FUNCTION},
      {.kind = K::operand, .name = "x"},
      {.kind = K::optional_operand, .name = "z"},
      {.kind = K::output, .name = "y"},
      {.kind = K::optional_output, .name = "extra"},
  };
  static constexpr OpSchema schema{.name = "every",
                                   .family = "test",
                                   .version = 3,
                                   .level = OpLevel::core,
                                   .first = parts,
                                   .part_count = std::size(parts)};
  static const OpRecord record{.domain = "org.example",
                               .schema = &schema,
                               .shape = [](Infer& i, const Graph& g, const NodeInfo& n) {
                                 i.out(0, g.type(n.operands[0]));
                                 i.out(1, g.type(n.operands[0]));
                               }};
  return record;
}
inline const OpRecord* find_every(std::string_view domain, std::string_view name,
                                  uint32_t version) {
  if (domain == "org.example")
    return name == "every" && (version == 0 || version == 3) ? &every_attr_op() : nullptr;
  return find_record(domain, name, version);
}

// Input of one number, then a chain of `length` unary nodes; the last leaves as "y".
inline Graph chain(uint32_t length, std::string_view kind = "exp") {
  Graph g;
  Value v = g.input("x", {kF32, {}});
  for (uint32_t i = 0; i < length; ++i)
    v = g[g.add(op::unary{.kind = std::string(kind), .x = v})].outputs[0];
  g.output("y", v);
  return g;
}

// Runs and gives the message of the Error that comes; "" when none does.
template <class Call>
std::string refusal(Call call, Code code = Code::invalid_argument) {
  try {
    call();
  } catch (const Error& e) {
    CHECK(static_cast<int>(e.code()) == static_cast<int>(code));
    return e.what();
  }
  return "";
}

// A substring check that shows both sides.
#define CHECK_SAYS(text, words) \
  CHECK_MESSAGE((text).find(words) != std::string::npos, "said: ", (text))

}  // namespace tenon::core
