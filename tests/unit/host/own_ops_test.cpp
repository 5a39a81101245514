// SPDX-License-Identifier: Apache-2.0
// Ops and guest kernels of a plugin: registered together, or not at all.
#include <doctest/doctest.h>

#include "fake_plugin.hpp"
#include "host/guest_kernels.hpp"
#include "host/host.hpp"
#include "ops/registry.hpp"
#include "options.hpp"

using namespace tenon::core;

namespace {

tenon_ops ops;
tenon_kernels kernels;
tenon_op_desc description;
tenon_op_part part;
tenon_kernel_row row;

tenon_str str(const char* text) { return {text, std::char_traits<char>::length(text)}; }

// An op without operands, and a kernel for it, both valid.
void reset(const char* name) {
  fake::reset();
  part = {};
  part.name = str("y");
  part.kind = TENON_PART_OUTPUT;
  description = {};
  description.struct_size = sizeof description;
  description.domain = str("fake");
  description.name = str(name);
  description.version = 1;
  description.parts = &part;
  description.part_stride = sizeof part;
  description.part_count = 1;
  description.shape = [](void*, const tenon_op_call*) {};
  ops = {sizeof ops, &description, sizeof description, 1, 0};
  row = {};
  row.device_kind = str("host of guests");
  row.form = str("form");
  row.domain = description.domain;
  row.op = description.name;
  row.version = 1;
  row.make = [](const void*, const tenon_kernel_request*) {};
  kernels = {sizeof kernels, &row, sizeof row, 1, 0};
  fake::table.get_extension = [](tenon_plugin*, tenon_str id) -> const void* {
    const std::string_view wanted(id.data, id.size);
    if (wanted == TENON_OPS_ID) return &ops;
    return wanted == TENON_KERNELS_ID ? &kernels : nullptr;
  };
}

size_t guests() {
  size_t count = 0;
  guest_kernel_list()->each(
      str("host of guests"), str("form"),
      [](void* user, const tenon_kernel_row*) { ++*static_cast<size_t*>(user); }, &count);
  return count;
}

// Why the plugin is not loaded; then neither its op nor its kernel is there.
std::string refusal(Code code) {
  const size_t before = guests();
  std::string text;
  try {
    const Host host(only({fake::entry}));
  } catch (const Error& e) {
    CHECK(e.code() == code);
    text = e.what();
  }
  CHECK(guests() == before);
  CHECK(find_registered("fake", "refused", 0) == nullptr);
  CHECK(text.find("ops: ") != std::string::npos);
  return text;
}
bool says(const std::string& text, std::string_view word) {
  if (text.find(word) != std::string::npos) return true;
  MESSAGE("'", text, "' does not say '", std::string(word), "'");
  return false;
}

}  // namespace

TEST_SUITE("host/own_ops") {
  TEST_CASE("registered once, however many runtimes load the plugin") {
    reset("good");
    for (int round = 0; round < 2; ++round) {
      const Host host(only({fake::entry}));
      CHECK(guests() == 1);
    }
    const OpRecord* record = find_registered("fake", "good", 1);
    REQUIRE(record != nullptr);
    CHECK(origin_of(*record) == "fake");
    CHECK(find_registered("fake", "good", 2) == nullptr);
  }

  TEST_CASE("a table that is not whole, or one bad entry, refuses the plugin and all of it") {
    const auto kBad = Code::incompatible;
    reset("refused");
    ops.struct_size = 8;
    CHECK(says(refusal(kBad), "its tenon.ops/1 is too small: 8 bytes, needed are 32"));
    reset("refused");
    kernels.struct_size = 24;
    CHECK(says(refusal(kBad), "its tenon.kernels/1 is too small: 24 bytes, needed are 32"));
    reset("refused");
    ops.op_count = 5000;
    CHECK(says(refusal(kBad), "its tenon.ops/1 has 5000 entries, the limit is 4096"));
    reset("refused");
    ops.op_stride = 12;
    CHECK(says(refusal(Code::invalid_argument), "its tenon.ops/1: the stride is 12"));
    reset("refused");
    kernels.rows = nullptr;
    CHECK(says(refusal(Code::invalid_argument), "its tenon.kernels/1 is NULL"));
    reset("refused");
    description.version = 0;
    CHECK(says(refusal(Code::invalid_argument), "op fake:refused: version: expected 1 or more"));
    reset("refused");
    description.struct_size = 4;
    CHECK(says(refusal(Code::invalid_argument), "struct_size is 4"));
    reset("refused");
    row.make = nullptr;
    CHECK(says(refusal(kBad), "the maker of fake:refused is NULL"));
    reset("refused");
    row.device_kind = {};
    CHECK(says(refusal(kBad), "device_kind: expected up to 64 bytes, got 0"));
  }
}
