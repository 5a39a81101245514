// SPDX-License-Identifier: Apache-2.0
// Random graphs with if, while and scan: simplified or not, they give the same numbers and gradients.
// TENON_RANDOM_GRAPHS: how many; TENON_RANDOM_SEED: the first one's seed; TENON_CONTROL_DEVICE: a
// device on a machine without the build's test plugins.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "random_run.hpp"
#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

using Floats = std::vector<float>;

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  int below(int n) {
    return std::min(n - 1, static_cast<int>((noise(seed_, count_++) + 1) / 2 * float(n)));
  }
  bool one_in(int n) { return below(n) == 0; }
  template <class T>
  const T& of(const std::vector<T>& values) {
    return values[static_cast<size_t>(below(static_cast<int>(values.size())))];
  }

 private:
  uint64_t seed_;
  uint64_t count_ = 0;
};

// Every float value is an f32[3], but for xs, which are f32[T,3]; counters are i64 scalars.
class LoopGraph {
 public:
  explicit LoopGraph(uint64_t seed) : dice_(seed) {}

  std::string text() {
    trips_ = dice_.of(std::vector<int>{0, 1, 2, 3, 5, 30});
    std::string head = "graph \"loops\" {\n";
    for (const char* name : {"a", "b", "c"}) head += std::string("  input ") + name + ": f32[3]\n";
    head += "  input flag: bool[]\n  input limit: i64[]\n  input xs: f32[" +
            std::to_string(trips_) +
            ",3]\n  const k: f32[3] = {0.5, -1.0, 0.25}\n  const zero: i64[] = {0}\n"
            "  const yes: bool[] = {1}\n  const no: bool[] = {0}\n  const end: i64[] = {" +
            std::to_string(trips_) + "}\n";
    std::vector<std::string> values = {"a", "b", "c", "k"};
    std::string nodes = some_nodes(values, 2, "  ");
    for (int n = 1 + dice_.below(2); n-- > 0;) nodes += some_control(values, 2, "  ", true);
    nodes += some_nodes(values, 2, "  ");
    std::string loss = values.back();
    nodes += "  loss = reduce(" + loss + ") {kind=\"sum\"}\n";
    nodes += "  (da, db) = grad(loss, a, b)\n";
    std::string ends = "  output \"loss\" = loss\n  output \"da\" = da\n  output \"db\" = db\n";
    for (size_t i = 4; i < values.size(); ++i)
      ends += "  output \"y" + std::to_string(i) + "\" = " + values[i] + "\n";
    outputs = {"loss", "da", "db"};
    for (size_t i = 4; i < values.size(); ++i) outputs.push_back("y" + std::to_string(i));
    return head + nodes + ends + "}";
  }
  int trips() const { return trips_; }
  std::vector<std::string> outputs{};

 private:
  std::string name() { return "v" + std::to_string(count_++); }

  // Appends nodes; their results are added to the values.
  std::string some_nodes(std::vector<std::string>& values, int count, const std::string& indent) {
    std::string out;
    for (; count > 0; --count) {
      // Draws are statements of their own: C++ does not order those within an expression.
      const std::string y = name(), at = indent + y + " = ";
      const std::string a = dice_.of(values);
      const std::string b = dice_.of(values);
      switch (dice_.below(6)) {
        case 0:
          out += at + "unary(" + a + ") {kind=\"tanh\"}";
          break;
        case 1:
          out += at + "where(" + (dice_.one_in(2) ? "yes" : "no") + ", " + a + ", " + b + ")";
          break;
        case 2:  // a node of two outputs, of different sizes
          out += indent + "(" + y + "v, " + y + "i) = sort(" + a + ")\n";
          out += at + "gather(" + b + ", " + y + "i)";
          break;
        default:
          out += at + "binary(" + a + ", " + b + ") {kind=\"" +
                 dice_.of(std::vector<std::string>{"add", "sub", "mul", "max"}) + "\"}";
      }
      values.push_back(y);
      out += "\n";
    }
    return out;
  }

  // A function's inputs; values gets the float ones. Captured: k0, k1, ... and yes, no, end.
  std::string inputs(int carry, int slices, int captured, bool counter,
                     std::vector<std::string>& values, const std::string& indent) {
    std::string out = counter ? indent + "input i: i64[]\n" : "";
    for (int k = 0; k < carry; ++k) values.push_back("c" + std::to_string(k));
    for (int k = 0; k < slices; ++k) values.push_back("x" + std::to_string(k));
    for (int k = 0; k < captured; ++k) values.push_back("k" + std::to_string(k));
    for (const std::string& v : values) out += indent + "input " + v + ": f32[3]\n";
    return out + indent + "input flag: bool[]\n" + indent + "input yes: bool[]\n" + indent +
           "input no: bool[]\n" + indent + "input limit: i64[]\n" + indent + "input end: i64[]\n";
  }

