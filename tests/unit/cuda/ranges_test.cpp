// SPDX-License-Identifier: Apache-2.0
// Ranges for a profiler that attaches itself, with a library that does so.
#include "ranges.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <string>

using namespace tenon::cuda;

TEST_SUITE("cuda/ranges") {
  TEST_CASE("ranges: without a library there are none, and no reason") {
    CHECK_FALSE(Ranges(nullptr));
    const Ranges none("");
    CHECK_FALSE(none);
    CHECK(none.reason().empty());
  }

  TEST_CASE("ranges: a library that cannot be attached is told, and is none") {
    const Ranges missing("/nowhere/profiler.so"), relative("profiler.so"),
        other(TENON_OTHER_LIBRARY);
    CHECK_FALSE(missing);
    CHECK(missing.reason().find("/nowhere/profiler.so") != std::string::npos);
    CHECK_FALSE(relative);
    CHECK(relative.reason() == "profiler.so: not an absolute path");
    CHECK_FALSE(other);
    CHECK(other.reason().find("lacks InitializeInjectionNvtx2") != std::string::npos);
  }

  TEST_CASE("ranges: an attached library hears names and ends, nested") {
    const Ranges attached(TENON_PROFILER);
    REQUIRE(attached);
    CHECK(attached.reason().empty());
    attached.push("graph/first: matmul");
    attached.push("inner");
    attached.pop();
    attached.pop();
    void* library = dlopen(TENON_PROFILER, RTLD_NOW | RTLD_NOLOAD);
    REQUIRE(library);
    const auto recorded = reinterpret_cast<const char* (*)()>(dlsym(library, "recorded"));
    CHECK(std::string(recorded()) == "+graph/first: matmul+inner--");
  }
}
