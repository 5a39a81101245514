// SPDX-License-Identifier: Apache-2.0
// fuzz_<target> RUNS CORPUS: a fuzz target without libFuzzer. Every file of the corpus, then RUNS
// mutations of them, the same ones each time; TENON_FUZZ_SECONDS goes on for so long. The input is
// kept in the working directory as <target>.input until all is through: after a crash it is the
// culprit.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = 1 << 14;  // what grows beyond is cut
constexpr size_t kNest = 200000;  // brackets around a value: more calls than a stack of 8 MiB holds

std::vector<std::string> read_corpus(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> corpus;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>& corpus) : corpus_(corpus) {}

  std::string next() {
    std::string input = any_seed();
    if (below(96) == 0) {
      nest(input);
      return input;
    }
    for (size_t edits = 1 + below(4); edits > 0; --edits) edit(input);
    if (input.size() > kMostBytes) input.resize(kMostBytes);
    return input;
  }

 private:
  // The same on every system, unlike the library's distributions.
  size_t below(size_t limit) { return limit ? random_() % limit : 0; }
  const std::string& any_seed() { return corpus_[below(corpus_.size())]; }

  void edit(std::string& input) {
    const size_t at = below(input.size() + 1), count = 1 + below(below(4) ? 8 : 64);
    const size_t inside = std::min(at, input.size() - std::min<size_t>(input.size(), 1));
    const bool some = !input.empty();
    switch (below(9)) {
      case 0:
        if (some) input[inside] = static_cast<char>(input[inside] ^ 1 << below(8));
        break;
      case 1:
        if (some) input[inside] = static_cast<char>(below(256));
        break;
      case 2:
        input.insert(at, 1, static_cast<char>(below(2) ? below(256) : ' ' + below(95)));
        break;
      case 3:
        input.erase(at, count);
        break;
      case 4:
        input.insert(at, input.substr(below(input.size() + 1), count));
        break;
      case 5: {
        const std::string& other = any_seed();
        input.insert(at, other.substr(below(other.size() + 1), count));
        break;
      }
      case 6:
        number(input, at);
        break;
      case 7:
        word(input, at);
        break;
      case 8:
        if (below(8) == 0) input.resize(at);
        break;
    }
  }

  // The next number of a text becomes another one.
  void number(std::string& input, size_t at) {
    static constexpr const char* kNumbers[] = {"0",
                                               "-1",
                                               "1",
                                               "7",
                                               "255",
                                               "65536",
                                               "1073741824",
                                               "4294967296",
                                               "1e308",
                                               "4503599e99",
                                               "null",
                                               "-1e-30",
                                               "true",
                                               "[[[]]]",
                                               "9223372036854775807",
                                               "-9223372036854775808",
                                               "18446744073709551615"};
    const size_t begin = input.find_first_of("0123456789", at);
    if (begin == std::string::npos) return;
    const size_t end = std::min(input.find_first_not_of("0123456789.", begin), input.size());
    input.replace(begin, end - begin, kNumbers[below(std::size(kNumbers))]);
  }

  // Four or eight bytes of a number at the edge of something.
  void word(std::string& input, size_t at) {
    static constexpr uint64_t kWords[] = {0,          1,          8,          UINT32_MAX,
                                          UINT64_MAX, INT64_MAX,  0x80000000, 1ull << 63,
                                          1ull << 32, 1ull << 40, 64,         ~7ull};
    const uint64_t value = kWords[below(std::size(kWords))] + (below(3) ? 0 : input.size());
    at &= ~size_t{3};
    const size_t size =
        std::min<size_t>(below(2) ? 4 : 8, input.size() - std::min(at, input.size()));
    for (size_t i = 0; i < size; ++i) input[at + i] = static_cast<char>(value >> 8 * i);
  }

  // A value inside very many brackets, to find what calls itself for each.
  void nest(std::string& input) {
    static constexpr const char* kMarks[] = {"[]", "()", "{}"};
    const char* mark = kMarks[below(8) ? 0 : below(3)];
    const size_t begin = input.find_first_of(":=([,", below(input.size() + 1));
    if (begin == std::string::npos) return;
    const size_t end = std::min(input.find_first_of(",}])\n", begin + 1), input.size());
    input.insert(end, kNest, mark[1]);
    input.insert(begin + 1, kNest, mark[0]);
  }

  const std::vector<std::string>& corpus_;
  std::mt19937_64 random_{1};
};

// What runs now, for whoever looks after a crash. Kept open: closing it each time would wait for
// the disk.
class Running {
 public:
  explicit Running(std::string path)
      : path_(std::move(path)),
        descriptor_(::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {}
  ~Running() {
    ::close(descriptor_);
    fs::remove(path_);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void run(const std::string& input) {
    if (::pwrite(descriptor_, input.data(), input.size(), 0) !=
            static_cast<ssize_t>(input.size()) ||
        ::ftruncate(descriptor_, static_cast<off_t>(input.size())) != 0) {
      std::fprintf(stderr, "%s: write failed\n", path_.c_str());
      std::exit(2);
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }

 private:
  std::string path_;
  int descriptor_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s RUNS CORPUS\n", argv[0]);
    return 2;
  }
  const long runs = std::atol(argv[1]);
  const std::vector<std::string> corpus = read_corpus(argv[2]);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: has no files\n", argv[2]);
    return 2;
  }
  Running running(fs::path(argv[0]).filename().string() + ".input");
  running.run("");
  for (const std::string& seed : corpus) running.run(seed);
  const char* seconds = std::getenv("TENON_FUZZ_SECONDS");
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(seconds ? std::atol(seconds) : 0);
  Mutator mutator(corpus);
  long done = 0;
  for (; done < runs || std::chrono::steady_clock::now() < end; ++done) running.run(mutator.next());
  std::printf("%zu files, %ld mutations\n", corpus.size(), done);
  return 0;
}
