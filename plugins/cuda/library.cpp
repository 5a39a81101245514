// SPDX-License-Identifier: Apache-2.0
// Searches the folders where a vendor's library may be, and opens it.
#include "library.hpp"

#include <dlfcn.h>
#include <stdlib.h>

#define BOOST_DLL_USE_STD_FS
#include <algorithm>
#include <boost/dll/shared_library.hpp>
#include <filesystem>
#include <memory>
#include <mutex>

#include "driver.hpp"

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

std::vector<Attempt> usual_attempts(const std::vector<std::string>& sonames) {
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

// The sub-directories of `directory` whose name begins so, the last name first.
std::vector<fs::path> directories_in(const fs::path& directory, std::string_view begin) {
  std::vector<fs::path> list;
  std::error_code failure;
  for (fs::directory_iterator at(directory, failure), end; !failure && at != end;
       at.increment(failure))
    if (at->path().filename().string().starts_with(begin) && fs::is_directory(at->path(), failure))
      list.push_back(at->path());
  std::ranges::sort(list, std::greater());
  return list;
}

// Where Python packages lie: beside the package that holds this plugin, of the environment that is
// active, the user's, the system's.
std::vector<fs::path> package_folders() {
  std::vector<fs::path> list;
  static const char inside = 0;
  if (Dl_info self{}; dladdr(&inside, &self) && self.dli_fname)
    for (fs::path at = self.dli_fname; at.has_relative_path(); at = at.parent_path())
      if (at.filename() == "site-packages" || at.filename() == "dist-packages") list.push_back(at);
  const auto below = [&](const fs::path& prefix) {
    for (const fs::path& python : directories_in(prefix / "lib", "python3"))
      for (const char* name : {"site-packages", "dist-packages"}) list.push_back(python / name);
  };
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* prefix = secure_getenv(name); prefix && *prefix == '/') below(prefix);
  if (const char* home = secure_getenv("HOME"); home && *home == '/')
    below(fs::path(home) / ".local");
  below("/usr/local");
  below("/usr");
  return list;
}

// A wheel has its libraries in nvidia/<name>/lib. Only files that are there.
std::vector<Attempt> wheel_attempts(const std::vector<std::string>& sonames) {
  std::vector<Attempt> list;
  std::error_code failure;
  for (const fs::path& folder : package_folders())
    for (const fs::path& wheel : directories_in(folder / "nvidia", ""))
      for (const std::string& name : sonames)
        if (const fs::path file = wheel / "lib" / name; fs::exists(file, failure))
          list.push_back({file, false});
  // A newer version that lies further on comes first.
  std::ranges::stable_sort(list, {}, [&](const Attempt& a) {
    return std::ranges::find(sonames, a.path.filename().string()) - sonames.begin();
  });
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

Library open_library(std::string_view what, Origin origin, const std::vector<std::string>& sonames,
                     const std::function<std::string(const Library&)>& accept,
                     const std::vector<std::string>& without) {
  std::string misses, passed_over;
  const auto tried = [&](const Attempt& a) {
    Library found;
    const auto add = [&](std::string& to, std::string_view why) {
      to += (to.empty() ? "" : "; ") + a.path.string() + ": " + std::string(why);
    };
    if (std::ranges::find(without, a.path.string()) != without.end()) return found;
    std::error_code ignored;
    if (!a.system && !fs::exists(a.path, ignored)) {
      add(misses, "no such file");
      return found;
    }
    try {
      const auto how = a.system ? mode::rtld_lazy | mode::search_system_folders
                                : mode::rtld_lazy | mode::rtld_local;
      auto library = std::make_unique<boost::dll::shared_library>(a.path, how);
      found.handle = keep(std::move(library));
      found.path = a.path.string();
      const std::string refused = accept(found);
      if (refused.empty()) {
        found.passed_over = passed_over;
        return found;
      }
      add(misses, refused);
      add(passed_over, refused);
    } catch (const std::exception& e) {
      add(misses, said_by_loader(e.what(), a.path.string()));
    }
    return Library();
  };
  for (const Attempt& a : usual_attempts(sonames))
    if (Library found = tried(a)) return found;
  if (origin == Origin::toolkit)
    for (const Attempt& a : wheel_attempts(sonames))
      if (Library found = tried(a)) return found;
  return {.reason = "no " + std::string(what) + " (" + misses + ")"};
}

std::vector<std::string> toolkit_sonames(std::string_view stem) {
  constexpr int kNewest = 13, kOldest = 12;
  std::vector<std::string> list;
  for (int major = std::max(kNewest, driver().version / 1000); major >= kOldest; --major)
    list.push_back(std::string(stem) + std::to_string(major));
  return list;
}

std::string too_new_for_driver(int version) {
  if (!driver() || version / 1000 <= driver().version / 1000) return {};
  return "it is for CUDA " + version_text(version) + ", the driver serves " +
         version_text(driver().version);
}

}  // namespace tenon::cuda
