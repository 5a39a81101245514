// SPDX-License-Identifier: Apache-2.0
// A graph that spells out one form of the planner in simple ops, drawn from a seed, perhaps with a
// mutation that makes it a near miss. The same seed spells the same graph in every dtype, so that
// the f64 oracle computes what a half was asked for.
#pragma once

#include <algorithm>
#include <bit>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "random_run.hpp"

namespace tenon::test {

using Dims = std::vector<int64_t>;

// What a mutation does to the form.
enum class Effect : uint8_t {
  may,     // the form may still be found
  breaks,  // the graph means something else, or shows what the form would hide
};

// Which mutations a graph gets: by number, among those that the form offers.
struct Mutation {
  int own = -1;    // one of the form's own, see Spelling::here
  int value = -1;  // what happens to one value of the form ...
  enum class Kind : uint8_t { cast, copy, output, reader, gradient } kind = Kind::cast;  // ... this
};

// How to write the graph down.
struct Writing {
  bool exact = false;  // all floats are f64, of the same numbers
  double nudge = 0;    // each result is moved by up to so much of itself
  uint64_t noise = 0;  // by which numbers
  bool signs = false;  // the loss has signs of its own, so that slopes do not cancel
};

// What the numbers are like; all but the usual are for graphs without gradients.
enum class Data : uint8_t { usual, large, tiny, offset, special };

class Spelling {
 public:
  Spelling(uint64_t seed, tenon_dtype dtype, const Mutation& mutation, const Writing& writing)
      : dtype(dtype), rng_(seed), mutation_(mutation), writing_(writing) {
    equal_ = pick(3) == 0;
    if (pick(8) == 0) long_sides_ = 2;
    side_ = kSides[pick(std::size(kSides))];
    wants_gradient = pick(2) == 0;
    scale_ = kScales[pick(std::size(kScales))];
    const bool far = flip();
    if (wants_gradient || pick(3)) return;
    data = static_cast<Data>(1 + pick(4));
    if (data == Data::large)
      scale_ *= dtype == f16   ? (far ? 3e3 : 1e2)
                : dtype == f64 ? (far ? 1e200 : 1e150)
                : far          ? 1e25
                               : 1e18;
    if (data == Data::tiny)
      scale_ *= dtype == f16   ? (far ? 1e-6 : 1e-3)
                : dtype == f64 ? (far ? 1e-200 : 1e-150)
                : far          ? 1e-25
                               : 1e-18;
  }

  const tenon_dtype dtype;
  Graph g{"form"};
  std::vector<Feed> feeds;
  std::vector<std::string> outputs;
  std::vector<std::string> mutations;  // those that the graph has
  bool wants_gradient = false;
  bool breaks = false;  // a mutation that breaks the form
  bool strict = true;   // the form hides what it computes in between
  Data data = Data::usual;
  double unit = 0;            // of the narrowest dtype
  int offered = 0, made = 0;  // mutations that Mutation can name

  // ---- chance

  uint32_t pick(uint64_t n) { return static_cast<uint32_t>(rng_() % n); }
  bool flip() { return pick(2) == 0; }
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[pick(all.size())];
  }
  int64_t side() {
    if (equal_) return side_;
    if (long_sides_ > 0 && pick(3) == 0) return --long_sides_, kLong[pick(std::size(kLong))];
    return kSides[pick(std::size(kSides))];
  }
  // From here on more often all dims are equal, so that one axis passes for another.
  void prefer_equal() {
    if (!equal_ && flip()) equal_ = true, side_ = kSides[1 + pick(3)];
  }
  Dims dims(int least, int most) {
    Dims d(static_cast<size_t>(least +
                               static_cast<int>(pick(static_cast<uint64_t>(most - least + 1)))));
    for (int64_t& n : d) n = side();
    return d;
  }
  // Is it here that the graph differs from the form? Each call offers one mutation.
  bool here(Effect effect, const char* what) {
    if (offered++ != mutation_.own) return false;
    mutations.emplace_back(what);
    breaks |= effect == Effect::breaks;
    return true;
  }
  // What else the form's own ops have been given: this is not how it is written.
  void note(const char* what) { mutations.emplace_back(what); }

  // ---- operands

