// SPDX-License-Identifier: Apache-2.0
// Placement as minimum cuts, and the price of a placement.
#include "plan/rewrite/placement.hpp"

#include <algorithm>
#include <utility>

#include "plan/memory/partition.hpp"
#include "plan/memory/schedule.hpp"
#include "plan/rewrite/claims.hpp"
#include "plan/rewrite/min_cut.hpp"
#include "plan/rewrite/price.hpp"
#include "plan/rewrite/reader.hpp"

namespace tenon::core {
namespace {

// Something that a device which reads it pays for once, unless it is the maker's.
struct Link {
  enum class Kind : uint8_t { made, input, start } kind;
  NodeId maker;  // kNone: an input
  uint64_t bytes;
  uint32_t first, last;  // of the readers
};

class Prices {
 public:
  Prices(const Graph& graph, std::span<const Rates> rates) : graph_(graph), rates_(rates) {
    add_values();
    add_starts();
  }

  const std::vector<Link>& links() const { return links_; }
  std::span<const NodeId> readers(const Link& l) const {
    return std::span(readers_).subspan(l.first, l.last - l.first);
  }
  // Of a region that begins, beside its steps.
  double start(uint32_t d) const { return std::max(0.0, rates_[d].run - rates_[d].step); }
  // What device `to` pays. start_share: of the price of a start.
  double price(const Link& l, uint32_t from, uint32_t to, double start_share) const {
    switch (l.kind) {
      case Link::Kind::made:
        return price_of_transfer(l.bytes, rates_[from], rates_[to]);
      case Link::Kind::input: {
        const auto wanted_there = [&](NodeId n) { return graph_[n].device == to; };
        if (std::ranges::any_of(readers(l), wanted_there)) return 0;
        return static_cast<double>(l.bytes) / rates_[to].to_device + rates_[to].transfer;
      }
      default:
        return start_share * start(to);
    }
  }

 private:
  void add(Link::Kind kind, NodeId maker, uint64_t bytes, std::span<const NodeId> readers) {
    const auto first = static_cast<uint32_t>(readers_.size());
    for (NodeId r : readers)
      if (r != maker && (readers_.size() == first || readers_.back() != r)) readers_.push_back(r);
    const auto last = static_cast<uint32_t>(readers_.size());
    if (first != last) links_.push_back({kind, maker, bytes, first, last});
  }

  void add_values() {
    const Readers readers(graph_);
    for (uint32_t id = 0; id < graph_.value_count(); ++id) {
      const Value v{id};
      const ValueInfo& info = graph_[v];
      const uint64_t bytes = type_bytes(info.type);
      if (info.space == Space::node)
        add(Link::Kind::made, info.node, bytes, readers.of(v));
      else if (info.space == Space::input)
        add(Link::Kind::input, kNone, bytes, readers.of(v));
      else if (const NodeId maker = maker_of(graph_, graph_.update_of(v)); maker != kNone)
        add(Link::Kind::made, maker, bytes, readers.of(v));
    }
  }

  // Which nodes wait for a node last.
  void add_starts() {
    std::vector<std::pair<uint32_t, NodeId>> waits;
    for (NodeId n = 0; n < graph_.node_count(); ++n) {
      NodeId last = kNone;
      for (Value v : graph_[n].operands)
        if (const NodeId m = maker_of(graph_, v); m != kNone && (last == kNone || m > last))
          last = m;
      if (last != kNone) waits.emplace_back(last, n);
    }
    const NodeLists by_maker(graph_.node_count(), waits);
    for (NodeId n = 0; n < graph_.node_count(); ++n) add(Link::Kind::start, n, 0, by_maker[n]);
  }

  const Graph& graph_;
  std::span<const Rates> rates_;
  std::vector<NodeId> readers_;
  std::vector<Link> links_;
};

// The regions that partition() would cut.
class Regions {
 public:
  Regions(const Graph& graph, std::span<const Rates> rates) : graph_(graph) {
    for (const Rates& r : rates) short_work_.push_back(r.run * r.copy);
  }
  std::vector<Region> of(std::span<const uint32_t> device_of_node) {
    if (order_.empty()) order_ = schedule(graph_);
    return partition(graph_, device_of_node, order_, short_work_);
  }

