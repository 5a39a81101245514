// SPDX-License-Identifier: Apache-2.0
// Leaves out cases. Each choice depends on the suite and the options alone, so it is the same on
// every machine.
#include "select.hpp"

#include <algorithm>
#include <fstream>
#include <numeric>

#include "own_cases.hpp"

namespace tenon::conform {
namespace {

bool wants(const Options& o, const Case& c) {
  const auto any = [](const std::vector<std::string>& globs, const std::string& name) {
    return globs.empty() || std::ranges::any_of(globs, [&](const std::string& glob) {
             return matches(glob.c_str(), name.c_str());
           });
  };
  return any(o.globs, c.id) && any(o.requirements, c.requirement);
}

std::vector<size_t> in_order(size_t n) {
  std::vector<size_t> out(n);
  std::iota(out.begin(), out.end(), size_t{0});
  return out;
}

// What --quick covers. Each feature names its family, so what is chosen of a family does not depend
// on the others.
std::vector<std::string> features(const Chosen& c) {
  const std::string family = std::string(c.unit.row->family) + " ";
  const bool is_error = c.unit.row->row.error != TENON_OK;
  std::vector<std::string> out;
  for (const Case& one : c.facts.cases) out.push_back(family + "proof " + one.proof);
  if (is_error || c.unit.dtype == TENON_DTYPE_NONE) return out;
  const std::string dtype = dtype_text(c.unit.dtype);
  out.push_back(family + "dtype " + dtype);
  for (const auto& op : c.facts.ops) {
    out.push_back(family + "op " + op_text(op));
    if (c.unit.dtype == f32)
      out.push_back(family + "op " + op_text(op) + " f32");  // that most devices have
    out.push_back(family + "op " + op.op + " dtype " + dtype);
  }
  return out;
}

// From small to large, each unit that has a feature which none before it has. Units with a tensor
// without elements come last: they show little of an op.
void keep_quick(std::vector<Chosen>& units) {
  std::vector<size_t> order = in_order(units.size());
  std::ranges::stable_sort(order, {}, [&](size_t k) {
    return std::pair(units[k].facts.empty, units[k].facts.elements);
  });
  std::set<std::string> covered;
  std::vector<bool> keep(units.size(), false);
  for (const size_t k : order)
    for (std::string& feature : features(units[k]))
      if (covered.insert(std::move(feature)).second) keep[k] = true;
  size_t k = 0;
  std::erase_if(units, [&](const Chosen&) { return !keep[k++]; });
}

// About the time of a unit: a start-up per case, then its elements. A gradient runs its graph many
// times.
double cost(const Chosen& c) {
  const double runs = c.unit.dtype == TENON_DTYPE_NONE ? 50 : 1;
  return static_cast<double>(c.facts.cases.size()) *
         (40000 + runs * static_cast<double>(std::max<int64_t>(c.facts.elements, 1)));
}

// The most expensive unit first, each to the shard that has the least work so far.
void keep_shard(std::vector<Chosen>& units, unsigned shard, unsigned shards) {
  std::vector<size_t> order = in_order(units.size());
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t k) { return cost(units[k]); });
  std::vector<double> loads(shards, 0);
  std::vector<bool> keep(units.size(), false);
  for (const size_t k : order) {
    const auto least = std::ranges::min_element(loads);
    *least += cost(units[k]);
    keep[k] = least - loads.begin() == static_cast<ptrdiff_t>(shard) - 1;
  }
  size_t k = 0;
  std::erase_if(units, [&](const Chosen&) { return !keep[k++]; });
}

}  // namespace

std::string op_text(const CaseBuilder::Used& op) {
  return op.kind.empty() ? op.op : op.op + "/" + op.kind;
}

Suite suite_of(const Options& o) {
  Suite suite;
  for (const std::string& file : o.case_files) add_cases(suite, file);
  for (const Family& f : families()) {
    if (!o.case_files.empty() || !o.wants_family(f.name)) continue;
    suite.begin(f.name);
    f.cases(suite);
  }
  return suite;
}

Selection select(const Options& o, const Suite& suite) {
  Selection out;
  std::set<std::string> names;
  for (const Unit& unit : units_of(suite, o.fusion)) {
    Chosen c{unit, unit.facts()};
    for (const Case& one : c.facts.cases) {
      for (const std::string& name : {one.id, one.requirement})
        if (!names.insert(name).second) throw std::logic_error("two cases are called " + name);
      out.ids.push_back(one.id);
      out.requirements.push_back(one.requirement);
    }
    out.kit += c.facts.cases.size();
    if (unit.row->row.error == TENON_OK)
      for (const auto& op : c.facts.ops) out.ops.emplace(op_text(op), op.level);
    if (o.run_only && unit.dtype == TENON_DTYPE_NONE) continue;  // gradients are the reference's
    if (o.has_elements() && c.facts.elements > o.elements) continue;
    std::erase_if(c.facts.cases, [&](const Case& one) { return !wants(o, one); });
    if (!c.facts.cases.empty()) out.units.push_back(std::move(c));
  }
  if (o.quick) keep_quick(out.units);
  if (o.shards > 1) keep_shard(out.units, o.shard, o.shards);
  for (const Chosen& c : out.units) out.cases += c.facts.cases.size();
  return out;
}

std::vector<Known> read_known(const std::string& file, const Selection& selection,
                              bool all_families) {
  std::ifstream stream(file);
  if (!stream) throw Usage("--expect: cannot read " + file);
  std::vector<Known> out;
  std::string line;
  for (size_t number = 1; std::getline(stream, line); ++number) {
    static constexpr const char* kBlank = " \t\r";
    const size_t begin = line.find_first_not_of(kBlank);
    if (begin == line.npos || line[begin] == '#') continue;
    const size_t end = std::min(line.find_first_of(kBlank, begin), line.size());
    Known known{line.substr(begin, end - begin), ""};
    if (const size_t at = line.find_first_not_of(kBlank, end); at != line.npos)
      known.reason = line.substr(at, line.find_last_not_of(kBlank) + 1 - at);
    const auto matched = [&](const std::string& name) {
      return matches(known.glob.c_str(), name.c_str());
    };
    if (all_families && std::ranges::none_of(selection.ids, matched) &&
        std::ranges::none_of(selection.requirements, matched))
      throw Usage("--expect: " + file + ":" + std::to_string(number) + ": '" + known.glob +
                  "' matches no case id and no requirement id");
    out.push_back(std::move(known));
  }
  return out;
}

const Known* find_known(const std::vector<Known>& known, const Case& c) {
  const auto at = std::ranges::find_if(known, [&](const Known& k) {
    return matches(k.glob.c_str(), c.id.c_str()) || matches(k.glob.c_str(), c.requirement.c_str());
  });
  return at == known.end() ? nullptr : &*at;
}

}  // namespace tenon::conform
