// SPDX-License-Identifier: Apache-2.0
// Every form that the planner raises or joins, spelled out at random, and near misses of it: fused
// it must give what it gives without, and where the two differ, what the f64 oracle gives.
// TENON_RANDOM_SEED sets the first seed, TENON_RANDOM_GRAPHS how many are tried,
// TENON_RANDOM_SECONDS when to stop, TENON_RANDOM_DEVICE what runs them, TENON_RANDOM_FORM the only
// form.
#include "random_form_spellings.hpp"

#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "plan/rewrite/batch.hpp"
#include "plan/rewrite/fuse.hpp"
#include "plan/rewrite/fuse_elementwise.hpp"
#include "plan/rewrite/fuse_halves.hpp"
#include "plan/rewrite/fuse_products.hpp"
#include "plan/rewrite/raise.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

constexpr SpelledForm kSpelled[] = {
    {"softmax", spell_softmax},
    {"log softmax", spell_log_softmax},
    {"gelu", spell_gelu},
    {"sigmoid", spell_sigmoid},
    {"layer_norm", spell_layer_norm},
    {"rms_norm", spell_rms_norm},
    {"silu", spell_silu},
    {"scaled norm", spell_scaled_norm},
    {"cross_entropy", spell_cross_entropy},
    {"attention", spell_attention},
    {"attention layout", spell_attention_layout},
    {"gate", spell_gate},
    {"product", spell_product},
    {"residual layer_norm", spell_residual<op::layer_norm>},
    {"residual rms_norm", spell_residual<op::rms_norm>},
    {"sibling products", spell_siblings},
    {"half operand", spell_half},
    {"fused body", spell_fused_body},
    {"batch", spell_batch},
};

// The planner's own lists.
std::vector<std::string_view> all_forms() {
  std::vector<std::string_view> all(std::begin(core::kRaiseForms), std::end(core::kRaiseForms));
  all.insert(all.end(), std::begin(core::kFuseForms), std::end(core::kFuseForms));
  for (const std::string_view form :
       {core::kProductsForm, core::kHalfForm, core::kElementwiseForm, core::kBatchForm})
    all.push_back(form);
  return all;
}
bool is_raised_form(std::string_view form) {
  return std::ranges::find(core::kRaiseForms, form) != std::end(core::kRaiseForms);
}

// Did the planner find the form?
bool is_found(std::string_view form, const std::string& report) {
  const bool raised = is_raised_form(form);
  struct {
    std::string_view form, op;
  } constexpr ops[] = {{"gate", "swiglu"},
                       {"product", "linear"},
                       {"residual layer_norm", "residual_layer_norm"},
                       {"residual rms_norm", "residual_rms_norm"},
                       {"sibling products", "batch_linear"},
                       {"fused body", "elementwise_region"},
                       {"batch", "batch_elementwise_region"}};
  const auto parsed = nlohmann::json::parse(report);
  for (const auto& node : parsed["nodes"]) {
    const std::string note = node["note"], op = node["op"];
    const auto says = [&](const std::string& text) {  // at the start of one of its notes
      return ("; " + note).find("; " + text) != std::string::npos;
    };
    if (raised && says("raised to " + std::string(form) + ":")) return true;
    if (form == core::kHalfForm && says("reads a half: ")) return true;
    for (const auto& row : ops)
      if (row.form == form && row.op == op && says("joined: ")) return true;
  }
  return false;
}

// One graph to try.
struct Try {
  uint64_t seed;
  const SpelledForm* form;
  tenon_dtype dtype;
  Mutation mutation{};

  Spelling written(const Writing& writing = {}) const {
    Spelling s(seed, dtype, mutation, writing);
    s.finish(form->spell(s));
    return s;
  }
};

