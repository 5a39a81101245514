// SPDX-License-Identifier: Apache-2.0
// Random graphs of norms, products with blocks and gates: what the planner joins for a device that
// claims composites, run in parts on the cpu, has the bits of the graph as it was.
// TENON_RANDOM_SEED sets the first seed, TENON_RANDOM_GRAPHS how many are tried.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "ops/record.hpp"
#include "plan/rewrite/fuse.hpp"
#include "plan/rewrite/fuse_blocks.hpp"
#include "tenon/tenon.hpp"

using namespace tenon;

namespace {

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Statements of a graph. Rows have 64 elements, products with 128 rows of w are for gates. A value is
// often read by the statement behind it, and now and then much later.
class Statements {
 public:
  explicit Statements(uint64_t seed) : rng_(seed) {
    vector_ = pick(4) == 0;
    dims_ = vector_ ? "" : std::to_string(1 + pick(3)) + ",";
    text_ = "graph {\n";
    for (const char* name : {"x", "r"}) rows_.push_back(declared("input", name, dims_ + "64"));
    if (flip()) rows_.push_back(declared("state", "s", dims_ + "64"));
    for (const char* name : {"gamma", "beta"}) declared("weight", name, "64");
    declared("weight", "c", "64"), declared("weight", "d", "128");
    if (!vector_) declared("weight", "all", dims_ + "64");
    text_ += "  weight w: q8_0[64,64]\n  weight v: q8_0[128,64]\n";
    for (uint32_t n = 4 + pick(9); n > 0; --n) add();
    for (const std::string& v : rows_)
      if (v[0] == 't' && (read_[v] == 0 || pick(6) == 0)) leave(v);
    for (const std::string& v : wide_)
      if (read_[v] == 0 || pick(6) == 0) leave(v);
    if (text_.find("state") != text_.npos && flip())
      text_ += "  update s = " + one_of(rows_) + "\n";
    for (const std::string& v : outputs_) text_ += "  output \"" + v + "\" = " + v + "\n";
    text_ += "}\n";
  }
  const std::string& text() const { return text_; }

 private:
  uint32_t pick(uint32_t n) { return static_cast<uint32_t>(rng_() % n); }
  bool flip() { return pick(2) == 0; }
  std::string declared(const std::string& space, const std::string& name, const std::string& dims) {
    text_ += "  " + space + " " + name + ": f32[" + dims + "]\n";
    return name;
  }
  const std::string& one_of(const std::vector<std::string>& values) {
    const size_t n = values.size();
    const std::string& v = values[pick(3) ? n - 1 : pick(static_cast<uint32_t>(n))];
    ++read_[v];
    return v;
  }
  std::string made(std::vector<std::string>& values, const std::string& node) {
    const std::string name = "t" + std::to_string(count_++);
    text_ += "  " + name + " = " + node + "\n";
    values.push_back(name);
    return name;
  }
  void leave(const std::string& v) {
    if (std::ranges::find(outputs_, v) == outputs_.end()) outputs_.push_back(v);
  }

  void add() {
    switch (pick(8)) {
      case 0:
      case 1:
        return norm();
      case 2:
      case 3:
      case 4:
        return product();
      case 5:
      case 6:
        if (!wide_.empty()) return gate();
        [[fallthrough]];
      default:
        made(rows_, "binary(" + one_of(rows_) + ", " + one_of(rows_) + ") {kind=\"add\"}");
    }
  }
  void norm() {
    const bool with_residual = flip();
    const uint32_t miss = pick(12);
    std::string operands = one_of(rows_);
    if (with_residual) operands += ", " + one_of(rows_) + (miss == 0 ? ", c" : ", _");
    const bool axis = miss == 1 && !vector_;
    operands += axis ? ", all" : ", gamma";
    if (miss == 2) operands += ", beta";
    const std::string node = (with_residual ? "residual_rms_norm(" : "rms_norm(") + operands +
                             ") {eps=0." + std::to_string(1 + pick(3)) + (axis ? ", axis=0" : "") +
                             "}";
    const bool statistics = miss == 3, sum = with_residual && flip();
    const std::string name = "t" + std::to_string(count_++);
    std::string names = name;
    if (sum || (statistics && with_residual)) names += sum ? ", " + name + "s" : ", _";
    if (statistics) names += ", " + name + "i";
    text_ += "  " + (names == name ? name : "(" + names + ")") + " = " + node + "\n";
    if (statistics) leave(name + "i");
    if (sum) rows_.push_back(name + "s");
    rows_.push_back(name);
    // Several products of one norm.
    for (uint32_t n = pick(3); n > 0; --n) product(name);
  }
  void product(const std::string& of = "") {
    const bool wide = flip();
    const std::string& x = of.empty() ? one_of(rows_) : of;
    ++read_[x];
    std::string operands = x + (wide ? ", v" : ", w");
    const uint32_t more = pick(10);
    if (more < 3)
      operands += wide ? ", d" : ", c";
    else if (more == 3 && vector_ && !wide)
      operands += ", " + one_of(rows_);  // any row may be a bias
    else if (more == 4)
      operands += ", _, gamma" + (flip() ? ", " + one_of(rows_) : "");
    const bool gated = wide && pick(10) == 0;
    made(wide && !gated ? wide_ : rows_,
         "dequant_matmul(" + operands + ")" + (gated ? " {gate=\"gelu\"}" : ""));
    if (wide && !gated && pick(3)) gate();
  }
  void gate() {
    const std::string& v = one_of(wide_);
    static constexpr const char* kActs[] = {"silu", "gelu", "gelu_tanh", "relu", "sigmoid"};
    const std::string act = kActs[pick(5)];
    switch (pick(8)) {
      case 0:
        made(rows_, "swiglu(" + v + ") {act=\"" + act + "\", gate_first=false}");
        break;
      case 1:
        made(wide_, "swiglu(" + v + ", " + one_of(wide_) + ") {act=\"" + act + "\"}");
        break;
      default:
        made(rows_, "swiglu(" + v + ") {act=\"" + act + "\"}");
    }
  }

