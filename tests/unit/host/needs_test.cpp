// SPDX-License-Identifier: Apache-2.0
// The libraries that a plugin needs: those of folders that others can write are refused, those of
// its own folder are found wherever it was moved. The fixtures' search path is a placeholder that
// each test writes over.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fcntl.h>

#include <algorithm>
#include <random>

#include "host/plugin_elf.hpp"
#include "host/plugin_needs.hpp"
#include "plugin_folder.hpp"

using namespace plugin_folder;
using namespace tenon::core;

namespace {

// A copy of a fixture with another search path, "" for none at all.
fs::path copy_with_path(const Folder& folder, const fs::path& name, const std::string& search,
                        const char* fixture = "tenon_plugin_needs.so") {
  std::string bytes = bytes_of(kPath / fixture);
  const std::string placeholder = "/placeholder/" + std::string(160, 'x');
  const size_t at = bytes.find(placeholder);
  REQUIRE(at != bytes.npos);
  REQUIRE(search.size() <= placeholder.size());
  bytes.replace(at, placeholder.size(),
                search + std::string(placeholder.size() - search.size(), '\0'));
  return folder.write(name.c_str(), bytes);
}

void copy_library(const Folder& folder, const fs::path& name) {
  folder.make(name.parent_path());
  folder.copy(kPath / "libtenon_fixture_needed.so.1", name);
}

std::string loaded_in_child(const fs::path& file) {
  return in_child([&] { return outcome_text(file); });
}

#define CHECK_SAYS(text, words)                                                \
  do {                                                                         \
    const std::string text_ = text;                                            \
    CHECK_MESSAGE(text_.find(std::string(words)) != std::string::npos, text_); \
  } while (false)

const std::string kLibrary = "libtenon_fixture_needed.so.1";

// The sanitizers call dlopen() in place of the plugin, whose own search path then does not count.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const std::string kLoaded = "loaded: needed, none, ";
#else
const std::string kLoaded = "loaded: needed, later, ";
#endif

}  // namespace

