// SPDX-License-Identifier: Apache-2.0
// Kernel texts compile, with no GPU: the files of device/ with their "//variant: NAME=VALUE ..."
// lines, the functions of math.cuh, and generated texts. Texts tell sm_75, sm_80 and sm_90 apart
// and no others, which a test checks. So the device test compiles
//   - each variant for sm_90 where the file has code of its own for it, else for sm_80;
//   - for sm_75 and sm_80, each variant that brings a new entry point or a new value of a define
//     that the preprocessor looks at, since such a value selects a branch;
//   - each entry point for every architecture.
// Each entry point is compiled for sm_90 once as the plugin compiles it. The rest is compiled with
// few optimizations where NVRTC can, which takes a third of the time: syntax, instructions, shared
// memory and parameters are checked just the same. Every kernel has the parameters that the host
// passes (kernels/entries.def).
#include "texts.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <iostream>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <thread>
#include <utility>

#include "cubin.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/entries.hpp"
#include "static_shared.hpp"
#include "tenon/unary.hpp"
#include "variants.hpp"

using namespace tenon;
using namespace tenon::cuda;

namespace {

// Those that texts tell apart. The first and the second have all branches between them.
constexpr int kNewest = 90, kUsual = 80, kApart[] = {90, 80, 75};
constexpr int kAlike[] = {86, 89, 100, 120};

// The option for few optimizations; empty where NVRTC lacks it.
const std::string& fast_option() {
  static const std::string option = [] {
    const std::string name = "--Ofast-compile=max";
    std::vector<std::string> options = compile_options("sm_80");
    options.push_back(name);
    try {
      compiler().compile("empty.cu", "extern \"C\" __global__ void k() {}", options, {});
    } catch (const sdk::Failure&) {
      MESSAGE("NVRTC ", compiler().version(), " lacks ", name, ", so this takes longer");
      return std::string();
    }
    return name;
  }();
  return option;
}

// One text for one architecture; `code` or `error` comes of it.
struct Job {
  std::string name, text;
  int architecture;
  bool fast = true;  // compile with few optimizations
  std::string code{}, error{};

  void run() {
    const std::string target = Compiler::architecture(architecture / 10, architecture % 10);
    std::vector<std::string> options = compile_options(target);
    if (fast && !fast_option().empty()) options.push_back(fast_option());
    try {
      code = compiler().compile(name, text, options, texts());
    } catch (const std::exception& e) {
      error = e.what();
    }
  }
};

// As many at a time as the machine has processors.
void run_all(std::vector<Job>& jobs) {
  fast_option();
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t k; (k = next++) < jobs.size();) jobs[k].run();
  };
  std::vector<std::thread> others;
  for (unsigned k = 1; k < std::thread::hardware_concurrency(); ++k) others.emplace_back(work);
  work();
  for (std::thread& t : others) t.join();
  for (const Job& j : jobs) {
    CAPTURE(j.name);
    CAPTURE(j.architecture);
    CHECK(j.error == "");
    CHECK(j.code.size() > 100);
    CHECK(j.code.compare(0, 4, "\177ELF") == 0);
  }
}

// Those that the compiler knows.
std::vector<int> known(std::span<const int> numbers) {
  static std::set<int> told;
  std::vector<int> list;
  for (const int number : numbers) {
    if (compiler().knows(number / 10, number % 10)) {
      list.push_back(number);
    } else if (told.insert(number).second) {
      MESSAGE("NVRTC ", compiler().version(), " knows no sm_", number);
    }
  }
  return list;
}

// Has the text, or a file that it includes, code of its own for sm_90? The functions of early
// launch, which all kernels share, do not count.
bool is_told_newest(std::string_view content) {
  for (const char* condition : {"__CUDA_ARCH_FEAT_SM90_ALL", "__CUDA_ARCH__ >= 900"})
    if (content.find(condition) != content.npos) return true;
  constexpr std::string_view kInclude = "#include \"";
  for (size_t at = 0; (at = content.find(kInclude, at)) != content.npos;) {
    at += kInclude.size();
    const std::string_view name = content.substr(at, content.find('"', at) - at);
    if (name != "common.cuh" && is_told_newest(text_of(name))) return true;
  }
  return false;
}

