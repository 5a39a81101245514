// SPDX-License-Identifier: Apache-2.0
// Buckets on the cases of the kit:
//
//   tenon_padded_cases TEMPLATE_PLUGIN FAMILY... [--every N]
//
// Axes of a case get a symbol in the place of their length: all axes of one length, then each axis
// alone. Results and gradients of a run whose number is rounded up must be those of an exact run, or
// the graph is refused by name; TENON_SHOW_REFUSED=1 prints why.
#include <set>

#include "case_tool.hpp"

using namespace tenon;
using namespace tenon::case_tool;

namespace {

constexpr const char* kSeed = "first";

// The axes of an input, counted from 0, that get the symbol.
using SymbolAxes = std::map<std::string, std::set<size_t>>;

// The same graph with the symbol N at these axes: its text, changed where inputs are declared.
Graph with_symbol(const Graph& g, const SymbolAxes& axes) {
  const std::string text = g.print();
  const auto inputs = g.named(TENON_SPACE_INPUT);
  std::string out;
  size_t next = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    // Only the graph's own inputs are indented by two.
    if (line.starts_with("  input ") && next < inputs.size()) {
      const auto& [name, value, trainable] = inputs[next++];
      if (const auto chosen = axes.find(name); chosen != axes.end()) {
        const Dims dims = g.type(value).dims;
        std::string shape;
        for (size_t i = 0; i < dims.size(); ++i)
          shape += (i ? "," : "") +
                   (chosen->second.contains(i) ? std::string("N") : std::to_string(dims[i]));
        line.replace(line.rfind('['), std::string::npos, "[" + shape + "]");
      }
    }
    out += line + "\n";
    if (at == 0) out += "  symbols N\n";
    at = end + 1;
  }
  return Graph::parse(out, "case");
}

class Case : public CaseJudge {
 public:
  using CaseJudge::CaseJudge;

  void judge() {
    CaseBuilder b = built(kSeed);
    if (!suits(b, TENON_MAX_RANK)) {
      ++totals_.skipped;
      return;
    }
    for (const auto& in : b.inputs()) inputs_.emplace(in.name, in.content);
    for (const auto& o : b.outputs()) b.graph().output(o.name, o.value);
    compare(b.graph());
    CaseBuilder c = built(kSeed);
    if (row_.gradient && is_float(dtype_) && add_gradients(c)) compare(c.graph());
  }

 private:
  void compare(const Graph& g) {
    std::map<int64_t, SymbolAxes> by_length;
    std::vector<std::pair<int64_t, SymbolAxes>> ways;
    for (const auto& [name, x] : inputs_) {
      if (tenon_dtype_bits(x.type.dtype) == 0) continue;  // blocks have no symbols
      for (size_t i = 0; i < x.type.dims.size(); ++i) {
        const int64_t length = x.type.dims[i];
        if (length < 1 || length > 4096) continue;
        by_length[length][name].insert(i);
        ways.push_back({length, {{name, {i}}}});
      }
    }
    ways.insert(ways.begin(), by_length.begin(), by_length.end());
    Tensors exact;
    guarded("exact", [&] { exact = run(runtime_, g, inputs_); });
    for (const auto& [length, axes] : ways) {
      std::string what = "N=" + std::to_string(length);
      for (const auto& [name, chosen] : axes)
        for (size_t i : chosen) what += " " + name + "." + std::to_string(i);
      for (const int64_t size : {length + 3, 2 * length}) {
        const std::string which = what + " of " + std::to_string(size);
        guarded(which, [&] { compare_one(g, exact, axes, size, which); });
      }
    }
  }

  void compare_one(const Graph& g, const Tensors& exact, const SymbolAxes& axes, int64_t size,
                   const std::string& what) {
    const Graph symbolic = with_symbol(g, axes);
    Tensors got;
    try {
      got = run(runtime_, symbolic, inputs_, {.buckets = {{"N", std::to_string(size)}}});
    } catch (const Error& e) {
      const std::string text = e.what();
      const bool by_name = text.find("bucket of symbol 'N'") != std::string::npos ||
                           text.find("symbol 'N' rounded up") != std::string::npos;
      if (!by_name) throw;
      ++totals_.skipped;
      if (std::getenv("TENON_SHOW_REFUSED"))
        std::printf("refused %s.%s %s: %s\n", row_.id.c_str(), dtype_text(dtype_).c_str(),
                    what.c_str(), e.what());
      return;
    }
    for (const auto& [name, want] : exact) report(what + " " + name, differ(got.at(name), want));
  }

  Tensors inputs_{};
};

}  // namespace

int main(int argc, char** argv) { return judge_cases<Case>("tenon_padded_cases", argc, argv); }
