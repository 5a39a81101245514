// SPDX-License-Identifier: Apache-2.0
// Sizes in buckets: results are those of exact sizes, few plans serve many sizes, and what cannot be
// padded is refused by name. conform.padded.* goes through the cases of the kit.
#include <algorithm>
#include <array>
#include <map>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

using Symbols = std::map<std::string, int64_t>;
using Buckets = std::vector<std::pair<std::string, std::string>>;

struct Result {
  std::vector<int64_t> dims;
  std::vector<double> values;
};
using Results = std::map<std::string, Result>;

// A graph, its store and a context that lives over several runs. Inputs are f32 noise of their
// shapes, or what `set` gives.
class Subject {
 public:
  Subject(const std::string& text, const std::string& device, const Buckets& buckets)
      : store(runtime()),
        graph_(Graph::parse(text, "test")),
        executable(runtime(), graph_, weights(), {.device = device, .buckets = buckets}),
        context(executable) {}

  void set_noise(const Symbols& symbols) {
    uint64_t key = 7;
    for (const auto& in : graph_.named(TENON_SPACE_INPUT)) {
      ++key;
      std::vector<int64_t> dims = graph_.type(in.value).dims;
      int64_t count = 1;
      for (int64_t& d : dims) {
        for (const auto& [name, number] : symbols)
          if (d == graph_.symbol(name)) d = number;
        count *= d;
      }
      if (graph_.type(in.value).dtype != f32) continue;
      context.set(in.name, dims, noise_of(key, static_cast<size_t>(count)));
    }
  }
  Results run() {
    context.run();
    Results out;
    for (const auto& [name, value] : graph_.outputs()) {
      const TensorType type = context.output_type(name);
      Result r{type.dims, {}};
      if (type.dtype == f32)
        for (float v : context.get<float>(name)) r.values.push_back(v);
      else if (type.dtype == i64)
        for (int64_t v : context.get<int64_t>(name)) r.values.push_back(static_cast<double>(v));
      else
        FAIL("an output of another dtype");
      out.emplace(name, std::move(r));
    }
    return out;
  }

  Store store;

 private:
  Store& weights() {
    uint64_t key = 100;
    for (const uint32_t space : {TENON_SPACE_WEIGHT, TENON_SPACE_STATE})
      for (const auto& w : graph_.named(space)) {
        const TensorType type = graph_.type(w.value);
        if (type.dtype == f32)
          store.set(space, w.name, type.dims,
                    noise_of(++key, static_cast<size_t>(type.elements())));
      }
    return store;
  }
  Graph graph_;

 public:
  Executable executable;
  Context context;
};

void check_same(const Results& got, const Results& want, double tolerance = 2e-5) {
  REQUIRE(got.size() == want.size());
  for (const auto& [name, w] : want) {
    INFO(name);
    const Result& g = got.at(name);
    REQUIRE(g.dims == w.dims);
    double most = 1;
    for (double v : w.values) most = std::max(most, std::abs(v));
    for (size_t i = 0; i < w.values.size(); ++i) {
      INFO(i);
      CHECK(std::abs(g.values[i] - w.values[i]) <= tolerance * most);
    }
  }
}

// Runs of the same sizes, in buckets and exact.
void compare(const std::string& text, const Buckets& buckets, const std::vector<Symbols>& sizes) {
  for (const std::string& device : control_devices()) {
    INFO(device);
    Subject rounded(text, device, buckets), exact(text, device, {});
    for (const Symbols& symbols : sizes) {
      std::string which;
      for (const auto& [name, number] : symbols) which += name + "=" + std::to_string(number) + " ";
      INFO(which);
      rounded.set_noise(symbols);
      exact.set_noise(symbols);
      check_same(rounded.run(), exact.run());
    }
  }
}

std::vector<Symbols> sizes_of(const std::string& symbol, std::vector<int64_t> numbers) {
  std::vector<Symbols> out;
  for (int64_t n : numbers) out.push_back({{symbol, n}});
  return out;
}

template <class Work>
std::string failure(const Work& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "no failure";
}

// What a first run of these sizes says.
std::string refusal(const std::string& text, const Buckets& buckets, const Symbols& symbols) {
  return failure([&] {
    Subject s(text, "cpu:0", buckets);
    s.set_noise(symbols);
    s.run();
  });
}

#define CHECK_HAS(text, part)                        \
  do {                                               \
    const std::string has_text = (text);             \
    INFO(has_text);                                  \
    CHECK(has_text.find(part) != std::string::npos); \
  } while (false)

// The example of core/ir/README.md: a loss that is a mean over the symbol, its gradient, and updates.
constexpr const char* kLine = R"(graph "line" {
  symbols N
  input x: f32[N,3]
  input t: f32[N]
  weight w: f32[3] trainable
  const half: f32[] = {0.5}
  y = matmul(x, w)
  e = binary(y, t) {kind="sub"}
  e2 = unary(e) {kind="square"}
  loss = reduce(e2) {kind="mean", axes=[0]}
  (dw, dx) = grad(loss, [w, x])
  step = binary(dw, half) {kind="mul"}
  better = binary(w, step) {kind="sub"}
  output "y" = y
  output "loss" = loss
  output "dx" = dx
  update w = better
})";

}  // namespace

