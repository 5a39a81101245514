// SPDX-License-Identifier: Apache-2.0
// The graphs of tenon_large. x is [A,B], x(a,b) = a mod P + b mod Q, in i8, f32 or bf16, all of
// which hold it exactly.
#include <algorithm>
#include <array>

#include "large.hpp"

namespace tenon::large {
namespace {

// What a case is made from: rows of B, so many that there are more than the limit.
struct Maker {
  int64_t limit, a, b, p = 29, q = 31;

  Maker(int64_t most, int64_t columns) : limit(most), a(most / columns + 3), b(columns) {}
  int64_t count() const { return a * b; }
  double x(int64_t row, int64_t column) const { return static_cast<double>(row % p + column % q); }
  double x(int64_t i) const { return x(i / b, i % b); }

  Case made(const std::string& name, const std::string& body,
            std::vector<std::pair<std::string, Expected>> outputs) const {
    return {.name = name + "-" + std::to_string(b),
            .numbers = {{"A", a}, {"B", b}, {"N", a * b}, {"P", p}, {"Q", q}},
            .body = body,
            .outputs = std::move(outputs)};
  }
};

// rows [A,1] and columns [1,B]: a mod P and b mod Q; x their sum.
std::string indices() {
  return "  const p: i64[] = {$P}\n  const q: i64[] = {$Q}\n"
         "  ia = iota() {shape=[$A,1], axis=0}\n  ib = iota() {shape=[1,$B], axis=1}\n";
}
std::string x_of(const std::string& dtype) {
  return indices() +
         "  ma = binary(ia, p) {kind=\"mod\"}\n  mb = binary(ib, q) {kind=\"mod\"}\n"
         "  rows = cast(ma) {to=" +
         dtype + "}\n  columns = cast(mb) {to=" + dtype +
         "}\n"
         "  x = binary(rows, columns) {kind=\"add\"}\n";
}
// hot [A,B]: column 7a mod B of row a.
std::string hot() {
  return indices() +
         "  const seven: i64[] = {7}\n  const length: i64[] = {$B}\n"
         "  a7 = binary(ia, seven) {kind=\"mul\"}\n  at = binary(a7, length) {kind=\"mod\"}\n"
         "  hot = compare(at, ib) {kind=\"eq\"}\n"
         "  const zero: bf16[] = {0}\n  const low: bf16[] = {-200}\n"
         "  logits = where(hot, zero, low)\n";
}
std::string output(const std::string& name) { return "  output \"" + name + "\" = " + name + "\n"; }

double wrapped(int64_t v) { return static_cast<double>(static_cast<int32_t>(v)); }
// Of 0 .. n - 1, each mod m.
int64_t sum_of_mods(int64_t n, int64_t m) {
  const int64_t whole = n / m, rest = n % m;
  return whole * (m * (m - 1) / 2) + rest * (rest - 1) / 2;
}

void elementwise_cases(const Maker& m, std::vector<Case>& out) {
  const auto x = [m](int64_t i) { return m.x(i); };
  const auto twice = [m](int64_t i) { return 2 * m.x(i); };
  out.push_back(m.made("add-i8", x_of("i8") + "  y = binary(x, x) {kind=\"add\"}\n" + output("y"),
                       {{"y", twice}}));
  out.push_back(m.made("cast-flat-bf16",
                       x_of("i8") +
                           "  flat = reshape(x) {shape=[$N]}\n  y = cast(flat) {to=bf16}\n"
                           "  z = binary(y, y) {kind=\"add\"}\n" +
                           output("z"),
                       {{"z", twice}}));
  out.push_back(m.made("where-i8",
                       x_of("i8") +
                           "  const edge: i8[] = {30}\n  c = compare(x, edge) {kind=\"lt\"}\n"
                           "  n = unary(x) {kind=\"neg\"}\n  y = where(c, x, n)\n" +
                           output("c") + output("y"),
                       {{"c", [x](int64_t i) { return x(i) < 30; }},
                        {"y", [x](int64_t i) { return x(i) < 30 ? x(i) : -x(i); }}}));
  out.push_back(m.made("fill-i8",
                       "  const five: i8[] = {5}\n  e = expand(five) {shape=[$A,$B]}\n"
                       "  y = copy(e)\n" +
                           output("y"),
                       {{"y", [](int64_t) { return 5.0; }}}));
  out.push_back(m.made("iota-i32",
                       "  y = iota() {shape=[$A,$B], axis=0, dtype=i32}\n" + output("y"),
                       {{"y", [m](int64_t i) { return static_cast<double>(i / m.b); }}}));
  out.push_back(m.made(
      "sgd-f32", x_of("f32") + "  const lr: f32[] = {0.5}\n  y = sgd(x, x, lr)\n" + output("y"),
      {{"y", [x](int64_t i) { return x(i) / 2; }}}));
}

void shape_cases(const Maker& m, std::vector<Case>& out) {
  out.push_back(m.made("transpose-i8", x_of("i8") + "  y = transpose(x)\n" + output("y"),
                       {{"y", [m](int64_t i) { return m.x(i % m.a, i / m.a); }}}));
  out.push_back(m.made("transpose-bf16",
                       x_of("i8") + "  h = cast(x) {to=bf16}\n  y = transpose(h)\n" + output("y"),
                       {{"y", [m](int64_t i) { return m.x(i % m.a, i / m.a); }}}));
  out.push_back(
      m.made("concat-narrow",
             x_of("i8") + "  t = narrow(x) {start=[1,0]}\n  y = concat(t, x)\n" + output("y"),
             {{"y", [m](int64_t i) {
                 const int64_t row = i / m.b;
                 return m.x(row < m.a - 1 ? row + 1 : row - (m.a - 1), i % m.b);
               }}}));
  out.push_back(m.made(
      "pad-i8", x_of("i8") + "  y = pad(x) {before=[2,0], after=[1,1], value=7}\n" + output("y"),
      {{"y", [m](int64_t i) {
          const int64_t row = i / (m.b + 1) - 2, column = i % (m.b + 1);
          return row < 0 || row >= m.a || column == m.b ? 7 : m.x(row, column);
        }}}));
}

void reduce_cases(const Maker& m, std::vector<Case>& out) {
  const auto sum = [](const std::string& name, const std::string& axes) {
    return "  " + name + " = reduce(w) {kind=\"sum\"" + axes + "}\n" + output(name);
  };
  out.push_back(m.made(
      "sum-i32",
      x_of("i8") + "  w = cast(x) {to=i32}\n" + sum("all", "") + sum("rows_", ", axes=[1]") +
          sum("columns_", ", axes=[0]"),
      {{"all",
        [m](int64_t) {
          return wrapped(m.b * sum_of_mods(m.a, m.p) + m.a * sum_of_mods(m.b, m.q));
        }},
       {"rows_", [m](int64_t i) { return wrapped(m.b * (i % m.p) + sum_of_mods(m.b, m.q)); }},
       {"columns_", [m](int64_t i) { return wrapped(sum_of_mods(m.a, m.p) + m.a * (i % m.q)); }}}));
  // The greatest is the last element of all.
  out.push_back(m.made("max-bf16",
                       x_of("bf16") +
                           "  const last: i64[1] = {-1}\n  const most: bf16[1] = {100}\n"
                           "  flat = reshape(x) {shape=[$N]}\n  y = scatter(flat, last, most)\n"
                           "  all = reduce(y) {kind=\"max\"}\n  grid = reshape(y) {shape=[$A,$B]}\n"
                           "  rows_ = reduce(grid) {kind=\"max\", axes=[1]}\n" +
                           output("all") + output("rows_"),
                       {{"all", [](int64_t) { return 100.0; }},
                        {"rows_", [m](int64_t i) {
                           return i == m.a - 1
                                      ? 100.0
                                      : static_cast<double>(i % m.p + std::min(m.b, m.q) - 1);
                         }}}));
  out.push_back(m.made("argmax-bf16", hot() + "  y = argmax(logits) {axis=1}\n" + output("y"),
                       {{"y", [m](int64_t i) { return static_cast<double>(7 * i % m.b); }}}));
  out.push_back(m.made("argmax-flat",
                       hot() +
                           "  flat = reshape(logits) {shape=[$N]}\n"
                           "  y = argmax(flat) {axis=0, select_last=true}\n" +
                           output("y"),
                       {{"y", [m](int64_t) {
                           return static_cast<double>((m.a - 1) * m.b + 7 * (m.a - 1) % m.b);
                         }}}));
}

void scan_cases(const Maker& m, std::vector<Case>& out) {
  const std::string wide = x_of("i8") + "  w = cast(x) {to=i32}\n";
  out.push_back(m.made("cumsum-rows", wide + "  y = cumsum(w) {axis=1}\n" + output("y"),
                       {{"y", [m](int64_t i) {
                           const int64_t n = i % m.b + 1;
                           return wrapped(n * (i / m.b % m.p) + sum_of_mods(n, m.q));
                         }}}));
  out.push_back(m.made("cumsum-columns", wide + "  y = cumsum(w) {axis=0}\n" + output("y"),
                       {{"y", [m](int64_t i) {
                           const int64_t n = i / m.b + 1;
                           return wrapped(n * (i % m.b % m.q) + sum_of_mods(n, m.p));
                         }}}));
  // The sum of the elements up to i.
  const auto upto = [m](int64_t i) {
    const int64_t rows = i / m.b, n = i % m.b + 1;
    return m.b * sum_of_mods(rows, m.p) + rows * sum_of_mods(m.b, m.q) + n * (rows % m.p) +
           sum_of_mods(n, m.q);
  };
  const std::string flat = wide + "  flat = reshape(w) {shape=[$N]}\n  y = cumsum(flat)";
  out.push_back(m.made("cumsum-flat", flat + "\n" + output("y"),
                       {{"y", [upto](int64_t i) { return wrapped(upto(i)); }}}));
  out.push_back(
      m.made("cumsum-flat-back", flat + " {exclusive=true, reverse=true}\n" + output("y"),
             {{"y", [m, upto](int64_t i) { return wrapped(upto(m.count() - 1) - upto(i)); }}}));
}

void row_cases(const Maker& m, std::vector<Case>& out) {
  const auto is_hot = [m](int64_t i) { return 7 * (i / m.b) % m.b == i % m.b; };
  out.push_back(m.made("softmax-bf16", hot() + "  y = softmax(logits)\n" + output("y"),
                       {{"y", [is_hot](int64_t i) { return is_hot(i); }}}));
  // The label is the column after the hot one: a loss of 200, slopes of 1 and -1.
  out.push_back(m.made(
      "cross-entropy-bf16",
      hot() +
          "  const one: i64[] = {1}\n  const up: f32[] = {1}\n"
          "  next = binary(at, one) {kind=\"add\"}\n"
          "  wrapped = binary(next, length) {kind=\"mod\"}\n"
          "  labels = reshape(wrapped) {shape=[$A]}\n"
          "  y = cross_entropy(logits, labels) {reduction=\"none\"}\n"
          "  ups = expand(up) {shape=[$A]}\n"
          "  dx = cross_entropy_backward(ups, logits, labels) {reduction=\"none\"}\n" +
          output("y") + output("dx"),
      {{"y", [](int64_t) { return 200.0; }}, {"dx", [m, is_hot](int64_t i) {
                                                const bool label =
                                                    (7 * (i / m.b) + 1) % m.b == i % m.b;
                                                return static_cast<double>(is_hot(i)) - label;
                                              }}}));
  // Rows of 1 and of -1 have a root mean square of 1.
  out.push_back(
      m.made("rms-norm-bf16",
             indices() +
                 "  const two: i64[] = {2}\n  const one: i64[] = {1}\n"
                 "  odd = binary(ia, two) {kind=\"mod\"}\n  up = binary(odd, two) {kind=\"mul\"}\n"
                 "  sign = binary(up, one) {kind=\"sub\"}\n  rows = cast(sign) {to=bf16}\n"
                 "  x = expand(rows) {shape=[$A,$B]}\n  mb = binary(ib, q) {kind=\"mod\"}\n"
                 "  gb = reshape(mb) {shape=[$B]}\n  gamma = cast(gb) {to=bf16}\n"
                 "  y = rms_norm(x, gamma) {eps=0.0}\n" +
                 output("y"),
             {{"y", [m](int64_t i) {
                 return static_cast<double>((i / m.b % 2 ? 1 : -1) * (i % m.b % m.q));
               }}}));
  if (m.b > 3) return;
  out.push_back(m.made("sort-i8", x_of("i8") + "  (y, at) = sort(x)\n" + output("y"),
                       {{"y", [m](int64_t i) {
                           std::array<double, 3> row;
                           for (int64_t k = 0; k < 3; ++k)
                             row[static_cast<size_t>(k)] = m.x(i / m.b, k);
                           std::ranges::sort(row);
                           return row[static_cast<size_t>(i % m.b)];
                         }}}));
}

void index_cases(const Maker& m, std::vector<Case>& out) {
  const int64_t n = m.count();
  const std::array<int64_t, 4> places = {n - 1, 7, n - 2, std::min(n - 3, kLimit + 1)};
  std::string text;
  for (const int64_t k : places) text += (text.empty() ? "" : ", ") + std::to_string(k);
  const std::string at = "  const at: i64[4] = {" + text + "}\n";
  const std::string flat = x_of("i8") + at + "  flat = reshape(x) {shape=[$N]}\n";
  const auto place_of = [places](int64_t i) {
    return std::ranges::find(places, i) - places.begin();
  };
  out.push_back(
      m.made("gather-flat-i8", flat + "  y = gather(flat, at)\n" + output("y"),
             {{"y", [m, places](int64_t i) { return m.x(places[static_cast<size_t>(i)]); }}}));
  out.push_back(
      m.made("gather-rows-i8",
             x_of("i8") + "  const at: i64[3] = {-1, 5, -2}\n  y = gather(x, at)\n" + output("y"),
             {{"y", [m](int64_t i) {
                 const std::array<int64_t, 3> rows = {m.a - 1, 5 % m.a, m.a - 2};
                 return m.x(rows[static_cast<size_t>(i / m.b)], i % m.b);
               }}}));
  out.push_back(m.made("gather-into-i8",
                       x_of("i8") +
                           "  top = narrow(x) {len=[$P,$B]}\n  ids = reshape(ma) {shape=[$A]}\n"
                           "  y = gather(top, ids)\n" +
                           output("y"),
                       {{"y", [m](int64_t i) { return m.x(i); }}}));
  const std::string updates = "  const u: i8[4] = {100, 101, 102, 103}\n";
  out.push_back(m.made("scatter-flat-i8",
                       flat + updates + "  y = scatter(flat, at, u)\n" + output("y"),
                       {{"y", [m, place_of](int64_t i) {
                           const auto k = place_of(i);
                           return k < 4 ? 100 + static_cast<double>(k) : m.x(i);
                         }}}));
  out.push_back(m.made("scatter-add-flat-i8",
                       at + updates + "  y = scatter_add(u, at) {dim=$N}\n" + output("y"),
                       {{"y", [place_of](int64_t i) {
                           const auto k = place_of(i);
                           return k < 4 ? 100 + static_cast<double>(k) : 0;
                         }}}));
  out.push_back(m.made(
      "scatter-add-many-i32",
      x_of("i32") + "  ids = reshape(ma) {shape=[$A]}\n  y = scatter_add(x, ids) {dim=$P}\n" +
          output("y"),
      {{"y", [m](int64_t i) {
          const int64_t row = i / m.b, rows = (m.a - row + m.p - 1) / m.p;
          return wrapped(rows * (row + i % m.b % m.q));
        }}}));
}

// Of a product with a short inner axis: rows of 5 kinds, columns of 7.
Case product(const std::string& name, int64_t rows, int64_t columns) {
  constexpr int64_t kInner = 8;
  return {.name = name,
          .numbers = {{"A", rows}, {"B", columns}, {"K", kInner}},
          .body =
              "  const p: i64[] = {5}\n  const q: i64[] = {7}\n"
              "  const p8: i8[] = {5}\n  const q8: i8[] = {7}\n"
              "  ia = iota() {shape=[$A,1], axis=0}\n  ib = iota() {shape=[1,$B], axis=1}\n"
              "  ra = binary(ia, p) {kind=\"mod\"}\n  rb = binary(ib, q) {kind=\"mod\"}\n"
              "  ca = cast(ra) {to=i8}\n  cb = cast(rb) {to=i8}\n"
              "  row = iota() {shape=[1,$K], axis=1, dtype=i8}\n"
              "  column = iota() {shape=[$K,1], axis=0, dtype=i8}\n"
              "  sa = binary(ca, row) {kind=\"add\"}\n  sb = binary(cb, column) {kind=\"add\"}\n"
              "  ma = binary(sa, p8) {kind=\"mod\"}\n  mb = binary(sb, q8) {kind=\"mod\"}\n"
              "  left = cast(ma) {to=bf16}\n  right = cast(mb) {to=bf16}\n"
              "  y = matmul(left, right)\n  output \"y\" = y\n",
          .outputs = {{"y", [columns](int64_t i) {
                         int64_t sum = 0;
                         for (int64_t k = 0; k < kInner; ++k)
                           sum += (i / columns + k) % 5 * ((i % columns + k) % 7);
                         return static_cast<double>(sum);
                       }}}};
}

// Planes of 2x2 pixels of a value each, and heads whose keys all have one value.
void plane_cases(int64_t limit, std::vector<Case>& out) {
  Maker m(limit, 4);
  m.p = 5, m.q = 4;
  const std::string planes = x_of("bf16") + "  planes = reshape(x) {shape=[$A,1,2,2]}\n";
  const auto mean = [m](int64_t row) { return static_cast<double>(row % m.p) + 1.5; };
  out.push_back(m.made("maxpool-bf16",
                       planes + "  y = maxpool2d(planes) {kernel=[2,2]}\n" + output("y"),
                       {{"y", [m](int64_t i) { return m.x(i, 3); }}}));
  out.push_back(m.made("avgpool-bf16",
                       planes +
                           "  y = avgpool2d(planes) {kernel=[2,2]}\n"
                           "  dx = avgpool2d_backward(y) {kernel=[2,2], size=[2,2]}\n" +
                           output("y") + output("dx"),
                       {{"y", mean}, {"dx", [mean](int64_t i) { return mean(i / 4) / 4; }}}));
  Maker r(limit, 64);
  r.p = 5, r.q = 4;
  out.push_back(r.made("rope-bf16",
                       x_of("bf16") +
                           "  tokens = reshape(x) {shape=[1,$A,1,64]}\n  const one: f32[] = {1}\n"
                           "  const zero: f32[] = {0}\n  cos = expand(one) {shape=[$A,32]}\n"
                           "  sin = expand(zero) {shape=[$A,32]}\n  y = rope(tokens, cos, sin)\n" +
                           output("y"),
                       {{"y", [r](int64_t i) { return r.x(i); }}}));
  Maker h(limit, 16 * 64);
  h.p = 5, h.q = 64;
  Case c =
      h.made("attention-bf16",
             "  const p: i64[] = {5}\n  ia = iota() {shape=[$A,1,1,1], axis=0}\n"
             "  ib = iota() {shape=[1,1,1,64], axis=3}\n  ma = binary(ia, p) {kind=\"mod\"}\n"
             "  s = binary(ma, ib) {kind=\"add\"}\n  h = cast(s) {to=bf16}\n"
             "  v = expand(h) {shape=[$A,1,16,64]}\n  y = attention(v, v, v)\n" +
                 output("y"),
             {{"y", [](int64_t i) { return static_cast<double>(i / (16 * 64) % 5 + i % 64); }}});
  out.push_back(c);
}

}  // namespace

std::vector<Case> cases(int64_t limit) {
  std::vector<Case> out;
  for (const int64_t columns : {int64_t{3}, int64_t{limit < kLimit ? 200 : 200000}}) {
    const Maker m(limit, columns);
    elementwise_cases(m, out);
    shape_cases(m, out);
    reduce_cases(m, out);
    scan_cases(m, out);
    row_cases(m, out);
    index_cases(m, out);
  }
  const int64_t side = 40000 < limit ? 40000 : 40;
  out.push_back(product("matmul-bf16", limit / side + 3, side));
  out.push_back(product("matmul-tall-bf16", limit / 3 + 3, 3));
  out.push_back(product("matmul-wide-bf16", 3, limit / 3 + 3));
  plane_cases(limit, out);
  return out;
}

}  // namespace tenon::large