void check_compiles(const std::string& name, const std::string& text) {
  std::vector<Job> jobs;
  for (const int number : known(kApart)) jobs.push_back({name, text, number, false});
  run_all(jobs);
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// The words of all lines that begin with `mark`.
std::set<std::string> words_after(std::string_view content, std::string_view mark) {
  std::set<std::string> words;
  std::istringstream lines{std::string(content)};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(mark)) continue;
    for (auto at = line.begin(); at != line.end();) {
      const auto end = std::find_if_not(at, line.end(), is_word);
      if (end != at) words.emplace(at, end);
      at = end == line.end() ? end : end + 1;
    }
  }
  return words;
}

// The lines "#define NAME VALUE" before the file's content, as "NAME=VALUE".
std::vector<std::string> defines_of(const Job& j) {
  std::vector<std::string> list;
  std::istringstream lines(j.text.substr(0, j.text.size() - text_of(j.name).size()));
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, std::string_view("#define ").size());
    if (const size_t space = line.find(' '); space != line.npos) line[space] = '=';
    list.push_back(line);
  }
  return list;
}

// Kernels declare no more shared memory than the host counts on.
void check_static_shared(const Job& j) {
  const Cubin code(j.code);
  const std::vector<std::string> defines = defines_of(j);
  for (const std::string& kernel : code.kernels()) {
    const uint32_t bound = static_shared(j.name, kernel, defines);
    if (bound == 0) continue;
    CAPTURE(j.name);
    CAPTURE(kernel);
    CAPTURE(j.architecture);
    CHECK(code.static_shared(kernel, j.architecture) <= bound);
  }
}

// An entry as the host launches it.
struct Launched {
  std::string_view file, name;
  std::vector<uint32_t> sizes;  // of its parameters
  int sets = 0;                 // only with SETS of that value; 0: always
};
template <class... Parameters>
Launched launched(const Entry<Parameters...>& entry, int sets = 0) {
  return {entry.file, entry.name, {static_cast<uint32_t>(sizeof(Parameters))...}, sets};
}
std::vector<Launched> all_launched() {
  std::vector<Launched> list;
#define ENTRY(name, ...) list.push_back(launched(entries::name));
#include "kernels/entries.def"
  const auto of_sets = [&]<int... kSets>(std::integer_sequence<int, kSets...>) {
    (list.push_back(launched(entries::thin<kSets + 1>, kSets + 1)), ...);
    (list.push_back(launched(entries::matmul_wgmma<kSets + 1>, kSets + 1)), ...);
  };
  of_sets(std::make_integer_sequence<int, 8>());
  return list;
}

// Kernels have the parameters that the host passes, by the table of their machine code. `met` gets
// the entries that were seen.
void check_parameters(const Job& j, const std::vector<Launched>& list, std::set<size_t>& met) {
  if (j.name.ends_with(".cuh")) return;  // seen where it is included
  const Cubin code(j.code);
  const std::vector<std::string> defines = defines_of(j);
  for (const std::string& kernel : code.kernels()) {
    CAPTURE(j.name);
    CAPTURE(kernel);
    CAPTURE(j.architecture);
    const std::vector<uint32_t> sizes = code.parameters(kernel);
    bool known = false, same = false;
    for (size_t k = 0; k < list.size(); ++k) {
      const Launched& l = list[k];
      const std::string sets = "SETS=" + std::to_string(l.sets);
      if (l.file != j.name || l.name != kernel ||
          (l.sets != 0 && std::ranges::find(defines, sets) == defines.end()))
        continue;
      known = true;
      if (l.sizes == sizes) same = true, met.insert(k);
    }
    CHECK(known);
    CHECK(same);
  }
}

// Can the code of an entry be launched with these arguments?
template <class Code, class... Arguments>
concept Launches = requires(const Code& code, const sdk::Call& call, const Grid& grid,
                            const Arguments&... arguments) {
  code.launch(call, grid, arguments...);
};

// What is new about a variant: the values of defines that steer the preprocessor, and its kernels.
std::set<std::string> features_of(const Job& j, std::string_view content) {
  const std::vector<std::string> kernels = Cubin(j.code).kernels();
  std::set<std::string> features(kernels.begin(), kernels.end());
  std::set<std::string> steering;
  for (const char* mark : {"#if", "#elif"}) steering.merge(words_after(content, mark));
  std::istringstream lines(j.text.substr(0, j.text.size() - content.size()));
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.substr(8, line.find_first_of(" (", 8) - 8);
    if (steering.contains(name)) features.insert(line);
  }
  return features;
}