  // A float input or weight; gradients are taken by it.
  Value input(const Dims& d) { return input(d, dtype); }
  Value input(const Dims& d, tenon_dtype t, bool weight = false) {
    const Value v = fixed(d, t, weight);
    wrt_.push_back(v);
    return v;
  }
  Value fixed(const Dims& d, tenon_dtype t, bool weight = false) {
    const uint64_t key = feeds.size();
    const double scale = scale_, offset = is_half(dtype) ? 64 : 1000;
    return feed(d, t, weight, [key, t, scale, offset, data = data, count = count_of(d)](size_t i) {
      double v = scale * noise(key, i);
      if (data == Data::offset) v += offset;
      if (data == Data::special && count > 2) {
        if (i == count / 3) v = key % 3 == 0 ? std::nan("") : INFINITY;
        if (i == count / 2) v = -INFINITY;
      }
      return rounded(t, v);
    });
  }
  // Of bools or whole numbers.
  Value whole(const Dims& d, tenon_dtype t, std::function<double(size_t)> value) {
    return feed(d, t, false, std::move(value));
  }
  // What the form reads: an input, or what something before the form makes. Now and then the same
  // value twice.
  Value operand(const Dims& d) {
    for (const Value v : operands_)
      if (g.type(v).dims == d && pick(6) == 0) return v;
    const bool was = inside_;
    inside_ = false;
    Value v = input(d);
    switch (pick(8)) {
      case 0:
        v = unary("tanh", v);
        break;
      case 1:
        v = binary("add", v, input(d));
        break;
      case 2:
        if (d.size() == 2) v = matmul({.a = v, .b = input({d[1], d[1]}, dtype, true)});
        break;
      default:
        break;
    }
    inside_ = was;
    operands_.push_back(v);
    return v;
  }
  // Another value of these dims than the one that the form reads here.
  Value other(const Dims& d) { return input(d); }
  Value parameter(const Dims& d) {
    for (const Value v : operands_)
      if (g.type(v).dims == d && pick(12) == 0) return v;
    return input(d, dtype, flip());
  }

  // ---- constants

  Value number(double v, int units_off = 0) { return constant({}, {v}, units_off); }
  Value constant(const Dims& d, const std::vector<double>& values, int units_off = 0) {
    const tenon_dtype t = writing_.exact ? f64 : dtype;
    const size_t from_size = tenon_dtype_bits(dtype) / 8, size = tenon_dtype_bits(t) / 8;
    std::vector<std::byte> bytes(values.size() * size);
    for (size_t i = 0; i < values.size(); ++i) {
      uint64_t bits = 0;
      store_at(dtype, reinterpret_cast<std::byte*>(&bits), values[i]);
      bits += static_cast<uint64_t>(static_cast<int64_t>(units_off));  // little-endian
      double v = 0;
      core::load_number(dtype, &bits, &v);
      if (t == dtype)
        std::memcpy(bytes.data() + i * size, &bits, from_size);
      else
        store_at(t, bytes.data() + i * size, v);
    }
    return g.constant({t, d}, bytes.data(), bytes.size());
  }
  Value bools(const Dims& d, const std::vector<uint8_t>& values) {
    return g.constant({boolean, d}, values.data(), values.size());
  }
  // A number of the formula. exact: it must be just this; else it is rounded, and in f64 the
  // planner's own number is rounded as well.
  Value formula_number(double v, bool exact) {
    if (here(exact || dtype != f64 ? Effect::breaks : Effect::may, "a number one unit off"))
      return number(v, flip() ? 1 : -1);
    if (!exact && here(Effect::breaks, "a number four units off"))
      return number(v, flip() ? 4 : -4);
    if (here(Effect::breaks, "another number")) return number(v * 1.5);
    if (here(Effect::may, "a number of rank 1")) return constant({1}, {v});
    return number(v);
  }

  // ---- ops

  Value unary(const char* kind, Value x) { return now(g.add(op::unary{.kind = kind, .x = x})); }
  Value binary(const char* kind, Value a, Value b) {
    const std::string_view k = kind;
    if ((k == "add" || k == "mul") && flip()) std::swap(a, b);
    return now(g.add(op::binary{.kind = kind, .a = a, .b = b}));
  }
  Value matmul(const op::matmul& n) { return now(g.add(n)); }
  Value reduce(const char* kind, Value x, Dims axes, bool keep) {
    return now(g.add(op::reduce{.kind = kind, .axes = std::move(axes), .keepdims = keep, .x = x}));
  }
  Value reshape(Value x, Dims d) { return now(g.add(op::reshape{.shape = std::move(d), .x = x})); }
  Value square(Value x) {
    switch (pick(3)) {
      case 0:
        return unary("square", x);
      case 1:
        return binary("mul", x, x);
      default:
        return binary("pow", x, formula_number(2, true));
    }
  }
  // All factors multiplied, in any order; `number` goes into one of them.
  Value product(std::vector<Value> factors, double number = 1) {
    if (here(Effect::may, "a factor twice")) factors.push_back(factors[pick(factors.size())]);
    bool left = number != 1;
    while (factors.size() > 1 || left) {
      const size_t a = pick(factors.size());
      if (left && (factors.size() == 1 || flip())) {
        left = false;
        factors[a] = flip() ? binary("mul", factors[a], formula_number(number, true))
                            : binary("div", factors[a], formula_number(1 / number, true));
        continue;
      }
      if (factors.size() == 1) continue;
      const size_t b = (a + 1 + pick(factors.size() - 1)) % factors.size();
      factors[a] = binary("mul", factors[a], factors[b]);
      factors.erase(factors.begin() + static_cast<std::ptrdiff_t>(b));
    }
    return factors[0];
  }
  Value to_dtype(Value x, tenon_dtype t) {
    unit = std::max(unit, unit_of(t));
    return writing_.exact ? x : Value(g.add(op::cast{.to = t, .x = x}));
  }
  // A value that the form does not hide.
  void loose(Value v) { loose_.push_back(v); }
  // Any result of a node, after what happens to it.
  Value now(Value v) {
    const tenon_dtype t = g.type(v).dtype;
    if (is_float(t) && writing_.nudge != 0) v = nudged(v);
    if (!inside_) return v;
    if (made++ != mutation_.value) return v;
    using Kind = Mutation::Kind;
    if (mutation_.kind == Kind::cast && is_float(t)) {
      const tenon_dtype via = one_of<tenon_dtype>({f16, bf16, f32, f64});
      note("a cast there and back");
      return to_dtype(to_dtype(v, via), dtype);
    }
    if (mutation_.kind == Kind::copy || !is_float(t)) {
      note("a copy in between");
      return g.add(op::copy{.x = v});
    }
    read_ = v;
    return v;
  }
  Dims dims_of(Value v) const { return g.type(v).dims; }

