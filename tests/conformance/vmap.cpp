// SPDX-License-Identifier: Apache-2.0
// vmap and jvp on the cases of the kit:
//
//   tenon_vmap_cases TEMPLATE_PLUGIN FAMILY... [--every N]
//
// Each case is a body. Its results for a batch must be those of three runs with an example each:
// with all operands batched along different axes, and with some of them the same for all examples;
// of an empty batch, empty ones; also its gradients, taken inside the body and through the batch.
// Forward derivatives must agree with the reverse mode: <u, J·t> = <Jᵀ·u, t>.
#include <numeric>

#include "case_tool.hpp"

using namespace tenon;
using namespace tenon::case_tool;

namespace {

constexpr int64_t kExamples = 3;
constexpr const char* kSeeds[kExamples] = {"first", "second", "third"};

// ---- batches on the host

Dims with_axis(Dims dims, size_t axis) {
  dims.insert(dims.begin() + static_cast<ptrdiff_t>(axis), kExamples);
  return dims;
}
size_t product(const Dims& dims, size_t first, size_t last) {
  size_t n = 1;
  for (size_t i = first; i < last; ++i) n *= static_cast<size_t>(dims[i]);
  return n;
}
// Copies example e between its own tensor and the batch.
void copy_example(HostTensor& batch, HostTensor& one, size_t axis, size_t e, bool into) {
  const size_t outer = product(one.type.dims, 0, axis);
  const size_t inner = outer ? one.bytes.size() / outer : 0;
  for (size_t o = 0; o < outer && inner; ++o) {
    std::byte* const in_batch = batch.bytes.data() + (o * kExamples + e) * inner;
    std::byte* const alone = one.bytes.data() + o * inner;
    std::memcpy(into ? in_batch : alone, into ? alone : in_batch, inner);
  }
}

// ---- one case

class Case : public CaseJudge {
 public:
  using CaseJudge::CaseJudge;

  void judge() {
    for (const char* seed : kSeeds) {
      Tensors inputs;
      const CaseBuilder b = built(seed);
      for (const auto& in : b.inputs()) inputs.emplace(in.name, in.content);
      examples_.push_back(std::move(inputs));
    }
    CaseBuilder b = built(kSeeds[0]);
    // An op whose rows have an extent takes no batch.
    const std::string text = b.graph().print();
    const auto has = [&](const char* node) { return text.find(node) != std::string::npos; };
    // Rows of blocks must have the same indices in all examples; some ways here give each its own.
    const bool moves_blocks = row_.may_refuse && (has(" = gather(") || has(" = scatter("));
    if (!suits(b, 6) || has(" = non_zero(") || moves_blocks) {
      ++totals_.skipped;
      return;
    }
    for (const auto& o : b.outputs()) b.graph().output(o.name, o.value);
    compare_batches("", b.graph());
    if (!row_.gradient || !is_float(dtype_)) return;
    CaseBuilder c = built(kSeeds[0]);
    if (!add_gradients(c)) return;
    const Tensors gradients = compare_batches("gradients inside", c.graph());
    compare_outer_gradients(gradients);
    compare_forward();
  }