Try random_try(uint64_t seed, std::span<const SpelledForm> forms) {
  std::mt19937_64 rng(seed * 7919 + 13);
  const auto below = [&](uint64_t n) { return static_cast<uint32_t>(rng() % n); };
  constexpr tenon_dtype kDtypes[] = {f32, f32, f32, f64, f64, f16, bf16};
  // Attention has the most parts: its turn comes twice as often.
  const SpelledForm* form = &forms[below(forms.size())];
  for (const SpelledForm& f : forms)
    if (f.name == "attention" && below(10) == 0) form = &f;
  Try t{seed, form, kDtypes[below(std::size(kDtypes))]};
  if (t.form->name == core::kHalfForm) t.dtype = f32;
  const uint32_t what = below(20);
  if (what < 6) return t;
  // How many mutations the form offers is known when it has been written.
  const Spelling plain = t.written();
  if (what < 15 || what == 19) t.mutation.own = static_cast<int>(below(plain.offered + 1));
  if (what >= 15 && plain.made > 0) {
    t.mutation.value = static_cast<int>(below(static_cast<uint64_t>(plain.made)));
    t.mutation.kind = static_cast<Mutation::Kind>(below(5));
  }
  return t;
}

Results run(const Spelling& s, const ExecutableOptions& options, std::string* report = nullptr) {
  return run(s.g, s.feeds, s.outputs, options, {f64}, report);
}

// What the graph makes in f64, and how far results may be from that: what roundings of each result
// do, and what the run without fusion is off. Slopes are differences of larger numbers, so the
// largest one counts for all, also of another loss. Where a NaN hides it, the results stand for it.
class Oracle {
 public:
  Oracle(const Try& t, const Spelling& s) : spelling_(s) {
    const ExecutableOptions options{.device = "template:0", .simplify = false};
    exact_ = run(t.written({.exact = true}), options);
    for (uint64_t k = 0; k < 3; ++k)
      moved_.push_back(run(t.written({.exact = true, .nudge = s.unit, .noise = k}), options));
    if (!s.wants_gradient) return;
    const Results other = run(t.written({.exact = true, .signs = true}), options);
    double result = 0;
    bool hidden = false;
    for (const Results* r : std::initializer_list<const Results*>{&exact_, &other})
      for (const auto& [name, y] : *r) {
        double& size = s.is_slope(name) ? slope_ : result;
        size = std::max(size, largest(y.values));
        hidden |= s.is_slope(name) &&
                  !std::ranges::all_of(y.values, [](double v) { return std::isfinite(v); });
      }
    if (hidden) slope_ = std::max(slope_, result);
  }
  const std::vector<double>& exact(const std::string& name) const { return exact_.at(name).values; }
  double room(const std::string& name, const std::vector<double>& plain) const {
    const std::vector<double>& y = exact(name);
    const bool slope = spelling_.is_slope(name);
    double most = furthest(plain, y);
    for (const Results& m : moved_) most = std::max(most, furthest(m.at(name).values, y));
    return std::max({16 * most, spelling_.unit * (slope ? 1024 * slope_ : 16 * largest(y)),
                     slope ? subnormal_room(y.size()) : 0});
  }

 private:
  // Slopes of a mean are often subnormal in f16: each is off by up to half of the smallest number,
  // however small it is. For a sum of n of them, 4 * sqrt(n) such errors; n is at most that of the
  // largest input.
  double subnormal_room(size_t count) const {
    if (spelling_.dtype != f16 || count == 0) return 0;
    int64_t most = 0;
    for (const Feed& f : spelling_.feeds) most = std::max(most, f.type.elements());
    return 4 * std::sqrt(static_cast<double>(most) / static_cast<double>(count)) * 0x1p-25;
  }

  const Spelling& spelling_;
  Results exact_;
  std::vector<Results> moved_;
  double slope_ = 0;
};

struct Outcome {
  std::string apart{};  // empty: as it should be
  bool found = false, mutated = false, breaks = false;
};

std::string list_of(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& n : names) all += (all.empty() ? "" : ", ") + n;
  return all.empty() ? "no mutation" : all;
}

// Does it not count what the device gives? Large numbers overflow in between where the graph is
// written so, and slopes of what overflows are as they come. Those of attention are NaN where the
// parts have it: a row without keys.
bool is_free(const Try& t, const Spelling& s, const std::string& name, double given, double plain,
             double exact) {
  if (s.data == Data::large && !std::isfinite(plain)) return std::isfinite(exact) || s.dtype == f64;
  if (t.form->name == "attention" && s.dtype != f16) return false;
  return s.is_slope(name) && !(std::isfinite(plain) && std::isfinite(given)) &&
         !std::isfinite(exact);
}

