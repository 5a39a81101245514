// SPDX-License-Identifier: Apache-2.0
// Follows the needed libraries of a plugin like the system's loader.
#include "host/plugin_needs.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string_view>

#include "base/error.hpp"

namespace tenon::core {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split(std::string_view list, const char* separators = ":") {
  std::vector<std::string> entries;
  for (;;) {
    const size_t end = list.find_first_of(separators);
    entries.emplace_back(list.substr(0, end));
    if (end == list.npos) return entries;
    list.remove_prefix(end + 1);
  }
}

bool names_origin(const std::string& text) {
  return text.find("$ORIGIN") != text.npos || text.find("${ORIGIN}") != text.npos;
}

bool is_loaded(const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return false;
  dlclose(library);
  return true;
}

// The loader prefers builds for newer processors in folders of these names, in and below a searched
// folder. All that exist are checked.
void add_variants(const fs::path& folder, int depth, std::vector<fs::path>& to) {
  to.push_back(folder);
  std::error_code ignored;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder / "glibc-hwcaps", ignored)) {
    to.push_back(entry.path());
  }
  for (const char* name : {"tls", "haswell", "avx512_1", "x86_64"}) {
    if (depth > 0 && fs::is_directory(folder / name, ignored)) {
      add_variants(folder / name, depth - 1, to);
    }
  }
}

// Repeats the loader's search without loading anything.
class Search {
 public:
  explicit Search(const std::string& exempt) : exempt_(exempt) {
    // The loader ignores the environment of a privileged process too.
    if (const char* text = secure_getenv("LD_LIBRARY_PATH"); text && *text) {
      environment_ = split(text, ":;");
    }
  }

  // Checks the needs of a library found in `folder`. rpaths: those of the libraries that need it,
  // because a DT_RPATH applies to them too.
  void check(const ElfFile& library, const std::string& folder, std::vector<std::string> rpaths) {
    const LinkNames names = library.link_names();
    const Origin origin{library.path(), folder};
    std::vector<std::string> runpath;
    if (names.runpath) {
      runpath = expand(*names.runpath, "DT_RUNPATH", origin);
    } else if (names.rpath) {
      const std::vector<std::string> own = expand(*names.rpath, "DT_RPATH", origin);
      rpaths.insert(rpaths.begin(), own.begin(), own.end());
    }
    for (const std::string& name : names.needed) {
      try {
        check_one(name, origin, rpaths, names.runpath ? &runpath : nullptr);
      } catch (const Error& e) {
        fail(e.code(), library.path(), " needs ", name, ": ", e.what());
      }
    }
  }

 private:
  struct Origin {
    const std::string& file;
    const std::string& folder;
  };

  static std::string expand_origin(std::string text, const Origin& origin) {
    for (const std::string_view token : {"${ORIGIN}", "$ORIGIN"}) {
      for (size_t at = 0; (at = text.find(token, at)) != text.npos;) {
        const size_t end = at + token.size();
        const bool whole = token.ends_with('}') || end == text.size() || text[end] == '/';
        if (whole) text.replace(at, token.size(), origin.folder);
        at += whole ? origin.folder.size() : token.size();
      }
    }
    return text;
  }

  static void check_form(const std::string& text, const char* what, const std::string& given,
                         const Origin& origin) {
    if (text.find('$') != text.npos) {
      fail(Code::unsupported, origin.file, ": ", what, " '", given, "' holds a token other than ",
           "$ORIGIN; expected an absolute path, or one that begins with $ORIGIN");
    }
    if (!text.starts_with('/')) {
      fail(Code::invalid_argument, origin.file, ": ", what, " '", given,
           "' depends on the working directory; expected an absolute path, or one that begins with "
           "$ORIGIN");
    }
  }

  static std::vector<std::string> expand(const std::string& list, const char* tag,
                                         const Origin& origin) {
    std::vector<std::string> folders = split(list);
    for (std::string& folder : folders) {
      const std::string given = folder;
      folder = expand_origin(folder, origin);
      check_form(folder, cat("an entry of its ", tag).c_str(), given, origin);
    }
    return folders;
  }

  // A DT_RUNPATH replaces all DT_RPATHs, and comes after the environment.
  void check_one(const std::string& name, const Origin& origin,
                 const std::vector<std::string>& rpaths, const std::vector<std::string>* runpath) {
    if (name.find('/') != name.npos) {
      const std::string path = expand_origin(name, origin);
      check_form(path, "the name", name, origin);
      check_file(path, rpaths);
      return;
    }
    if (is_loaded(name)) return;
    if (!runpath && find(name, rpaths, rpaths)) return;
    if (find_in_environment(name, rpaths)) return;
    if (runpath) find(name, *runpath, rpaths);
  }

  bool find_in_environment(const std::string& name, const std::vector<std::string>& rpaths) {
    try {
      return find(name, environment_, rpaths);
    } catch (const Error& e) {
      fail(e.code(), "LD_LIBRARY_PATH: ", e.what());
    }
  }

  // True if the library is in one of the folders. The folders before it are checked too, because
  // others must not be able to add it there.
  bool find(const std::string& name, const std::vector<std::string>& folders,
            const std::vector<std::string>& rpaths) {
    for (const std::string& given : folders) {
      const fs::path folder = fs::absolute(given.empty() ? "." : given);
      if (!check_directory(folder.string(), exempt_)) continue;
      std::vector<fs::path> variants;
      add_variants(folder, 4, variants);
      bool found = false;
      for (const fs::path& variant : variants) {
        check_directory(variant.string(), exempt_);
        std::error_code ignored;
        if (!fs::exists(variant / name, ignored)) continue;
        found = check_file((variant / name).string(), rpaths) || found;
      }
      if (found) return true;
    }
    return false;
  }

  // Returns false for files that the loader skips: libraries for another machine.
  bool check_file(const std::string& path, const std::vector<std::string>& rpaths) {
    const TrustedFile file = open_trusted(path, exempt_);
    const auto [known, is_new] = seen_.insert({file.id, true});
    if (!is_new) return known->second;
    std::unique_ptr<const ElfFile> library;
    try {
      library = std::make_unique<const ElfFile>(file.file, file.path);
    } catch (const Error& e) {
      if (e.code() != Code::incompatible) throw;
      known->second = false;
      return false;
    }
    check(*library, fs::path(path).parent_path().string(), rpaths);
    return true;
  }

  const std::string& exempt_;
  std::vector<std::string> environment_;
  std::map<FileId, bool> seen_;  // true if the loader can use it
};

}  // namespace

bool check_needs(const ElfFile& plugin, const std::string& exempt) {
  Search(exempt).check(plugin, fs::path(plugin.path()).parent_path().string(), {});
  const LinkNames names = plugin.link_names();
  bool depends = (names.rpath && names_origin(*names.rpath)) ||
                 (names.runpath && names_origin(*names.runpath));
  for (const std::string& name : names.needed) depends = depends || names_origin(name);
  return depends;
}

}  // namespace tenon::core
