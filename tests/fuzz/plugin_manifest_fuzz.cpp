// SPDX-License-Identifier: Apache-2.0
// Any bytes as a plugin's file, read as the loader does before any code of it runs.
#include <fcntl.h>

#include <cstring>

#include "base/error.hpp"
#include "host/plugin_file.hpp"
#include "memory_file.hpp"

using namespace tenon::core;
using namespace tenon::fuzz;

namespace {

template <size_t size>
void text(const char (&field)[size]) {
  must(std::memchr(field, 0, size) != nullptr, "a text of the manifest has no end");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tenon_manifest found{};
  if (tenon_manifest_find(data, size, &found) == nullptr) {
    text(found.isa);
    text(found.name);
    text(found.version);
    text(found.vendor);
    text(found.kinds);
  }
  static MemoryFile memory;
  memory.write({reinterpret_cast<const char*>(data), size});
  try {
    const ElfFile file(Descriptor(::open(memory.path().c_str(), O_RDONLY | O_CLOEXEC)), "memory");
    const LinkNames names = file.link_names();
    for (const std::string& name : names.needed) {
      must(name.find('\0') == name.npos, "a name holds its own end");
    }
    const tenon_manifest read_again = read_manifest(file);
    must(std::memcmp(&read_again, &found, sizeof found) == 0, "two readers disagree");
    check_manifest(found);
  } catch (const Error& e) {
    must(e.code() != Code::internal, e.what());
  }
  return 0;
}