 private:
  // The body over the batch against its runs alone. Returns what the examples give, stacked.
  Tensors compare_batches(const std::string& what, const Graph& body) {
    std::vector<Tensors> alone;
    Tensors stacked;
    guarded(what + " alone", [&] {
      for (const Tensors& inputs : examples_) alone.push_back(run(runtime_, body, inputs));
    });
    if (alone.size() != kExamples) return {};
    // In the second way every other operand is that of the first example; in the third all but the
    // last.
    for (int way = 0; way < 3; ++way) {
      const std::string which = what + " way " + std::to_string(way);
      guarded(which, [&] {
        const auto names = body.named(TENON_SPACE_INPUT);
        Graph g("batch");
        std::vector<Value> xs, captured;
        std::vector<int64_t> in_axes, out_axes;
        Tensors inputs;
        std::vector<bool> batched;
        for (size_t k = 0; k < names.size(); ++k)
          batched.push_back(way == 0 || (way == 1 ? k % 2 == 0 : k + 1 == names.size()));
        if (way > 0 && names.size() == 1) return;
        std::vector<Tensors> expected = alone;
        if (way > 0) {
          for (size_t e = 0; e < kExamples; ++e) {
            Tensors own = examples_[e];
            for (size_t k = 0; k < names.size(); ++k)
              if (!batched[k]) own.at(names[k].name) = examples_[0].at(names[k].name);
            expected[e] = run(runtime_, body, own);
          }
        }
        std::vector<std::string> order;  // a body has the batched inputs first
        for (const bool of_batch : {true, false})
          for (size_t k = 0; k < names.size(); ++k) {
            if (batched[k] != of_batch) continue;
            order.push_back(names[k].name);
            HostTensor& one = examples_[0].at(names[k].name);
            if (!of_batch) {
              captured.push_back(g.input(names[k].name, one.type));
              inputs.emplace(names[k].name, one);
              continue;
            }
            // Blocks cannot be transposed: their examples lie one after the other.
            const bool in_front = way > 0 || tenon_dtype_bits(one.type.dtype) == 0;
            const size_t axis = in_front ? 0 : k % (one.type.dims.size() + 1);
            HostTensor batch({one.type.dtype, with_axis(one.type.dims, axis)});
            for (size_t e = 0; e < kExamples; ++e)
              copy_example(batch, examples_[e].at(names[k].name), axis, e, true);
            xs.push_back(g.input(names[k].name, batch.type));
            in_axes.push_back(static_cast<int64_t>(axis));
            inputs.emplace(names[k].name, std::move(batch));
          }
        const Graph reordered = with_inputs(body, order);
        size_t k = 0;
        for (const auto& [name, value] : reordered.outputs()) {
          const size_t rank = expected[0].at(name).type.dims.size();
          out_axes.push_back(way == 0 ? static_cast<int64_t>(k % (rank + 1)) : 0);
          ++k;
        }
        const Node ys =
            g.vmap(xs, reordered, {.in_axes = in_axes, .out_axes = out_axes, .captured = captured});
        k = 0;
        for (const auto& [name, value] : reordered.outputs()) g.output(name, ys[k++]);
        Tensors got = run(runtime_, g, inputs);
        k = 0;
        for (const auto& [name, value] : reordered.outputs()) {
          const auto axis = static_cast<size_t>(out_axes[k++]);
          for (size_t e = 0; e < kExamples; ++e) {
            HostTensor one(expected[e].at(name).type);
            copy_example(got.at(name), one, axis, e, false);
            report(which + " output " + name, differ(one, expected[e].at(name)));
          }
        }
      });
    }
    guarded(what + " empty", [&] {
      Graph g("empty");
      std::vector<Value> xs;
      Tensors inputs;
      const auto empty = [](TensorType t) {
        t.dims.insert(t.dims.begin(), 0);
        return t;
      };
      for (const auto& in : body.named(TENON_SPACE_INPUT)) {
        const TensorType type = empty(examples_[0].at(in.name).type);
        xs.push_back(g.input(in.name, type));
        inputs.emplace(in.name, HostTensor(type));
      }
      const Node ys = g.vmap(xs, body);
      size_t k = 0;
      for (const auto& [name, value] : body.outputs()) g.output(name, ys[k++]);
      for (const auto& [name, y] : run(runtime_, g, inputs))
        report(what + " empty output " + name,
               y.type == empty(alone[0].at(name).type) ? "" : "another type");
    });
    for (const auto& [name, one] : alone[0]) {
      HostTensor batch({one.type.dtype, with_axis(one.type.dims, 0)});
      for (size_t e = 0; e < kExamples; ++e) copy_example(batch, alone[e].at(name), 0, e, true);
      stacked.emplace(name, std::move(batch));
    }
    return stacked;
  }

