// SPDX-License-Identifier: Apache-2.0
// An LSTM and a GRU, written with scan and as one op: values and gradients are PyTorch's, of
// recurrent_expected.hpp.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "recurrent_expected.hpp"
#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

using Floats = std::vector<float>;
// 5 steps, a batch of 3, 4 inputs, a state of 6.
struct Input {
  const char* name;
  std::vector<int64_t> dims;
  uint64_t salt;
  // From -0.5 to 0.5; recurrent_expected.py makes the same.
  Floats values() const {
    Floats out(static_cast<size_t>(TensorType(f32, dims).elements()));
    for (size_t k = 0; k < out.size(); ++k)
      out[k] = static_cast<float>(static_cast<double>((k * 37 + salt * 53) % 101) / 101 - 0.5);
    return out;
  }
};
struct Network {
  const char* kind;
  std::vector<Input> inputs;
  const Expected& expected;
};
const Network kLstm = {"lstm",
                       {{"xs", {5, 3, 4}, 1},
                        {"h0", {3, 6}, 2},
                        {"c0", {3, 6}, 3},
                        {"w_ih", {24, 4}, 4},
                        {"w_hh", {24, 6}, 5},
                        {"b_ih", {24}, 6},
                        {"b_hh", {24}, 7}},
                       kLstmExpected};
const Network kGru = {"gru",
                      {{"xs", {5, 3, 4}, 1},
                       {"h0", {3, 6}, 2},
                       {"w_ih", {18, 4}, 4},
                       {"w_hh", {18, 6}, 5},
                       {"b_ih", {18}, 6},
                       {"b_hh", {18}, 7}},
                      kGruExpected};

// Where x · w_ihᵀ + b_ih is computed; in_front: of the op lstm or gru.
enum class Product { in_each_step, before_the_scan, in_front };

// A gate is 6 columns of all of them.
std::string gate(const std::string& name, const char* of, int index) {
  return "    " + name + " = narrow(" + of + ") {start=[0," + std::to_string(6 * index) +
         "], len=[3,6], step=[1,1]}\n";
}
// The gates' sums from x, and those from h.
std::string products(Product where, const char* rows) {
  std::string text =
      "    input w_hh: f32[" + std::string(rows) + ",6]\n    input b_hh: f32[" + rows + "]\n";
  if (where == Product::in_each_step)
    text += "    input w_ih: f32[" + std::string(rows) + ",4]\n    input b_ih: f32[" + rows + R"(]
    xw = matmul(x, w_ih) {trans_b=true}
    from_x = binary(xw, b_ih) {kind="add"}
)";
  return text + R"(    hw = matmul(h, w_hh) {trans_b=true}
    from_h = binary(hw, b_hh) {kind="add"}
)";
}
std::string lstm_step(Product where) {
  return "    input h: f32[3,6]\n    input c: f32[3,6]\n" +
         std::string(where == Product::in_each_step ? "    input x: f32[3,4]\n"
                                                    : "    input from_x: f32[3,24]\n") +
         products(where, "24") + "    gates = binary(from_x, from_h) {kind=\"add\"}\n" +
         gate("i_sum", "gates", 0) + gate("f_sum", "gates", 1) + gate("g_sum", "gates", 2) +
         gate("o_sum", "gates", 3) + R"(    i = unary(i_sum) {kind="sigmoid"}
    f = unary(f_sum) {kind="sigmoid"}
    g = unary(g_sum) {kind="tanh"}
    o = unary(o_sum) {kind="sigmoid"}
    kept = binary(f, c) {kind="mul"}
    added = binary(i, g) {kind="mul"}
    next_c = binary(kept, added) {kind="add"}
    shown = unary(next_c) {kind="tanh"}
    next_h = binary(o, shown) {kind="mul"}
    output "h" = next_h
    output "c" = next_c
    output "y" = next_h
)";
}
// h' = n + z (h - n)
std::string gru_step(Product where) {
  return "    input h: f32[3,6]\n" +
         std::string(where == Product::in_each_step ? "    input x: f32[3,4]\n"
                                                    : "    input from_x: f32[3,18]\n") +
         products(where, "18") + gate("r_x", "from_x", 0) + gate("z_x", "from_x", 1) +
         gate("n_x", "from_x", 2) + gate("r_h", "from_h", 0) + gate("z_h", "from_h", 1) +
         gate("n_h", "from_h", 2) + R"(    r_sum = binary(r_x, r_h) {kind="add"}
    z_sum = binary(z_x, z_h) {kind="add"}
    r = unary(r_sum) {kind="sigmoid"}
    z = unary(z_sum) {kind="sigmoid"}
    n_part = binary(r, n_h) {kind="mul"}
    n_sum = binary(n_x, n_part) {kind="add"}
    n = unary(n_sum) {kind="tanh"}
    apart = binary(h, n) {kind="sub"}
    kept = binary(z, apart) {kind="mul"}
    next = binary(n, kept) {kind="add"}
    output "h" = next
    output "y" = next
)";
}

