// SPDX-License-Identifier: Apache-2.0
// The table of all records. An op without a record does not link.
#include "ops/table.hpp"

#include <unordered_map>

#include "ops/registry.hpp"

namespace tenon::core {

const std::vector<const OpRecord*>& all_records() {
  static const std::vector<const OpRecord*> records = {
#define TENON_OP(name, version, family, level) &name##_def,
#include "tenon/each_op.inl"
  };
  return records;
}

const OpRecord* find_record(std::string_view domain, std::string_view name, uint32_t version) {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, const OpRecord*> map;
    for (const OpRecord* r : all_records()) map.emplace(r->name(), r);
    return map;
  }();
  if (domain != "tenon") return find_registered(domain, name, version);
  const auto found = by_name.find(name);
  if (found == by_name.end()) return nullptr;
  return version <= found->second->schema->version ? found->second : nullptr;
}

const OpRecord& record_of(std::string_view name) {
  const OpRecord* r = find_record("tenon", name);
  check(r != nullptr, "no record for op ", name);
  return *r;
}

}  // namespace tenon::core
