// SPDX-License-Identifier: Apache-2.0
// Products that share their left operand, in one node: the same as one by one, for every number of
// rows, with weights that are packed, set again, or updated by the run.
#include <bit>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

using Floats = std::vector<float>;

bool has_batch(const Executable& executable) {
  return executable.report().find("\"op\":\"batch_linear\"") != std::string::npos;
}

struct Sizes {
  int64_t rows, terms;
  std::vector<int64_t> widths;
};

std::string numbered(const char* what, size_t k) { return what + std::to_string(k); }

// Numbers of the key, in the dtype's bytes.
std::vector<uint8_t> content(tenon_dtype dtype, int64_t count, uint64_t key) {
  std::vector<uint8_t> bytes;
  const auto put = [&](auto value) {
    const auto* from = reinterpret_cast<const uint8_t*>(&value);
    bytes.insert(bytes.end(), from, from + sizeof value);
  };
  for (int64_t i = 0; i < count; ++i) {
    const double v = noise(key, static_cast<uint64_t>(i));
    if (dtype == f64) put(v);
    if (dtype == f32) put(static_cast<float>(v));
    if (dtype == bf16) put(static_cast<uint16_t>(std::bit_cast<uint32_t>(float(v)) >> 16));
  }
  return bytes;
}

}  // namespace

TEST_SUITE("exec/products") {
  TEST_CASE("cpu: joined or one by one, results are equal bit for bit") {
    const std::vector<Sizes> all = {{1, 96, {200, 67, 67}},   {1, 700, {64, 64}},
                                    {3, 33, {129, 1, 40}},    {5, 1100, {130, 40, 40}},
                                    {60, 257, {65, 300}},     {90, 64, {48, 16, 16}},
                                    {300, 130, {140, 30, 3}}, {300, 1100, {280, 64, 64}}};
    for (const tenon_dtype dtype : {f32, bf16, f64})
      for (const Sizes& s : all)
        for (const bool bias : {false, true}) {
          Graph g("projections");
          Store store(runtime());
          const Value x = g.input("x", {dtype, {s.rows, s.terms}});
          uint64_t key = 0;
          const auto weight = [&](const std::string& name, std::vector<int64_t> dims) {
            const TensorType t{dtype, std::move(dims)};
            const std::vector<uint8_t> bytes = content(dtype, t.elements(), ++key);
            store.set(TENON_SPACE_WEIGHT, name, t, bytes.data(), bytes.size());
            return g.weight(name, t, false);
          };
          for (size_t k = 0; k < s.widths.size(); ++k) {
            op::linear n{.a = x, .b = weight(numbered("w", k), {s.terms, s.widths[k]})};
            if (bias) n.bias = weight(numbered("b", k), {s.widths[k]});
            g.output(numbered("y", k), g.add(n));
          }
          std::vector<std::vector<uint8_t>> expected;
          for (const bool fuse : {false, true}) {
            const Executable executable(runtime(), g, store, {.device = "cpu:0", .fuse = fuse});
            CHECK(has_batch(executable) == fuse);
            Context run(executable);
            const std::vector<uint8_t> in = content(dtype, s.rows * s.terms, 99);
            run.set("x", {dtype, {s.rows, s.terms}}, in.data(), in.size());
            run.run();
            for (size_t k = 0; k < s.widths.size(); ++k) {
              std::vector<uint8_t> y(run.output_type(numbered("y", k)).bytes());
              run.get(numbered("y", k), y.data(), y.size());
              if (!fuse) expected.push_back(y);
              CHECK_MESSAGE(y == expected[k], dtype, " ", s.rows, " rows, result ", k);
            }
          }
        }
  }

  TEST_CASE("every device: a step that updates one of the weights gives the same, fused or not") {
    // Small integers, of which all sums are exact.
    const auto integers = [](int64_t count, uint64_t key) {
      Floats out;
      for (int64_t i = 0; i < count; ++i)
        out.push_back(static_cast<float>(std::round(2 * noise(key, static_cast<uint64_t>(i)))));
      return out;
    };
    constexpr int64_t kTerms = 12;
    const std::vector<int64_t> widths = {9, 4, 4};
    for (const int64_t rows : {1, 3, 8, 50}) {
      std::vector<Floats> first;
      for (const ExecutableOptions& way :
           std::vector<ExecutableOptions>{{.device = "cpu:0", .fuse = false},
                                          {.device = "cpu:0"},
                                          {.device = "cpu:0", .simplify = false},
                                          {.device = "template:0"},
                                          {.device = "adversary:0"}}) {
        Graph g("step");
        Store store(runtime());
        const Value x = g.input("x", {f32, {rows, kTerms}});
        std::vector<Value> weights, results;
        for (size_t k = 0; k < widths.size(); ++k) {
          const std::vector<int64_t> dims = {kTerms, widths[k]};
          weights.push_back(g.weight(numbered("w", k), {f32, dims}));
          store.set(TENON_SPACE_WEIGHT, numbered("w", k), dims, integers(kTerms * widths[k], k));
          results.push_back(g.add(op::matmul{.a = x, .b = weights[k]}));
          g.output(numbered("y", k), results[k]);
        }
        // w0 follows the slope of the sum of its own results; the others stay, and may be packed.
        const Value loss = g.add(op::reduce{.kind = "sum", .x = results[0]});
        const Value slope = g.gradients(loss, {weights[0]})[0];
        g.update(weights[0], g.add(op::binary{.kind = "sub", .a = weights[0], .b = slope}));
        const Executable executable(runtime(), g, store, way);
        CHECK(has_batch(executable) == (way.device == "cpu:0" && way.fuse && way.simplify));
        Context run(executable);
        std::vector<Floats> seen;
        for (uint64_t step = 0; step < 3; ++step) {
          run.set("x", {rows, kTerms}, integers(rows * kTerms, 10 + step));
          if (step == 2)
            store.set(TENON_SPACE_WEIGHT, "w1", {kTerms, widths[1]},
                      integers(kTerms * widths[1], 20));
          run.run();
          for (size_t k = 0; k < widths.size(); ++k)
            seen.push_back(run.get<float>(numbered("y", k)));
          seen.push_back(store.get<float>(TENON_SPACE_WEIGHT, "w0"));
        }
        if (first.empty()) first = seen;
        CHECK_MESSAGE(seen == first, way.device, " ", rows, " rows");
      }
    }
  }

  TEST_CASE("cpu: the small model trains and generates with its projections joined") {
    Store store(runtime());
    set_weights(store, small_model());
    const Trainer trainer("cpu:0", store);
    const std::string report = trainer.executable().report();
    CHECK(report.find("joined: matmul + matmul + matmul") != std::string::npos);  // q, k and v
    CHECK(report.find("joined: matmul + matmul\"") != std::string::npos);         // gate and up
    CHECK(furthest(train("cpu:0", 8), train("template:0", 8)) < 1e-3);
    CHECK(generate("cpu:0", 12, 1, {.top_k = 1}) == generate("template:0", 12, 1, {.top_k = 1}));
  }
}