TEST_SUITE("exec/buckets") {
  TEST_CASE("a training: means, gradients and updates are those of exact sizes") {
    compare(kLine, {{"N", "pow2"}}, sizes_of("N", {5, 6, 7, 8, 3, 1, 2, 100, 5}));
    compare(kLine, {{"N", "4,10"}}, sizes_of("N", {1, 4, 5, 10, 11, 3}));
  }

  TEST_CASE("sizes in one bucket share a plan, and the report says so") {
    Subject s(kLine, "cpu:0", {{"N", "pow2:4..12"}});
    const auto at = [&](int64_t n) { return s.executable.report({{"N", n}}); };
    CHECK_HAS(at(3), "symbol 'N' is rounded up to 4");
    CHECK(at(3) == at(1));
    CHECK(at(5) == at(8));
    CHECK_HAS(at(9), "symbol 'N' is rounded up to 12");
    CHECK(at(9) == at(12));
    CHECK(at(13) != at(14));
    CHECK(at(13).find("rounded up") == std::string::npos);
  }

  TEST_CASE("no elements, and numbers above all sizes") {
    compare(R"(graph {
      symbols N
      input x: f32[N,2]
      y = reduce(x) {kind="sum", axes=[0]}
      z = unary(x) {kind="exp"}
      output "y" = y
      output "z" = z
    })",
            {{"N", "4,8"}}, sizes_of("N", {0, 4, 0, 9, 3, 1000}));
  }

  TEST_CASE("attention over a padded sequence and a padded batch, with gradients") {
    for (const char* attrs : {"causal=true", "causal=false", "causal=true, left_window=2"}) {
      INFO(attrs);
      const std::string text = std::string(R"(graph {
        symbols B, T
        input x: f32[B,T,8]
        weight wq: f32[8,8] trainable
        weight wv: f32[8,8] trainable
        weight g: f32[8] trainable
        h = rms_norm(x, g)
        q0 = matmul(h, wq)
        v0 = matmul(h, wv)
        q = reshape(q0) {shape=[0, 0, 2, 4]}
        v = reshape(v0) {shape=[0, 0, 2, 4]}
        o0 = attention(q, v, v) {layout="bshd", )") +
                               attrs + R"(}
        o = reshape(o0) {shape=[0, 0, 8]}
        y = binary(x, o) {kind="add"}
        y2 = unary(y) {kind="square"}
        loss = reduce(y2) {kind="mean"}
        (dq, dv, dg, dx) = grad(loss, [wq, wv, g, x])
        output "y" = y
        output "loss" = loss
        output "dq" = dq
        output "dv" = dv
        output "dg" = dg
        output "dx" = dx
      })";
      compare(
          text, {{"B", "pow2"}, {"T", "pow2"}},
          {{{"B", 3}, {"T", 5}}, {{"B", 1}, {"T", 7}}, {{"B", 4}, {"T", 6}}, {{"B", 3}, {"T", 8}}});
      compare(text, {{"T", "6,16"}}, {{{"B", 3}, {"T", 5}}, {{"B", 2}, {"T", 11}}});
    }
  }

  TEST_CASE("entropy: no 0 times infinity of padding reaches a gradient") {
    compare(R"(graph {
      symbols N
      input x: f32[3,N]
      p = softmax(x)
      l = unary(p) {kind="log"}
      pl = binary(p, l) {kind="mul"}
      h = reduce(pl) {kind="sum"}
      dx = grad(h, x)
      output "h" = h
      output "p" = p
      output "dx" = dx
    })",
            {{"N", "pow2"}}, sizes_of("N", {5, 3, 7, 8}));
  }

  TEST_CASE("no singular point of padding reaches a gradient") {
    // Distances of the last row to its copies: sqrt at 0.
    compare(R"(graph {
        symbols N
        input x: f32[N]
        like = binary(x, x) {kind="sub"}
        one = unary(like) {kind="exp"}
        pos = cumsum(one)
        pa = reshape(pos) {shape=[-1,1]}
        pb = reshape(pos) {shape=[1,-1]}
        eye = compare(pa, pb) {kind="eq"}
        a = reshape(x) {shape=[-1,1]}
        b = reshape(x) {shape=[1,-1]}
        d = binary(a, b) {kind="sub"}
        d2 = unary(d) {kind="square"}
        const o: f32[] = {1}
        safe = where(eye, o, d2)
        dist = unary(safe) {kind="sqrt"}
        e = reduce(dist) {kind="sum"}
        dx = grad(e, x)
        output "e" = e
        output "dx" = dx
    })",
            {{"N", "8"}}, sizes_of("N", {5, 8}));
    // Positions that go on rising, up to a pole.
    compare(R"(graph {
        symbols N
        input x: f32[N,2]
        w = reduce(x) {kind="sum", axes=[1]}
        s0 = binary(w, w) {kind="sub"}
        one = unary(s0) {kind="exp"}
        pos = cumsum(one)
        const five: f32[] = {6}
        d = binary(five, pos) {kind="sub"}
        inv = unary(d) {kind="reciprocal"}
        c = reshape(inv) {shape=[-1,1]}
        v = binary(x, c) {kind="mul"}
        q = matmul(v, v) {trans_a=true}
        l = reduce(q) {kind="sum"}
        m = reduce(v) {kind="max"}
        sm = softmax(v) {axis=0}
        smm = reduce(sm) {kind="sum_square"}
        ll = binary(l, smm) {kind="add"}
        dx = grad(ll, x)
        output "ll" = ll
        output "m" = m
        output "dx" = dx
    })",
            {{"N", "8"}}, sizes_of("N", {5, 4}));
    compare(R"(graph {
        symbols N
        input x: f32[1,1,N,2]
        like = reduce(x) {kind="sum", axes=[0,1,3]}
        zero = binary(like, like) {kind="sub"}
        one = unary(zero) {kind="exp"}
        pos = cumsum(one)
        const five: f32[] = {6}
        d = binary(five, pos) {kind="sub"}
        lg = unary(d) {kind="log"}
        c = reshape(lg) {shape=[1,1,-1,1]}
        v = binary(x, c) {kind="mul"}
        a = attention(x, x, v) {causal=true}
        b = attention(x, x, v)
        la = reduce(a) {kind="sum"}
        dx = grad(la, x)
        output "a" = a
        output "b" = b
        output "dx" = dx
    })",
            {{"N", "8"}}, sizes_of("N", {5, 4}));
  }

  TEST_CASE("trips that do not count compute nothing") {
    // An index that is out of range there.
    compare(R"(graph {
        symbols N
        input x: f32[N]
        const table: f32[5] = {1,2,3,4,5}
        like = binary(x, x) {kind="sub"}
        one0 = unary(like) {kind="exp"}
        one = cast(one0) {to=i64}
        pos = cumsum(one) {exclusive=true}
        const init: f32[] = {0}
        (h, hs) = scan([init], [pos], [table]) {body=graph {
          input h: f32[]
          input p: i64[]
          input table: f32[5]
          t = gather(table, p)
          n = binary(h, t) {kind="add"}
          output "n" = n
          output "s" = n
        }}
        output "h" = h
        output "hs" = hs
    })",
            {{"N", "8"}}, sizes_of("N", {5, 3}));
    // A slope that is infinite between equal times.
    const std::string text = R"(graph {
        symbols T
        input t: f32[T]
        weight w: f32[1] trainable
        const zero: f32[] = {-9}
        wp = unary(w) {kind="abs"}
        w0 = reshape(wp) {shape=[]}
        (last, ys) = scan([zero], [t], [w0]) {body=graph {
          input prev: f32[]
          input now: f32[]
          input w: f32[]
          d = binary(now, prev) {kind="sub"}
          dw2 = binary(d, w) {kind="mul"}
          r = unary(dw2) {kind="sqrt"}
          y = unary(r) {kind="neg"}
          output "prev" = now
          output "y" = y
        }}
        l = reduce(ys) {kind="sum"}
        (dt, dw) = grad(l, [t, w])
        output "ys" = ys
        output "dt" = dt
        output "dw" = dw
    })";
    for (const std::string& device : control_devices()) {
      INFO(device);
      Subject rounded(text, device, {{"T", "8"}}), exact(text, device, {});
      for (Subject* s : {&rounded, &exact}) s->context.set<float>("t", {5}, {1, 2, 4, 5, 9});
      check_same(rounded.run(), exact.run());
    }
  }

  TEST_CASE("gradients inside of a batch: indices from the end stay on their elements") {
    Graph one("one");
    const Value row = one.input("row", {f32, {one.symbol("M")}}),
                idx = one.input("idx", {i64, {2}});
    const Value y = one.gather(row, idx);
    one.output("d", one.gradients(one.sum(y * y) + one.mean(row * row), {row})[0]);
    Graph g("batch");
    const Value x = g.input("x", {f32, {3, g.symbol("N")}});
    const Value i = g.input("i", {i64, {2}});
    g.output("d", g.vmap({x}, one, {.captured = {i}})[0]);
    for (const std::string& device : control_devices()) {
      INFO(device);
      Subject rounded(g.print(), device, {{"N", "8"}}), exact(g.print(), device, {});
      for (Subject* s : {&rounded, &exact}) {
        s->set_noise({{"N", 5}});
        s->context.set<int64_t>("i", {2}, {0, -1});
      }
      check_same(rounded.run(), exact.run());
    }
  }

  TEST_CASE("ops along a padded axis") {
    compare(R"(graph {
      symbols N
      input x: f32[2,N]
      const one: f32[2,1] = {1, -1}
      (sorted, order) = sort(x) {axis=1}
      (down, down_order) = sort(x) {axis=1, descending=true}
      (best, which) = topk(x) {axis=1, k=3}
      most = argmax(x) {axis=1}
      least = argmin(x) {axis=1}
      sums = cumsum(x) {axis=1}
      back = cumsum(x) {axis=1, reverse=true}
      hi = reduce(x) {kind="max", axes=[1]}
      lo = reduce(x) {kind="min", axes=[1]}
      product = reduce(x) {kind="prod", axes=[1]}
      lse = reduce(x) {kind="logsumexp", axes=[1]}
      l2 = reduce(x) {kind="l2", axes=[1]}
      mean = reduce(x) {kind="mean", axes=[1]}
      joined = concat([one, x]) {axis=1}
      rest = narrow(x) {start=[0, 2]}
      front = pad(x) {before=[0, 2], after=[0, 0]}
      flat = reshape(x) {shape=[2, -1, 1]}
      gram = matmul(x, x) {trans_b=true}
      outer = matmul(x, x) {trans_a=true}
      turned = transpose(x)
      output "sorted" = sorted
      output "order" = order
      output "down" = down
      output "down_order" = down_order
      output "best" = best
      output "which" = which
      output "most" = most
      output "least" = least
      output "sums" = sums
      output "back" = back
      output "hi" = hi
      output "lo" = lo
      output "product" = product
      output "lse" = lse
      output "l2" = l2
      output "mean" = mean
      output "joined" = joined
      output "rest" = rest
      output "front" = front
      output "flat" = flat
      output "gram" = gram
      output "outer" = outer
      output "turned" = turned
    })",
            {{"N", "8,20"}}, sizes_of("N", {3, 5, 8, 13, 20}));
  }

  TEST_CASE("a cache: only what counts is written, also near its end") {
    const std::string text = R"(graph {
      symbols T
      input k: f32[1,T,2]
      input at: i64[]
      state cache: f32[1,10,2]
      const zero: i64[1] = {0}
      at1 = reshape(at) {shape=[1]}
      start = concat([zero, at1, zero])
      now = dynamic_update_slice(cache, k, start)
      output "now" = now
      update cache = now
    })";
    for (const std::string& device : control_devices()) {
      INFO(device);
      Subject rounded(text, device, {{"T", "4,8"}}), exact(text, device, {});
      for (const auto& [count, at] : std::vector<std::pair<int64_t, int64_t>>{
               {3, 0}, {1, 3}, {2, 4}, {1, 9}, {3, 7}, {5, 5}, {8, 2}}) {
        INFO(count, " at ", at);
        for (Subject* s : {&rounded, &exact}) {
          s->set_noise({{"T", count}});
          s->context.set<int64_t>("at", at);
        }
        check_same(rounded.run(), exact.run());
      }
      for (const auto& [count, at] :
           std::vector<std::pair<int64_t, int64_t>>{{3, 8}, {1, 10}, {1, -1}, {2, 1000}}) {
        INFO(count, " at ", at);
        Subject failing(text, device, {{"T", "4,8"}});
        failing.set_noise({{"T", count}});
        failing.context.set<int64_t>("at", at);
        CHECK_HAS(failure([&] { failing.run(); }), "is outside");
      }
    }
  }

  TEST_CASE("indices: padding is out of range, and wrong ones of padding are not read") {
    const std::string text = R"(graph {
      symbols N
      input x: f32[N,2]
      input i: i64[2]
      last = gather(x, i)
      output "last" = last
    })";
    for (const std::string& device : control_devices()) {
      INFO(device);
      Subject rounded(text, device, {{"N", "8"}}), exact(text, device, {});
      for (const std::vector<int64_t>& i : {std::vector<int64_t>{0, 4}, {-1, -5}}) {
        for (Subject* s : {&rounded, &exact}) {
          s->set_noise({{"N", 5}});
          s->context.set("i", i);
        }
        check_same(rounded.run(), exact.run());
      }
      for (const std::vector<int64_t>& i : {std::vector<int64_t>{0, 5}, {7, 0}, {-6, 0}, {8, 0}}) {
        rounded.context.set("i", i);
        CHECK_HAS(failure([&] { rounded.run(); }), "is outside");
      }
    }
    // Positions that a sum makes go on rising where nothing counts.
    compare(R"(graph {
      symbols N
      input x: f32[N]
      const table: f32[6] = {1, 2, 3, 4, 5, 6}
      const low: f32[] = {-3}
      positive = compare(x, low) {kind="gt"}
      ones = cast(positive) {to=i64}
      place = cumsum(ones) {exclusive=true}
      y = gather(table, place)
      output "y" = y
    })",
            {{"N", "16"}}, sizes_of("N", {6, 4, 1}));
  }

  TEST_CASE("loops over a padded axis and over padded values") {
    compare(
        R"(graph {
      symbols T, B
      input xs: f32[T,B,3]
      input h0: f32[B,3]
      weight w: f32[3,3] trainable
      (h, hs) = scan([h0], [xs], [w]) {body=graph {
        symbols M
        input h: f32[M,3]
        input x: f32[M,3]
        input w: f32[3,3]
        a = matmul(h, w)
        b = binary(a, x) {kind="add"}
        next = unary(b) {kind="tanh"}
        output "next" = next
        output "stacked" = next
      }}
      (back, bs) = scan([h0], [xs], []) {reverse=true, body=graph {
        symbols M
        input h: f32[M,3]
        input x: f32[M,3]
        p = binary(h, x) {kind="mul"}
        m = reduce(p) {kind="mean", axes=[0], keepdims=true}
        next = binary(p, m) {kind="sub"}
        output "next" = next
        output "stacked" = m
      }}
      s = reduce(h) {kind="sum"}
      s2 = reduce(back) {kind="sum"}
      loss = binary(s, s2) {kind="add"}
      (dw, dh, dx) = grad(loss, [w, h0, xs])
      output "h" = h
      output "hs" = hs
      output "back" = back
      output "bs" = bs
      output "dw" = dw
      output "dh" = dh
      output "dx" = dx
    })",
        {{"T", "4,9"}, {"B", "pow2"}},
        {{{"T", 3}, {"B", 3}}, {{"T", 4}, {"B", 1}}, {{"T", 7}, {"B", 5}}, {{"T", 1}, {"B", 2}}});
    compare(R"(graph {
      symbols N
      input x: f32[N]
      const limit: f32[] = {40}
      y = while([x], [limit]) {max_trip=30, cond=graph {
        symbols M
        input x: f32[M]
        input limit: f32[]
        a = unary(x) {kind="abs"}
        s = reduce(a) {kind="sum"}
        goes = compare(s, limit) {kind="lt"}
        output "goes" = goes
      }, body=graph {
        symbols M
        input x: f32[M]
        input limit: f32[]
        y = binary(x, x) {kind="add"}
        output "y" = y
      }}
      m = reduce(x) {kind="mean"}
      zero = binary(m, m) {kind="sub"}
      positive = compare(m, zero) {kind="gt"}
      z = if(positive, [y]) {then_branch=graph {
        symbols M
        input y: f32[M]
        z = reduce(y) {kind="mean"}
        output "z" = z
      }, else_branch=graph {
        symbols M
        input y: f32[M]
        z = reduce(y) {kind="sum"}
        output "z" = z
      }}
      dx = grad(z, x)
      output "y" = y
      output "z" = z
      output "dx" = dx
    })",
            {{"N", "pow2"}}, sizes_of("N", {3, 5, 6, 9, 16}));
  }

  TEST_CASE("examples of a batch") {
    Graph one("one");
    const Value row = one.input("row", {f32, {4}});
    one.output("s", one.sum(one.softmax(row) * row));
    Graph g("batch");
    const int64_t n = g.symbol("N");
    const Value x = g.input("x", {f32, {n, 4}});
    const Value s = g.vmap({x}, one)[0];
    g.output("s", s);
    g.output("dx", g.gradients(g.mean(s), {x})[0]);
    compare(g.print(), {{"N", "pow2"}}, sizes_of("N", {3, 7, 8}));
  }

  TEST_CASE("what cannot be padded is refused by name") {
    const auto with = [](const std::string& nodes) {
      return "graph {\n symbols N\n input x: f32[N,2]\n input z: f32[3,2]\n" + nodes +
             "\n output \"y\" = y\n}";
    };
    const Buckets buckets = {{"N", "8"}};
    const Symbols n = {{"N", 5}};
    CHECK_HAS(refusal(with("y = concat([x, z]) @\"join\""), buckets, n),
              "bucket of symbol 'N': concat 'join': an operand before the last one is padded");
    CHECK_HAS(refusal(with("y = narrow(x) {step=[2, 1]} @\"half\""), buckets, n),
              "is no multiple of it");
    CHECK_HAS(refusal(with("y = narrow(x) {start=[1, 0], step=[-1, 1], len=[2, 2]} @\"flip\""),
                      buckets, n),
              "narrow 'flip': a step along a padded axis");
    CHECK_HAS(refusal(with("f = transpose(x)\n y = reshape(f) {shape=[-1]} @\"mix\""), buckets, n),
              "reshape 'mix': it mixes a padded axis with one before it");
    CHECK_HAS(refusal("graph {\n symbols N\n input x: f32[2,N]\n const r: i64[2] = {1, 2}\n"
                      " y = dropout(x, r) @\"drop\"\n output \"y\" = y\n}",
                      buckets, n),
              "dropout 'drop': its numbers depend on axes behind a padded one");
    CHECK_HAS(refusal(with("y = layer_norm(x) {axis=0} @\"norm\""), buckets, n), "no failure");
    CHECK_HAS(refusal("graph {\n symbols N\n input q: f32[1,2,1,N]\n input v: f32[1,2,1,2]\n"
                      " input g: f32[1,2,1]\n y = gated_delta_rule(q, q, v, g, g) @\"rule\"\n"
                      " output \"y\" = y\n}",
                      buckets, n),
              "gated_delta_rule 'rule': its scale depends on a padded axis");
    CHECK_HAS(refusal("graph {\n symbols N\n input x: f32[3,N]\n const l: i64[3] = {0, 1, 2}\n"
                      " y = nll_loss(x, l) @\"loss\"\n output \"y\" = y\n}",
                      buckets, n),
              "nll_loss 'loss': its classes are padded");
    // A size that equals a fixed one.
    CHECK_HAS(refusal("graph {\n symbols N\n input x: f32[N]\n const c: f32[4] = {1, 2, 3, 4}\n"
                      " y = binary(x, c) {kind=\"add\"}\n output \"y\" = y\n}",
                      {{"N", "4"}}, {{"N", 3}}),
              "the graph takes no size but 4");
    CHECK_HAS(refusal("graph {\n symbols N\n input x: f32[N]\n const c: f32[4] = {1, 2, 3, 4}\n"
                      " y = binary(x, c) {kind=\"add\"} @\"sum\"\n output \"y\" = y\n}",
                      {{"N", "6"}}, {{"N", 4}}),
              "symbol 'N' rounded up to 6: binary 'sum'");
  }

  TEST_CASE("a graph that fails at its own sizes fails with buckets too") {
    // narrow takes 3 rows: there are only 2, though the bucket has them.
    CHECK_HAS(refusal("graph {\n symbols N\n input x: f32[N]\n y = narrow(x) {start=[0], len=[3]}\n"
                      " output \"y\" = y\n}",
                      {{"N", "8"}}, {{"N", 2}}),
              "attribute len");
  }

  TEST_CASE("ctc_loss: a length beyond the steps is out of range, though the bucket has them") {
    const auto ran = [](int64_t steps) {
      Subject s(
          "graph {\n symbols N\n input x: f32[N,1,3]\n input steps: i64[1]\n"
          " const labels: i64[1,1] = {1}\n const count: i64[1] = {1}\n"
          " y = ctc_loss(x, labels, steps, count) {reduction=\"sum\"}\n output \"y\" = y\n}",
          "cpu:0", {{"N", "8"}});
      s.set_noise({{"N", 5}});
      s.context.set("steps", {1}, std::vector<int64_t>{steps});
      s.run();
    };
    CHECK_HAS(failure([&] { ran(5); }), "no failure");
    CHECK_HAS(failure([&] { ran(6); }), "ctc_loss");
  }

  TEST_CASE("memory of the app takes exact sizes; outputs have addresses where they are dense") {
    Subject s(
        "graph {\n symbols N\n input x: f32[N,2]\n y = unary(x) {kind=\"neg\"}\n"
        " t = transpose(x)\n output \"y\" = y\n output \"t\" = t\n}",
        "cpu:0", {{"N", "8"}});
    s.set_noise({{"N", 3}});
    s.context.run();
    const tenon_tensor y = s.context.output("y");
    REQUIRE(y.rank == 2);
    CHECK(y.dims[0] == 3);
    const auto copy = s.context.get<float>("y");
    CHECK(std::equal(copy.begin(), copy.end(), static_cast<const float*>(y.data)));
    CHECK_HAS(failure([&] { s.context.output("t"); }), "lies in a bucket of f32[2,8]");
    CHECK(s.context.get<float>("t").size() == 6);

    std::vector<float> x = noise_of(3, 10), out(10);
    s.context.bind("x", {5, 2}, std::span(x));
    s.context.bind("y", {5, 2}, std::span(out));
    s.context.run();
    for (size_t i = 0; i < x.size(); ++i) CHECK(out[i] == -x[i]);
    s.context.unbind("y");
    s.set_noise({{"N", 4}});
    s.context.run();
    CHECK(s.context.output_type("t").dims == std::vector<int64_t>{2, 4});
  }

  TEST_CASE("buckets that make no sense are refused") {
    const auto told = [](const Buckets& buckets) {
      return failure([&] { Subject(kLine, "cpu:0", buckets); });
    };
    CHECK_HAS(told({{"M", "pow2"}}), "bucket of symbol 'M': expected a symbol of the graph");
    CHECK_HAS(told({{"N", "pow2"}, {"N", "exact"}}), "given twice");
    for (const char* bad : {"", "pow", "pow2:", "pow2:..", "pow2:9..8", "4,,8", "4,0", "-4", "4,x",
                            "4 ", "pow2:a..b", "99999999999999999999"})
      CHECK_HAS(told({{"N", bad}}), "bucket of symbol 'N': expected");
  }
}

