// SPDX-License-Identifier: Apache-2.0
// Control flow as If, Loop and Scan of ONNX. Subgraphs read values of the graphs around them by name.
#include "export/call.hpp"
#include "export/walk.hpp"
#include "ops/control.hpp"

namespace tenon::core::onnx {
namespace {

// Types of values in the graph and in its twin of other sizes.
struct Types {
  std::vector<Type> here, there;
};

void add_types(const Call& c, Types& to, const std::vector<Value>& values, bool slices = false) {
  for (Value v : values) {
    const auto type = [&](const core::Graph& g) {
      return slices ? slice_type(g.type(v)) : g.type(v);
    };
    to.here.push_back(type(c.graph()));
    if (c.other()) to.there.push_back(type(*c.other()));
  }
}

// A subgraph that is being written: its nodes are the emitter's until it is done.
class Body {
 public:
  explicit Body(Emitter& e) : e_(e), outside_(std::move(e.nodes)) { e.nodes.clear(); }
  ~Body() {
    if (!done_) e_.nodes = std::move(outside_);
  }
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  Ref input(DType dtype, int rank) {
    const Ref r{e_.unique(cat(e_.prefix(), "_in")), dtype};
    graph_.inputs.push_back(info(r, rank));
    return r;
  }
  // An output is a value of its own: the body may pass on what it reads.
  void output(const Ref& r, int rank) {
    const Ref copy = e_.add("Identity", {r});
    graph_.outputs.push_back(info(copy, rank));
  }
  Attribute done(std::string name) {
    graph_.name = e_.unique(cat(e_.prefix(), "_", name));
    graph_.nodes = std::move(e_.nodes);
    e_.nodes = std::move(outside_);
    done_ = true;
    return attribute(std::move(name), std::move(graph_));
  }