  // ---- the end

  // y is what the form makes.
  void finish(Value y) {
    inside_ = false;
    unit = std::max(unit, unit_of(dtype));
    leave("y", y);
    std::vector<Value> wrt = wrt_;
    if (read_) read_by_others(y, wrt);
    if (!wants_gradient) return;
    const std::vector<Value> slopes = g.gradients(loss(y), wrt);
    for (size_t k = 0; k < slopes.size(); ++k) leave("d" + std::to_string(k), slopes[k]);
  }
  // More results of the form.
  void leave(const std::string& name, Value v) {
    g.output(name, v);
    outputs.push_back(name);
  }
  bool is_slope(const std::string& name) const { return name[0] == 'd'; }
  // Are there infinities or NaN among the data?
  bool is_special() const { return data == Data::special; }

 private:
  static constexpr int64_t kSides[] = {1, 2, 3, 4, 5, 8, 17};
  static constexpr int64_t kLong[] = {33, 65, 130};  // beyond one tile of a kernel
  static constexpr double kScales[] = {0.3, 1, 1, 3};

  static size_t count_of(const Dims& d) {
    int64_t n = 1;
    for (const int64_t k : d) n *= k;
    return static_cast<size_t>(n);
  }
  Value feed(const Dims& d, tenon_dtype t, bool weight, std::function<double(size_t)> value) {
    const tenon_dtype written = writing_.exact && is_float(t) ? f64 : t;
    if (is_float(t)) unit = std::max(unit, unit_of(t));
    const std::string name = "x" + std::to_string(feeds.size());
    const TensorType type{written, d};
    feeds.push_back({name, type, std::move(value), weight});
    return weight ? g.weight(name, type) : g.input(name, type);
  }
  // Each element is moved by another part of it, as roundings would.
  Value nudged(Value v) {
    const Dims d = dims_of(v);
    const uint64_t key = 100000 * (writing_.noise + 1) + nudges_++;
    std::vector<double> factors(count_of(d));
    for (size_t i = 0; i < factors.size(); ++i) factors[i] = 1 + writing_.nudge * noise(key, i);
    return g.add(op::binary{.kind = "mul", .a = v, .b = g.constant<double>(d, factors)});
  }
  void read_by_others(Value y, std::vector<Value>& wrt) {
    if (read_ == y) return;
    // Another mutation may have made a part of the graph the form.
    breaks |= strict && mutations.empty() &&
              std::find(loose_.begin(), loose_.end(), *read_) == loose_.end();
    if (mutation_.kind == Mutation::Kind::gradient && wants_gradient) {
      note("a gradient by a value in between");
      return wrt.push_back(*read_);
    }
    if (mutation_.kind == Mutation::Kind::reader) {
      note("another reader of a value in between");
      return leave("read", g.add(op::unary{.kind = "neg", .x = *read_}));
    }
    note("a value in between leaves");
    leave("read", *read_);
  }
  Value loss(Value y) {
    if (writing_.signs) {
      std::vector<double> signs(count_of(dims_of(y)));
      for (size_t i = 0; i < signs.size(); ++i) signs[i] = noise(77, i) < 0 ? -1 : 1;
      y = g.add(op::binary{.kind = "mul", .a = y, .b = g.constant<double>(dims_of(y), signs)});
      return g.add(op::reduce{.kind = flip() ? "sum" : "mean", .x = y});
    }
    if (flip()) {
      const Value w = fixed(g.type(y).dims, dtype);
      y = g.add(op::binary{.kind = "mul", .a = y, .b = w});
      return g.add(op::reduce{.kind = "sum", .x = y});
    }
    return g.add(op::reduce{.kind = "mean", .x = g.add(op::unary{.kind = "square", .x = y})});
  }

  std::mt19937_64 rng_;
  const Mutation mutation_;
  const Writing writing_;
  bool equal_ = false, inside_ = true;
  int64_t side_ = 1;
  int long_sides_ = 0;
  double scale_ = 1;
  uint64_t nudges_ = 0;
  std::vector<Value> wrt_, operands_, loose_;
  std::optional<Value> read_;
};

// Spells the form out; returns its result.
using Speller = Value (*)(Spelling&);
struct SpelledForm {
  std::string_view name;
  Speller spell;
};

}  // namespace tenon::test