  std::string body(int carry, int slices, int captured, bool counter, int stacked, int depth,
                   const std::string& indent) {
    std::vector<std::string> values;
    const std::string in = indent + "  ";
    std::string out = "graph {\n" + inputs(carry, slices, captured, counter, values, in);
    out += in + "const one: i64[] = {1}\n" + in + "const zero: i64[] = {0}\n" + in +
           "const k: f32[3] = {2.0, 0.5, -0.5}\n";
    std::vector<std::string> read = values;
    read.push_back("k");
    out += some_nodes(read, 1 + dice_.below(4), in);
    if (depth > 0 && dice_.one_in(2)) out += some_control(read, depth - 1, in, false);
    out += some_nodes(read, dice_.below(2), in);
    if (counter) out += in + "j = binary(i, one) {kind=\"add\"}\n" + in + "output \"i\" = j\n";
    for (int k = 0; k < carry; ++k)
      out += in + "output \"o" + std::to_string(k) +
             "\" = " + (dice_.one_in(4) ? "c" + std::to_string(k) : dice_.of(read)) + "\n";
    for (int k = 0; k < stacked; ++k)
      out += in + "output \"s" + std::to_string(k) + "\" = " + dice_.of(read) + "\n";
    return out + indent + "}";
  }

  std::string list_of(int count, const std::vector<std::string>& values, bool counter = false) {
    std::string out = counter ? "zero" : "";
    for (; count > 0; --count) out += (out.empty() ? "" : ", ") + dice_.of(values);
    return out;
  }

  std::string some_control(std::vector<std::string>& values, int depth, const std::string& indent,
                           bool outermost) {
    const int carry = dice_.below(3), captured = dice_.below(3);
    const std::string fixed = "flag, yes, no, limit, end";
    const auto with_fixed = [&](std::string list) {
      return "[" + list + (list.empty() ? "" : ", ") + fixed + "]";
    };
    const std::vector<std::string> read = values;
    std::string out = indent + "(";
    const auto result = [&](bool wanted) {
      const std::string y = wanted ? name() : "_";
      out += (out.back() == '(' ? "" : ", ") + y;
      return y;
    };
    const int kind = dice_.below(3);
    std::vector<std::string> made, rows;
    if (kind == 0) {
      const int results = 1 + dice_.below(2);
      for (int k = 0; k < results; ++k) made.push_back(result(true));
      out += ") = if(" + dice_.of(std::vector<std::string>{"flag", "yes", "no"});
      out += ", " + with_fixed(list_of(captured, read));
      out += ") {then_branch=" + body(0, 0, captured, false, results, depth, indent);
      out += ", else_branch=" + body(0, 0, captured, false, results, depth, indent) + "}\n";
    } else if (kind == 1) {
      static_cast<void>(result(false));
      const int all = std::max(1, carry);
      for (int k = 0; k < all; ++k) made.push_back(result(k == 0 || !dice_.one_in(4)));
      std::vector<std::string> unread;
      const std::string ends = dice_.one_in(3) ? "limit" : "end";
      out += ") = while([" + list_of(all, read, true) + "], ";
      out += with_fixed(list_of(captured, read)) + ") {cond=graph {\n" +
             inputs(all, 0, captured, true, unread, indent + "  ") + indent + "  go = compare(i, " +
             ends + ") {kind=\"lt\"}\n" + indent + "  output \"go\" = go\n" + indent + "}, ";
      out += "body=" + body(all, 0, captured, true, 0, depth, indent);
      out += ", max_trip=" + std::to_string(dice_.of(std::vector<int>{0, 2, 4, 40})) + "}\n";
    } else {
      const bool slices = outermost && dice_.one_in(2);
      const int stacked = carry == 0 ? 1 + dice_.below(2) : dice_.below(3);
      for (int k = 0; k < carry; ++k)
        made.push_back(result((k == 0 && stacked == 0) || !dice_.one_in(4)));
      for (int k = 0; k < stacked; ++k) rows.push_back(result(k == 0 || !dice_.one_in(3)));
      out += ") = scan([" + list_of(carry, read) + "], [" + (slices ? "xs" : "") + "], ";
      out += with_fixed(list_of(captured, read));
      out += ") {body=" + body(carry, slices ? 1 : 0, captured, false, stacked, depth, indent);
      if (!slices) out += ", length=" + std::to_string(dice_.of(std::vector<int>{0, 1, 3, 30}));
      out += std::string(dice_.one_in(2) ? ", reverse=true" : "") + "}\n";
    }
    for (const std::string& m : made)
      if (m != "_") values.push_back(m);
    for (const std::string& r : rows) {
      if (r == "_") continue;
      const std::string y = name();
      out += indent + y + " = reduce(" + r + ") {kind=\"sum\", axes=[0]}\n";
      values.push_back(y);
    }
    return out;
  }