 private:
  static ValueInfo info(const Ref& r, int rank) {
    ValueInfo v{.name = r.name,
                .kind = ValueInfo::Kind::tensor,
                .element = element_of_dtype(r.dtype),
                .dtype = r.dtype};
    v.dims.emplace(static_cast<size_t>(rank));
    return v;
  }
  Emitter& e_;
  std::vector<Node> outside_;
  Graph graph_{};
  bool done_ = false;
};

int rank_of(const Call& c, size_t output) { return c.rank(c.node.outputs[output]); }

std::vector<Ref> refs(const Call& c, const std::vector<Value>& values) {
  std::vector<Ref> out;
  for (Value v : values) out.push_back(c.in(v));
  return out;
}

// A condition is one element of any rank; ONNX wants a scalar.
Ref condition(Emitter& e, const Ref& cond) { return e.reshape(cond, {}); }

void give(Call& c, std::string_view op, const std::vector<Ref>& inputs,
          std::vector<Attribute> attributes, std::vector<Ref>* results = nullptr) {
  std::vector<DType> dtypes;
  for (Value v : c.node.outputs) dtypes.push_back(c.dtype(v));
  std::vector<Ref> out = c.e.add_plain(op, inputs, std::move(attributes), dtypes);
  if (results) {
    *results = std::move(out);
    return;
  }
  for (size_t k = 0; k < out.size(); ++k) c.out(k, out[k]);
}

void want_all(const Call& c) {
  for (Value v : c.node.outputs)
    if (!v) c.refuse("an output is left out");
}

void write_if(Call& c) {
  want_all(c);
  const Control control = control_of(c.graph(), c.node);
  Types types;
  add_types(c, types, control.captured);
  const std::vector<Ref> operands = refs(c, control.captured);
  const Ref cond = condition(c.e, c.in(control.cond));
  std::vector<Attribute> branches;
  for (size_t k = 0; k < 2; ++k) {
    Body body(c.e);
    const std::vector<Ref> out =
        write_function(c, control.functions[k], types.here, types.there, operands);
    for (size_t i = 0; i < out.size(); ++i) body.output(out[i], rank_of(c, i));
    branches.push_back(body.done(k == 0 ? "then_branch" : "else_branch"));
  }
  give(c, "If", {cond}, std::move(branches));
}

// The condition is computed before the loop, then at the end of each trip.
void write_while(Call& c) {
  want_all(c);
  const Control control = control_of(c.graph(), c.node);
  Emitter& e = c.e;
  Types types;
  add_types(c, types, control.carry);
  add_types(c, types, control.captured);
  const std::vector<Ref> carry = refs(c, control.carry), captured = refs(c, control.captured);
  const auto go_on = [&](std::vector<Ref> now) {
    now.insert(now.end(), captured.begin(), captured.end());
    return condition(e, write_function(c, control.functions[0], types.here, types.there, now)[0]);
  };
  std::vector<Ref> inputs = {control.trips == Control::kNoBound ? Ref{} : e.integer(control.trips),
                             go_on(carry)};
  inputs.insert(inputs.end(), carry.begin(), carry.end());
  Body body(e);
  body.input(kI64, 0);
  body.input(kBool, 0);
  std::vector<Ref> now;
  for (Value v : control.carry) now.push_back(body.input(c.dtype(v), c.rank(v)));
  now.insert(now.end(), captured.begin(), captured.end());
  const std::vector<Ref> next =
      write_function(c, control.functions[1], types.here, types.there, now);
  body.output(go_on(next), 0);
  for (size_t k = 0; k < next.size(); ++k) body.output(next[k], c.rank(control.carry[k]));
  give(c, "Loop", inputs, {body.done("body")});
}

void write_scan(Call& c) {
  want_all(c);
  const Control control = control_of(c.graph(), c.node);
  Emitter& e = c.e;
  Types types;
  add_types(c, types, control.carry);
  add_types(c, types, control.xs, true);
  add_types(c, types, control.captured);
  const std::vector<Ref> carry = refs(c, control.carry), xs = refs(c, control.xs),
                         captured = refs(c, control.captured);
  const size_t stacked = c.node.outputs.size() - carry.size();
  const bool counts = xs.empty();  // by a Loop then
  Body body(e);
  if (counts) body.input(kI64, 0);
  const Ref on = counts ? body.input(kBool, 0) : Ref{};
  std::vector<Ref> now;
  for (Value v : control.carry) now.push_back(body.input(c.dtype(v), c.rank(v)));
  for (Value v : control.xs) now.push_back(body.input(c.dtype(v), c.rank(v) - 1));
  now.insert(now.end(), captured.begin(), captured.end());
  const std::vector<Ref> next =
      write_function(c, control.functions[0], types.here, types.there, now);
  if (counts) body.output(on, 0);
  for (size_t k = 0; k < next.size(); ++k)
    body.output(next[k], rank_of(c, k) - (k < carry.size() ? 0 : 1));
  std::vector<Attribute> attributes = {body.done("body")};
  std::vector<Ref> inputs;
  if (counts) inputs = {e.integer(control.trips), Ref{}};
  inputs.insert(inputs.end(), carry.begin(), carry.end());
  inputs.insert(inputs.end(), xs.begin(), xs.end());
  if (!counts) {
    attributes.push_back(attribute("num_scan_inputs", static_cast<int64_t>(xs.size())));
    if (control.reverse) {
      attributes.push_back(attribute("scan_input_directions", Ints(xs.size(), 1)));
      if (stacked) attributes.push_back(attribute("scan_output_directions", Ints(stacked, 1)));
    }
    return give(c, "Scan", inputs, std::move(attributes));
  }
  std::vector<Ref> out;
  give(c, "Loop", inputs, std::move(attributes), &out);
  for (size_t k = 0; k < out.size(); ++k) {
    // Without xs, only the order of the results tells in which order the trips ran.
    if (k >= carry.size() && control.reverse) out[k] = e.slice(out[k], 0, -1, INT64_MIN, -1);
    c.out(k, out[k]);
  }
}

constexpr ExportRule kRules[] = {{"if", write_if}, {"while", write_while}, {"scan", write_scan}};

}  // namespace

std::span<const ExportRule> control_export_rules() { return kRules; }

}  // namespace tenon::core::onnx
