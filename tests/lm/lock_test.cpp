// SPDX-License-Identifier: Apache-2.0
// The lock of a training folder, by handles: two of one process exclude each other as two processes
// do.
#include "cli/lm/lock.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tenon/tenon.hpp"

namespace {

namespace fs = std::filesystem;
using tenon::lm::FolderLock;

std::vector<int> failures;        // what the next calls of flock fail with, the last one first
std::function<void()> meanwhile;  // what others do before each call

}  // namespace

// Before the C library's.
extern "C" int flock(int file, int operation) noexcept {
  if (meanwhile) meanwhile();
  if (failures.empty()) return static_cast<int>(::syscall(SYS_flock, file, operation));
  errno = failures.back();
  failures.pop_back();
  return -1;
}

namespace {

struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "tenon-lock-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()));
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  fs::path lock() const { return path / ".tenon.lock"; }
};

struct Meanwhile {
  explicit Meanwhile(std::function<void()> others) { meanwhile = std::move(others); }
  ~Meanwhile() { meanwhile = nullptr; }
};

// For root every file can be written: such a one is nobody while this lives.
struct NotRoot {
  bool root = ::geteuid() == 0;
  NotRoot() {
    if (root) static_cast<void>(::seteuid(65534) == 0);
  }
  ~NotRoot() {
    if (root) CHECK(::seteuid(0) == 0);
  }
};

// The number of the error, 0 where it can be opened.
int cannot_open(const fs::path& file, int how) {
  const int opened = ::open(file.c_str(), how | O_CLOEXEC);
  if (opened < 0) return errno;
  ::close(opened);
  return 0;
}

std::string text_of(const fs::path& file) {
  std::ostringstream out;
  out << std::ifstream(file).rdbuf();
  return out.str();
}

std::string refusal(const fs::path& folder) {
  try {
    const FolderLock lock(folder);
  } catch (const tenon::Error& e) {
    CHECK(e.code() == TENON_IO_ERROR);
    return e.what();
  }
  return "";
}

// What a lock that is taken and given back says on stderr.
std::string remark(const fs::path& folder) {
  std::ostringstream said;
  std::streambuf* const before = std::cerr.rdbuf(said.rdbuf());
  const std::string refused = refusal(folder);
  std::cerr.rdbuf(before);
  CHECK(refused == "");
  return said.str();
}