  Dice dice_;
  int count_ = 0;
  int trips_ = 0;
};

struct Outcome {
  std::vector<Floats> values{};
  bool loops = false;  // a node ran functions
  std::string error{};
};

Outcome run(const std::string& text, const LoopGraph& made, const std::string& device,
            uint64_t seed, bool simplify) {
  Outcome out;
  try {
    Store store(runtime());
    const Executable executable(runtime(), Graph::parse(text, "loops"), store,
                                {.device = device, .simplify = simplify});
    for (const char* function : {"/body: ", "/then_branch: "})
      out.loops |= executable.report().find(function) != std::string::npos;
    Context context(executable);
    context.set("a", {3}, noise_of(seed * 7 + 1, 3));
    context.set("b", {3}, noise_of(seed * 7 + 2, 3));
    context.set("c", {3}, noise_of(seed * 7 + 3, 3));
    const bool flag = seed % 2;
    context.set("flag", {TENON_DTYPE_BOOL, {}}, &flag, sizeof flag);
    context.set("limit", {}, std::vector<int64_t>{int64_t(seed % 5)});
    context.set("xs", {made.trips(), 3}, noise_of(seed * 7 + 4, size_t(made.trips()) * 3));
    context.run();
    for (const std::string& name : made.outputs) out.values.push_back(context.get<float>(name));
  } catch (const Error& e) {
    out.error = e.what();
  }
  return out;
}

// What all graphs together were.
struct Seen {
  size_t compared = 0, skipped = 0;  // numbers
  size_t loops = 0, left = 0;        // graphs whose functions ran: unsimplified, simplified
};

void check_same(const LoopGraph& made, const Outcome& plain, const Outcome& simple, Seen& seen) {
  for (size_t k = 0; k < plain.values.size(); ++k) {
    CAPTURE(made.outputs[k]);
    REQUIRE(simple.values[k].size() == plain.values[k].size());
    for (size_t i = 0; i < plain.values[k].size(); ++i) {
      const double x = plain.values[k][i], y = simple.values[k][i];
      // Large numbers come of many trips, and of what was added there much may have cancelled.
      const bool skipped = !std::isfinite(x) || std::fabs(x) > 1e4;
      ++(skipped ? seen.skipped : seen.compared);
      if (!skipped) CHECK(y == doctest::Approx(x).epsilon(2e-3));
    }
  }
}

}  // namespace

TEST_SUITE("exec/random_loop") {
  TEST_CASE("simplified or not: the same numbers") {
    const uint64_t first = number_from("TENON_RANDOM_SEED", 1),
                   count = number_from("TENON_RANDOM_GRAPHS", 300);
    const std::string device = control_devices().front();
    Seen seen;
    for (uint64_t seed = first; seed < first + count; ++seed) {
      LoopGraph made(seed);
      const std::string text = made.text();
      const Outcome plain = run(text, made, device, seed, false);
      const Outcome simple = run(text, made, device, seed, true);
      CAPTURE(seed);
      CAPTURE(text);
      REQUIRE(plain.error == "");
      REQUIRE(simple.error == "");
      check_same(made, plain, simple, seen);
      seen.loops += plain.loops, seen.left += simple.loops;
    }
    MESSAGE(seen.compared, " numbers compared, ", seen.skipped, " too large; functions ran in ",
            seen.loops, " graphs, simplified in ", seen.left);
    if (count < 100) return;
    CHECK(seen.compared > 20 * seen.skipped);
    CHECK(seen.loops > count / 2);
    CHECK(seen.left > count / 10);
    CHECK(seen.left < seen.loops);
  }
}
