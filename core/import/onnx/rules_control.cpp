// SPDX-License-Identifier: Apache-2.0
// Rules: If, Loop and Scan. core/import/README.md says how they are expressed.
#include "import/onnx/body.hpp"
#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

FunctionAttr finished(Body& body, const std::vector<Value>& outputs) {
  for (Value v : outputs) body.graph.output(cat(body.graph.outputs().size()), v);
  return std::make_shared<const core::Graph>(std::move(body.graph));
}

std::vector<Value> values_of(Body& body, size_t from) {
  std::vector<Value> out;
  for (size_t k = from; k < body.outputs(); ++k) out.push_back(body.output_value(k));
  return out;
}

// Writes a branch. Returns why it does not fit the shapes, if it does not. What tenon lacks is
// refused, whatever the shapes are.
template <class Write>
std::optional<Refused> why_broken(Call& c, Write&& write) {
  Translation& all = c.scope.all;
  const size_t before = all.refusals.size();
  Refused why{};
  try {
    write();
    return {};
  } catch (const Refused& e) {
    why = e;
  } catch (const Error& e) {
    why = {e.code(), e.what()};
  }
  if (all.refusals.size() == before) {
    if (why.code == Code::unsupported) throw why;
    return why;
  }
  for (size_t k = before; k < all.refusals.size(); ++k)
    if (all.refusals[k].code == Code::unsupported) throw why;
  why = {all.refusals[before].code, all.refusals[before].text};
  all.refusals.resize(before);
  return why;
}

// A branch that does not fit the shapes: if a run takes it, the run fails, and the name of its node
// says why.
FunctionAttr failing(Call& c, const Captured& captured, std::span<const Type> types,
                     const std::string& why) {
  core::Graph graph;
  for (const auto& [name, v] : captured.values)
    graph.input(cat("in", graph.inputs().size()), c.b.type(v));
  Builder b(graph, cat(c.scope.where, name_of(c.node), ": ", why));
  const Value one = b.ints(kI64, Ints{1});
  const Value fails = b.add(op::gather{.data = one, .indices = one});  // there is no element 1
  for (const Type& t : types)
    graph.output(cat(graph.outputs().size()),
                 b.expand(b.cast(b.reshape(fails, {}), t.dtype), t.shape));
  return std::make_shared<const core::Graph>(std::move(graph));
}

void choose(Call& c) {
  Builder& b = c.b;
  const Graph &yes = c.graph("then_branch"), &no = c.graph("else_branch");
  if (yes.outputs.size() != no.outputs.size())
    c.wrong("expected equally many outputs of both branches, got ", yes.outputs.size(), " and ",
            no.outputs.size());
  if (const Known* cond = c.known(0)) {
    if (cond->size() != 1) c.wrong("condition: expected one element, got ", cond->size());
    const std::vector<Item> items = run_in_place(c, cond->number(0) != 0 ? yes : no, {});
    for (size_t k = 0; k < items.size(); ++k) c.out_item(k, items[k]);
    return;
  }
  const Captured captured = captured_by(c, {&yes, &no});
  Control control{.kind = Control::Kind::branch, .cond = c.value(0), .captured = captured.list()};
  std::vector<Type> types;
  std::optional<Refused> broken[2];
  for (const size_t k : {0, 1}) {
    std::vector<Type> given;
    FunctionAttr function;
    broken[k] = why_broken(c, [&] {
      Body body(c, k == 0 ? yes : no, captured);
      body.run(captured);
      const std::vector<Value> outputs = values_of(body, 0);
      for (Value v : outputs) given.push_back(body.b.type(v));
      function = finished(body, outputs);
    });
    control.functions.push_back(function);
    if (broken[k]) continue;
    for (size_t i = 0; k == 1 && !broken[0] && i < given.size(); ++i)
      if (given[i] != types[i])
        c.refuse("output ", i, ": the branches give ", types[i].text(), " and ", given[i].text(),
                 ", and the condition depends on the data");
    types = given;
  }
  if (broken[0] && broken[1])
    throw Refused{broken[0]->code,
                  cat("no branch fits: then: ", broken[0]->reason, "; else: ", broken[1]->reason)};
  for (const size_t k : {0, 1})
    if (broken[k])
      control.functions[k] = failing(c, captured, types,
                                     cat(k == 0 ? "then" : "else", "_branch: ", broken[k]->reason));
  const Results y = add_control(b, control, types.size());
  for (size_t k = 0; k < types.size(); ++k) c.out(k, y[k]);
}