  std::mt19937_64 rng_;
  bool vector_ = false;
  std::string dims_, text_;
  std::vector<std::string> rows_, wide_, outputs_;
  std::map<std::string, int> read_;
  int count_ = 0;
};

// Claims all, or what the seed says of a composite.
core::Query device_of(uint64_t seed) {
  return [=](const core::Graph& graph, uint32_t) {
    REQUIRE(graph.node_count() == 1);
    core::Verdict v;
    v.native = true;
    if (seed % 2 == 1 && graph[core::NodeId{0}].op->name() == "dequant_matmul") {
      const auto n = core::decode<core::op::dequant_matmul>(graph[core::NodeId{0}]);
      const uint64_t form = (n.gamma ? 1 : 0) + (n.residual ? 2 : 0) + (n.gate != "none" ? 4 : 0) +
                            (n.want_sum ? 8 : 0) + (n.bias ? 16 : 0);
      v.native = (seed >> (1 + form)) % 4 != 0;
    }
    if (!v.native) v.reason = TENON_REASON_OP, v.text = "not this one";
    return std::vector<core::Verdict>{v};
  };
}

const Runtime& runtime() {
  static const Runtime the({.plugin_files = {TENON_CPU_PLUGIN}, .use_environment = false});
  return the;
}

// Bytes of floats, or of blocks whose scale is 1/32.
std::vector<std::byte> content(const TensorType& type, uint64_t key) {
  std::mt19937_64 rng(key);
  Tensor t(type);
  auto* const bytes = static_cast<std::byte*>(t.data());
  if (type.dtype == f32) {
    for (size_t at = 0; at < t.size(); at += 4) {
      const float v = static_cast<float>(static_cast<int>(rng() % 4001) - 2000) / 1000;
      std::memcpy(bytes + at, &v, 4);
    }
  } else {
    for (size_t at = 0; at < t.size(); ++at) bytes[at] = static_cast<std::byte>(rng() % 256);
    for (size_t at = 0; at < t.size(); at += 34) {
      const uint16_t scale = 0x2800;
      std::memcpy(bytes + at, &scale, 2);
    }
  }
  return {bytes, bytes + t.size()};
}

// All outputs of two runs, one after the other: the second one reads the state that the first one left.
std::vector<std::vector<std::byte>> run(const core::Graph& graph) {
  const Graph g = Graph::parse(core::print(graph), "fuse_blocks");
  Store store(runtime());
  uint64_t key = 0;
  const auto each = [&](const std::vector<core::Value>& values, auto set) {
    for (const core::Value v : values) {
      const core::ValueInfo& info = graph[v];
      const TensorType type(info.type.dtype, {info.type.shape.begin(), info.type.shape.end()});
      const auto bytes = content(type, ++key);
      set(info.name, type, bytes);
    }
  };
  each(graph.weights(), [&](const auto& name, const auto& type, const auto& bytes) {
    store.set(TENON_SPACE_WEIGHT, name, type, bytes.data(), bytes.size());
  });
  each(graph.states(), [&](const auto& name, const auto& type, const auto& bytes) {
    store.set(TENON_SPACE_STATE, name, type, bytes.data(), bytes.size());
  });
  const Executable executable(runtime(), g, store,
                              {.device = "cpu:0", .simplify = false, .fuse = false});
  Context context(executable);
  each(graph.inputs(), [&](const auto& name, const auto& type, const auto& bytes) {
    context.set(name, type, bytes.data(), bytes.size());
  });
  std::vector<std::vector<std::byte>> all;
  for (int k = 0; k < 2; ++k) {
    context.run();
    for (const core::Output& o : graph.outputs()) {
      std::vector<std::byte> bytes(core::type_bytes(graph.type(o.value)));
      context.get(o.name, bytes.data(), bytes.size());
      all.push_back(std::move(bytes));
    }
  }
  return all;
}

bool is_plain(const core::Graph& g, core::NodeId n, core::Value x) {
  if (g[n].op->name() != "dequant_matmul") return false;
  const auto p = core::decode<core::op::dequant_matmul>(g[n]);
  return (!x || (p.x == x && p.bias != x)) && !p.gamma && p.gate == "none";
}

// What a device that claims everything should have got: a norm that products alone read, a gate of a
// product that is read by it alone.
std::string left_apart(const core::Graph& g) {
  std::vector<std::vector<core::NodeId>> readers(g.value_count());
  std::vector<bool> leaves(g.value_count());
  for (core::NodeId n = 0; n < g.node_count(); ++n)
    for (const core::Value v : g[n].operands)
      if (v) readers[v.id].push_back(n);
  for (const core::Output& o : g.outputs()) leaves[o.value.id] = true;
  for (const core::Update& u : g.updates()) leaves[u.value.id] = true;
  for (core::NodeId n = 0; n < g.node_count(); ++n) {
    const core::Value y = g[n].outputs[0];
    if (g[n].op->name() == "rms_norm") {
      const auto norm = core::decode<core::op::rms_norm>(g[n]);
      if (norm.beta || norm.want_inv_rms || norm.axis != -1 || leaves[y.id]) continue;
      if (!readers[y.id].empty() &&
          std::ranges::all_of(readers[y.id], [&](core::NodeId r) { return is_plain(g, r, y); }))
        return "a norm";
    }
    if (g[n].op->name() == "swiglu") {
      const auto gate = core::decode<core::op::swiglu>(g[n]);
      if (gate.up || !gate.gate_first || g[gate.gate].space != core::Space::node) continue;
      if (!leaves[gate.gate.id] && readers[gate.gate.id].size() == 1 &&
          is_plain(g, g[gate.gate].node, {}))
        return "a gate";
    }
  }
  return {};
}

std::string ops_of(const core::Graph& g) {
  std::string names;
  for (core::NodeId n = 0; n < g.node_count(); ++n)
    names += core::cat(n ? " " : "", g[n].op->name());
  return names;
}

}  // namespace

