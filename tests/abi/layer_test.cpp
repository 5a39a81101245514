// SPDX-License-Identifier: Apache-2.0
// The comfort layer, seen through the ABI with the template plugin behind it: negotiation,
// verdicts, views and copies, bounds, failures.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <tenon/ops.hpp>

#include "fake_host.hpp"

namespace tenon::test {

namespace {

using Ints = std::vector<int64_t>;
using Floats = std::vector<float>;
constexpr tenon_dtype kF32 = TENON_DTYPE_F32, kI64 = TENON_DTYPE_I64;

const Plugin& plugin() {
  static Plugin* p = new Plugin(TENON_TEMPLATE_PLUGIN);
  return *p;
}
Floats run_floats(const BlobBuilder& b, const std::vector<Bytes>& inputs) {
  return list_of<float>(plugin().run(b, inputs).at(0));
}
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const tenon_backend* enter(const tenon_host& host) {
  void* library = dlopen(TENON_TEMPLATE_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<tenon_backend_entry_fn>(dlsym(library, TENON_BACKEND_ENTRY_NAME))(&host);
}

uint32_t add(BlobBuilder& b, uint32_t x, uint32_t y, Shape s) {
  return b.node("binary", {x, y}, {std::move(s)}, {{"kind", "add"}});
}

}  // namespace

TEST_SUITE("abi/layer") {
  TEST_CASE("negotiation: another ABI is refused with both sides named") {
    tenon_host host = host_table();
    CHECK(enter(host) != nullptr);
    host.abi_minor_min = 7, host.abi_minor_max = 9;
    CHECK(enter(host) == nullptr);
    CHECK(last_refusal() ==
          "plugin template 0.1.0 wants ABI 0.2 to 0.4, host tenon 9.8.7 offers 0.7 to 0.9");
    host = host_table();
    host.abi_major = 3;
    CHECK(enter(host) == nullptr);
    CHECK(contains(last_refusal(), "offers 3.2"));
  }

  TEST_CASE("negotiation: a newer host with a longer table and a wider range is accepted") {
    struct Longer {
      tenon_host host;
      void* unknown[4];
    } later{host_table(), {}};
    later.host.struct_size = sizeof later;
    later.host.abi_minor_max = 9;
    const tenon_backend* table = enter(later.host);
    REQUIRE(table != nullptr);
    CHECK(table->abi_minor_min == TENON_ABI_MINOR_OLDEST);
    CHECK(table->abi_minor_max == TENON_ABI_MINOR);
  }

  TEST_CASE("negotiation: a host table that is too short is refused") {
    tenon_host host = host_table();
    host.struct_size = offsetof(tenon_host, log);
    CHECK(enter(host) == nullptr);
    CHECK(contains(last_refusal(), "needs a host table of"));
  }

  TEST_CASE("enumerate: the device says kind and flags") {
    const tenon_device_list* list = nullptr;
    REQUIRE(plugin().table().enumerate(plugin().state(), &list) == nullptr);
    REQUIRE(list->count == 1);
    CHECK(std::string(list->devices[0]->kind.data, list->devices[0]->kind.size) == "template");
    CHECK((list->devices[0]->flags & TENON_DEVICE_HOST_ADDRESSABLE) != 0);
  }

  TEST_CASE("device_open: an index beyond the list is an error") {
    tenon_device* device = nullptr;
    const Problem p =
        Plugin::problem(plugin().table().device_open(plugin().state(), 1, nullptr, &device));
    CHECK(p.code == TENON_NOT_FOUND);
    CHECK(p.origin == "template: device_open");
  }

  TEST_CASE("buffers: reads, writes and copies beyond the end are errors") {
    const tenon_backend& t = plugin().table();
    tenon_buffer* b = nullptr;
    const auto create = [&](uint64_t size, uint32_t kind, tenon_buffer** out) {
      const tenon_buffer_options options = buffer_options(size, kind);
      return Plugin::problem(t.buffer_create(plugin().device(), &options, out));
    };
    REQUIRE(create(16, TENON_MEMORY_UNIFIED, &b).code == TENON_OK);
    char bytes[32] = "0123456789abcdef";
    CHECK(Plugin::problem(t.buffer_write(b, 0, bytes, 16, nullptr)).code == TENON_OK);
    CHECK(Plugin::problem(t.buffer_write(b, 1, bytes, 16, nullptr)).code == TENON_INVALID_ARGUMENT);
    CHECK(Plugin::problem(t.buffer_read(b, UINT64_MAX, bytes, 2, nullptr)).code ==
          TENON_INVALID_ARGUMENT);
    CHECK(Plugin::problem(t.buffer_copy(b, 8, b, 0, 8, nullptr)).code == TENON_OK);
    CHECK(Plugin::problem(t.buffer_copy(b, 8, b, 0, 9, nullptr)).code == TENON_INVALID_ARGUMENT);
    CHECK(std::string(static_cast<char*>(t.buffer_address(b)), 16) == "0123456701234567");
    t.buffer_destroy(b);
    tenon_buffer* none = nullptr;
    CHECK(create(0, TENON_MEMORY_DEVICE, &none).code == TENON_INVALID_ARGUMENT);
    const Problem memory = create(UINT64_MAX / 4, TENON_MEMORY_DEVICE, &none);
    CHECK(memory.code == TENON_OUT_OF_MEMORY);
    CHECK(contains(memory.text, "buffer 'test' of"));
    CHECK(contains(memory.text, "scalar loops in double, which allows"));
    const Problem kind = create(16, 7, &none);
    CHECK(kind.code == TENON_UNSUPPORTED);
    CHECK(contains(kind.text, "memory kind 7"));
    CHECK(none == nullptr);
  }

  TEST_CASE("query: primitives are claimed, every other op is refused by name") {
    for (const OpSchema& schema : all_ops()) {
      BlobBuilder b;
      b.node(std::string(schema.name), {}, {}, {}, schema.version);
      const Verdict v = plugin().query(b).at(0);
      CHECK_FALSE(v.native);
      CHECK_MESSAGE((v.reason == TENON_REASON_OP) == (schema.level != OpLevel::primitive), v.text);
      if (v.reason == TENON_REASON_OP) CHECK(contains(v.text, std::string(schema.name)));
    }
  }

  TEST_CASE("query: what a plugin does not know is refused by name") {
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {2}});
    b.node("binary", {x, x}, {{kF32, {2}}}, {{"kind", "add"}, {"soft_cap", 2.0}});
    b.node("binary", {x, x, x}, {{kF32, {2}}}, {{"kind", "add"}});
    b.node("binary", {x, x}, {{kF32, {2}}, {kF32, {2}}}, {{"kind", "add"}});
    b.node("binary", {x, x}, {{kF32, {2}}}, {{"kind", int64_t{3}}});
    b.node("binary", {x, x}, {{kF32, {2}}}, {{"kind", "add"}}, 2);
    b.node("binary", {x, x}, {{kF32, {2}}}, {{"kind", "add"}}, 1, "com.example");
    b.node("binary", {x}, {{kF32, {2}}}, {{"kind", "add"}});
    b.node("unary", {x}, {{kF32, {2}}}, {{"kind", "gelu"}});
    const std::vector<Verdict> v = plugin().query(b);
    CHECK(v[0].reason == TENON_REASON_UNKNOWN);
    CHECK(contains(v[0].text, "attribute 'soft_cap'"));
    CHECK(v[1].reason == TENON_REASON_UNKNOWN);
    CHECK(contains(v[1].text, "operand"));
    CHECK(v[2].reason == TENON_REASON_UNKNOWN);
    CHECK(contains(v[2].text, "output"));
    CHECK_FALSE(v[3].native);
    CHECK(v[4].reason == TENON_REASON_OP);
    CHECK(contains(v[4].text, "this plugin has version 1"));
    CHECK(v[5].reason == TENON_REASON_OP);
    CHECK(contains(v[5].text, "com.example:binary"));
    CHECK(v[6].text == "operand b is missing");
    CHECK(v[7].reason == TENON_REASON_ATTRIBUTE);
    CHECK(v[7].text == "attribute kind=gelu is not supported");
  }