sdk::Type type(tenon_dtype dtype, std::vector<int64_t> dims) {
  sdk::Type t{.dtype = dtype, .rank = static_cast<int>(dims.size())};
  std::copy(dims.begin(), dims.end(), t.dims.begin());
  t.set_dense_strides();
  return t;
}

}  // namespace

TEST_SUITE("cuda/texts") {
  TEST_CASE("compiler: present, else the rest is skipped with the reason") {
    if (!compiler()) {
      std::cout << "skipped: " << compiler().reason() << "\n";
      std::exit(77);
    }
    CHECK(compiler().knows(9, 0));
    std::string said;
    try {
      compiler().compile("bad.cu", "this is no text", {}, {});
    } catch (const sdk::Failure& e) {
      said = e.what();
    }
    CHECK(said.find("bad.cu") != said.npos);
    CHECK(said.find("error") != said.npos);
  }

  TEST_CASE("device: texts tell no architectures apart but sm_75, sm_80 and sm_90") {
    // The order of architectures is compared with these numbers alone, and one feature is asked for.
    const std::regex compared(R"(__CUDA_ARCH__\s*(\S+\s*\w+))"),
        asked(R"(__CUDA_ARCH_\w*[A-Z0-9])");
    const std::set<std::string> orders = {">= 800", ">= 900"};
    const auto all = [](const Text& t, const std::regex& what, int group) {
      std::set<std::string> found;
      const std::string text(t.content);
      for (std::sregex_iterator at(text.begin(), text.end(), what), end; at != end; ++at)
        found.insert((*at)[static_cast<size_t>(group)]);
      return found;
    };
    size_t met = 0;
    for (const Text& t : texts()) {
      CAPTURE(t.name);
      for (const std::string& order : all(t, compared, 1)) {
        CAPTURE(order);
        CHECK(orders.contains(order));
        ++met;
      }
      for (const std::string& feature : all(t, asked, 0)) {
        CAPTURE(feature);
        CHECK((feature == "__CUDA_ARCH__" || feature == "__CUDA_ARCH_FEAT_SM90_ALL"));
      }
    }
    CHECK(met > 10);
  }

  TEST_CASE("device: every file in every variant, every entry point for each architecture") {
    std::vector<Job> jobs;
    for (const Text& t : texts()) {
      const int number = is_told_newest(t.content) ? kNewest : kUsual;
      for (const std::string& defines : variants_of(t.content))
        jobs.push_back({std::string(t.name), defines + std::string(t.content), number});
    }
    run_all(jobs);
    std::vector<Job> rest;
    std::set<std::string> seen, seen_kernels;
    for (const Job& j : jobs) {
      bool brings = false, brings_kernel = false;
      for (const std::string& f : features_of(j, text_of(j.name)))
        brings |= seen.insert(j.name + " " + f).second;
      for (const std::string& k : Cubin(j.code).kernels())
        brings_kernel |= seen_kernels.insert(j.name + " " + k).second;
      for (const int number : known(kApart))
        if (brings && number != kNewest && number != j.architecture)
          rest.push_back({j.name, j.text, number});
      if (!brings_kernel) continue;
      rest.push_back({j.name, j.text, kNewest, false});
      for (const int number : known(kAlike)) rest.push_back({j.name, j.text, number});
    }
    MESSAGE(jobs.size(), " variants, ", rest.size(), " more compilations");
    run_all(rest);
    jobs.insert(jobs.end(), rest.begin(), rest.end());
    for (const Job& j : jobs) check_static_shared(j);
    const std::vector<Launched> list = all_launched();
    std::set<size_t> met;
    for (const Job& j : jobs) check_parameters(j, list, met);
    for (size_t k = 0; k < list.size(); ++k) {
      CAPTURE(list[k].file);
      CAPTURE(list[k].name);
      // Of entries for so many sets some are in a variant.
      if (list[k].sets == 0) CHECK(met.contains(k));
    }
  }

  TEST_CASE("launch: only arguments of the entry's own types compile") {
    using Softmax = CodeFor<entries::softmax>;
    using args::SoftmaxShape;
    static_assert(Launches<Softmax, const void*, void*, SoftmaxShape>);
    static_assert(Launches<Softmax, void*, void*, SoftmaxShape>);
    static_assert(Launches<Softmax, const float*, float*, SoftmaxShape>);
    static_assert(!Launches<Softmax, const void*, const void*, SoftmaxShape>);  // the result
    static_assert(!Launches<Softmax, const void*, SoftmaxShape, void*>);
    static_assert(!Launches<Softmax, const void*, void*>);
    static_assert(!Launches<Softmax, const void*, void*, SoftmaxShape, uint32_t>);
    static_assert(!Launches<Softmax, const void*, void*, args::ArgShape>);
    static_assert(!Launches<Softmax, const void*, void*, args::LossShape>);
    static_assert(!Launches<Softmax, int64_t, void*, SoftmaxShape>);
    using Columns = CodeFor<entries::reduce_columns>;
    static_assert(Launches<Columns, const void*, void*, args::ReduceStage, uint32_t>);
    static_assert(!Launches<Columns, const void*, void*, args::ReduceStage, int64_t>);
    static_assert(!Launches<Columns, const void*, void*, args::ReduceStage, int32_t>);
    using Counts = CodeFor<entries::sum_counts>;
    static_assert(Launches<Counts, uint32_t*, uint32_t>);
    static_assert(!Launches<Counts, uint64_t*, uint32_t>);
    static_assert(!Launches<Code, const void*>);  // without an entry nothing is launched
  }

  TEST_CASE("math: every kind for every dtype that it takes") {
    std::string s =
        "#include \"elementwise.cuh\"\nextern \"C\" __global__ void k(f32* f, f64* d, "
        "i32* i, i64* l, u8* u, i8* s, u64* v) {\n";
    for (const UnaryInfo& info : kUnaryKinds) {
      const std::string n(info.name);
      for (const char* function : {"unary_", "slope_"})
        s += std::string("*f += ") + function + n + "(*f, 1.f, 1.f); *d += " + function + n +
             "(*d, 1., 1.);\n";
      if (info.from_output)
        s += "*f += output_slope_" + n + "(*f); *d += output_slope_" + n + "(*d);\n";
      if (info.integer)
        s += "*i += unary_" + n + "<i32>(*i, 0, 0); *l += unary_" + n +
             "<i64>(*l, 0, 0); *u += unary_" + n + "<u8>(*u, 0, 0);\n";
    }
    for (const char* n : {"bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"})
      for (const char* x : {"i", "l", "u", "s", "v"})
        s += std::string("*") + x + " = binary_" + n + "(*" + x + ", " + x + "[1]);\n";
    for (const char* n : {"add", "sub", "mul", "div", "max", "min", "pow", "mod", "fmod"})
      for (const char* x : {"f", "d", "i", "l", "u", "s", "v"})
        s += std::string("*") + x + " = binary_" + n + "(*" + x + ", " + x + "[1]);\n";
    for (const char* to : {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64",
                           "f16", "bf16", "b8", "f8e4m3", "f8e5m2"})
      for (const char* from : {"*f", "*d", "*l", "*v", "*u"})
        s += std::string("*f += (f32)widen(convert<") + to + ">(" + from + ", true));\n";
    check_compiles("math", s + "}\n");
  }

  TEST_CASE("elementwise: whole vectors, tails, broadcasts and strides") {
    const sdk::Type whole = type(TENON_DTYPE_BF16, {8, 64}), odd = type(TENON_DTYPE_BF16, {7, 5});
    const sdk::Type row = type(TENON_DTYPE_F32, {64}), column = type(TENON_DTYPE_BF16, {8, 1});
    sdk::Type turned = type(TENON_DTYPE_BF16, {8, 64});
    turned.strides = {1, 8};
    const auto text_for = [](std::vector<const sdk::Type*> types, const sdk::Type& out) {
      BodyText t;
      Register sum;
      std::vector<sdk::Value> in;
      for (const sdk::Type* x : types) {
        const Register r = t.input("x", x->dtype);
        sum = sum.text.empty() ? r : binary_step(t, "add", sum, r);
        in.emplace_back(x, static_cast<int>(in.size()), nullptr, false, 256);
      }
      t.output(cast_step(t, TENON_DTYPE_BF16, true, sum), TENON_DTYPE_BF16);
      return elementwise_text(t, in, out.shape());
    };
    const std::string flat = text_for({&whole, &whole}, whole);
    CHECK(flat.find("constexpr int kWidth = 8;") != flat.npos);
    CHECK(flat.find("load<T1, kWidth>") != flat.npos);
    check_compiles("flat", flat);
    const std::string tail = text_for({&odd, &odd}, odd);
    CHECK(tail.find("n == kWidth") != tail.npos);
    check_compiles("tail", tail);
    check_compiles("broadcast", text_for({&whole, &row, &column, &turned}, whole));
  }
}
