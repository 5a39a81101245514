// SPDX-License-Identifier: Apache-2.0
// Bad data on devices with streams: one word for the run, or a record per step with an atomic
// minimum of 32 bits or without atomics. The kernels of this plugin have threads of their own, and
// report with the macros of the texts for kernels.
#define TENON_ENTRY_SYMBOL reporting_entry
#include <doctest/doctest.h>

#include <atomic>
#include <limits>
#include <set>
#include <thread>

#include "at_once.hpp"
#include "fake_host.hpp"

namespace {
// The constants of types.h, before the text defines macros of the same names.
constexpr tenon_code kOutOfRange = TENON_INDEX_OUT_OF_RANGE, kNumeric = TENON_NUMERIC_ERROR;
}  // namespace
#include "error_text.h"

namespace tenon::test {

namespace {

using sdk::BadData;
using sdk::Call;
using sdk::ErrorRecord;
using sdk::Kernel;
using sdk::Node;
namespace op = sdk::op;
constexpr tenon_dtype kF32 = TENON_DTYPE_F32, kI64 = TENON_DTYPE_I64, kI32 = TENON_DTYPE_I32;
using Floats = std::vector<float>;
using Indices = std::vector<int64_t>;

// How kernels report. `silent`: a record with the position alone.
enum class How { word, minimum, plain, silent };
How how = How::word;  // of devices that are opened from here on, and of their kernels

// Counts how often reports are reset, and fetches by whether a capture is open.
struct Counts {
  int resets = 0, fetches = 0, in_capture = 0, captures = 0, replays = 0;
} counts;

class Reporting final : public AtOnce {
 public:
  bool has_addresses() const override { return true; }
  sdk::ErrorScheme error_scheme() const override {
    return how == How::word ? sdk::ErrorScheme::word : sdk::ErrorScheme::records;
  }
  void write(sdk::Place target, const void* source, uint64_t size, void* stream) override {
    if (stream) ++counts.resets;
    AtOnce::write(target, source, size, stream);
  }
  void read(void* target, sdk::Place source, uint64_t size, void* stream) override {
    if (stream) ++(capturing_ ? counts.in_capture : counts.fetches);
    AtOnce::read(target, source, size, stream);
  }
  bool records() const override { return true; }
  void record_begin(void*) override { capturing_ = true, work_.clear(); }
  void* record_end(void*) override {
    capturing_ = false;
    ++counts.captures;
    return new std::vector<std::function<void()>>(std::move(work_));
  }
  void replay(void* recording, void*) override {
    ++counts.replays;
    for (const auto& work : *static_cast<std::vector<std::function<void()>>*>(recording)) work();
  }
  void recording_destroy(void* recording) noexcept override {
    delete static_cast<std::vector<std::function<void()>>*>(recording);
  }
  void enqueue(std::function<void()> work) {
    if (capturing_) return work_.push_back(std::move(work));
    work();
  }

