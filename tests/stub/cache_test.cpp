// SPDX-License-Identifier: Apache-2.0
// The cache of machine code, as a device uses it: what was made is made once, per architecture;
// what is damaged, or refused by the driver, is made again.
#include <filesystem>
#include <fstream>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;
namespace fs = std::filesystem;

namespace {

constexpr int kInvalidImage = 200;

// A directory that the device keeps code in.
class Cache {
 public:
  Cache() {
    std::string name = (fs::temp_directory_path() / "tenon-stub-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    path_ = name;
    use(name);
  }
  ~Cache() {
    use("");
    fs::remove_all(path_);
  }
  static void use(const std::string& path) { setenv("TENON_CUDA_CACHE", path.c_str(), 1); }
  const fs::path& path() const { return path_; }
  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    for (const auto& entry : fs::recursive_directory_iterator(path_)) all.push_back(entry.path());
    return all;
  }

 private:
  fs::path path_;
};

// How many texts a whole life compiles.
uint64_t compiled() {
  const uint64_t before = stub_calls("nvrtcCompileProgram");
  CHECK(whole_life());
  return stub_calls("nvrtcCompileProgram") - before;
}

}  // namespace

TEST_SUITE("stub/cache") {
  TEST_CASE("kept: each text is compiled once for each architecture") {
    const Cache cache;
    const uint64_t texts = compiled();
    CHECK(texts > 1);
    CHECK(compiled() == 0);
    stub_set("major", 8);
    CHECK(compiled() == texts);
    CHECK(compiled() == 0);
    stub_set("major", 9);
    CHECK(compiled() == 0);
    Cache::use("");
    CHECK(compiled() == texts);
    check_clean();
  }

  TEST_CASE("damaged: whatever is wrong with a file, its text is compiled again, and kept") {
    const Cache cache;
    const uint64_t texts = compiled();
    for (const char* how : {"cut", "empty", "flipped", "gone"}) {
      CAPTURE(std::string(how));
      const std::vector<fs::path> files = cache.files();
      CHECK(files.size() >= texts);
      for (const fs::path& file : files) {
        const auto size = fs::file_size(file);
        if (how == std::string("cut")) fs::resize_file(file, size - 1);
        if (how == std::string("empty")) fs::resize_file(file, 0);
        if (how == std::string("gone")) fs::remove(file);
        if (how != std::string("flipped")) continue;
        std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
        bytes.seekg(static_cast<std::streamoff>(size / 2));
        const char old = static_cast<char>(bytes.get());
        bytes.seekp(static_cast<std::streamoff>(size / 2));
        bytes.put(static_cast<char>(old ^ 4));
      }
      CHECK(compiled() == texts);
      CHECK(compiled() == 0);
    }
    check_clean();
  }

  TEST_CASE("refused by the driver: sound code that it does not take is made again") {
    const Cache cache;
    CHECK(compiled() > 1);
    stub_fail("cuModuleLoadData", 1, kInvalidImage, kStubOnce);
    CHECK(compiled() == 1);
    CHECK(std::string(stub_failed()) == "cuModuleLoadData");
    stub_lift();
    // Fresh code that is not taken either is the driver's failure.
    stub_fail("cuModuleLoadData", 1, kInvalidImage, kStubLasting);
    CHECK(has(error_of([] { whole_life(); }), "module_load: CUDA_ERROR_INVALID_IMAGE"));
    stub_lift();
    check_clean();
  }

  TEST_CASE(
      "tuning: whichever call fails, what was made for it is given back, and the graph runs") {
    stub_set("algorithms", 3);
    {
      const Cache cache;
      const uint64_t before = stub_calls("cuEventElapsedTime");
      CHECK(whole_life());
      CHECK(stub_calls("cuEventElapsedTime") > before + 10);
      const uint64_t timed = stub_calls("cuEventElapsedTime");
      CHECK(whole_life());  // the choice was kept
      CHECK(stub_calls("cuEventElapsedTime") == timed);
      check_clean();
    }
    for (const char* symbol :
         {"cuStreamCreate", "cuEventCreate", "cuMemAllocFromPoolAsync", "cuMemsetD8Async",
          "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime", "cuMemcpyHtoDAsync_v2",
          "cublasLtMatmul", "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmulDescCreate",
          "cublasLtMatrixLayoutCreate", "cublasLtMatmulPreferenceCreate", "kernel"})
      for (const uint64_t nth : {1, 2, 3, 5, 9}) {
        CAPTURE(std::string(symbol));
        CAPTURE(nth);
        const Cache cache;
        const bool kernel = symbol == std::string("kernel");
        {
          Machine machine;
          machine.fill();
          Executable(machine.runtime(), Graph::parse("graph { }", "opens"), machine.store(),
                     {.device = "cuda:0"});
          stub_fail(symbol, nth, kernel ? 719 : 999, kStubOnce);
          const std::string text = error_of([&] { machine.compile(); });
          const std::string failed = stub_failed();
          stub_lift();
          CAPTURE(text);
          if (!text.empty()) CHECK(failed == symbol);
          if (!text.empty() && !failed.starts_with("cublas"))
            CHECK(has(text, kernel ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_UNKNOWN"));
          machine.compile();
          Expected expected;
          for (int64_t run = 0; run < 3; ++run) CHECK(machine.step(run) == expected.step(run));
        }
        check_clean();
      }
    stub_set("algorithms", 1);
  }

  TEST_CASE("no place: a directory that cannot be made, or holds no file, keeps nothing") {
    const Cache cache;
    std::ofstream(cache.path() / "file") << "not a directory";
    Cache::use((cache.path() / "file" / "below").string());
    const uint64_t texts = compiled();
    CHECK(texts > 1);
    CHECK(compiled() == texts);
    check_clean();
  }
}