// ---- Loop

Value constant_true(Builder& b) {
  return b.graph.constant({kBool, {}}, std::make_shared<const Bytes>(1, std::byte{1}));
}

struct Trips {
  std::optional<int64_t> most{};  // the trip count, if it is known
  Value most_value{};             // else its value, or absent for no limit
  std::optional<bool> start{};    // the first condition, if it is known
  Value start_value{};
};

Trips trips_of(Call& c) {
  Builder& b = c.b;
  Trips t;
  if (!c.has(0)) {
  } else if (c.known(0)) {
    t.most = c.integer(0, "M");
  } else {
    t.most_value = b.reshape(b.cast(c.value(0), kI64), {});
  }
  if (!c.has(1))
    t.start = true;
  else if (c.known(1))
    t.start = c.number(1, "cond") != 0;
  else
    t.start_value = b.reshape(c.value(1), {});
  return t;
}

// Runs the body trip by trip in place. Conditions must be known.
void unroll(Call& c, const Graph& graph, const Trips& trips) {
  constexpr int64_t kMostTrips = 1024;
  Builder& b = c.b;
  const size_t carried = c.inputs() - std::min<size_t>(c.inputs(), 2);
  if (graph.outputs.size() < carried + 1) c.wrong("its body gives too few outputs");
  std::vector<Item> carry;
  for (size_t k = 0; k < carried; ++k) carry.push_back(c.item(k + 2));
  std::vector<std::vector<Value>> rows(graph.outputs.size() - carried - 1);
  bool go = *trips.start;
  for (int64_t i = 0; go && (!trips.most || i < *trips.most); ++i) {
    if (i == kMostTrips) c.refuse("more than ", kMostTrips, " trips, written one by one");
    std::vector<Item> inputs;
    for (const Known& k : {known_scalar(i), known_ints(kBool, {}, {1})}) {
      Item item;
      item.known = std::make_shared<const Known>(k);
      inputs.push_back(std::move(item));
    }
    inputs.insert(inputs.end(), carry.begin(), carry.end());
    std::vector<Item> out = run_in_place(c, graph, std::move(inputs));
    for (const Item& item : out)
      if (item.refused) throw Refused{Code::unsupported, "a node of its body is refused"};
    // Without a condition from outside, what the body returns is ignored.
    if (c.has(1)) {
      if (!out[0].known) c.refuse("the condition of trip ", i, " depends on the data");
      go = out[0].known->number(0) != 0;
    }
    for (size_t k = 0; k < carried; ++k) carry[k] = out[k + 1];
    for (size_t k = 0; k < rows.size(); ++k)
      rows[k].push_back(b.unsqueeze(c.scope.value(out[carried + 1 + k]), 0));
  }
  for (size_t k = 0; k < carried; ++k) c.out_item(k, carry[k]);
  for (size_t k = 0; k < rows.size(); ++k) {
    if (rows[k].empty()) c.refuse("output ", carried + k, ": no trip says its shape");
    c.out(carried + k, b.concat(rows[k], 0));
  }
}