 private:
  bool capturing_ = false;
  std::vector<std::function<void()>> work_;
};

uint32_t minimum(uint32_t* word, uint32_t value) {
  std::atomic_ref<uint32_t> shared(*word);
  uint32_t seen = shared.load();
  while (value < seen && !shared.compare_exchange_weak(seen, value)) {
  }
  return seen;
}

// Words in memory of the device. Stores of several threads meet there, in any order.
struct Words {
  struct Word {
    uint32_t* at;
    void operator=(uint32_t value) const { std::atomic_ref(*at).store(value); }
    uint32_t* operator&() const { return at; }
  };
  uint32_t* first;
  Word operator[](size_t k) const { return {first + k}; }
};

// What the text of a kernel does for a bad index.
void report(const Call& c, int64_t position, int64_t value,
            tenon_code code = TENON_INDEX_OUT_OF_RANGE) {
  const auto at = static_cast<uint64_t>(position), bits = static_cast<uint64_t>(value);
  if (how == How::word) {
    std::atomic_ref<uint64_t> shared(*static_cast<uint64_t*>(c.error));
    const uint64_t mine = TENON_ERROR_VALUE(uint64_t, c.step, code, at);
    for (uint64_t seen = shared.load(); mine < seen && !shared.compare_exchange_weak(seen, mine);) {
    }
    return;
  }
  const Words record{static_cast<uint32_t*>(c.error)};
  if (how == How::minimum)
    TENON_REPORT_MIN(uint32_t, minimum, record, code, at, bits, bits >> 32);
  else if (how == How::silent)
    TENON_REPORT_MIN_POSITION(uint32_t, minimum, record, code, at);
  else
    TENON_REPORT(uint32_t, record, code, at, bits, bits >> 32);
}

// Takes elements of a vector, in several threads that take turns from the end.
Kernel make_gather(const op::gather& n, const Node& node) {
  const int64_t length = n.data.type().dims[0], count = n.indices.type().elements();
  const bool wide = n.indices.type().dtype == kI64;
  auto* device = static_cast<Reporting*>(node.device());
  const auto work = [=](const Call& c) {
    const auto thread = [&](int64_t first, int64_t each) {
      for (int64_t k = count - 1 - first; k >= 0; k -= each) {
        const int64_t given = wide ? c.in<int64_t>(1)[k] : c.in<int32_t>(1)[k];
        const int64_t at = given < 0 ? given + length : given;
        if (at < 0 || at >= length)
          report(c, k, given);
        else
          c.out<float>(0)[k] = c.in<float>(0)[at];
      }
    };
    if (count < 8) return thread(0, 1);
    std::vector<std::thread> threads;
    for (int64_t t = 0; t < 4; ++t) threads.emplace_back(thread, t, 4);
    for (auto& t : threads) t.join();
  };
  return {.run = [=](const Call& c) { device->enqueue([=] { work(c); }); }, .can_fail = true};
}
// An op of the author's own, as far as texts go: it has a text of the kernel.
Kernel make_unary(const op::unary& n, const Node& node) {
  auto* device = static_cast<Reporting*>(node.device());
  const auto work = [](const Call& c) {
    if (c.in<float>(0)[0] < 0) report(c, 7, -3);
    c.out<float>(0)[0] = c.in<float>(0)[0];
  };
  Kernel kernel{.run = [=](const Call& c) { device->enqueue([=] { work(c); }); }, .can_fail = true};
  if (n.kind == "sqrt")
    kernel.describe = [](const sdk::BadData& bad) {
      return "element " + std::to_string(bad.position) + " is " +
             (bad.value ? std::to_string(*bad.value) : "negative");
    };
  return kernel;
}

// What kernels of the other ops report, whatever their data is.
BadData told;

template <class Op>
Kernel make_bad(const Op&, const Node&) {
  return {.run = [](const Call& c) { report(c, told.position, told.value.value_or(0), told.code); },
          .can_fail = true};
}
template <class Op>
constexpr sdk::Row bad_row() {
  return sdk::row<Op, make_bad<Op>>();
}

constexpr sdk::Row kRows[] = {sdk::row<op::gather, make_gather>(),
                              sdk::row<op::unary, make_unary>(),
                              bad_row<op::gather_elements>(),
                              bad_row<op::gather_backward>(),
                              bad_row<op::scatter>(),
                              bad_row<op::scatter_add>(),
                              bad_row<op::scatter_elements_add>(),
                              bad_row<op::scatter_reduce>(),
                              bad_row<op::scatter_elements_reduce>(),
                              bad_row<op::dynamic_slice>(),
                              bad_row<op::dynamic_update_slice>(),
                              bad_row<op::grouped_matmul>(),
                              bad_row<op::grouped_matmul_backward>(),
                              bad_row<op::cross_entropy>(),
                              bad_row<op::cross_entropy_backward>(),
                              bad_row<op::rope>(),
                              bad_row<op::sample>()};
std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&) {
  return {{.kind = "reporting", .name = "at once"}};
}
std::unique_ptr<sdk::Device> open(const sdk::Runtime&, uint32_t, uint32_t) {
  return std::make_unique<Reporting>();
}
constexpr sdk::PluginSpec kSpec{.name = "reporting",
                                .version = "1.0",
                                .vendor = "tests",
                                .rows = kRows,
                                .devices = devices,
                                .open = open,
                                .streams = true};

}  // namespace
}  // namespace tenon::test