  // Each graph holds one node of today beside one that touches something new.
  TEST_CASE("query: what a later version says of a value or node is refused, the rest is claimed") {
    constexpr tenon_dtype kNew = 0x100;
    const auto verdicts = [](auto change) {
      BlobBuilder b;
      const Shape s{kF32, {2}};
      const uint32_t x = b.input(s), other = b.input(s);
      const uint32_t odd = b.node("unary", {other}, {s}, {{"kind", "exp"}});
      b.node("unary", {odd}, {s}, {{"kind", "exp"}});
      b.output(add(b, x, x, s));
      change(b, other);
      const std::vector<Verdict> v = plugin().query(b);
      CHECK(v[1].native);
      CHECK(v[2].native);
      return v[0];
    };
    const Verdict scheme =
        verdicts([](BlobBuilder& b, uint32_t v) { b.mark_value(v, {.scheme = 3}); });
    CHECK(scheme.reason == TENON_REASON_UNKNOWN);
    CHECK(contains(scheme.text, "the block scheme of an operand"));
    const Verdict flags =
        verdicts([](BlobBuilder& b, uint32_t v) { b.mark_value(v, {.value_flags = 0x80}); });
    CHECK(flags.reason == TENON_REASON_UNKNOWN);
    CHECK(contains(flags.text, "the flags of an operand"));
    const Verdict space = verdicts([](BlobBuilder& b, uint32_t v) { b.mark_space(v, 9); });
    CHECK(space.reason == TENON_REASON_UNKNOWN);
    const Verdict node = verdicts([](BlobBuilder& b, uint32_t) { b.mark_node(0, 1); });
    CHECK(node.reason == TENON_REASON_UNKNOWN);

    BlobBuilder b;
    const Shape s{kF32, {2}}, block{kNew, {2}}, deep{kF32, Ints(9, 1)};
    const uint32_t x = b.input(s), q = b.input(block), d = b.input(deep);
    const uint32_t f = b.node("cast", {q}, {s}, {{"to", kF32}});
    b.node("cast", {x}, {block}, {{"to", kNew}});
    b.node("cast", {x}, {s}, {{"to", kNew}});
    b.node("unary", {d}, {deep}, {{"kind", "exp"}});
    b.output(add(b, f, x, s));
    const std::vector<Verdict> v = plugin().query(b);
    for (size_t n = 0; n < 3; ++n) {
      CHECK_FALSE(v[n].native);
      CHECK(v[n].reason == TENON_REASON_DTYPE);
      CHECK(contains(v[n].text, "the dtype of an operand, an output or an attribute"));
    }
    CHECK(v[3].reason == TENON_REASON_UNKNOWN);
    CHECK(contains(v[3].text, "the rank of an operand"));
    CHECK(v[4].native);
  }