  // The same graph with its inputs in another order: its text, with these lines first.
  static Graph with_inputs(const Graph& g, const std::vector<std::string>& order) {
    const std::string text = g.print();
    std::vector<std::string> lines, inputs;
    size_t at = 0;
    while (at < text.size()) {
      const size_t end = std::min(text.find('\n', at), text.size());
      lines.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    std::map<std::string, std::string> by_name;
    std::string out;
    const auto names = g.named(TENON_SPACE_INPUT);
    size_t next = 0;
    // Only the graph's own inputs are indented by two.
    for (const std::string& line : lines)
      if (line.starts_with("  input ") && next < names.size()) by_name[names[next++].name] = line;
    size_t written = 0;
    for (const std::string& line : lines) {
      const bool is_input = line.starts_with("  input ") && written < order.size();
      out += (is_input ? by_name.at(order[written++]) : line) + "\n";
    }
    return Graph::parse(out, "case");
  }

  // Gradients of a sum over the batch are those of its examples.
  void compare_outer_gradients(const Tensors& want) {
    if (want.empty()) return;
    guarded("gradients through", [&] {
      CaseBuilder b = built(kSeeds[0]);
      std::vector<std::string> outputs;
      for (const auto& o : b.outputs())
        if (o.differentiable && b.graph().type(o.value).dtype == f64)
          b.graph().output(o.name, o.value);
      Graph g("outer");
      std::vector<Value> xs, wrt;
      std::vector<std::string> names;
      Tensors inputs;
      for (const auto& in : b.inputs()) {
        HostTensor batch({in.content.type.dtype, with_axis(in.content.type.dims, 0)});
        for (size_t e = 0; e < kExamples; ++e)
          copy_example(batch, examples_[e].at(in.name), 0, e, true);
        xs.push_back(g.input(in.name, batch.type));
        inputs.emplace(in.name, std::move(batch));
        if (!in.differentiable) continue;
        wrt.push_back(xs.back());
        names.push_back("by " + in.name);
      }
      const Node ys = g.vmap(xs, b.graph());
      const std::vector<Value> dxs = g.gradients(loss_of(g, ys.outputs), wrt);
      for (size_t k = 0; k < names.size(); ++k) g.output(names[k], dxs[k]);
      const Tensors got = run(runtime_, g, inputs);
      for (const std::string& name : names)
        report("gradients through the batch, " + name, differ(got.at(name), want.at(name)));
    });
  }

  // Ops whose backward op has no gradient are refused by name.
  bool refuses_forward(const Graph& g) const {
    const std::string text = g.print();
    return text.find(" = splat_rasterize(") != std::string::npos ||
           text.find(" = splat_render(") != std::string::npos;
  }

  void compare_forward() {
    guarded("forward", [&] {
      CaseBuilder b = built(kSeeds[0]);
      Graph& g = b.graph();
      const std::vector<Value> xs = differentiable_inputs(b), ys = differentiable_outputs(b);
      Tensors inputs = examples_[0];
      const auto beside = [&](const std::string& name, Value like) {
        const TensorType type = g.type(like);
        inputs.emplace(name, Fill::normal().make(type, name, 1));
        return g.input(name, type);
      };
      std::vector<Value> ts, us;
      for (size_t k = 0; k < xs.size(); ++k) ts.push_back(beside("t" + std::to_string(k), xs[k]));
      for (size_t k = 0; k < ys.size(); ++k) us.push_back(beside("u" + std::to_string(k), ys[k]));
      // The sum of products, or of their magnitudes.
      const auto inner = [&](const std::vector<Value>& as, const std::vector<Value>& bs,
                             bool magnitudes = false) {
        Value sum;
        for (size_t k = 0; k < as.size(); ++k) {
          const Value products = as[k] * bs[k];
          const Value part = g.sum(magnitudes ? g.abs(products) : products);
          sum = sum ? sum + part : part;
        }
        return sum;
      };
      const bool refused = refuses_forward(g);
      const std::vector<Value> moved = g.jvp(ys, xs, ts);
      const std::vector<Value> back = g.gradients(inner(ys, us), xs);
      g.output("forward of all", inner(moved, us));
      if (refused) {
        try {
          run(runtime_, g, inputs);
          report("forward", "expected a refusal");
        } catch (const Error& e) {
          const bool named =
              std::string_view(e.what()).find("splat_rasterize_backward") != std::string_view::npos;
          report("forward", e.code() == TENON_UNSUPPORTED && named ? "" : e.what());
        }
        return;
      }
      g.output("reverse of all", inner(back, ts));
      g.output("size of all", inner(moved, us, true) + inner(back, ts, true));
      const Tensors got = run(runtime_, g, inputs);
      const double forward = got.at("forward of all").real(0);
      const double reverse = got.at("reverse of all").real(0);
      const double scale = got.at("size of all").real(0);
      const bool both_nan = std::isnan(forward) && std::isnan(reverse);
      const bool near = std::abs(forward - reverse) <= 1e-10 * (1 + scale);
      report("forward and reverse", both_nan || near ? ""
                                                     : "forward " + std::to_string(forward) +
                                                           ", reverse " + std::to_string(reverse));
    });
  }

  std::vector<Tensors> examples_{};
};

}  // namespace

int main(int argc, char** argv) { return judge_cases<Case>("tenon_vmap_cases", argc, argv); }
