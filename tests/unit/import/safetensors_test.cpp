// SPDX-License-Identifier: Apache-2.0
// safetensors files that change while they are open. Damaged ones are the fuzzer's.
#include "import/safetensors.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace tenon::core;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path;
  Folder() {
    char name[] = "/tmp/tenon-safetensors-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { fs::remove_all(path); }
};

constexpr int64_t kRows = 1024;
const Type kType{kF32, {kRows, 1024}};

Bytes filled(std::byte with) { return Bytes(type_bytes(kType), with); }

std::string written(const Folder& folder) {
  const std::string path = (folder.path / "w.safetensors").string();
  write_safetensors(path, {{"a", kType}, {"b", kType}}, {}, [](const SafetensorsEntry& e) {
    return filled(std::byte(e.name == "a" ? 1 : 2));
  });
  return path;
}

}  // namespace

TEST_SUITE("import/safetensors") {
  TEST_CASE("safetensors: contents are read when they are asked for") {
    const Folder folder;
    const SafetensorsFile file(written(folder));
    REQUIRE(file.tensors().size() == 2);
    CHECK(file.content(file.tensors()[0]) == filled(std::byte(1)));
    CHECK(file.content(file.tensors()[1]) == filled(std::byte(2)));
  }

  TEST_CASE("safetensors: a file that is cut while it is open is an error, not a signal") {
    const Folder folder;
    const std::string path = written(folder);
    for (const uintmax_t size : {fs::file_size(path) - 1, uintmax_t{1} << 20, uintmax_t{0}}) {
      const std::string cut = (folder.path / "cut.safetensors").string();
      fs::copy_file(path, cut, fs::copy_options::overwrite_existing);
      const SafetensorsFile file(cut);
      fs::resize_file(cut, size);
      try {
        static_cast<void>(file.content(file.tensors()[1]));
        FAIL("read");
      } catch (const Error& e) {
        CHECK(e.code() == Code::io_error);
        CHECK(std::string(e.what()).find("cut.safetensors: ends at byte") != std::string::npos);
      }
    }
  }

  TEST_CASE("safetensors: the map is of the open file, not of a new one of its name") {
    const Folder folder;
    const std::string path = (folder.path / "a.safetensors").string();
    const auto write = [&](int64_t size, std::byte value) {
      write_safetensors(path, {{"a", {kU8, {size}}}}, {}, [&](const SafetensorsEntry&) {
        return Bytes(static_cast<size_t>(size), value);
      });
    };
    write(8, std::byte{7});
    const SafetensorsFile file(path);
    write(4, std::byte{9});
    const auto map = file.map();
    const auto content = file.content_in(*map, file.tensors()[0]);
    CHECK(Bytes(content.begin(), content.end()) == Bytes(8, std::byte{7}));
  }

  TEST_CASE("safetensors: devices and pipes are written to, links followed, nothing replaced") {
    const Folder folder;
    const auto write = [](const fs::path& path) {
      write_safetensors(path.string(), {{"a", {kF32, {4}}}}, {},
                        [](const SafetensorsEntry&) { return Bytes(16); });
    };
    // As tests may run as root, the device is a pipe.
    const fs::path pipe = folder.path / "pipe", link = folder.path / "link";
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    CHECK_THROWS_AS(write(pipe), Error);  // nobody reads it
    const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
    REQUIRE(reader >= 0);
    write(pipe);
    char text[256];
    CHECK(::read(reader, text, sizeof text) > 16);
    ::close(reader);
    CHECK(fs::is_fifo(pipe));
    const fs::path file = folder.path / "file";
    std::ofstream(file) << "old";
    fs::create_symlink(file, link);
    write(link);
    CHECK(fs::is_symlink(link));
    CHECK(fs::file_size(file) > 16);
    CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 3);
  }

  TEST_CASE("safetensors: a pipe or a folder is refused at once") {
    const Folder folder;
    const std::string path = (folder.path / "pipe").string();
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    CHECK_THROWS_AS(SafetensorsFile{path}, Error);
    CHECK_THROWS_AS(SafetensorsFile{folder.path.string()}, Error);
  }
}
