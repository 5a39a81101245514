// SPDX-License-Identifier: Apache-2.0
// Early launch, read from PTX for sm_90: no kernel that waits for those before it ends or touches
// global memory on any path to the wait. It may prefetch, and read what early_text.hpp names.
#include "ptx.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "compiles.hpp"
#include "early_text.hpp"
#include "variants.hpp"

using namespace tenon;
using namespace tenon::cuda;

namespace {

std::set<int> ahead_of(std::string_view file, std::string_view entry) {
  const stub::Ahead* a = stub::find_ahead(file, entry);
  return a ? a->parameters : std::set<int>();
}

bool writes_a_wait(std::string_view content) {
  return content.find("await_earlier();") != content.npos ||
         content.find("begin_early();") != content.npos;
}

// Does the text, or a file other than common.cuh that it includes, write a wait?
bool may_wait(const Text& text) {
  constexpr std::string_view kDefinition = "common.cuh";
  if (text.name == kDefinition || text.name.ends_with(".cuh")) return false;
  return writes_a_wait(text.content) || std::ranges::any_of(texts(), [&](const Text& t) {
           return t.name != kDefinition && writes_a_wait(t.content) &&
                  text.content.find("#include \"" + std::string(t.name) + "\"") !=
                      text.content.npos;
         });
}

// The fault of a kernel `k`; `extra`: more of the text.
std::string fault_of(const std::string& body, const std::set<int>& ahead = {},
                     const std::string& extra = {}) {
  const Ptx ptx(
      ptx_of("early.cu",
             "#include \"common.cuh\"\n#include \"async.cuh\"\n" + extra +
                 "extern \"C\" __global__ void k(const f32* x, f32* y, u32 n, const i32* p) {" +
                 body + "}\n"));
  REQUIRE(ptx.kernels().size() == 1);
  CHECK(ptx.kernels()[0].name == "k");
  return EarlyStart(ptx.kernels()[0]).fault(ahead);
}

}  // namespace