 private:
  const Graph& graph_;
  std::vector<double> short_work_;
  std::vector<NodeId> order_;
};

// Nodes that can be on no device cost nothing.
double total(const Prices& prices, const NodePrices& nodes, std::span<const uint32_t> device_of,
             Regions& regions) {
  double seconds = 0;
  for (NodeId n = 0; n < device_of.size(); ++n)
    if (const double price = nodes.at(n, device_of[n]); price < NodePrices::kNoDevice)
      seconds += price;
  std::vector<size_t> seen(nodes.devices(), SIZE_MAX);
  for (size_t k = 0; k < prices.links().size(); ++k) {
    const Link& link = prices.links()[k];
    if (link.kind == Link::Kind::start) continue;
    const uint32_t from = link.maker == kNone ? kNone : device_of[link.maker];
    for (NodeId r : prices.readers(link)) {
      const uint32_t to = device_of[r];
      if (to == from || std::exchange(seen[to], k) == k) continue;
      seconds += prices.price(link, from, to, 0);
    }
  }
  for (const Region& r : regions.of(device_of)) seconds += prices.start(r.device);
  return seconds;
}

class Placing {
 public:
  Placing(const Graph& graph, const NodePrices& nodes, std::span<const NodeId> together,
          std::span<const Rates> rates)
      : graph_(graph),
        nodes_(nodes),
        together_(together),
        prices_(graph, rates),
        regions_(graph, rates),
        sums_(graph.node_count(), nodes.devices()),
        device_of_(graph.node_count()),
        variable_(graph.node_count()) {
    for (NodeId n = 0; n < graph.node_count(); ++n)
      for (uint32_t d = 0; d < nodes.devices(); ++d)
        if (together[n] == n)
          sums_.at(n, d) = price_with_preference(n, d);
        else
          sums_.at(together[n], d) += price_with_preference(n, d);
  }

  std::vector<uint32_t> run() {
    const std::vector<uint32_t> stay = nobody_moves();
    if (!any_choice()) return stay;
    std::vector<std::vector<uint32_t>> tried = {stay};
    for (const double share : {1.0, 0.125, 0.0}) {
      device_of_ = stay;
      improve(share);
      if (std::ranges::find(tried, device_of_) == tried.end()) tried.push_back(device_of_);
    }
    if (tried.size() == 1) return stay;
    size_t best = 0;
    double least = total(prices_, nodes_, tried[0], regions_);
    for (size_t k = 1; k < tried.size(); ++k)
      if (const double seconds = total(prices_, nodes_, tried[k], regions_);
          costs_less(seconds, least))
        best = k, least = seconds;
    return std::move(tried[best]);
  }

 private:
  // Prices are estimates: at equal ones a node stays.
  double price_with_preference(NodeId n, uint32_t d) const {
    constexpr double kElsewhere = 1 + 1e-3;
    return nodes_.at(n, d) * (d == graph_[n].device ? 1 : kElsewhere);
  }
  bool can_be(NodeId unit, uint32_t d) const { return sums_.at(unit, d) < NodePrices::kNoDevice; }

  // Each node where it is wanted; if it cannot be there, on its cheapest device.
  std::vector<uint32_t> nobody_moves() const {
    std::vector<uint32_t> device(graph_.node_count());
    for (NodeId n = 0; n < graph_.node_count(); ++n) {
      const NodeId unit = together_[n];
      device[n] = graph_[n].device;
      if (can_be(unit, device[n])) continue;
      for (uint32_t d = 0; d < nodes_.devices(); ++d)
        if (sums_.at(unit, d) < sums_.at(unit, device[n])) device[n] = d;
    }
    return device;
  }

  bool any_choice() const {
    for (NodeId n = 0; n < graph_.node_count(); ++n) {
      uint32_t choices = 0;
      for (uint32_t d = 0; d < nodes_.devices(); ++d) choices += can_be(together_[n], d);
      if (choices > 1) return true;
    }
    return false;
  }

  void improve(double share) {
    constexpr int kMostRounds = 4;
    bool any = true;
    for (int round = 0; any && round < kMostRounds; ++round) {
      any = false;
      for (uint32_t a = 0; a < nodes_.devices(); ++a)
        for (uint32_t b = a + 1; b < nodes_.devices(); ++b) any |= swap(a, b, share);
      if (nodes_.devices() == 2) break;  // the cut of one pair is the best there is
    }
  }

