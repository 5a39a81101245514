// SPDX-License-Identifier: Apache-2.0
// Status objects of plugins as exceptions of the host.
#include <doctest/doctest.h>

#include <string>

#include "host/device.hpp"
#include "host/host_table.hpp"
#include "host/status.hpp"

using namespace tenon::core;

namespace {

tenon_str str(const char* s) { return {s, std::char_traits<char>::length(s)}; }

tenon_status_desc description(tenon_code code, const char* text) {
  tenon_status_desc d{};
  d.struct_size = sizeof d;
  d.code = code;
  d.text = str(text);
  d.origin = str("fake: run");
  d.step = TENON_NONE;
  d.index = -1;
  return d;
}

DeviceError thrown(tenon_status* status) {
  try {
    check(status);
  } catch (const DeviceError& e) {
    return e;
  }
  FAIL("nothing was thrown");
  throw;
}

}  // namespace

TEST_SUITE("host/status") {
  TEST_CASE("check: no status is success") { CHECK_NOTHROW(check(nullptr)); }

  TEST_CASE("check: code, place and class of the failure are kept, and the status is released") {
    tenon_status_desc d = description(TENON_INDEX_OUT_OF_RANGE, "gather: index 9 of an axis of 4");
    d.flags = TENON_STATUS_RETRYABLE;
    d.run_id = 77;
    d.step = 3;
    d.index = 12;
    tenon_status* status = host_table()->make_status(&d);
    CHECK(host_table()->status_code(status) == TENON_INDEX_OUT_OF_RANGE);
    CHECK(copy_text(host_table()->status_text(status)) == "gather: index 9 of an axis of 4");
    const DeviceError e = thrown(status);
    CHECK(e.code() == Code::index_out_of_range);
    CHECK(std::string(e.what()) == "fake: run: gather: index 9 of an axis of 4");
    CHECK(e.run_id() == 77);
    CHECK(e.step() == 3);
    CHECK(e.index() == 12);
    CHECK(e.retryable());
    CHECK(live_status_count() == 0);
  }

  TEST_CASE("check: the chain of causes is told, however long") {
    tenon_status* status = nullptr;
    for (int i = 0; i < 100000; ++i) {
      tenon_status_desc d = description(TENON_DEVICE_LOST, i == 0 ? "the bus" : "x");
      d.cause = status;
      status = host_table()->make_status(&d);
    }
    CHECK(live_status_count() == 1);
    const std::string text = thrown(status).what();
    CHECK(text.starts_with("fake: run: x: caused by fake: run: x"));
    CHECK(text.ends_with(": caused by fake: run: the bus"));
    CHECK(live_status_count() == 0);
  }

  TEST_CASE("check: a code that no list has is internal") {
    tenon_status_desc d = description(999, "from the future");
    CHECK(thrown(host_table()->make_status(&d)).code() == Code::internal);
    d.code = TENON_OK;
    CHECK(thrown(host_table()->make_status(&d)).code() == Code::internal);
  }

  TEST_CASE("check: a status that the host did not make is refused unread") {
    int nothing = 0;
    auto* made_up = reinterpret_cast<tenon_status*>(&nothing);
    CHECK_THROWS_WITH_AS(check(made_up), doctest::Contains("the host did not make"), Error);
    CHECK(host_table()->status_code(made_up) == TENON_INTERNAL);
    CHECK(host_table()->status_text(made_up).size == 0);
    host_table()->release_status(made_up);
    tenon_status_desc d = description(TENON_INTERNAL, "twice");
    tenon_status* status = host_table()->make_status(&d);
    host_table()->release_status(status);
    CHECK_THROWS_WITH_AS(check(status), doctest::Contains("was released"), Error);
  }

  TEST_CASE("make_status: a short, hostile or missing description still makes one") {
    tenon_status_desc d = description(TENON_INTERNAL, "short");
    d.struct_size = offsetof(tenon_status_desc, origin);
    CHECK(std::string(thrown(host_table()->make_status(&d)).what()) == "short");
    d.struct_size = 4;
    CHECK(std::string(thrown(host_table()->make_status(&d)).what()).find("too small") !=
          std::string::npos);
    CHECK(thrown(host_table()->make_status(nullptr)).code() == Code::internal);
    d = description(TENON_INTERNAL, "");
    d.text = {nullptr, 12};
    CHECK(std::string(thrown(host_table()->make_status(&d)).what()).find("at no address") !=
          std::string::npos);
    d.text = {"x", ~0ull};
    CHECK(std::string(thrown(host_table()->make_status(&d)).what()).find("a text of") !=
          std::string::npos);
  }

  TEST_CASE("copy_text: control characters do not reach a terminal") {
    CHECK(copy_text(str("a\033[2Jb\nc")) == "a?[2Jb\nc");
  }
}
