// SPDX-License-Identifier: Apache-2.0
// Early launch, read from the texts, without a compiler: each entry that waits for the kernels
// before it does so on every path and before it can end. ptx_test.cpp looks at memory.
#include "early_text.hpp"

#include <doctest/doctest.h>

#include "texts.hpp"

using namespace tenon;
using namespace tenon::cuda;
using stub::early_fault;

namespace {

std::string kernel(const std::string& body) {
  return "extern \"C\" __global__ void __launch_bounds__(256)\n    k(const f32* x, f32* y, u32 n) "
         "{\n" +
         body + "}\n";
}

// The entries of a text in which a wait is written.
std::vector<std::string> waiting_entries(std::string_view text) {
  const std::vector<std::string> t = stub::tokens_of(text);
  std::vector<std::string> entries;
  std::string entry;
  for (size_t k = 0; k < t.size(); ++k) {
    if (t[k] == "__global__") {
      for (++k; t[k] == "void" || t[k] == "__launch_bounds__"; ++k)
        if (t[k] != "void")
          for (int depth = 0; depth += t[++k] == "(" ? 1 : t[k] == ")" ? -1 : 0;) {
          }
      entry = t[k];
    }
    if ((t[k] == "await_earlier" || t[k] == "begin_early") && !entry.empty() &&
        (entries.empty() || entries.back() != entry))
      entries.push_back(entry);
  }
  return entries;
}

}  // namespace

TEST_SUITE("cuda/early") {
  TEST_CASE("checker: what waits first is good") {
    for (const char* body : {
             "begin_early(); if (n == 0) return; y[0] = x[0];",
             "let_next_begin(); const u32 i = threadIdx.x; await_earlier(); y[i] = 1;",
             "if (n > 2) { fetch_ahead(x, n); } begin_early();",
             "#ifdef WIDE\n begin_early();\n#endif\n",
             "// return;\n/* return; */ const char* s = \"return; {\"; begin_early(); return;",
         }) {
      CAPTURE(body);
      CHECK(early_fault(kernel(body), "k") == "");
    }
    const std::string two =
        "#if A\n" + kernel("begin_early();") + "#else\n" + kernel("") + "#endif\n";
    CHECK(early_fault(two, "k") == "");
  }

  TEST_CASE("checker: it finds an end before the wait, a wait on some paths, and none") {
    const std::string ends = "it may end before it waits", some = "it does not wait on every path";
    CHECK(early_fault(kernel("if (n == 0) return; begin_early();"), "k") == ends);
    CHECK(early_fault(kernel("for (;;) { if (n) return; } await_earlier();"), "k") == ends);
    CHECK(early_fault(kernel("if (n) goto end; begin_early(); end: ;"), "k") == ends);
    CHECK(early_fault(kernel("if (n) begin_early();"), "k") == some);
    CHECK(early_fault(kernel("if (n)\n  await_earlier();\nelse y[0] = 1;"), "k") == some);
    CHECK(early_fault(kernel("for (u32 i = 0; i < n; ++i) { begin_early(); }"), "k") == some);
    CHECK(early_fault(kernel("n ? begin_early() : void();"), "k") == some);
    CHECK(early_fault(kernel("let_next_begin(); y[0] = x[0];"), "k") == some);
    CHECK(early_fault(kernel("// begin_early();\n y[0] = 1;"), "k") == some);
    CHECK(early_fault(kernel("begin_early();"), "other") == "the text has no such entry");
    // One definition of two is not enough.
    const std::string two =
        "#if A\n" + kernel("begin_early();") + "#else\n" + kernel("y[0] = 1;") + "#endif\n";
    CHECK(early_fault(two, "k") == some);
  }

  TEST_CASE("checker: what reads ahead follows the kernel it is named with, not launched early") {
    for (const stub::Ahead& a : stub::entries_ahead()) {
      const std::string file(a.file), entry(a.entry);
      const stub::Launched kernel{file, entry, true};
      CHECK(stub::ahead_fault(kernel, {}) == "");
      CHECK((stub::ahead_fault(kernel, {file, entry, false}) != "") == !a.behind.empty());
      for (const std::string& name : a.behind) {
        const size_t colon = name.find(": ");
        const stub::Launched before{name.substr(0, colon), name.substr(colon + 2), false};
        CHECK(stub::ahead_fault(kernel, before) == "");
        CHECK(stub::ahead_fault(kernel, {before.file, before.entry, true}) != "");
        CHECK(stub::ahead_fault(kernel, {"other.cu", before.entry, false}) != "");
        // Others may follow anything.
        CHECK(stub::ahead_fault({file, "other", true}, {before.file, before.entry, true}) == "");
      }
    }
  }

  TEST_CASE("device: every entry that waits does so on every path, before it can end") {
    size_t entries = 0;
    for (const Text& t : texts())
      for (const std::string& entry : waiting_entries(t.content)) {
        CAPTURE(t.name);
        CAPTURE(entry);
        CHECK(early_fault(t.content, entry) == "");
        // The same entry with an end ahead, and with its waits on a condition, is found out.
        std::string text(t.content);
        const size_t body = text.find('{', text.find(entry + "(", text.find("__global__")));
        CHECK(early_fault(text.insert(body + 1, " if (threadIdx.x == 77) return; "), entry) != "");
        text = t.content;
        for (const std::string wait : {"begin_early();", "await_earlier();"})
          for (size_t at = 0; (at = text.find(wait, at)) != text.npos; at += wait.size() + 24)
            text.insert(at, "if (threadIdx.x != 77)  ");
        CHECK(early_fault(text, entry) != "");
        ++entries;
      }
    CHECK(entries > 20);
  }
}