  TEST_CASE("query: a kernel for a version of an op runs the versions below it") {
    const tenon_dtype dtype = kF32;
    BlobBuilder b;
    const uint32_t x = b.input({dtype, {2}});
    b.node("binary", {x, x}, {{dtype, {2}}}, {{"kind", "add"}}, 0);
    b.node("binary", {x, x}, {{dtype, {2}}}, {{"kind", "add"}}, 2);
    const std::vector<Verdict> v = plugin().query(b);
    CHECK(v[0].native);
    CHECK(v[1].reason == TENON_REASON_OP);
  }

  TEST_CASE("query: an operand behind a list is no entry of it") {
    BlobBuilder b;
    const Shape s{kF32, {2}};
    const uint32_t x = b.input(s);
    const auto concat = [&](std::vector<uint32_t> operands, std::vector<uint32_t> lists,
                            int64_t length) {
      b.node("concat", std::move(operands), {{kF32, {length}}}, {}, 1, "tenon", std::move(lists));
    };
    concat({x, x, x}, {3}, 6);
    concat({x, x, x}, {2}, 4);           // an operand that the op gained later
    concat({x, x, TENON_NONE}, {2}, 4);  // absent
    concat({x, x, x, x}, {2, 2}, 4);     // a list that the op gained later
    concat({x, x}, {0}, 4);              // no entry
    const std::vector<Verdict> v = plugin().query(b);
    CHECK(v[0].native);
    CHECK(v[1].reason == TENON_REASON_UNKNOWN);
    CHECK(contains(v[1].text, "operand"));
    CHECK(v[2].native);
    CHECK(v[3].reason == TENON_REASON_UNKNOWN);
    CHECK(v[4].text == "operand xs is missing");
  }