TEST_SUITE("lm/lock") {
  TEST_CASE("held: another one is refused and told the folder, the process and what to do") {
    const Folder folder;
    {
      const FolderLock lock(folder.path);
      const std::string text = refusal(folder.path);
      CAPTURE(text);
      CHECK(text.starts_with(folder.path.string() + ": another training, process " +
                             std::to_string(::getpid()) + " on "));
      CHECK(text.ends_with(
          ", writes to this folder; wait until it ends or stop it, or name another folder with "
          "--out"));
      CHECK(refusal(folder.path / ".") != "");  // the folder counts, not its spelling
      CHECK(fs::exists(folder.lock()));         // the refused one took nothing away
      CHECK(refusal(folder.path) == text);
    }
    CHECK(fs::is_empty(folder.path));
    CHECK(refusal(folder.path) == "");
  }

  TEST_CASE("left by a killed process: the file alone hinders nobody") {
    const Folder folder;
    std::ofstream(folder.lock()) << "process 1 on another machine with a long name";
    {
      const FolderLock lock(folder.path);
      CHECK(text_of(folder.lock()).find("process " + std::to_string(::getpid()) + " on ") == 0);
      CHECK(text_of(folder.lock()).find("long name") == std::string::npos);
    }
    CHECK(fs::is_empty(folder.path));
  }

  TEST_CASE("held: what the file says is shown up to the first character that is no text") {
    const Folder folder;
    const FolderLock lock(folder.path);
    std::ofstream(folder.lock()) << "somebody\x1b[31m";
    CHECK(refusal(folder.path).find("training, somebody, writes") != std::string::npos);
    std::ofstream(folder.lock()) << "";
    CHECK(refusal(folder.path).find("training writes") != std::string::npos);
  }

  TEST_CASE("removed by its last holder while it is opened: it is made again") {
    const Folder folder;
    const fs::path removed = folder.path / "removed";
    std::ofstream(folder.lock()) << "process 1";
    const Meanwhile others([&] {
      if (!fs::exists(removed)) fs::rename(folder.lock(), removed);
    });
    const FolderLock lock(folder.path);
    REQUIRE(fs::exists(removed));
    CHECK(text_of(removed) == "");  // a name that does not hold is gone before all else
    CHECK(fs::exists(folder.lock()));
    CHECK(refusal(folder.path) != "");
  }

  TEST_CASE("another file in its place each time: told, not tried for ever") {
    const Folder folder;
    int calls = 0, last = 99;
    const Meanwhile others([&] {
      if (calls++ >= last) return;
      std::ofstream(folder.path / "new") << "";  // beside it: its number differs
      fs::rename(folder.path / "new", folder.lock());
    });
    CHECK(remark(folder.path) == "");
    CHECK(calls == 100);
    CHECK(fs::is_empty(folder.path));
    calls = 0, last = 100000;
    const std::string said = remark(folder.path);
    CAPTURE(said);
    CHECK(calls == 100);
    CHECK(said == "tenon: " + folder.lock().string() +
                      ": cannot be locked: another file takes its place each time; let no other "
                      "training write to this folder\n");
    CHECK(fs::is_empty(folder.path));
  }

  TEST_CASE("a file system without locks: told, and no hindrance") {
    const Folder folder;
    for (const int number : {ENOLCK, ENOSYS, EOPNOTSUPP}) {
      failures = {number};
      const std::string said = remark(folder.path);
      CAPTURE(said);
      CHECK(said.find("tenon: " + folder.lock().string() + ": cannot be locked: ") == 0);
      CHECK(said.find("let no other training write to this folder") != std::string::npos);
      CHECK(fs::is_empty(folder.path));
    }
    std::ofstream(folder.lock()) << "process 1 on another";
    failures = {ENOLCK};
    CHECK(remark(folder.path) != "");
    CHECK(text_of(folder.lock()) == "process 1 on another");
    failures = {EINTR};  // a signal is no reason
    CHECK(remark(folder.path) == "");
    CHECK(failures.empty());
  }

  TEST_CASE("a file that cannot be written, as another user's: it locks all the same") {
    const Folder folder;
    std::ofstream(folder.lock()) << "process 1";
    REQUIRE(::chmod(folder.lock().c_str(), 0444) == 0);
    REQUIRE(::chmod(folder.path.c_str(), 0777) == 0);
    const NotRoot user;
    const int writing = cannot_open(folder.lock(), O_RDWR);
    if (writing == 0 || cannot_open(folder.lock(), O_RDONLY) != 0) {
      MESSAGE("skipped: no user here who can read the file and not write it");
      return;
    }
    CHECK(writing == EACCES);
    {
      const FolderLock lock(folder.path);
      CHECK(refusal(folder.path) != "");
      CHECK(text_of(folder.lock()) == "process 1");
    }
    CHECK(fs::is_empty(folder.path));
  }

  TEST_CASE("something else in its place: told by name") {
    const Folder folder;
    fs::create_directory(folder.lock());
    CHECK(refusal(folder.path).find(folder.lock().string() + ": open: ") == 0);
    fs::remove(folder.lock());
    const Folder elsewhere;
    fs::create_symlink(elsewhere.path / "file", folder.lock());
    CHECK(refusal(folder.path).find(folder.lock().string() + ": open: ") == 0);
    CHECK(fs::is_empty(elsewhere.path));
    CHECK(refusal(folder.path / "missing").find("open: ") != std::string::npos);
  }
}

}  // namespace
