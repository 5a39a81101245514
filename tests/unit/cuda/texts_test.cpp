// SPDX-License-Identifier: Apache-2.0
// Kernel texts compile, with no GPU: the files of device/ with their "//variant: NAME=VALUE ..."
// lines, the functions of math.cuh, and generated texts. Covered are all variants for sm_90, and
// for each other architecture that is supported the variants of a file that bring something new: a
// value of a define that the preprocessor looks at (which branch is compiled), or an entry point;
// sm_86 and sm_89, which no text tells from sm_80, and sm_120, which none tells from sm_100, have
// each entry point once. Every kernel has the parameters that the host passes
// (kernels/entries.def).
#include "texts.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <iostream>
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

constexpr int kWhole = 90, kOthers[] = {75, 80, 100};
constexpr int kAlike[] = {86, 89, 120};  // no text tells them from 80 and 100

// One text for one architecture; `code` or `error` comes of it.
struct Job {
  std::string name, text;
  int architecture;
  std::string code{}, error{};

  void run() {
    const std::string target = Compiler::architecture(architecture / 10, architecture % 10);
    try {
      code = compiler().compile(name, text, compile_options(target), texts());
    } catch (const std::exception& e) {
      error = e.what();
    }
  }
};

// Two at a time.
void run_all(std::vector<Job>& jobs) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t k; (k = next++) < jobs.size();) jobs[k].run();
  };
  std::thread other(work);
  work();
  other.join();
  for (const Job& j : jobs) {
    CAPTURE(j.name);
    CAPTURE(j.architecture);
    CHECK(j.error == "");
    CHECK(j.code.size() > 100);
    CHECK(j.code.compare(0, 4, "\177ELF") == 0);
  }
}

// Those that the compiler knows.
std::vector<int> known(std::initializer_list<std::span<const int>> wanted) {
  std::vector<int> list, numbers;
  for (const auto& some : wanted) numbers.insert(numbers.end(), some.begin(), some.end());
  for (const int number : numbers) {
    if (compiler().knows(number / 10, number % 10)) {
      list.push_back(number);
    } else {
      MESSAGE("NVRTC ", compiler().version(), " knows no sm_", number);
    }
  }
  return list;
}

void check_compiles(const std::string& name, const std::string& text) {
  std::vector<Job> jobs = {{name, text, kWhole}};
  for (const int number : known({kOthers})) jobs.push_back({name, text, number});
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

  TEST_CASE("device: every file, in every variant for one architecture") {
    std::vector<Job> jobs;
    for (const Text& t : texts())
      for (const std::string& defines : variants_of(t.content))
        jobs.push_back({std::string(t.name), defines + std::string(t.content), kWhole});
    run_all(jobs);
    const std::vector<int> more = known({kOthers}), alike = known({kAlike});
    std::vector<Job> rest;
    std::set<std::string> seen, seen_kernels;
    for (const Job& j : jobs) {
      bool brings = false, brings_kernel = false;
      for (const std::string& f : features_of(j, text_of(j.name)))
        brings |= seen.insert(j.name + " " + f).second;
      for (const std::string& k : Cubin(j.code).kernels())
        brings_kernel |= seen_kernels.insert(j.name + " " + k).second;
      // A file without either is compiled once.
      brings |= seen.insert(j.name).second;
      if (brings)
        for (const int number : more) rest.push_back({j.name, j.text, number});
      if (brings_kernel)
        for (const int number : alike) rest.push_back({j.name, j.text, number});
    }
    MESSAGE(jobs.size(), " variants, ", rest.size(), " more compilations for ",
            more.size() + alike.size(), " other architectures");
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