// An element is right if it is what the run without fusion gives, or what the oracle gives.
std::string difference(const Try& t, const Spelling& s, const Results& plain,
                       const Results& fused) {
  std::optional<Oracle> oracle;
  for (const std::string& name : s.outputs) {
    const Result &p = plain.at(name), &f = fused.at(name);
    if (p.type != f.type) return name + " has another type fused";
    if (!is_float(p.type.dtype)) {
      if (p.bytes != f.bytes) return name + " has other bits fused";
      continue;
    }
    const double close = 8 * s.unit * std::max(largest(p.values), 1e-300);
    std::optional<double> room;
    for (size_t i = 0; i < p.values.size(); ++i) {
      const double given = f.values[i];
      if (is_near(given, p.values[i], close)) continue;
      if (!oracle) oracle.emplace(t, s);
      if (!room) room = oracle->room(name, p.values);
      const double exact = oracle->exact(name)[i];
      if (is_right(p.type.dtype, given, p.values[i], exact, *room) ||
          is_free(t, s, name, given, p.values[i], exact))
        continue;
      std::ostringstream out;
      out.precision(17);
      out << name << "[" << i << "] is " << given << " fused, " << p.values[i] << " not fused, "
          << exact << " within " << *room << " expected";
      return out.str();
    }
  }
  return {};
}

Outcome outcome_of(const Try& t) {
  Outcome o;
  try {
    const Spelling s = t.written();
    o.mutated = !s.mutations.empty();
    o.breaks = s.breaks;
    std::string report;
    const Results plain = run(s, {.device = "cpu:0", .fuse = false});
    const Results fused = run(s, {.device = random_device(), .allow_fallback = false}, &report);
    o.found = is_found(t.form->name, report);
    o.apart = difference(t, s, plain, fused);
    if (!o.apart.empty() || !is_raised_form(t.form->name)) return o;
    if (o.found && o.breaks) o.apart = "raised although it is another graph";
    const bool half_loss = is_half(t.dtype) && t.form->name == "cross_entropy";
    if (!o.found && !o.mutated && !half_loss) o.apart = "not raised";
  } catch (const std::exception& e) {
    o.apart = e.what();
  }
  return o;
}

}  // namespace

TEST_SUITE("exec/random_form") {
  TEST_CASE("forms: each that the planner knows is spelled here") {
    std::vector<std::string_view> spelled, known = all_forms();
    for (const SpelledForm& f : kSpelled) spelled.push_back(f.name);
    std::ranges::sort(spelled), std::ranges::sort(known);
    CHECK(spelled == known);
  }

  TEST_CASE("forms: spelled out, and nearly, they give the same with fusion and without") {
    const uint64_t first = number_from("TENON_RANDOM_SEED", 1),
                   most = number_from("TENON_RANDOM_GRAPHS", 4400),
                   seconds = number_from("TENON_RANDOM_SECONDS", 1000000);
    std::vector<SpelledForm> forms(std::begin(kSpelled), std::end(kSpelled));
    if (const char* only = std::getenv("TENON_RANDOM_FORM"))
      std::erase_if(forms, [&](const SpelledForm& f) { return f.name != only; });
    REQUIRE(!forms.empty());
    struct Counts {
      uint64_t found = 0, missed = 0;
    };
    std::map<std::string_view, Counts> counts;
    uint64_t count = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    for (; count < most && std::chrono::steady_clock::now() < end; ++count) {
      const Try t = random_try(first + count, forms);
      const Outcome o = outcome_of(t);
      counts[t.form->name].found += o.found;
      counts[t.form->name].missed += !o.found && o.mutated;
      if (o.apart.empty()) continue;
      const Spelling s = t.written();
      FAIL_CHECK("seed ", t.seed, ", ", t.form->name, " with ", list_of(s.mutations), ": ", o.apart,
                 "\n", s.g.print());
    }
    MESSAGE(count, " graphs on ", random_device());
    for (const SpelledForm& f : forms) {
      const Counts c = counts[f.name];
      MESSAGE(f.name, ": found ", c.found, ", missed ", c.missed);
      // Each form must have been met, and been missed.
      if (count < most || most < 4000) continue;
      if (!is_raised_form(f.name) && random_device() != "cpu:0") continue;
      CHECK_MESSAGE(c.found >= 10, f.name);
      CHECK_MESSAGE(c.missed >= 10, f.name);
    }
  }
}
