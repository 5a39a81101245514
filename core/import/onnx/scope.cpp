// SPDX-License-Identifier: Apache-2.0
// Walks the nodes of a graph: finds names, calls rules, and collects refusals.
#include "import/onnx/scope.hpp"

#include <algorithm>

#include "import/onnx/rules.hpp"

namespace tenon::core::onnx {

std::string name_of(const Node& node) {
  if (!node.name.empty()) return node.name;
  for (const std::string& o : node.outputs)
    if (!o.empty()) return cat(node.op, ":", o);
  return node.op;
}

std::string text_of(const Node& node, int64_t opset) {
  return cat(node.op, " '", name_of(node), "' (", node.domain.empty() ? "ai.onnx" : node.domain,
             ", opset ", opset, ")");
}

// ---- Translation

const Function* Translation::function(const Node& node) const {
  for (const Function& f : model.functions)
    if (f.name == node.op && f.domain == node.domain && f.overload == node.overload) return &f;
  return nullptr;
}

void Translation::finish() const {
  if (refusals.empty()) return;
  constexpr size_t kMostListed = 100;
  std::string text;
  for (size_t k = 0; k < std::min(refusals.size(), kMostListed); ++k)
    text += cat("\n  ", refusals[k].text);
  if (refusals.size() > kMostListed)
    text += cat("\n  and ", refusals.size() - kMostListed, " more");
  fail(refusals[0].code, "onnx: ", refusals.size(),
       refusals.size() == 1 ? " node cannot be translated:" : " nodes cannot be translated:", text);
}

// ---- Scope

Value Scope::value(Item& item) {
  if (item.value) return item.value;
  if (item.known) {
    item.value = b.graph.constant(item.known->type(),
                                  std::make_shared<const Bytes>(content_of(*item.known)));
    if (item.tensor) b.graph.set_name(item.value, item.tensor->name);
  } else if (item.tensor) {
    item.value = all.weight(b, item.tensor);
  } else {
    throw Refused{Code::unsupported, "expected a tensor, got a sequence"};
  }
  return item.value;
}

void Scope::add_initializers(const Graph& graph) {
  for (const Tensor& t : graph.initializers) {
    Item item;
    if (t.dtype == TENON_DTYPE_NONE) {
      item.refused = true;
      all.refusals.push_back(
          {cat("initializer '", t.name, "': tenon has no dtype for ", element_name(t.element))});
    } else if (can_be_known(t.dtype) && count_of(t.dims) <= kMostSmall && !all.keeps(t)) {
      item.known = std::make_shared<const Known>(known_from(t.dtype, t.dims, t.content()));
      item.tensor = std::shared_ptr<const Tensor>(std::shared_ptr<void>(), &t);
    } else {
      item.tensor = std::shared_ptr<const Tensor>(std::shared_ptr<void>(), &t);
    }
    set(t.name, std::move(item));
  }
}

void Scope::run(const std::vector<Node>& nodes) {
  for (const Node& n : nodes) run_node(n);
}

void Scope::run_node(const Node& node) {
  const auto version = opsets.find(node.domain == "ai.onnx" ? "" : node.domain);
  const int64_t opset = version == opsets.end() ? 0 : version->second;
  bool reported = false;
  const auto report = [&](Code code, const std::string& reason) {
    all.refusals.push_back({cat(where, text_of(node, opset), ": ", reason), code});
    reported = true;
  };
  const Function* function = all.function(node);
  const std::string_view domain = node.domain == "ai.onnx" ? std::string_view{} : node.domain;
  const Rule* rule = function ? nullptr : find_rule(domain, node.op, opset);
  if (!function && !rule)
    report(Code::unsupported, version == opsets.end() ? "the model does not import its domain"
                                                      : "tenon has no rule for this op and opset");
  bool refused = reported;
  for (const std::string& name : node.inputs) {
    if (name.empty() || reported) continue;
    const Item* item = find(name);
    if (!item)
      report(Code::invalid_argument, cat("input '", name, "': no node before it gives it"));
    refused |= reported || item->refused;
  }
  const std::string outer = b.provenance;
  if (!refused) {
    b.provenance = cat(where, name_of(node));
    Call call(*this, node, opset);
    try {
      if (++all.nodes > kMostNodes)
        call.refuse("the model expands to more than ", kMostNodes, " nodes");
      if (function)
        call_function(call, *function);
      else
        rule->translate(call);
      for (const std::string& o : node.outputs)
        if (!o.empty() && !find(o)) call.refuse("its output '", o, "' is not supported");
    } catch (const Refused& e) {
      report(e.code, e.reason);
    } catch (const Error& e) {
      report(e.code(), e.what());
    }
  }
  b.provenance = outer;
  if (refused || reported)
    for (const std::string& o : node.outputs)
      if (!o.empty()) {
        Item item;
        item.refused = true;
        set(o, std::move(item));
      }
}

// ---- Call

const Item& Call::item(size_t k) const {
  if (!has(k)) wrong("input ", k, " is required");
  return *scope.find(node.inputs[k]);
}

Value Call::value(size_t k) const {
  item(k);
  return scope.value(node.inputs[k]);
}

Type Call::type(size_t k) const {
  const Item& it = item(k);
  if (it.known) return it.known->type();
  if (it.value) return b.type(it.value);
  if (it.tensor) return {it.tensor->dtype, Shape(std::span<const Dim>(it.tensor->dims))};
  refuse("input ", k, ": expected a tensor, got a sequence");
}

const Known& Call::need(size_t k, std::string_view what) const {
  const Known* found = known(k);
  if (!has(k)) wrong("input ", k, " (", what, ") is required");
  if (!found)
    refuse("input ", k, " (", what,
           "): its content must be known before the run, but depends on the data");
  return *found;
}

Ints Call::ints(size_t k, std::string_view what) const {
  const Known& content = need(k, what);
  if (content.real())
    wrong("input ", k, " (", what, "): expected integers, got ", content.type().text());
  return content.ints;
}

int64_t Call::integer(size_t k, std::string_view what) const {
  const Ints content = ints(k, what);
  if (content.size() != 1)
    wrong("input ", k, " (", what, "): expected one element, got ", content.size());
  return content[0];
}

Ints Call::sane(Ints list, std::string_view what, int64_t limit) const {
  for (const int64_t v : list)
    if (v < -limit || v > limit)
      wrong(what, ": expected numbers from ", -limit, " to ", limit, ", got ", v);
  return list;
}

double Call::number(size_t k, std::string_view what) const {
  const Known& content = need(k, what);
  if (content.size() != 1)
    wrong("input ", k, " (", what, "): expected one element, got ", content.size());
  return content.number(0);
}

const Attribute* Call::attr(std::string_view name) const {
  for (const Attribute& a : node.attributes) {
    if (a.name != name) continue;
    if (a.refers_to.empty()) return &a;
    if (!scope.arguments) return nullptr;
    const auto at = scope.arguments->find(a.refers_to);
    return at == scope.arguments->end() ? nullptr : at->second;
  }
  return nullptr;
}

namespace {
const Attribute* of_kind(const Call& c, std::string_view name, Attribute::Kind kind) {
  const Attribute* a = c.attr(name);
  if (a && a->kind != kind)
    c.wrong("attribute ", name, ": expected type ", static_cast<int32_t>(kind), ", got ",
            static_cast<int32_t>(a->kind));
  return a;
}
}  // namespace

int64_t Call::i(std::string_view name, int64_t otherwise) const {
  const Attribute* a = of_kind(*this, name, Attribute::i64);
  return a ? a->i : otherwise;
}
double Call::f(std::string_view name, double otherwise) const {
  const Attribute* a = of_kind(*this, name, Attribute::f32);
  return a ? static_cast<double>(a->f) : otherwise;
}
std::string Call::s(std::string_view name, std::string_view otherwise) const {
  const Attribute* a = of_kind(*this, name, Attribute::string);
  return a ? a->s : std::string(otherwise);
}
Ints Call::is(std::string_view name) const {
  const Attribute* a = of_kind(*this, name, Attribute::ints);
  return a ? a->is : Ints{};
}
std::vector<double> Call::fs(std::string_view name) const {
  const Attribute* a = of_kind(*this, name, Attribute::floats);
  return a ? std::vector<double>(a->fs.begin(), a->fs.end()) : std::vector<double>{};
}
std::vector<std::string> Call::strings(std::string_view name) const {
  const Attribute* a = of_kind(*this, name, Attribute::strings_);
  return a ? a->strings : std::vector<std::string>{};
}
const Graph& Call::graph(std::string_view name) const {
  const Attribute* a = of_kind(*this, name, Attribute::graph);
  if (!a || !a->g) wrong("attribute ", name, " is required");
  return *a->g;
}
DType Call::dtype_attr(std::string_view name, int32_t otherwise) const {
  const int64_t element = i(name, otherwise);
  const DType t = element < 0 || element > 1000 ? DType{TENON_DTYPE_NONE}
                                                : element_dtype(static_cast<int32_t>(element));
  if (t == TENON_DTYPE_NONE)
    refuse("attribute ", name, ": tenon has no dtype for element type ", element);
  return t;
}
int Call::axis(int64_t axis, int rank) const { return normalize_axis(axis, rank, node.op); }
Ints Call::axes(Ints list, int rank) const {
  std::set<int64_t> seen;
  for (int64_t& a : list) {
    a = axis(a, rank);
    if (!seen.insert(a).second) wrong("axes: axis ", a, " comes twice");
  }
  return list;
}

void Call::out(size_t k, Value v) const {
  if (!wants(k)) return;
  Item item;
  item.value = v;
  scope.set(node.outputs[k], std::move(item));
}
void Call::out(size_t k, Known content) const {
  if (!wants(k)) return;
  scope.all.known += content.size();
  if (scope.all.known > kMostKnownInAll)
    refuse("constants of the model take more than ", kMostKnownInAll, " elements");
  Item item;
  item.known = std::make_shared<const Known>(std::move(content));
  scope.set(node.outputs[k], std::move(item));
}
void Call::out_item(size_t k, Item item) const {
  if (wants(k)) scope.set(node.outputs[k], std::move(item));
}

bool Call::folds() const {
  int64_t elements = 0;
  bool any = false;
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    if (!has(k)) continue;
    const Known* content = known(k);
    if (!content) return false;
    any = true;
    elements += content->size();
  }
  return any && elements <= kMostKnown;
}

Value Call::constant(const Known& content) const {
  return b.graph.constant(content.type(), std::make_shared<const Bytes>(content_of(content)));
}

}  // namespace tenon::core::onnx