  // Cuts the nodes that are on a or b and can be on both. Returns whether any of them moved.
  bool swap(uint32_t a, uint32_t b, double share) {
    std::vector<NodeId> units;
    std::ranges::fill(variable_, kNone);
    for (NodeId n = 0; n < graph_.node_count(); ++n) {
      if (together_[n] != n || (device_of_[n] != a && device_of_[n] != b)) continue;
      if (!can_be(n, a) || !can_be(n, b)) continue;
      variable_[n] = static_cast<uint32_t>(units.size());
      units.push_back(n);
    }
    if (units.empty()) return false;
    MinCut cut(static_cast<uint32_t>(units.size()));
    for (uint32_t k = 0; k < units.size(); ++k)
      cut.add_sides(k, sums_.at(units[k], a), sums_.at(units[k], b));
    for (const Link& link : prices_.links()) add_link(cut, link, a, b, share);
    const std::vector<bool> on_b = cut.run();
    bool moved = false;
    for (NodeId n = 0; n < graph_.node_count(); ++n) {
      const uint32_t k = variable_[together_[n]];
      if (k == kNone) continue;
      const uint32_t device = on_b[k] ? b : a;
      moved |= std::exchange(device_of_[n], device) != device;
    }
    return moved;
  }

  // What a link costs, as pairs of nodes that part. On first: a, on second: b.
  void add_link(MinCut& cut, const Link& link, uint32_t a, uint32_t b, double share) {
    const auto price = [&](uint32_t from, uint32_t to) {
      return from == to ? 0.0 : prices_.price(link, from, to, share);
    };
    const NodeId unit = link.maker == kNone ? kNone : together_[link.maker];
    const uint32_t maker = unit == kNone ? kNone : variable_[unit];
    bool on_a = false, on_b = false;  // a reader that cannot move is
    free_.clear(), others_.clear();
    for (NodeId r : prices_.readers(link)) {
      if (together_[r] == unit) continue;
      if (const uint32_t k = variable_[together_[r]]; k != kNone)
        free_.push_back(k);
      else if (const uint32_t d = device_of_[r]; d == a || d == b)
        (d == a ? on_a : on_b) = true;
      else
        others_.push_back(d);
    }
    if (free_.empty() && maker == kNone) return;
    sort_once(free_), sort_once(others_);
    if (maker == kNone) {
      const uint32_t from = unit == kNone ? kNone : device_of_[link.maker];
      if (!on_a) add_any_on_first(cut, kNone, price(from, a));
      if (!on_b) add_any_on_second(cut, kNone, price(from, b));
      return;
    }
    double of_a = on_b ? price(a, b) : 0, of_b = on_a ? price(b, a) : 0;  // if the maker is there
    for (uint32_t d : others_) of_a += price(a, d), of_b += price(b, d);
    cut.add_sides(maker, of_a, of_b);
    if (!on_b) add_any_on_second(cut, maker, price(a, b));
    if (!on_a) add_any_on_first(cut, maker, price(b, a));
  }

  static void sort_once(std::vector<uint32_t>& list) {
    std::ranges::sort(list);
    list.erase(std::ranges::unique(list).begin(), list.end());
  }

  // A price if any of free_ is on the second side, and the maker on the first or no part of the cut.
  void add_any_on_second(MinCut& cut, uint32_t maker, double price) const {
    if (price <= 0 || free_.empty()) return;
    uint32_t any = free_[0];
    if (free_.size() > 1) {
      any = cut.add_node();
      for (uint32_t k : free_) cut.never(any, k);
    }
    if (maker == kNone)
      cut.add_sides(any, 0, price);
    else
      cut.add_pair(maker, any, price);
  }
  void add_any_on_first(MinCut& cut, uint32_t maker, double price) const {
    if (price <= 0 || free_.empty()) return;
    uint32_t any = free_[0];
    if (free_.size() > 1) {
      any = cut.add_node();
      for (uint32_t k : free_) cut.never(k, any);
    }
    if (maker == kNone)
      cut.add_sides(any, price, 0);
    else
      cut.add_pair(any, maker, price);
  }

  const Graph& graph_;
  const NodePrices& nodes_;
  std::span<const NodeId> together_;
  const Prices prices_;
  Regions regions_;
  NodePrices sums_;                  // of nodes that move together, by the first of them
  std::vector<uint32_t> device_of_;  // by node
  std::vector<uint32_t> variable_;   // by unit: its node of the cut
  std::vector<uint32_t> free_;       // of a link: readers that may move, by node of the cut
  std::vector<uint32_t> others_;     // likewise: devices of readers that are not part of the cut
};

}  // namespace

std::vector<uint32_t> place_by_price(const Graph& graph, const NodePrices& prices,
                                     std::span<const NodeId> together,
                                     std::span<const Rates> rates) {
  return Placing(graph, prices, together, rates).run();
}

double price_of_placement(const Graph& graph, const NodePrices& prices,
                          std::span<const uint32_t> device_of_node, std::span<const Rates> rates) {
  Regions regions(graph, rates);
  return total(Prices(graph, rates), prices, device_of_node, regions);
}

}  // namespace tenon::core
