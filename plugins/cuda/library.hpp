// SPDX-License-Identifier: Apache-2.0
// A vendor's library, found by soname and opened for good: handles are never dropped, since threads
// of the library outlive everything of ours.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::cuda {

// What came of the search. Without a library `reason` says each place that was tried.
struct Library {
  void* handle = nullptr;  // boost::dll::shared_library, leaked on purpose
  std::string path{};      // as found
  std::string reason{};
  explicit operator bool() const { return handle != nullptr; }
  // nullptr when the library has no such symbol.
  void* symbol(const char* name) const;
};

// Tries, for every soname in turn: the directory TENON_CUDA_PATH (ignored when privileged), the
// system's loader, the toolkit's usual directories. `accept` fills a table and says what it misses;
// empty = taken.
Library open_library(std::string_view what, const std::vector<std::string>& sonames,
                     const std::function<std::string(const Library&)>& accept);

}  // namespace tenon::cuda