TEST_SUITE("cuda/ptx") {
  TEST_CASE("compiler: present, else the rest is skipped with the reason") {
    skip_without_compiler();
  }

  TEST_CASE("checker: what waits first is good") {
    for (const char* body : {
             "begin_early(); if (threadIdx.x >= n) return; y[threadIdx.x] = x[threadIdx.x];",
             "__shared__ f32 s[32]; s[threadIdx.x] = 1; __syncthreads(); await_earlier();"
             "y[0] = s[n];",
             "if (threadIdx.x == 0) fetch_ahead(x, n), fetch_ahead(p); begin_early(); y[0] = x[0];",
             "for (u32 i = 0; i < n; ++i) __nanosleep(1); begin_early(); y[0] = 1;",
         }) {
      CAPTURE(body);
      CHECK(fault_of(body) == "");
    }
  }

  TEST_CASE("checker: it finds accesses and ends before the wait, wherever they are") {
    const std::string wait = "begin_early(); y[0] = 1;";
    const auto has = [](const std::string& fault, std::string_view what) {
      CAPTURE(fault);
      CHECK(fault.find(what) != fault.npos);
    };
    has(fault_of("const f32 a = x[threadIdx.x]; begin_early(); y[0] = a;"), "ld.global");
    has(fault_of("y[threadIdx.x] = 0; begin_early();"), "st.global");
    has(fault_of("atomicAdd(y, 1.f); begin_early();"), ".global");
    has(fault_of("u32 i = 0; while (i < n && p[i] != 7) ++i; begin_early(); y[i] = 1;"),
        "ld.global");
    has(fault_of("if (n > threadIdx.x) return; " + wait), "ret");
    has(fault_of("if (n > threadIdx.x) asm volatile(\"exit;\"); " + wait), "exit");
    has(fault_of("if (n > 3) await_earlier(); else y[1] = 2; " + wait), "st.global");
    has(fault_of("if (n > 3) await_earlier();"), "ret");
    has(fault_of("helper(y); " + wait, {}, "__device__ void helper(f32* y) { y[3] = 3; }\n"),
        "st.global");
    has(fault_of("const f32 a = helper(x, n); begin_early(); y[0] = a;", {},
                 "__device__ f32 helper(const f32* x, u32 n) { return x[n]; }\n"),
        "ld.global");
    has(fault_of("if (helper(p, n)) return; begin_early(); y[0] = 1;", {},
                 "__device__ bool helper(const i32* p, u32 n) { return *p == (i32)n; }\n"),
        "ld.global");
    has(fault_of("stop(n); begin_early(); y[0] = 1;", {},
                 "__device__ void stop(u32 n) { if (n == 7) asm volatile(\"exit;\"); }\n"),
        "exit");
    has(fault_of("const f32 a = helper(x, n); begin_early(); y[0] = a;", {},
                 "__device__ __noinline__ f32 helper(const f32* x, u32 n) { return x[n]; }\n"),
        "call");
    has(fault_of("__shared__ __align__(16) f32 s[64]; copy_async(s, x, true); copy_commit();"
                 "copy_wait<0>(); begin_early(); y[0] = s[n];"),
        "cp.async");
    // A wait on a condition that the compiler makes a guard, and one that only some threads reach.
    has(fault_of("if (n > 3) asm volatile(\"griddepcontrol.wait;\"); y[0] = 1;"), "st.global");
    has(fault_of("switch (n) { case 1: await_earlier(); break; case 2: y[2] = 2; "
                 "case 3: await_earlier(); break; default: await_earlier(); } y[0] = 1;"),
        "st.global");
  }

  TEST_CASE("checker: reads ahead are those of the parameters that are named") {
    const std::string body =
        "const f32 a = x[p[threadIdx.x]] + p[n]; begin_early(); y[0] = a + x[1];";
    CHECK(fault_of(body, {0, 2, 3}) == "");
    CHECK(fault_of(body, {2, 3}) != "");
    CHECK(fault_of(body, {0, 2}) != "");
    CHECK(fault_of("y[1] = x[1]; begin_early();", {0, 1, 2, 3}) != "");
  }

  TEST_CASE("device: no kernel that may begin early touches memory or ends before it waits") {
    size_t checked = 0;
    std::map<std::string, std::set<bool>> ways;   // does a kernel wait in its variants?
    std::map<std::string, std::set<int>> needed;  // parameters without which there is a fault
    for (const Text& t : texts()) {
      if (!may_wait(t)) continue;
      bool waits = false;
      for (const std::string& defines : variants_of(t.content)) {
        const Ptx ptx(ptx_of(std::string(t.name), defines + std::string(t.content)));
        for (const PtxKernel& kernel : ptx.kernels()) {
          const EarlyStart start(kernel);
          const std::string name = std::string(t.name) + ": " + kernel.name;
          ways[name].insert(start.waits());
          if (!start.waits()) continue;
          const std::set<int> ahead = ahead_of(t.name, kernel.name);
          CAPTURE(t.name);
          CAPTURE(defines);
          CAPTURE(kernel.name);
          CHECK(start.fault(ahead) == "");
          for (const int parameter : ahead) {
            std::set<int> fewer = ahead;
            fewer.erase(parameter);
            if (start.fault(fewer) != "") needed[name].insert(parameter);
          }
          waits = true;
          ++checked;
        }
      }
      CAPTURE(t.name);
      CHECK(waits);
    }
    for (const auto& [name, both] : ways) {
      CAPTURE(name);
      CHECK(both.size() == 1);
    }
    // No more is allowed than is done.
    for (const stub::Ahead& a : stub::entries_ahead())
      CHECK(needed[std::string(a.file) + ": " + std::string(a.entry)] == a.parameters);
    MESSAGE(checked, " kernels");
    CHECK(checked > 40);
  }
}