TEST_SUITE("host/needs") {
  TEST_CASE("$ORIGIN: the plugin's own folder, when it is loaded and later; its name is its path") {
    for (const char* fixture : {"tenon_plugin_needs.so", "tenon_plugin_needs_rpath.so"}) {
      const Folder folder;
      folder.make("plugins");
      copy_library(folder, fs::path("beside") / kLibrary);
      copy_library(folder, "beside/libtenon_fixture_later.so");
      for (const char* search : {"$ORIGIN/../beside", "/nowhere:${ORIGIN}/../beside/."}) {
        const fs::path file = copy_with_path(folder, "plugins/plugin.so", search, fixture);
        // The fixture's note: the needed library's answer, that of one opened later, dladdr's name.
        CHECK(loaded_in_child(file) == kLoaded + file.string());
      }
      fs::create_directory_symlink(folder.path / "plugins", folder.path / "link");
      CHECK(loaded_in_child(folder.path / "link/plugin.so") ==
            kLoaded + (folder.path / "plugins/plugin.so").string());
    }
  }

  TEST_CASE("search path: a folder that others can write is refused, and why is said") {
    const Folder folder;
    folder.make("plugins");
    copy_library(folder, fs::path("open/lib") / kLibrary);
    const std::string open = (folder.path / "open").string();
    for (const char* fixture : {"tenon_plugin_needs.so", "tenon_plugin_needs_rpath.so"}) {
      for (const std::string& search :
           {open + "/lib", std::string("$ORIGIN/../open/lib"), open + "/missing:" + open + "/lib",
            folder.path.string() + "/plugins:" + open + "/lib"}) {
        const fs::path file = copy_with_path(folder, "plugins/plugin.so", search, fixture);
        chmod(open.c_str(), 0755);
        CHECK(loaded_in_child(file).starts_with("loaded: needed, "));
        chmod(open.c_str(), 0777);
        const std::string text = loaded_in_child(file);
        CHECK_SAYS(text, "dlopen: " + file.string() + " needs " + kLibrary);
        CHECK_SAYS(text, "directory " + open + " can be written by others (everybody)");
      }
    }
  }

  TEST_CASE("search path: others must not be able to put a library into a folder before the one") {
    const Folder folder;
    folder.make("plugins");
    copy_library(folder, fs::path("beside") / kLibrary);
    folder.make("sticky", 01777);
    const std::string beside = ":" + (folder.path / "beside").string();
    for (const char* first : {"/tmp/tenon-nobody-has-made-this", "/tmp", "$ORIGIN/../sticky/x/y"}) {
      const fs::path file = copy_with_path(folder, "plugins/plugin.so", first + beside);
      CHECK_SAYS(loaded_in_child(file), "can be written by others (everybody)");
    }
    const fs::path file = copy_with_path(folder, "plugins/plugin.so", "/nowhere/at/all" + beside);
    CHECK(loaded_in_child(file).starts_with("loaded: needed, "));
  }

  TEST_CASE("search path: entries that depend on the working directory, or on other tokens") {
    const Folder folder;
    folder.make("plugins");
    copy_library(folder, fs::path("beside") / kLibrary);
    const std::string beside = (folder.path / "beside").string();
    for (const std::string& search : {beside + ":", ":" + beside, beside + "::/usr/lib",
                                      "lib:" + beside, "./:" + beside, "$ORIGINAL:" + beside}) {
      const fs::path file = copy_with_path(folder, "plugins/plugin.so", search);
      const std::string text = loaded_in_child(file);
      CHECK_SAYS(text, "dlopen: " + file.string() + ": an entry of its DT_RUNPATH '");
      CHECK_SAYS(text, search[0] == '$' ? "holds a token other than $ORIGIN"
                                        : "depends on the working directory");
    }
  }

  TEST_CASE("needed library: its file, the folder of its link, and its own needs are checked") {
    const Folder folder;
    folder.make("plugins");
    copy_library(folder, fs::path("real") / kLibrary);
    folder.make("links");
    fs::create_symlink("../real/" + kLibrary, folder.path / "links" / kLibrary);
    const fs::path file = copy_with_path(folder, "plugins/plugin.so", "$ORIGIN/../links");
    CHECK(loaded_in_child(file).starts_with("loaded: needed, "));
    chmod((folder.path / "real").c_str(), 0777);
    CHECK_SAYS(loaded_in_child(file), "real can be written by others");
    chmod((folder.path / "real").c_str(), 0755);
    chmod((folder.path / "real" / kLibrary).c_str(), 0666);
    CHECK_SAYS(loaded_in_child(file),
               "file " + (folder.path / "real" / kLibrary).string() + " can be written by others");
    chmod((folder.path / "real" / kLibrary).c_str(), 0644);
    // A build of the library for newer processors, which the loader would prefer.
    folder.make("links/glibc-hwcaps/x86-64-v2", 0777);
    CHECK_SAYS(loaded_in_child(file), "x86-64-v2 can be written by others");
    chmod((folder.path / "links/glibc-hwcaps/x86-64-v2").c_str(), 0755);

    // A needed library that needs another one: a copy of the plugin under the library's name.
    folder.make("chain");
    copy_with_path(folder, fs::path("chain") / kLibrary, "/tmp");
    const fs::path first = copy_with_path(folder, "plugins/chained.so", "$ORIGIN/../chain");
    const std::string text = loaded_in_child(first);
    CHECK_SAYS(text, first.string() + " needs " + kLibrary);
    CHECK_SAYS(text, "chain/" + kLibrary + " needs " + kLibrary);
    CHECK_SAYS(text, "directory /tmp can be written by others");
  }

  TEST_CASE("environment: the folders of LD_LIBRARY_PATH up to the library's are checked") {
    const Folder folder;
    folder.make("plugins");
    folder.make("empty");
    copy_library(folder, fs::path("open") / kLibrary);
    const std::string open = (folder.path / "open").string(),
                      empty = (folder.path / "empty").string();
    const fs::path file = copy_with_path(folder, "plugins/plugin.so", "/nowhere");
    const auto loaded_with = [&](const std::string& path) {
      setenv("LD_LIBRARY_PATH", path.c_str(), 1);
      const std::string text = loaded_in_child(file);
      unsetenv("LD_LIBRARY_PATH");
      return text;
    };
    // The loader itself has read the environment when the process started, and does not find it.
    const std::string passed = "dlopen: " + file.string() + ": " + kLibrary +
                               ": cannot open shared object file: No such file or directory";
    CHECK(loaded_with("") == passed);
    CHECK(loaded_with("/nowhere:" + empty + ":" + open) == passed);
    chmod(open.c_str(), 0777);
    CHECK_SAYS(loaded_with(empty + ":" + open),
               "LD_LIBRARY_PATH: directory " + open + " can be written by others (everybody)");
    chmod(open.c_str(), 0755);
    // Anybody could put the library there before it is loaded.
    chmod(empty.c_str(), 0777);
    CHECK_SAYS(loaded_with(empty + ":" + open), empty + " can be written by others (everybody)");
    CHECK_SAYS(loaded_with(empty + "/missing:" + open), "can be written by others (everybody)");
    CHECK_SAYS(loaded_with("/tmp:" + open), "/tmp can be written by others (everybody)");
    // Folders after the library's are not searched.
    CHECK(loaded_with(open + ":" + empty) == passed);
  }

  TEST_CASE("loaded already: not searched for, so its folder does not matter") {
    const Folder folder;
    folder.make("plugins");
    copy_library(folder, fs::path("open") / kLibrary);
    chmod((folder.path / "open").c_str(), 0777);
    const fs::path file =
        copy_with_path(folder, "plugins/plugin.so", (folder.path / "open").string());
    const std::string text = in_child([&] {
      dlopen((folder.path / "open" / kLibrary).c_str(),
             RTLD_NOW | RTLD_LOCAL);  // the app's own affair
      return outcome_text(file);
    });
    CHECK_SAYS(text, "loaded: needed, ");
  }

  TEST_CASE("dynamic section: changed bytes never crash the reader") {
    const Folder folder;
    const std::string whole = bytes_of(kPath / "tenon_plugin_needs.so");
    std::mt19937 random(11);
    int read = 0, refused = 0;
    for (int i = 0; i < 2000; ++i) {
      std::string bytes = whole;
      for (int k = 0; k < 3; ++k) {
        const size_t at = i % 2 ? random() % 1024 : random() % bytes.size();
        bytes[at] = static_cast<char>(random());
      }
      const fs::path file = folder.write("mutant.so", bytes);
      try {
        const Descriptor descriptor(open(file.c_str(), O_RDONLY | O_CLOEXEC));
        ElfFile(descriptor, "mutant").link_names();
        ++read;
      } catch (const Error&) {
        ++refused;
      }
    }
    CHECK(read > 0);
    CHECK(refused > 0);
    const Descriptor descriptor(
        open((kPath / "tenon_plugin_needs.so").c_str(), O_RDONLY | O_CLOEXEC));
    const LinkNames names = ElfFile(descriptor, "whole").link_names();
    CHECK(names.needed.size() >= 2);  // and libc
    CHECK(std::ranges::count(names.needed, kLibrary) == 1);
    CHECK(names.runpath.value_or("").starts_with("/placeholder/"));
    CHECK_FALSE(names.rpath);
  }
}