std::string dims_of(const Input& input) {
  std::string text;
  for (const int64_t d : input.dims) text += (text.empty() ? "" : ",") + std::to_string(d);
  return "[" + text + "]";
}
// The op in place of the scan. What PyTorch adds to the product with h is added to x, but for the
// candidate of a GRU.
std::string layer(bool lstm) {
  std::string text = "  r = reshape(w_hh) {shape=[1," + std::string(lstm ? "24" : "18") +
                     ",6]}\n  first_h = reshape(h0) {shape=[1,3,6]}\n";
  text += lstm ? R"(  x = binary(all_from_x, b_hh) {kind="add"}
  first_c = reshape(c0) {shape=[1,3,6]}
  (ys, last_h, last_c) = lstm(x, r, first_h, first_c)
  c = reshape(last_c) {shape=[3,6]}
)"
               : R"(  gates = narrow(b_hh) {start=[0], len=[12], step=[1]}
  candidate = narrow(b_hh) {start=[12], len=[6], step=[1]}
  const none: f32[6] = {0,0,0,0,0,0}
  bias = concat([gates, none]) {axis=0}
  x = binary(all_from_x, bias) {kind="add"}
  n_bias = reshape(candidate) {shape=[1,6]}
  (ys, last_h) = gru(x, r, n_bias, first_h)
)";
  return text + "  h = reshape(last_h) {shape=[3,6]}\n";
}
// loss = sum(ys²) / 2 + the sums of the last h and c; the gradients are by everything.
std::string text_of(const Network& network, Product where, bool gradients_too = true) {
  const bool lstm = network.inputs.size() == 7;
  std::string text = "graph \"" + std::string(network.kind) + "\" {\n", wrt;
  for (const Input& i : network.inputs) {
    text += "  input " + std::string(i.name) + ": f32" + dims_of(i) + "\n";
    wrt += ", " + std::string(i.name);
  }
  text += "  const half: f32[] = {0.5}\n";
  if (where != Product::in_each_step)
    text += R"(  all_xw = matmul(xs, w_ih) {trans_b=true}
  all_from_x = binary(all_xw, b_ih) {kind="add"}
)";
  if (where == Product::in_front) {
    text += layer(lstm);
  } else {
    text += lstm ? "  (h, c, ys) = scan([h0, c0], [" : "  (h, ys) = scan([h0], [";
    text += where == Product::in_each_step ? "xs], [w_hh, b_hh, w_ih, b_ih]"
                                           : "all_from_x], [w_hh, b_hh]";
    text += ") {body=graph {\n" + (lstm ? lstm_step(where) : gru_step(where)) + "  }}\n";
  }
  text += R"(  squares = reduce(ys) {kind="sum_square"}
  from_ys = binary(squares, half) {kind="mul"}
  sum_h = reduce(h) {kind="sum"}
)";
  text += lstm ? R"(  part = binary(from_ys, sum_h) {kind="add"}
  sum_c = reduce(c) {kind="sum"}
  loss = binary(part, sum_c) {kind="add"}
  output "c" = c
)"
               : "  loss = binary(from_ys, sum_h) {kind=\"add\"}\n";
  text += "  output \"ys\" = ys\n  output \"h\" = h\n";
  if (!gradients_too) return text + "}";
  std::string gradients, outputs;
  for (const Input& i : network.inputs) {
    gradients += (gradients.empty() ? "d_" : ", d_") + std::string(i.name);
    outputs += "  output \"d_" + std::string(i.name) + "\" = d_" + i.name + "\n";
  }
  return text + "  (" + gradients + ") = grad(loss" + wrt + ")\n" + outputs + "}";
}

