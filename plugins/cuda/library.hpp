// SPDX-License-Identifier: Apache-2.0
// A vendor's library, found by soname and opened for good: handles are never dropped, since threads
// of the library outlive everything of ours.
#pragma once

#include <cstdint>
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
  std::string passed_over{};  // libraries that were there and refused, with the reasons
  explicit operator bool() const { return handle != nullptr; }
  // nullptr when the library has no such symbol.
  void* symbol(const char* name) const;
};

// Tries, for every soname in turn: the directory TENON_CUDA_PATH (ignored when privileged), the
// system's loader, the toolkit's usual directories; for libraries of the toolkit also the wheels of
// NVIDIA that pip installed. `accept` fills a table and says why it refuses the library; empty =
// taken. Paths in `without` are skipped.
enum class Origin : uint8_t { driver, toolkit };
Library open_library(std::string_view what, Origin origin, const std::vector<std::string>& sonames,
                     const std::function<std::string(const Library&)>& accept,
                     const std::vector<std::string>& without = {});

// The sonames of a library of the toolkit, "libnvrtc.so.13" and so on, the newest first.
std::vector<std::string> toolkit_sonames(std::string_view stem);
// Why a library made for CUDA `version` (12040 = 12.4) cannot be used with the driver; empty = it
// can. A driver serves the libraries of its own major version and of older ones.
std::string too_new_for_driver(int version);

}  // namespace tenon::cuda