TENON_STREAM_PLUGIN(tenon::test::kSpec, "reporting", TENON_ISA_BASELINE)

namespace tenon::test {

namespace {

BlobBuilder gathers(int64_t length, int64_t count, tenon_dtype dtype, int nodes = 1) {
  BlobBuilder b;
  const uint32_t data = b.input({kF32, {length}});
  for (int k = 0; k < nodes; ++k) {
    const uint32_t at = b.input({dtype, {count}});
    b.output(b.node("gather", {data, at}, {{kF32, {count}}}, {{"axis", int64_t{0}}}));
  }
  return b;
}
Floats iota(size_t count) {
  Floats list(count);
  for (size_t k = 0; k < count; ++k) list[k] = static_cast<float>(k);
  return list;
}
Problem problem_of(const Plugin& plugin, const Indices& indices) {
  Problem p;
  plugin.run(gathers(100, static_cast<int64_t>(indices.size()), kI64),
             {bytes_of(iota(100)), bytes_of(indices)}, &p);
  return p;
}

constexpr How kRecordWays[] = {How::minimum, How::plain};

}  // namespace

TEST_SUITE("abi/error_words") {
  TEST_CASE("texts: they make the same words and records as the functions for the host") {
    CHECK(TENON_NO_ERROR(uint64_t) == sdk::kNoError);
    CHECK(TENON_ERROR_VALUE(uint64_t, 3, TENON_NUMERIC_ERROR, 12345) ==
          sdk::error_value(3, kNumeric, 12345));
    const auto bytes_equal = [](const ErrorRecord& a, const ErrorRecord& b) {
      return std::memcmp(&a, &b, sizeof a) == 0;
    };
    for (const int64_t value : {int64_t{0}, int64_t{113}, int64_t{-1}, INT64_MIN, INT64_MAX})
      for (const uint64_t position : {uint64_t{0}, uint64_t{5}, uint64_t{1} << 40}) {
        const auto bits = static_cast<uint64_t>(value);
        const ErrorRecord expected = ErrorRecord::of(kOutOfRange, position, value);
        ErrorRecord plain = ErrorRecord::none(), min = ErrorRecord::none();
        TENON_REPORT(uint32_t, &plain.position, TENON_INDEX_OUT_OF_RANGE, position, bits,
                     bits >> 32);
        TENON_REPORT_MIN(uint32_t, minimum, &min.position, TENON_INDEX_OUT_OF_RANGE, position, bits,
                         bits >> 32);
        CHECK(bytes_equal(plain, expected));
        CHECK(bytes_equal(min, expected));
        CHECK(expected.read()->value == value);
        CHECK(expected.read()->position ==
              static_cast<int64_t>(std::min<uint64_t>(position, 4294967294u)));
        ErrorRecord alone = ErrorRecord::none();
        TENON_REPORT_POSITION(uint32_t, &alone.position, TENON_NUMERIC_ERROR, position);
        CHECK(alone.read()->code == kNumeric);
        CHECK(alone.read()->position == expected.read()->position);
        CHECK_FALSE(alone.read()->value);
      }
    CHECK_FALSE(ErrorRecord::none().read());
  }

  TEST_CASE("records: a mixture of two reports has a position and no value") {
    for (int64_t a = 0; a < 200; ++a) {
      const ErrorRecord one = ErrorRecord::of(kOutOfRange, static_cast<uint64_t>(a), 100 + a),
                        two = ErrorRecord::of(kOutOfRange, static_cast<uint64_t>(a + 1), 101 + a);
      ErrorRecord mixed = one;
      mixed.position = two.position;
      CHECK(mixed.read()->position == a + 1);
      CHECK_FALSE(mixed.read()->value);
      mixed = one;
      mixed.low = two.low;
      CHECK_FALSE(mixed.read()->value);
      mixed = one;
      mixed.check = two.check;
      CHECK_FALSE(mixed.read()->value);
    }
  }

  TEST_CASE("texts of failures: those of the cpu plugin, with the value if the kernel reports it") {
    struct Case {
      How how;
      const char* text;
    };
    const Case cases[] = {
        {How::word,
         "gather: operand indices: the index at position 2 is outside axis 0 of length 100"},
        {How::minimum,
         "gather: operand indices: index 113 at position 2 is outside axis 0 of length 100"},
        {How::plain,
         "gather: operand indices: index 113 at position 2 is outside axis 0 of length 100"},
        {How::silent,
         "gather: operand indices: the index at position 2 is outside axis 0 of length 100"}};
    for (const Case& c : cases) {
      how = c.how;
      const Plugin plugin(reporting_entry);
      const Problem p = problem_of(plugin, {0, -100, 113, 99});
      CHECK(p.code == kOutOfRange);
      CHECK(p.text == c.text);
      CHECK(p.index == 2);
      CHECK(p.step == 0);
      CHECK(problem_of(plugin, {0, -100, 13, 99}).code == TENON_OK);
    }
    how = How::minimum;
    const Plugin plugin(reporting_entry);
    const int64_t far = -(int64_t{1} << 40);
    CHECK(problem_of(plugin, {far}).text ==
          "gather: operand indices: index -1099511627776 at position 0 is outside axis 0 of length "
          "100");
    Problem p;
    plugin.run(gathers(4, 1, kI32), {bytes_of(iota(4)), bytes_of(std::vector<int32_t>{-5})}, &p);
    CHECK(p.text ==
          "gather: operand indices: index -5 at position 0 is outside axis 0 of length 4");
  }

  TEST_CASE("texts of failures: Kernel::describe, or the position") {
    const auto text = [](const Plugin& plugin, const char* kind) {
      BlobBuilder b;
      const uint32_t x = b.input({kF32, {1}});
      b.output(b.node("unary", {x}, {{kF32, {1}}}, {{"kind", std::string(kind)}}));
      Problem p;
      plugin.run(b, {bytes_of(Floats{-1})}, &p);
      return p.text;
    };
    for (const How h : kRecordWays) {
      how = h;
      const Plugin plugin(reporting_entry);
      CHECK(text(plugin, "sqrt") == "unary: element 7 is -3");
      CHECK(text(plugin, "exp") == "unary: an index is out of range, first at element 7");
    }
    how = How::word;
    const Plugin plugin(reporting_entry);
    CHECK(text(plugin, "sqrt") == "unary: element 7 is negative");
  }

  TEST_CASE("texts of failures: the same as those of the cpu plugin, for each op that can fail") {
    how = How::minimum;
    const Plugin mine(reporting_entry), cpu(TENON_CPU_PLUGIN);
    struct Op {
      const char* name;
      std::vector<std::pair<Shape, Bytes>> operands;  // without a dtype: absent
      std::vector<Shape> outputs;
      std::vector<Attr> attributes;
      BadData bad;
    };
    const auto floats = [](std::vector<int64_t> dims) {
      size_t count = 1;
      for (const int64_t d : dims) count *= static_cast<size_t>(d);
      return std::pair{Shape{kF32, std::move(dims)}, bytes_of(Floats(count, 0.5F))};
    };
    const auto indices = [](std::vector<int64_t> dims, const Indices& list) {
      return std::pair{Shape{kI64, std::move(dims)}, bytes_of(list)};
    };
    const auto numbers = [](std::vector<int64_t> dims, const Floats& list) {
      return std::pair{Shape{kF32, std::move(dims)}, bytes_of(list)};
    };
    const std::pair<Shape, Bytes> absent{{TENON_DTYPE_NONE, {}}, {}};
    const auto f32 = [](std::vector<int64_t> dims) { return Shape{kF32, std::move(dims)}; };
    const int64_t one = 1;
    const float inf = std::numeric_limits<float>::infinity();
    const auto out = [](int64_t position, int64_t value) {
      return BadData{kOutOfRange, position, value};
    };
    const Op ops[] = {
        {"gather_elements",
         {floats({2, 3}), indices({2, 2}, {0, 1, 5, 2})},
         {f32({2, 2})},
         {{"axis", one}},
         out(2, 5)},
        {"gather_backward",
         {floats({2, 3}), indices({3}, {0, 4, -5})},
         {f32({2, 4})},
         {{"axis", one}, {"dim", int64_t{4}}},
         out(1, 4)},
        {"scatter",
         {floats({4, 2}), indices({2}, {1, -5}), floats({2, 2})},
         {f32({4, 2})},
         {},
         out(1, -5)},
        {"scatter_add",
         {floats({2, 2}), indices({2}, {9, 0}), floats({2, 3})},
         {f32({2, 3})},
         {{"axis", int64_t{-1}}},
         out(0, 9)},
        {"scatter_elements_add",
         {floats({1, 2}), indices({1, 2}, {0, 7}), floats({3, 2})},
         {f32({3, 2})},
         {},
         out(1, 7)},
        {"scatter_reduce",
         {floats({4, 2}), indices({2}, {1, -5}), floats({2, 2})},
         {f32({4, 2})},
         {{"kind", "max"}},
         out(1, -5)},
        {"scatter_elements_reduce",
         {floats({3, 2}), indices({1, 2}, {0, 7}), floats({1, 2})},
         {f32({3, 2})},
         {{"kind", "mul"}},
         out(1, 7)},
        {"dynamic_slice",
         {floats({4, 5}), indices({2}, {0, 4})},
         {f32({2, 2})},
         {{"size", std::vector<int64_t>{2, 2}}},
         out(1, 4)},
        {"dynamic_update_slice",
         {floats({4, 5}), floats({3, 5}), indices({2}, {-1, 0})},
         {f32({4, 5})},
         {},
         out(0, -1)},
        {"grouped_matmul",
         {floats({3, 2}), floats({4, 2, 2}), indices({3}, {0, -1, 4}), absent, absent},
         {f32({3, 2})},
         {},
         out(2, 4)},
        {"grouped_matmul",
         {floats({3, 2}), floats({2, 2, 2}), absent, indices({3}, {0, 2, 1}), absent},
         {f32({3, 2})},
         {},
         out(2, 1)},
        {"grouped_matmul_backward",
         {floats({3, 2}), floats({3, 2}), floats({4, 2, 2}), indices({3}, {0, -2, 1}), absent,
          absent},
         {f32({3, 2}), f32({4, 2, 2})},
         {},
         out(1, -2)},
        {"cross_entropy", {floats({2, 6}), indices({2}, {5, 6}), absent}, {f32({})}, {}, out(1, 6)},
        {"cross_entropy_backward",
         {floats({}), floats({2, 6}), indices({2}, {-1, 6}), absent, absent},
         {f32({2, 6})},
         {},
         out(0, -1)},
        {"rope",
         {floats({1, 2, 1, 4}), floats({8, 2}), floats({8, 2}), indices({1, 2}, {3, 8})},
         {f32({1, 2, 1, 4})},
         {},
         out(1, 8)},
        {"sample",
         {numbers({2, 2}, {0, 1, 0, inf}), {{TENON_DTYPE_I64, {2}}, bytes_of(Indices{1, 2})}},
         {{kI64, {2}}},
         {},
         {kNumeric, 1, std::nullopt}},
    };
    for (const Op& op : ops) {
      CAPTURE(op.name);
      BlobBuilder b;
      std::vector<uint32_t> values;
      std::vector<Bytes> inputs;
      for (const auto& [shape, content] : op.operands) {
        const bool there = shape.dtype != TENON_DTYPE_NONE;
        values.push_back(there ? b.input(shape) : TENON_NONE);
        if (there) inputs.push_back(content);
      }
      const uint32_t first = b.node(op.name, values, op.outputs, op.attributes);
      for (uint32_t k = 0; k < op.outputs.size(); ++k) b.output(first + k);
      told = op.bad;
      Problem from_cpu, from_mine;
      cpu.run(b, inputs, &from_cpu);
      mine.run(b, inputs, &from_mine);
      CHECK(from_cpu.code == op.bad.code);
      CHECK(from_mine.code == op.bad.code);
      CHECK(from_mine.index == from_cpu.index);
      const auto unlabelled = [](const std::string& text) {
        return text.substr(text.find(": ") + 2);
      };
      CHECK(from_mine.text.find(op.name + std::string(": operand ")) == 0);
      CHECK(unlabelled(from_mine.text) == unlabelled(from_cpu.text));
    }
  }

  TEST_CASE("many bad indices: a minimum finds the first; without atomics it is one of them") {
    Indices indices(400, 1);
    std::set<int64_t> bad;
    for (int64_t k = 17; k < 400; k += 3) indices[static_cast<size_t>(k)] = 1000 + k, bad.insert(k);
    for (const How h : {How::word, How::minimum, How::plain}) {
      how = h;
      CAPTURE(static_cast<int>(h));
      const Plugin plugin(reporting_entry);
      for (int run = 0; run < 25; ++run) {
        const Problem p = problem_of(plugin, indices);
        REQUIRE(p.code == kOutOfRange);
        if (h == How::plain)
          CHECK(bad.contains(p.index));
        else
          CHECK(p.index == 17);
        // A value in the text is that of the position.
        const std::string at = std::to_string(p.index),
                          rest = " at position " + at + " is outside axis 0 of length 100",
                          start = "gather: operand indices: ";
        const std::string with = start + "index " + std::to_string(1000 + p.index) + rest,
                          without = start + "the index" + rest;
        CHECK((p.text == without || (h != How::word && p.text == with)));
      }
    }
  }

  TEST_CASE("several steps: the first that failed is reported, and the next run starts clean") {
    for (const How h : {How::word, How::minimum, How::plain}) {
      how = h;
      CAPTURE(static_cast<int>(h));
      const Plugin plugin(reporting_entry);
      Bound bound(plugin, gathers(4, 2, kI64, 3));
      REQUIRE(bound.compile_problem().code == TENON_OK);
      bound.set_input(0, bytes_of(Floats{0, 10, 20, 30}));
      REQUIRE(bound.instantiate().code == TENON_OK);
      const auto run = [&](const std::vector<Indices>& lists) {
        for (size_t k = 0; k < 3; ++k) bound.set_input(k + 1, bytes_of(lists[k]));
        return bound.run();
      };
      CHECK(run({{0, 1}, {2, 3}, {3, 0}}).code == TENON_OK);
      const Problem p = run({{0, 1}, {2, 9}, {-7, 0}});
      CHECK(p.code == kOutOfRange);
      CHECK(p.step == 1);
      CHECK(p.index == 1);
      CHECK(run({{0, 1}, {2, 3}, {3, 0}}).code == TENON_OK);
      CHECK(list_of<float>(bound.output(1)) == Floats{20, 30});
      CHECK(run({{0, 1}, {2, 3}, {0, -5}}).step == 2);
    }
  }

  TEST_CASE("captures: the reports are read after each replay, not in it; reset after a failure") {
    for (const How h : {How::word, How::minimum}) {
      how = h;
      CAPTURE(static_cast<int>(h));
      const Plugin plugin(reporting_entry);
      Bound bound(plugin, gathers(4, 1, kI64, 2));
      bound.set_input(0, bytes_of(Floats{0, 10, 20, 30}));
      REQUIRE(bound.instantiate().code == TENON_OK);
      counts = {};
      bound.set_input(2, bytes_of(Indices{0}));
      for (const int64_t index : {1, 2, 7, 3, 8, 1}) {
        bound.set_input(1, bytes_of(Indices{index}));
        CHECK(bound.run().code == (index < 4 ? TENON_OK : kOutOfRange));
      }
      CHECK(list_of<float>(bound.output(0)) == Floats{10});
      CHECK(counts.captures == 1);
      CHECK(counts.replays == 5);  // the first run has none
      CHECK(counts.fetches == 6);
      CHECK(counts.in_capture == 0);
      CHECK(counts.resets == 3);  // the first run, and those after a failure
    }
  }
}

}  // namespace tenon::test