// `scan` if the number of trips is known, else `while`.
void run_loop(Call& c, const Graph& graph, const Trips& trips) {
  Builder& b = c.b;
  const size_t carried = c.inputs() - std::min<size_t>(c.inputs(), 2);
  const Captured captured = captured_by(c, {&graph});
  std::vector<Value> carry;
  for (size_t k = 0; k < carried; ++k) carry.push_back(c.value(k + 2));

  Body body(c, graph, captured);
  // The function's own inputs come before those of the captured values.
  const Value i = body.input({kI64, {}});
  // A trip runs only while the condition holds.
  body.known_input(known_ints(kBool, {}, {1}));
  for (Value v : carry) body.input(b.type(v));
  body.run(captured);
  if (body.outputs() < carried + 1) c.wrong("its body gives too few outputs");
  std::vector<Value> next = values_of(body, 1);
  for (size_t k = 0; k < carried; ++k)
    if (body.b.type(next[k]) != b.type(carry[k]))
      c.refuse("carried value ", k, " is ", b.type(carry[k]).text(), " before a trip and ",
               body.b.type(next[k]).text(), " behind it");
  const Item& again = body.output(0);
  const bool always = !c.has(1) || (again.known && again.known->number(0) != 0);
  const size_t stacked = next.size() - carried;

  if (trips.most && always && trips.start == true) {
    // The iteration number is carried: it is the first input.
    Control scan{.kind = Control::Kind::trips, .trips = std::max<int64_t>(0, *trips.most)};
    next.insert(next.begin(), body.b.plus(i, body.b.scalar_int(kI64, 1)));
    scan.carry = {b.scalar_int(kI64, 0)};
    scan.carry.insert(scan.carry.end(), carry.begin(), carry.end());
    scan.captured = captured.list();
    scan.functions = {finished(body, next)};
    const Results y = add_control(b, scan, next.size());
    for (size_t k = 0; k + 1 < next.size(); ++k) c.out(k, y[k + 1]);
    return;
  }
  for (size_t k = 0; k < stacked; ++k)
    if (c.wants(carried + k))
      c.refuse("output ", carried + k, " has a length that is known only after the run");
  if (!trips.most && !trips.most_value && always) c.wrong("it never ends");
  next.resize(carried);
  // carry: the iteration number, the condition, the carried values.
  core::Graph ask;
  Builder in(ask, b.provenance);
  const Value ask_i = ask.input("i", {kI64, {}});
  for (Value v : carry) ask.input(cat("in", ask.inputs().size()), b.type(v));
  const Value ask_go = ask.input("go", {kBool, {}});
  std::vector<Value> asked;
  for (const auto& [name, v] : captured.values)
    asked.push_back(ask.input(cat("in", ask.inputs().size()), b.type(v)));
  Value on = ask_go;
  Control loop{.kind = Control::Kind::loop};
  loop.captured = captured.list();
  if (trips.most_value) {
    on = in.logical("and", on, in.compare("lt", ask_i, ask.input("most", {kI64, {}})));
    loop.captured.push_back(trips.most_value);
  } else if (trips.most) {
    on = in.logical("and", on, in.compare("lt", ask_i, in.scalar_int(kI64, *trips.most)));
    loop.trips = std::max<int64_t>(0, *trips.most);
  }
  ask.output("on", on);

  // The body has no input for the condition, and perhaps needs one for the limit: write it anew
  // around a copy.
  std::vector<Value> results = {body.b.plus(i, body.b.scalar_int(kI64, 1))};
  results.insert(results.end(), next.begin(), next.end());
  results.push_back(always ? constant_true(body.b) : body.b.reshape(body.output_value(0), {}));
  const size_t own = 1 + carried;
  FunctionAttr inner = finished(body, results);
  core::Graph trip;
  Builder out(trip, b.provenance);
  std::vector<Value> operands = {trip.input("i", {kI64, {}})};
  for (Value v : carry) operands.push_back(trip.input(cat("in", trip.inputs().size()), b.type(v)));
  trip.input("go", {kBool, {}});
  for (const auto& [name, v] : captured.values)
    operands.push_back(trip.input(cat("in", trip.inputs().size()), b.type(v)));
  if (trips.most_value) trip.input("most", {kI64, {}});
  const std::vector<Value> made = inline_function(out, *inner, operands);
  for (size_t k = 0; k <= own; ++k) trip.output(cat(k), made[k]);

  loop.carry = {b.scalar_int(kI64, 0)};
  loop.carry.insert(loop.carry.end(), carry.begin(), carry.end());
  loop.carry.push_back(trips.start ? c.constant(known_ints(kBool, {}, {*trips.start}))
                                   : trips.start_value);
  loop.functions = {std::make_shared<const core::Graph>(std::move(ask)),
                    std::make_shared<const core::Graph>(std::move(trip))};
  const Results y = add_control(b, loop, own + 1);
  for (size_t k = 0; k < carried; ++k) c.out(k, y[k + 1]);
}

