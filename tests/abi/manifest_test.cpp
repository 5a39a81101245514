// SPDX-License-Identifier: Apache-2.0
// The manifest: read from the file of a plugin without loading it; no bytes can hurt the reader.
#include <doctest/doctest.h>
#include <tenon/manifest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace tenon::test {

namespace {
std::vector<char> file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}
size_t note_at(const std::vector<char>& bytes) {
  const std::string mark = {'t', 'e', 'n', 'o', 'n', 0, 0, 0, 'T', 'N', 'M', 'F'};
  return std::string_view(bytes.data(), bytes.size()).find(mark) + 8;
}
std::string find(const std::vector<char>& bytes) {
  tenon_manifest m;
  const char* bad = tenon_manifest_find(bytes.data(), bytes.size(), &m);
  return bad ? bad : "";
}
}  // namespace

TEST_SUITE("abi/manifest") {
  TEST_CASE("find: a plugin says name, version, ABI, architecture and device kinds") {
    const std::vector<char> bytes = file(TENON_TEMPLATE_PLUGIN);
    tenon_manifest m;
    REQUIRE(tenon_manifest_find(bytes.data(), bytes.size(), &m) == nullptr);
    CHECK(std::string(m.name) == "template");
    CHECK(std::string(m.version) == "0.1.0");
    CHECK(std::string(m.kinds) == "template");
    CHECK(std::string(m.isa) == TENON_ISA_BASELINE);
    CHECK(m.abi_major == TENON_ABI_MAJOR);
    CHECK(m.abi_minor_min == TENON_MIN_HOST_MINOR);
    CHECK(m.abi_minor_max == TENON_ABI_MINOR);
    CHECK(m.arch == TENON_MANIFEST_ARCH);
    CHECK(m.sanitizers == TENON_MANIFEST_SANITIZERS);
  }

  TEST_CASE("find: what is no plugin is told apart from what is damaged") {
    CHECK(find({}) == "not a 64-bit little-endian ELF file");
    CHECK(find(std::vector<char>(4096, 'x')) == "not a 64-bit little-endian ELF file");
    CHECK(find(file("/proc/self/exe")) ==
          "the file has no tenon manifest: it is not a tenon plugin");
    std::vector<char> bytes = file(TENON_TEMPLATE_PLUGIN);
    bytes[note_at(bytes)] ^= 1;
    CHECK(find(bytes) == "the plugin manifest is damaged");
  }

  TEST_CASE("find: a longer manifest of a later version is read up to what is known") {
    std::vector<char> bytes = file(TENON_TEMPLATE_PLUGIN);
    const size_t at = note_at(bytes);
    const uint32_t longer = sizeof(tenon_manifest) + 16;
    std::memcpy(&bytes[at - 16], &longer, 4);
    std::memcpy(&bytes[at + 4], &longer, 4);
    CHECK(find(bytes) == "");
  }

  TEST_CASE("find: truncated and mutated headers do no harm") {
    const std::vector<char> sound = file(TENON_TEMPLATE_PLUGIN);
    for (size_t size = 0; size < 2048; ++size)
      find({sound.begin(), sound.begin() + static_cast<long>(size)});
    std::vector<char> bytes(sound.begin(), sound.begin() + 4096);
    REQUIRE(find(bytes) == "");
    for (size_t i = 0; i < 1024; ++i) {
      const char kept = bytes[i];
      for (int flip : {1, 0x80, 0xFF}) {
        bytes[i] = static_cast<char>(kept ^ flip);
        find(bytes);
      }
      bytes[i] = kept;
    }
    CHECK(find(bytes) == "");
  }
}

}  // namespace tenon::test
