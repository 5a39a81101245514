// SPDX-License-Identifier: Apache-2.0
// Shared memory: near the limit of a block a kernel that fits is chosen, on devices of every size.
#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

struct Size {
  int64_t major, minor, kibibytes;
};

void become(const Size& s) {
  stub_set("major", s.major);
  stub_set("minor", s.minor);
  stub_set("shared", s.kibibytes << 10);
}

// One node on inputs of zeros.
class Case {
 public:
  Value input(const TensorType& type) {
    inputs_.emplace_back("input " + std::to_string(inputs_.size()), type);
    return graph_.input(inputs_.back().first, type);
  }
  // Compiles and runs it, all of it on the device. Returns the report.
  template <class Op>
  std::string run(const Op& op) {
    const Node node = graph_.add(op);
    graph_.output("y", node[0]);
    const Store store(shared_runtime());
    const Executable executable(shared_runtime(), graph_, store,
                                {.device = "cuda:0", .allow_fallback = false});
    Context context(executable);
    for (const auto& [name, type] : inputs_) {
      const std::vector<char> zeros(type.bytes());
      context.set(name, type, zeros.data(), zeros.size());
    }
    context.run();
    return executable.report();
  }

 private:
  Graph graph_{"shared"};
  std::vector<std::pair<std::string, TensorType>> inputs_{};
};

bool is_native(const std::string& report) {
  return report.find("\"verdict\":\"decomposed\"") == std::string::npos;
}

}  // namespace

TEST_SUITE("stub/shared") {
  TEST_CASE("softmax: lines of every length around what a block can keep") {
    stub_set("emulate", 0);
    for (const Size& s : {Size{7, 5, 64}, Size{8, 6, 99}, Size{8, 0, 163}, Size{9, 0, 227}}) {
      become(s);
      for (const tenon_dtype dtype : {f32, bf16})
        for (int64_t slack = -2048; slack <= 64; slack += slack < -512 ? 256 : 4) {
          const int64_t length = ((s.kibibytes << 10) + slack) / (dtype == f32 ? 4 : 2);
          CAPTURE(s.kibibytes);
          CAPTURE(length);
          Case c;
          const Value x = c.input({dtype, {2, length}});
          CHECK(error_of([&] { c.run(op::softmax{.x = x}); }) == "");
        }
    }
    become({9, 0, 227});
    stub_set("emulate", 1);
    stub_not_emulated();
    check_clean();
  }

  TEST_CASE("attention: heads of every width have a kernel on every device") {
    stub_set("emulate", 0);
    for (const Size& s : {Size{7, 5, 64}, Size{8, 6, 99}, Size{8, 9, 99}, Size{12, 0, 99},
                          Size{8, 0, 163}, Size{9, 0, 227}, Size{10, 0, 227}}) {
      become(s);
      for (const tenon_dtype dtype : {f16, bf16, f32, f64})
        for (const int64_t dim : {8, 64, 112, 113, 120, 128, 200, 256})
          for (const int64_t queries : {1, 7, 300}) {
            CAPTURE(s.kibibytes);
            CAPTURE(dtype);
            CAPTURE(dim);
            CAPTURE(queries);
            const TensorType keys{dtype, {1, 2, 600, dim}};
            Case c;
            const Value q = c.input({dtype, {1, 8, queries, dim}}), k = c.input(keys),
                        v = c.input(keys);
            std::string report;
            CHECK(error_of([&] { report = c.run(op::attention{.q = q, .k = k, .v = v}); }) == "");
            CHECK(is_native(report));
          }
    }
    become({9, 0, 227});
    stub_set("emulate", 1);
    stub_not_emulated();
    check_clean();
  }

  TEST_CASE("attention backward: heads of every width, but for f64 on the smallest device") {
    stub_set("emulate", 0);
    for (const Size& s : {Size{7, 5, 64}, Size{8, 6, 99}, Size{8, 0, 163}, Size{9, 0, 227}}) {
      become(s);
      for (const tenon_dtype dtype : {f16, bf16, f32, f64})
        for (const int64_t dim : {64, 128, 192, 200, 224, 240, 256}) {
          CAPTURE(s.kibibytes);
          CAPTURE(dtype);
          CAPTURE(dim);
          const TensorType heads{dtype, {1, 2, 100, dim}},
              rows{dtype == f64 ? f64 : f32, {1, 2, 100}};
          Case c;
          const Value dout = c.input(heads), q = c.input(heads), k = c.input(heads),
                      v = c.input(heads), o = c.input(heads), lse = c.input(rows);
          std::string report;
          CHECK(error_of([&] {
                  report = c.run(op::attention_backward{
                      .dout = dout, .q = q, .k = k, .v = v, .o = o, .lse = lse});
                }) == "");
          CHECK(is_native(report) == (s.kibibytes > 64 || dtype != f64 || dim <= 160));
        }
    }
    become({9, 0, 227});
    stub_set("emulate", 1);
    stub_not_emulated();
    check_clean();
  }
}
