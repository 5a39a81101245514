// SPDX-License-Identifier: Apache-2.0
// For tests of loading: folders with copies of the fixtures, what became of each file, and other
// users and processes to load them from.
#pragma once

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "host/host.hpp"
#include "host/loader.hpp"
#include "options.hpp"

namespace plugin_folder {

namespace fs = std::filesystem;

inline const fs::path kBad = BAD_PLUGIN_DIRECTORY;
inline const fs::path kPath = PATH_PLUGIN_DIRECTORY;
inline const fs::path kGood = kBad / "tenon_plugin_good.so";
constexpr unsigned kNobody = 65534;

// A directory of this user alone.
struct Folder {
  fs::path path;
  Folder() {
    char name[] = "/tmp/tenon-loader-XXXXXX";
    path = mkdtemp(name);
    fs::permissions(path, fs::perms(0755));
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path copy(const fs::path& file, const fs::path& name, unsigned mode = 0644) const {
    fs::copy_file(file, path / name);
    chmod((path / name).c_str(), mode);
    return path / name;
  }
  fs::path copy_of_good(const char* name = "copy.so") const { return copy(kGood, name); }
  fs::path write(const char* name, const std::string& bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
    chmod((path / name).c_str(), 0644);
    return path / name;
  }
  fs::path make(const fs::path& name, unsigned mode = 0755) const {
    fs::create_directories(path / name);
    chmod((path / name).c_str(), mode);
    return path / name;
  }
};

inline std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline tenon::core::HostOptions directory(const fs::path& path) {
  tenon::core::HostOptions o = only({});
  o.plugin_dirs = {path.string()};
  return o;
}

// What became of a file in a searched directory, by its name.
inline tenon::core::LoadCandidate outcome(const tenon::core::Host& host, const std::string& name) {
  for (const tenon::core::LoadCandidate& c : host.report().candidates) {
    if (fs::path(c.path).filename() == name) return c;
  }
  FAIL("the report does not tell of ", name);
  return {};
}
inline tenon::core::LoadCandidate outcome(const fs::path& file) {
  return outcome(tenon::core::Host(directory(file.parent_path())), file.filename());
}

// "loaded: note", or "stage: reason".
inline std::string outcome_text(const fs::path& file) {
  const tenon::core::LoadCandidate c = outcome(file);
  return std::string(stage_name(c.stage)) + ": " +
         (c.stage == tenon::core::LoadStage::loaded ? c.note : c.text);
}

// Runs body in a child process, as another user where one is given; what it returns comes back.
inline std::string in_child(const std::function<std::string()>& body, unsigned user = geteuid()) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::string text = "could not drop root";
    if (user == geteuid() || (setgid(user) == 0 && setuid(user) == 0)) {
      try {
        text = body();
      } catch (const std::exception& e) {
        text = std::string("threw: ") + e.what();
      }
    }
    const bool written = write(ends[1], text.data(), text.size()) >= 0;
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char part[512];
  for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) text.append(part, n);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  return text;
}

}  // namespace plugin_folder

#define CHECK_OUTCOME(candidate, at, words)                                                  \
  do {                                                                                       \
    const tenon::core::LoadCandidate outcome_ = candidate;                                   \
    CHECK_MESSAGE(outcome_.stage == tenon::core::LoadStage::at, stage_name(outcome_.stage)); \
    CHECK_MESSAGE(outcome_.text.find(words) != std::string::npos, outcome_.text);            \
    CHECK((outcome_.code == tenon::core::Code::ok) ==                                        \
          (outcome_.stage == tenon::core::LoadStage::loaded));                               \
  } while (false)