  TEST_CASE("query: a node that exceeds a limit is refused, the rest is claimed") {
    BlobBuilder b;
    const Shape s{kF32, {2}};
    const uint32_t x = b.input(s);
    std::vector<Attr> attrs;
    for (int i = 0; i < 65; ++i) attrs.push_back({"kind", "exp"});
    b.node("unary", {x}, {s}, attrs);
    b.node("concat", std::vector<uint32_t>(1025, x), {{kF32, {2050}}});
    b.output(add(b, x, x, s));
    const std::vector<Verdict> v = plugin().query(b);
    CHECK(v[0].reason == TENON_REASON_UNKNOWN);
    CHECK(contains(v[0].text, "number of attributes"));
    CHECK(v[1].reason == TENON_REASON_UNKNOWN);
    CHECK(contains(v[1].text, "number of operands"));
    CHECK(v[2].native);
  }

  TEST_CASE("run: a blob whose structs have grown gives the same bits") {
    const auto graph = [] {
      BlobBuilder b;
      const Shape s{kF32, {3}};
      const uint32_t x = b.input(s), y = b.input(s);
      b.output(b.node("unary", {add(b, x, y, s)}, {s}, {{"kind", "exp"}}));
      return b;
    };
    const std::vector<Bytes> inputs = {bytes_of(Floats{0.5, -1, 2}), bytes_of(Floats{1, 2, 3})};
    BlobBuilder grown = graph();
    grown.grow(24);
    CHECK(run_floats(grown, inputs) == run_floats(graph(), inputs));
  }