TEST_SUITE("exec/extents") {
  // Rows of x that a mask chooses, and what reads them.
  constexpr const char* kChosen = R"(graph {
    symbols N
    input x: f32[N,3]
    input least: f32[]
    first = narrow(x) {start=[0, 0], step=[1, 3]}
    key = reshape(first) {shape=[-1]}
    wanted = compare(key, least) {kind="gt"}
    (places, count) = non_zero(wanted)
    row = reshape(places) {shape=[-1]}
    chosen = gather(x, row)
    weights = softmax(chosen) {axis=0}
    mean = reduce(chosen) {kind="mean", axes=[0]}
    sum = reduce(chosen) {kind="sum", axes=[0]}
    gram = matmul(chosen, chosen) {trans_a=true}
    turned = transpose(chosen)
    flat = reshape(chosen) {shape=[-1]}
    squares = unary(sum) {kind="square"}
    loss = reduce(squares) {kind="sum"}
    dx = grad(loss, x)
    output "row" = row
    output "count" = count
    output "chosen" = chosen
    output "weights" = weights
    output "mean" = mean
    output "sum" = sum
    output "gram" = gram
    output "turned" = turned
    output "flat" = flat
    output "dx" = dx
  })";

  struct Expected {
    std::vector<double> rows, chosen, mean, sum, dx;
  };
  Expected expected(const std::vector<float>& x, float least) {
    Expected e{{}, {}, {0, 0, 0}, {0, 0, 0}, std::vector<double>(x.size())};
    for (size_t r = 0; r * 3 < x.size(); ++r)
      if (x[3 * r] > least) {
        e.rows.push_back(static_cast<double>(r));
        for (size_t c = 0; c < 3; ++c) e.chosen.push_back(x[3 * r + c]), e.sum[c] += x[3 * r + c];
      }
    for (size_t c = 0; c < 3; ++c) e.mean[c] = e.sum[c] / static_cast<double>(e.rows.size());
    for (double r : e.rows)
      for (size_t c = 0; c < 3; ++c) e.dx[static_cast<size_t>(r) * 3 + c] = 2 * e.sum[c];
    return e;
  }

  TEST_CASE("rows behind the extent count nowhere, and outputs have the size that the run found") {
    for (const std::string& device : control_devices())
      for (const Buckets& buckets : {Buckets{}, Buckets{{"N", "16"}}}) {
        INFO(device, " ", buckets.size());
        Subject s(kChosen, device, buckets);
        for (const auto& [n, least] :
             std::vector<std::pair<int64_t, float>>{{9, 0.f}, {9, .5f}, {5, -2.f}, {13, -.3f}}) {
          INFO(n, " ", least);
          const std::vector<float> x =
              noise_of(static_cast<uint64_t>(n), static_cast<size_t>(3 * n));
          s.context.set("x", {n, 3}, x);
          s.context.set<float>("least", least);
          const Results got = s.run();
          const Expected e = expected(x, least);
          const auto rows = static_cast<int64_t>(e.rows.size());
          REQUIRE(rows > 0);
          CHECK(got.at("count").values == std::vector<double>{static_cast<double>(rows)});
          CHECK(got.at("row").values == e.rows);
          CHECK(got.at("row").dims == std::vector<int64_t>{rows});
          CHECK(got.at("chosen").dims == std::vector<int64_t>{rows, 3});
          CHECK(got.at("chosen").values == e.chosen);
          CHECK(got.at("flat").values == e.chosen);
          CHECK(got.at("turned").dims == std::vector<int64_t>{3, rows});
          const auto near = [&](const char* name, const std::vector<double>& want) {
            check_same({{name, got.at(name)}}, {{name, {got.at(name).dims, want}}});
          };
          near("mean", e.mean);
          near("sum", e.sum);
          near("dx", e.dx);
          CHECK(got.at("dx").dims == std::vector<int64_t>{n, 3});
          double share = 0;
          for (size_t r = 0; r < e.rows.size(); ++r) share += got.at("weights").values[3 * r];
          CHECK(got.at("weights").dims == std::vector<int64_t>{rows, 3});
          CHECK(std::abs(share - 1) < 1e-5);
          double norm = 0;
          for (double v : e.chosen) norm += v * v;
          const auto& gram = got.at("gram").values;
          CHECK(std::abs(gram[0] + gram[4] + gram[8] - norm) < 1e-4);
        }
        // No row at all.
        s.context.set("x", {4, 3}, noise_of(1, 12));
        s.context.set<float>("least", 2);
        s.context.run();
        CHECK(s.context.output_type("chosen").dims == std::vector<int64_t>{0, 3});
        CHECK(s.context.get<float>("chosen").empty());
        CHECK(s.context.get<float>("sum") == std::vector<float>{0, 0, 0});
        CHECK(s.context.get<float>("dx") == std::vector<float>(12));
      }
  }

  TEST_CASE("a bound leaves out what is beyond it; constants fold to the same") {
    const Graph g = Graph::parse(R"(graph {
      const x: f32[2,3] = {1, 0, 2, 3, 0, 4}
      (places, count) = non_zero(x) {bound=3}
      sum = reduce(places) {kind="sum", axes=[0]}
      output "places" = places
      output "count" = count
      output "sum" = sum
    })",
                                 "test");
    for (const bool simplify : {true, false}) {
      Store store(runtime());
      const Executable executable(runtime(), g, store, {.device = "cpu:0", .simplify = simplify});
      Context context(executable);
      context.run();
      CHECK(context.get<int64_t>("places") == std::vector<int64_t>{0, 0, 0, 2, 1, 0});
      CHECK(context.get_scalar<int64_t>("count") == 3);
      CHECK(context.get<int64_t>("sum") == std::vector<int64_t>{1, 2});
    }
  }

  TEST_CASE("places of the rows lie in one piece; memory of the app takes the whole bound") {
    Subject s(
        "graph {\n input x: f32[6]\n (p, c) = non_zero(x)\n t = transpose(p)\n"
        " output \"p\" = p\n output \"t\" = t\n output \"c\" = c\n}",
        "cpu:0", {});
    s.context.set<float>("x", {6}, {0, 1, 0, 2, 3, 0});
    s.context.run();
    const tenon_tensor p = s.context.output("p");
    REQUIRE(p.rank == 2);
    CHECK(p.dims[0] == 3);
    CHECK(static_cast<const int64_t*>(p.data)[2] == 4);
    CHECK(s.context.output_type("t").dims == std::vector<int64_t>{1, 3});
    std::vector<int64_t> rows(6, -1);
    s.context.bind("p", {6, 1}, std::span(rows));
    s.context.run();
    CHECK(s.context.get_scalar<int64_t>("c") == 3);
    CHECK(std::vector<int64_t>(rows.begin(), rows.begin() + 3) == std::vector<int64_t>{1, 3, 4});
  }

  TEST_CASE("in primitives, sums still leave out what is behind the extent") {
    const Graph g = Graph::parse(
        "graph {\n input x: f32[6]\n (p, c) = non_zero(x)\n f = cast(p) {to=f32}\n"
        " e = unary(f) {kind=\"exp\"}\n s = reduce(e) {kind=\"sum\"}\n output \"s\" = s\n}",
        "test");
    for (const Graph& one : {Graph::parse(g.print(), "test"), g.decompose()}) {
      Store store(runtime());
      const Executable executable(runtime(), one, store, {.device = "template:0"});
      Context context(executable);
      context.set<float>("x", {6}, {0, 1, 0, 2, 0, 0});
      context.run();
      CHECK(std::abs(context.get_scalar<float>("s") - (std::exp(1.f) + std::exp(3.f))) < 1e-4);
    }
  }

  TEST_CASE("rows that are not chosen have no part in gradients, whatever they hold") {
    const float nan = std::nanf("");
    Subject s(R"(graph {
        input x: f32[5,2]
        input ok: f32[5]
        weight w: f32[2,2] trainable
        (p, c) = non_zero(ok)
        r = reshape(p) {shape=[-1]}
        g = gather(x, r)
        y = matmul(g, w)
        q = unary(y) {kind="square"}
        h = reduce(q) {kind="sum"}
        dw = grad(h, w)
        output "h" = h
        output "dw" = dw
    })",
              "cpu:0", {});
    s.context.set<float>("x", {5, 2}, {nan, nan, 1, 2, 3, 4, 5, 6, 7, 8});
    s.context.set<float>("ok", {5}, {0, 1, 1, 0, 1});
    const auto w = s.store.get<float>(TENON_SPACE_WEIGHT, "w");
    s.context.run();
    const auto dw = s.context.get<float>("dw");
    for (size_t i = 0; i < 2; ++i)
      for (size_t j = 0; j < 2; ++j) {
        double want = 0;
        for (const auto& r : {std::array{1., 2.}, std::array{3., 4.}, std::array{7., 8.}})
          want += 2 * r[i] * (r[0] * w[j] + r[1] * w[2 + j]);
        CHECK(std::abs(dw[2 * i + j] - want) < 1e-3);
      }
    Subject e(R"(graph {
        input x: f32[4]
        (p, c) = non_zero(x)
        r = reshape(p) {shape=[-1]}
        g = gather(x, r)
        l = unary(g) {kind="log"}
        pl = binary(g, l) {kind="mul"}
        h = reduce(pl) {kind="sum"}
        dx = grad(h, x)
        output "h" = h
        output "dx" = dx
    })",
              "cpu:0", {});
    e.context.set<float>("x", {4}, {0, .25f, .25f, .5f});
    e.context.run();
    const auto dx = e.context.get<float>("dx");
    CHECK(dx[0] == 0);
    CHECK(std::abs(dx[3] - (std::log(.5f) + 1)) < 1e-5);
  }

  TEST_CASE("no rows at all: indices of padding are no error") {
    Subject s(R"(graph {
        input x: f32[6]
        (p, c) = non_zero(x)
        r = reshape(p) {shape=[-1]}
        g = gather(x, r)
        at = binary(r, r) {kind="sub"}
        h = gather(g, at)
        s = reduce(h) {kind="sum"}
        output "s" = s
        output "c" = c
    })",
              "cpu:0", {});
    s.context.set<float>("x", {6}, {0, 0, 0, 0, 0, 0});
    s.context.run();
    CHECK(s.context.get_scalar<int64_t>("c") == 0);
    CHECK(s.context.get_scalar<float>("s") == 0);
  }

  TEST_CASE("a loop over the rows runs as often as there are rows") {
    Subject s(R"(graph {
      input x: f32[8]
      const one: f32[] = {1}
      (p, n) = non_zero(x)
      (last, all) = scan([one], [p], []) {body=graph {
        input y: f32[]
        input p: i64[1]
        q0 = cast(p) {to=f32}
        q = reshape(q0) {shape=[]}
        z0 = binary(y, q) {kind="mul"}
        z = binary(z0, y) {kind="add"}
        output "z" = z
        output "all" = z
      }}
      output "last" = last
      output "all" = all
    })",
              "cpu:0", {});
    s.context.set<float>("x", {8}, {0, 1, 0, 1, 1, 0, 0, 0});
    s.context.run();
    CHECK(s.context.get_scalar<float>("last") == 2 * 4 * 5);
    CHECK(s.context.get<float>("all") == std::vector<float>{2, 8, 40});
  }

  TEST_CASE("where an extent is not possible, the graph is refused by name") {
    CHECK_HAS(failure([] {
                Subject s(
                    "graph {\n input x: f32[6]\n input z: i64[2,1]\n (p, n) = non_zero(x) @\"nz\"\n"
                    " y = concat([p, z]) @\"join\"\n output \"y\" = y\n}",
                    "cpu:0", {});
              }),
              "extent of non_zero 'nz': concat 'join': an operand before the last one is padded");
    const auto refused = [](const std::string& nodes) {
      return failure([&] {
        Subject s(
            "graph {\n input x: f32[6]\n input y: f32[2]\n" + nodes + "\n output \"z\" = z\n}",
            "cpu:0", {});
      });
    };
    CHECK_HAS(refused("(p, n) = non_zero(x)\n z = narrow(p) {start=[0, 0], len=[3, 1]} @\"front\""),
              "narrow 'front': rows that may not be there");
    CHECK_HAS(refused("(p, n) = non_zero(x)\n (z, i) = topk(p) {axis=0, k=3} @\"best\""),
              "topk 'best': rows that may not be there");
    CHECK_HAS(refused("(p, n) = non_zero(x) {bound=1} @\"nz\"\n f = cast(p) {to=f32}\n"
                      " g = reshape(f) {shape=[-1]}\n z = binary(g, y) {kind=\"add\"}"),
              "extent of non_zero 'nz': the graph takes no bound but 1");
    CHECK_HAS(failure([] {
                Subject s(
                    "graph {\n input c: bool[]\n input x: f32[6]\n"
                    " y = if(c, [x]) {then_branch=graph {\n input x: f32[6]\n"
                    " (p, n) = non_zero(x) @\"nz\"\n output \"n\" = n\n }, else_branch=graph {\n"
                    " input x: f32[6]\n (p, n) = non_zero(x)\n output \"n\" = n\n }}\n"
                    " output \"y\" = y\n}",
                    "cpu:0", {});
              }),
              "non_zero 'nz': it has an extent, which is not possible in a function");
    CHECK_HAS(failure([] {
                Graph one("one");
                const Value row = one.input("row", {f32, {4}});
                one.output("p", one.non_zero(row)[0]);
                Graph g("batch");
                const Value x = g.input("x", {f32, {3, 4}});
                g.output("p", g.vmap({x}, one)[0]);
                Store store(runtime());
                Executable(runtime(), g, store, {.device = "cpu:0"});
              }),
              "each example would have an extent of its own");
  }
}
