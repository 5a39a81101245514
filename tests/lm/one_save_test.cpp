// SPDX-License-Identifier: Apache-2.0
// A folder that is read while another training saves to it.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cli/lm/checkpoint.hpp"

using namespace tenon;

namespace {

// A folder with a training.json of some step.
struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tenon-one-save-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()));
    path = name;
    save(1);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void save(int step) const {
    std::ofstream(path / "new") << "{\"done_steps\": " << step << "}";
    std::filesystem::rename(path / "new", path / "training.json");
  }
};

}  // namespace

TEST_SUITE("lm/one_save") {
  TEST_CASE("read once where nobody saves, and again after a save in between") {
    const Folder folder;
    int reads = 0;
    lm::read_one_save(folder.path, [&] { ++reads; });
    CHECK(reads == 1);
    lm::read_one_save(folder.path, [&] {
      if (++reads == 2) folder.save(2);
    });
    CHECK(reads == 3);
  }

  TEST_CASE("what fails counts only where nobody saved in between") {
    const Folder folder;
    int reads = 0;
    lm::read_one_save(folder.path, [&] {
      if (++reads > 1) return;
      folder.save(2);
      throw Error(TENON_CORRUPT, "of two steps");
    });
    CHECK(reads == 2);
    CHECK_THROWS_WITH_AS(lm::read_one_save(folder.path,
                                           [&] {
                                             ++reads;
                                             throw Error(TENON_CORRUPT, "really corrupt");
                                           }),
                         doctest::Contains("really corrupt"), Error);
    CHECK(reads == 3);
  }

  TEST_CASE("saves that never end are an error") {
    const Folder folder;
    int reads = 0;
    CHECK_THROWS_WITH_AS(lm::read_one_save(folder.path, [&] { folder.save(++reads + 1); }),
                         doctest::Contains("more often than it can be read"), Error);
    CHECK(reads == 100);
  }
}