void loop(Call& c) {
  const Graph& graph = c.graph("body");
  const Trips trips = trips_of(c);
  Translation& all = c.scope.all;
  const size_t refusals = all.refusals.size();
  const int depth = all.depth;
  const bool unrolls = trips.start && !trips.most_value;
  std::optional<Refused> why;
  try {
    run_loop(c, graph, trips);
    return;
  } catch (const Refused& e) {
    if (!unrolls) throw;
    why = e;
  } catch (const Error& e) {
    if (!unrolls) throw;
    why = Refused{e.code(), e.what()};
  }
  // As one loop it is not expressible, perhaps because shapes change between trips.
  all.refusals.resize(refusals);
  all.depth = depth;
  try {
    unroll(c, graph, trips);
  } catch (const Refused& e) {
    throw Refused{why->code, cat(why->reason, "; trip by trip: ", e.reason)};
  }
}

// ---- Scan

void scan(Call& c) {
  Builder& b = c.b;
  const Graph& graph = c.graph("body");
  if (c.opset < 9) c.refuse("Scan of opset 8, which has a batch axis");
  const int64_t scanned = c.i("num_scan_inputs", 0);
  if (scanned < 1 || scanned > static_cast<int64_t>(c.inputs()))
    c.wrong("attribute num_scan_inputs: expected 1 to ", c.inputs(), ", got ", scanned);
  const auto xs = static_cast<size_t>(scanned), carried = c.inputs() - xs;
  const Ints axes = c.is("scan_input_axes"), reversed = c.is("scan_input_directions");
  const auto entry = [&](const Ints& list, size_t k) { return k < list.size() ? list[k] : 0; };
  Control control{.kind = Control::Kind::trips};
  for (size_t k = 0; k < carried; ++k) control.carry.push_back(c.value(k));
  for (size_t k = 0; k < xs; ++k) {
    Value x = c.value(carried + k);
    const int rank = b.shape(x).rank(), axis = c.axis(entry(axes, k), rank);
    Ints perm = other_axes({axis}, rank);
    perm.insert(perm.begin(), axis);
    x = b.transpose(x, perm);
    control.xs.push_back(entry(reversed, k) ? flip(b, x, 0) : x);
  }
  const Captured captured = captured_by(c, {&graph});
  Body body(c, graph, captured);
  for (Value v : control.carry) body.input(b.type(v));
  for (Value v : control.xs) body.input(slice_type(b.type(v)));
  body.run(captured);
  const std::vector<Value> outputs = values_of(body, 0);
  if (outputs.size() < carried) c.wrong("its body gives too few outputs");
  for (size_t k = 0; k < carried; ++k)
    if (body.b.type(outputs[k]) != b.type(control.carry[k]))
      c.refuse("state ", k, " is ", b.type(control.carry[k]).text(), " before a trip and ",
               body.b.type(outputs[k]).text(), " behind it");
  control.captured = captured.list();
  control.trips = b.shape(control.xs[0])[0];
  control.functions = {finished(body, outputs)};
  const Results y = add_control(b, control, outputs.size());
  const Ints out_axes = c.is("scan_output_axes"), out_reversed = c.is("scan_output_directions");
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!c.wants(k)) continue;
    Value v = y[k];
    if (k >= carried) {
      if (entry(out_reversed, k - carried)) v = flip(b, v, 0);
      const int rank = b.shape(v).rank(), axis = c.axis(entry(out_axes, k - carried), rank);
      Ints perm = iota_list(rank);
      perm.erase(perm.begin());
      perm.insert(perm.begin() + axis, 0);
      v = b.transpose(v, perm);
    }
    c.out(k, v);
  }
}

constexpr Rule kRules[] = {
    {"If", 1, choose},
    {"Loop", 1, loop},
    {"Scan", 8, scan},
};

}  // namespace

std::span<const Rule> control_rules() { return kRules; }

}  // namespace tenon::core::onnx