TEST_CASE("fuse_blocks: joined products have the bits of their parts") {
  const uint64_t first = number_from("TENON_RANDOM_SEED", 1),
                 count = number_from("TENON_RANDOM_GRAPHS", 1500);
  int norms = 0, sums = 0, gates = 0, all_three = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Statements statements(seed);
    CAPTURE(seed);
    CAPTURE(statements.text());
    const core::Graph plain = core::parse(statements.text(), "random");
    std::mt19937_64 rng(seed);
    const bool claims_all = seed % 3 != 0;
    const core::Query device = device_of(claims_all ? 0 : rng() | 1);
    const core::Graph fused = core::fuse(plain, device);
    core::verify(fused);
    CAPTURE(core::print(fused));
    if (claims_all) CHECK(left_apart(fused) == "");
    CHECK(ops_of(core::join_block_products(fused, device)) == ops_of(fused));
    for (core::NodeId n = 0; n < fused.node_count(); ++n) {
      if (!fused[n].note.starts_with("joined: ")) continue;
      const auto p = core::decode<core::op::dequant_matmul>(fused[n]);
      norms += bool(p.gamma), sums += p.want_sum, gates += p.gate != "none";
      all_three += p.gamma && p.want_sum && p.gate != "none";
    }
    const auto wanted = run(plain), got = run(fused);
    REQUIRE(wanted.size() == got.size());
    REQUIRE(!wanted.empty());
    for (size_t k = 0; k < wanted.size(); ++k) CHECK(wanted[k] == got[k]);
  }
  if (count < 1000) return;
  CHECK(norms > static_cast<int>(count / 4));
  CHECK(gates > static_cast<int>(count / 4));
  CHECK(sums > static_cast<int>(count / 20));
  CHECK(all_three > 10);
}