void check_outputs(Context& context, const Expected& all) {
  for (const auto& [output, expected] : all) {
    CAPTURE(output);
    const Floats got = context.get<float>(output);
    REQUIRE(got.size() == expected.size());
    for (size_t k = 0; k < got.size(); ++k) {
      CAPTURE(k);
      CHECK(std::abs(got[k] - expected[k]) < 1e-5 * std::max(1.0f, std::abs(expected[k])));
    }
  }
}

// A short scan may be written out; not simplified, it runs as a loop.
void check_run(const Network& network, Product where, const std::string& device, bool simplify) {
  CAPTURE(device);
  CAPTURE(static_cast<int>(where));
  CAPTURE(simplify);
  Store store(runtime());
  const Graph graph = Graph::parse(text_of(network, where), network.kind);
  const Executable executable(runtime(), graph, store, {.device = device, .simplify = simplify});
  if (!simplify && where != Product::in_front)
    CHECK(executable.report().find("/body: ") != std::string::npos);
  Context context(executable);
  for (const Input& i : network.inputs) context.set(i.name, i.dims, i.values());
  for (int run = 0; run < 2; ++run) context.run();
  check_outputs(context, network.expected);
}

// Without gradients the device may run the layer by a kernel.
void check_kernel(const Network& network, const std::string& device) {
  CAPTURE(device);
  Store store(runtime());
  const Graph graph = Graph::parse(text_of(network, Product::in_front, false), network.kind);
  const Executable executable(runtime(), graph, store, {.device = device});
  Context context(executable);
  for (const Input& i : network.inputs) context.set(i.name, i.dims, i.values());
  for (int run = 0; run < 2; ++run) context.run();
  Expected values;
  for (const auto& [output, expected] : network.expected)
    if (!output.starts_with("d_")) values.emplace(output, expected);
  check_outputs(context, values);
}

void check(const Network& network) {
  for (const std::string& device : control_devices())
    for (const Product where : {Product::in_each_step, Product::before_the_scan, Product::in_front})
      for (const bool simplify : {true, false}) check_run(network, where, device, simplify);
  for (const std::string& device : control_devices()) check_kernel(network, device);
}

}  // namespace

TEST_SUITE("exec/recurrent") {
  TEST_CASE("LSTM: gates i, f, g, o") { check(kLstm); }
  TEST_CASE("GRU: gates r, z, n; the reset gate is behind the product with h") { check(kGru); }

  TEST_CASE("what lies behind the end of a sequence reaches neither results nor gradients") {
    for (const std::string op : {"lstm", "gru"})
      for (const std::string& device : control_devices()) {
        CAPTURE(op);
        CAPTURE(device);
        const std::string gates = op == "lstm" ? "8" : "6";
        const Graph graph = Graph::parse("graph \"ends\" {\n  input x: f32[3,1," + gates +
                                             "]\n  input r: f32[1," + gates + R"(,2]
  const ends: i64[1] = {2}
  y = )" + op + R"((x, r, _, _, ends)
  loss = reduce(y) {kind="sum_square"}
  (d_x, d_r) = grad(loss, x, r)
  output "y" = y
  output "d_x" = d_x
  output "d_r" = d_r
})",
                                         op);
        Store store(runtime());
        const Executable executable(runtime(), graph, store, {.device = device});
        Context context(executable);
        const Input x{"x", {3, 1, op == "lstm" ? 8 : 6}, 1}, r{"r", {1, x.dims[2], 2}, 2};
        context.set("r", r.dims, r.values());
        std::vector<Floats> results[2];
        for (const bool hostile : {false, true}) {
          Floats values = x.values();
          for (size_t k = values.size() / 3 * 2; k < values.size(); ++k)
            values[k] = hostile ? std::numeric_limits<float>::quiet_NaN() : 0.25f;
          context.set("x", x.dims, values);
          context.run();
          for (const char* output : {"y", "d_x", "d_r"})
            results[hostile].push_back(context.get<float>(output));
        }
        CHECK(results[0] == results[1]);
        CHECK(results[0][2] != Floats(results[0][2].size(), 0.0f));
      }
  }
}
