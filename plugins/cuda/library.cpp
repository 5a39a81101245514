// SPDX-License-Identifier: Apache-2.0
// Searches the folders where a vendor's library may be, and opens it.
#include "library.hpp"

#include <stdlib.h>

#define BOOST_DLL_USE_STD_FS
#include <boost/dll/shared_library.hpp>
#include <filesystem>
#include <memory>
#include <mutex>

namespace tenon::cuda {
namespace {

namespace fs = std::filesystem;
namespace mode = boost::dll::load_mode;

constexpr const char* kUsualDirectories[] = {"/usr/local/cuda/lib64",
                                             "/usr/local/cuda/targets/x86_64-linux/lib"};

struct Attempt {
  fs::path path;
  bool system;
};

std::vector<Attempt> attempts(const std::vector<std::string>& sonames) {
  std::vector<Attempt> list;
  const auto in_directory = [&](const fs::path& directory) {
    for (const std::string& name : sonames) list.push_back({directory / name, false});
  };
  if (const char* given = secure_getenv("TENON_CUDA_PATH"); given && *given == '/')
    in_directory(given);
  for (const std::string& name : sonames) list.push_back({name, true});
  for (const char* directory : kUsualDirectories) in_directory(directory);
  return list;
}

// What dlopen said, without what Boost puts around it.
std::string said_by_loader(std::string text, const std::string& path) {
  constexpr std::string_view kBefore = "dlerror system message: ";
  if (const size_t at = text.find(kBefore); at != text.npos) text.erase(0, at + kBefore.size());
  if (const size_t at = text.rfind("): "); at != text.npos) text.erase(at);
  if (text.starts_with(path + ": ")) text.erase(0, path.size() + 2);
  return text;
}

// For good, even when it is refused: what was opened may run threads.
void* keep(std::unique_ptr<boost::dll::shared_library> library) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<boost::dll::shared_library*>;
  const std::lock_guard lock(mutex);
  kept.push_back(library.release());
  return kept.back();
}

}  // namespace

void* Library::symbol(const char* name) const {
  const auto& library = *static_cast<const boost::dll::shared_library*>(handle);
  return library.has(name) ? reinterpret_cast<void*>(&library.get<int()>(name)) : nullptr;
}

Library open_library(std::string_view what, const std::vector<std::string>& sonames,
                     const std::function<std::string(const Library&)>& accept) {
  Library found;
  std::string misses;
  for (const Attempt& a : attempts(sonames)) {
    const auto miss = [&](std::string_view why) {
      misses += (misses.empty() ? "" : "; ") + a.path.string() + ": " + std::string(why);
    };
    std::error_code ignored;
    if (!a.system && !fs::exists(a.path, ignored)) {
      miss("no such file");
      continue;
    }
    try {
      const auto how = a.system ? mode::rtld_lazy | mode::search_system_folders
                                : mode::rtld_lazy | mode::rtld_local;
      auto library = std::make_unique<boost::dll::shared_library>(a.path, how);
      found.handle = keep(std::move(library));
      found.path = a.path.string();
      const std::string refused = accept(found);
      if (refused.empty()) return found;
      miss(refused);
    } catch (const std::exception& e) {
      miss(said_by_loader(e.what(), a.path.string()));
    }
    found = {};
  }
  found.reason = "no " + std::string(what) + " (" + misses + ")";
  return found;
}

}  // namespace tenon::cuda