  TEST_CASE("compile: a node that was not claimed is an error that names it") {
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {2}});
    b.output(b.node("softmax", {x}, {{kF32, {2}}}));
    Problem p;
    plugin().run(b, {bytes_of(Floats{1, 2})}, &p);
    CHECK(p.code == TENON_UNSUPPORTED);
    CHECK(contains(p.text, "node 0 (softmax)"));
  }

  TEST_CASE("views: a chain of views feeds a kernel without a copy") {
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {2, 3}});
    const uint32_t t = b.node("transpose", {x}, {{kF32, {3, 2}}}, {{"perm", Ints{1, 0}}});
    const uint32_t n = b.node("narrow", {t}, {{kF32, {2, 2}}},
                              {{"start", Ints{2, 0}}, {"len", Ints{2, 2}}, {"step", Ints{-2, 1}}});
    const uint32_t e = b.node("expand", {n}, {{kF32, {2, 2, 2}}}, {{"shape", Ints{2, 2, 2}}});
    b.output(add(b, e, e, {kF32, {2, 2, 2}}));
    CHECK(run_floats(b, {bytes_of(Floats{0, 1, 2, 3, 4, 5})}) == Floats{4, 10, 0, 6, 4, 10, 0, 6});
    const Bound bound(plugin(), b);
    CHECK(bound.info().step_count == 4);
    for (uint32_t s = 0; s < 3; ++s) {
      CHECK(bound.info().steps[s].alias_count == 1);
      CHECK(bound.info().steps[s].aliases[0].kind == TENON_ALIAS_VIEW);
    }
  }

  TEST_CASE("views: one that leaves the region is copied into storage of its own") {
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {2, 2}});
    const uint32_t t = b.node("transpose", {x}, {{kF32, {2, 2}}});
    b.output(t);
    b.output(add(b, t, x, {kF32, {2, 2}}));
    const std::vector<Bytes> out = plugin().run(b, {bytes_of(Floats{1, 2, 3, 4})});
    CHECK(list_of<float>(out[0]) == Floats{1, 3, 2, 4});
    CHECK(list_of<float>(out[1]) == Floats{2, 5, 5, 8});
    const Bound bound(plugin(), b);
    CHECK(bound.info().step_count == 2);
    for (uint32_t s = 0; s < 2; ++s)
      for (uint32_t a = 0; a < bound.info().steps[s].alias_count; ++a)
        CHECK(bound.info().steps[s].aliases[a].kind != TENON_ALIAS_VIEW);
  }

  TEST_CASE("views: an input that is an output is copied") {
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {3}}), s = b.input({kF32, {1}}, TENON_SPACE_STATE);
    b.output(x);
    b.output(s);
    b.output(x);
    const std::vector<Bytes> out =
        plugin().run(b, {bytes_of(Floats{1, 2, 3}), bytes_of(Floats{9})});
    CHECK(list_of<float>(out[0]) == Floats{1, 2, 3});
    CHECK(list_of<float>(out[1]) == Floats{9});
    CHECK(Bound(plugin(), b).info().step_count == 2);
  }

  TEST_CASE(
      "views: a reshape that strides do not allow, and a kernel that wants dense operands, get one "
      "copy each") {
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {2, 3}});
    const uint32_t t = b.node("transpose", {x}, {{kF32, {3, 2}}});
    const uint32_t r = b.node("reshape", {t}, {{kF32, {6}}}, {{"shape", Ints{6}}});
    b.output(b.node("cumsum", {r}, {{kF32, {6}}}, {{"axis", int64_t{0}}}));
    b.output(b.node("cumsum", {t}, {{kF32, {3, 2}}}, {{"axis", int64_t{0}}}));
    const std::vector<Bytes> out = plugin().run(b, {bytes_of(Floats{1, 2, 3, 4, 5, 6})});
    CHECK(list_of<float>(out[0]) == Floats{1, 5, 7, 12, 15, 21});
    CHECK(list_of<float>(out[1]) == Floats{1, 4, 3, 9, 6, 15});
    const Bound bound(plugin(), b);
    int copies = 0;
    for (uint32_t s = 0; s < bound.info().step_count; ++s) {
      const tenon_str label = bound.info().steps[s].label;
      copies += std::string(label.data, label.size) == "copy";
    }
    CHECK(copies == 1);
  }

  TEST_CASE("views: reshapes of strided operands that need no copy split and join axes") {
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {2, 6}});
    const uint32_t n =
        b.node("narrow", {x}, {{kF32, {2, 4}}}, {{"start", Ints{0, 2}}, {"len", Ints{2, 4}}});
    const uint32_t split =
        b.node("reshape", {n}, {{kF32, {2, 1, 2, 2}}}, {{"shape", Ints{2, 1, 2, 2}}});
    const uint32_t join =
        b.node("reshape", {split}, {{kF32, {2, 4, 1}}}, {{"shape", Ints{2, 4, 1}}});
    b.output(b.node("unary", {join}, {{kF32, {2, 4, 1}}}, {{"kind", "neg"}}));
    Floats x_values(12);
    for (size_t i = 0; i < 12; ++i) x_values[i] = static_cast<float>(i);
    CHECK(run_floats(b, {bytes_of(x_values)}) == Floats{-2, -3, -4, -5, -8, -9, -10, -11});
    CHECK(Bound(plugin(), b).info().step_count == 4);
  }

  TEST_CASE(
      "in place: declared where the sizes agree, not where another operand shares the storage") {
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {4}}), y = b.input({kF32, {1}});
    const uint32_t s = add(b, x, y, {kF32, {4}});
    const uint32_t d = add(b, s, s, {kF32, {4}});
    const uint32_t head =
        b.node("narrow", {d}, {{kF32, {1}}}, {{"start", Ints{0}}, {"len", Ints{1}}});
    b.output(add(b, d, head, {kF32, {4}}));
    const Bound bound(plugin(), b);
    REQUIRE(bound.info().step_count == 4);
    REQUIRE(bound.info().steps[0].alias_count == 1);
    CHECK(bound.info().steps[0].aliases[0].kind == TENON_ALIAS_IN_PLACE);
    CHECK(bound.info().steps[0].aliases[0].from == bound.find(x, false));
    CHECK(bound.info().steps[1].alias_count == 0);
    CHECK(bound.info().steps[3].alias_count == 0);
  }

  TEST_CASE(
      "empty tensors: no output elements is success, a reduction over nothing gives its identity") {
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {0, 3}});
    b.output(b.node("unary", {x}, {{kF32, {0, 3}}}, {{"kind", "exp"}}));
    b.output(b.node("reduce", {x}, {{kF32, {3}}}, {{"kind", "sum"}, {"axes", Ints{0}}}));
    const std::vector<Bytes> out = plugin().run(b, {Bytes{}});
    CHECK(out[0].empty());
    CHECK(list_of<float>(out[1]) == Floats{0, 0, 0});
  }

  TEST_CASE("instantiate: a slot that is too small, missing or misaligned is refused") {
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {64}});
    b.output(b.node("unary", {x}, {{kF32, {64}}}, {{"kind", "neg"}}));
    const auto problem_of = [&](auto change) {
      Bound bound(plugin(), b);
      change(bound.slot(bound.find(x, false)));
      return bound.instantiate();
    };
    CHECK(problem_of([](tenon_slot&) {}).code == TENON_OK);
    CHECK(contains(problem_of([](tenon_slot& s) { s.offset = 64; }).text,
                   "needs 256 bytes from 64 of a buffer of 256"));
    CHECK(contains(problem_of([](tenon_slot& s) { s.buffer = nullptr; }).text, "has no buffer"));
    CHECK(contains(problem_of([](tenon_slot& s) { s.offset = UINT64_MAX; }).text,
                   "of a buffer of 256"));
    Bound bound(plugin(), b);
    tenon_binding binding = bound.binding();
    binding.value_count -= 1;
    tenon_instance* instance = nullptr;
    CHECK(
        Plugin::problem(plugin().table().instantiate(bound.program(), &binding, &instance)).code ==
        TENON_INVALID_ARGUMENT);
  }

  TEST_CASE("run: cancelled before its first step, unless the host is older than cancelling") {
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {2}});
    b.output(b.node("unary", {x}, {{kF32, {2}}}, {{"kind", "neg"}}));
    Bound bound(plugin(), b);
    bound.set_input(0, bytes_of(Floats{1, 2}));
    REQUIRE(bound.instantiate().code == TENON_OK);
    const uint32_t set = 1, unset = 0;
    tenon_run_args args{};
    args.struct_size = sizeof args;
    args.run_id = 7;
    args.cancel = &set;
    const Problem p = bound.run(args);
    CHECK(p.code == TENON_CANCELLED);
    CHECK(p.run_id == 7);
    args.cancel = &unset;
    CHECK(bound.run(args).code == TENON_OK);
    args.cancel = &set;
    args.struct_size = TENON_RUN_ARGS_SIZE_V1;
    CHECK(bound.run(args).code == TENON_OK);
    CHECK(list_of<float>(bound.output(0)) == Floats{-1, -2});
  }

  TEST_CASE(
      "run: bad data is a status with run, step, position and kernel, and the next run is sound") {
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {3}}), i = b.input({kI64, {2}});
    const uint32_t y = b.node("unary", {x}, {{kF32, {3}}}, {{"kind", "neg"}});
    b.output(b.node("gather", {y, i}, {{kF32, {2}}}));
    Bound bound(plugin(), b);
    bound.set_input(0, bytes_of(Floats{1, 2, 3}));
    bound.set_input(1, bytes_of(Ints{0, 3}));
    REQUIRE(bound.instantiate().code == TENON_OK);
    const Problem p = bound.run(42);
    CHECK(p.code == TENON_INDEX_OUT_OF_RANGE);
    CHECK(p.run_id == 42);
    CHECK(p.step == 1);
    CHECK(p.index == 1);
    CHECK(p.text == "gather: index 3 at position 1 is outside [-3, 3)");
    bound.set_input(1, bytes_of(Ints{-1, 0}));
    CHECK(bound.run(43).code == TENON_OK);
    CHECK(list_of<float>(bound.output(0)) == Floats{-3, -1});
    CHECK(live_statuses() == 0);
  }
}

}  // namespace tenon::test
