// SPDX-License-Identifier: Apache-2.0
// The disk cache of machine code: hashes, damaged files, several processes.
#include "cache.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "hash.hpp"

using namespace tenon::cuda;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path = fs::temp_directory_path() / ("tenon_cache_" + std::to_string(getpid()));
  Folder() { fs::remove_all(path); }
  ~Folder() { fs::remove_all(path); }
};

std::string code_of(char c) { return std::string(5000, c); }

// A file of its own each time: to write over one makes some file systems wait for the disk.
void write_file(const std::string& path, const std::string& content) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << content;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_SUITE("cuda/cache") {
  TEST_CASE("hash: the published examples") {
    CHECK(hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(hex(sha256(std::string(1000000, 'a'))) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }

  TEST_CASE("cache: of two that keep one key first, both have the first one's") {
    const Folder folder;
    const DiskCache cache(folder.path.string()), other(folder.path.string());
    CHECK(cache.keep_first("k", code_of('a')) == code_of('a'));
    CHECK(other.keep_first("k", code_of('b')) == code_of('a'));
    CHECK(other.find("k") == code_of('a'));
    write_file(cache.path_of("k"), "damaged");
    CHECK(other.keep_first("k", code_of('c')) == code_of('c'));
    CHECK(cache.find("k") == code_of('c'));
    CHECK(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()) == 1);
    CHECK_FALSE(DiskCache("").keep_first("k", "x"));
  }

  TEST_CASE("cache: what is kept is found, under its own key alone") {
    const Folder folder;
    const DiskCache cache(folder.path.string());
    CHECK_FALSE(cache.find("text for sm_90"));
    cache.keep("text for sm_90", code_of('a'));
    cache.keep("text for sm_80", code_of('b'));
    CHECK(cache.find("text for sm_90") == code_of('a'));
    CHECK(cache.find("text for sm_80") == code_of('b'));
    CHECK_FALSE(cache.find("text for sm_75"));
  }

  TEST_CASE("cache: a file that is cut at any length, or longer, is none, and is replaced") {
    const Folder folder;
    const DiskCache cache(folder.path.string());
    cache.keep("k", "code of some length");
    const std::string path = cache.path_of("k"), whole = content_of(path);
    for (size_t size = 0; size < whole.size(); ++size) {
      CAPTURE(size);
      write_file(path, whole.substr(0, size));
      CHECK_FALSE(cache.find("k"));
    }
    write_file(path, whole + "x");
    CHECK_FALSE(cache.find("k"));
    cache.keep("k", "code of some length");
    CHECK(cache.find("k") == "code of some length");
    CHECK(content_of(path) == whole);
  }

  TEST_CASE("cache: a file with any bit changed, or of another key, is none, and is replaced") {
    const Folder folder;
    const DiskCache cache(folder.path.string());
    cache.keep("k", "code of some length");
    const std::string path = cache.path_of("k"), whole = content_of(path);
    for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      CAPTURE(bit);
      std::string changed = whole;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
      write_file(path, changed);
      CHECK_FALSE(cache.find("k"));
    }
    cache.keep("other", code_of('b'));
    fs::copy_file(cache.path_of("other"), path, fs::copy_options::overwrite_existing);
    CHECK_FALSE(cache.find("k"));
    cache.keep("k", code_of('c'));
    CHECK(cache.find("k") == code_of('c'));
  }

  TEST_CASE("cache: an entry that is a FIFO, a link or a folder is none; files take its place") {
    const Folder folder;
    const DiskCache code(folder.path.string()), choices(folder.path.string(), kChoiceFiles);
    CHECK(code.keep("sound", code_of('a')));
    CHECK(choices.keep("sound", "0 1 2"));
    for (const DiskCache* cache : {&code, &choices}) {
      CAPTURE(cache->path_of("k"));
      const std::string path = cache->path_of("k");
      const auto make = [&](int kind) {
        fs::remove(path);
        if (kind == 0) return mkfifo(path.c_str(), 0600) == 0;
        if (kind == 1) {
          // The content is right, but it is not in the folder.
          if (!cache->keep("k", code_of('b'))) return false;
          fs::rename(path, path + "-elsewhere");
          fs::create_symlink(path + "-elsewhere", path);
          return true;
        }
        return fs::create_directory(path);
      };
      const auto is_none = [&](int kind) {
        const bool replaced = kind < 2;
        bool good = make(kind) && !cache->find("k");
        good &= cache->keep_first("k", code_of('c')).has_value() == replaced;
        good &= cache->find("k").has_value() == replaced;
        good &= make(kind) && cache->keep("k", code_of('d')) == replaced;
        good &= cache->find("k").has_value() == replaced;
        // Evicting walks past it.
        return good && make(kind) && DiskCache(folder.path.string()).keep("more", code_of('e'));
      };
      for (int kind = 0; kind < 3; ++kind) {
        CAPTURE(kind);
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
          alarm(60);  // to open a FIFO would wait for ever
          try {
            _exit(is_none(kind) ? 0 : 1);
          } catch (...) {
            _exit(2);
          }
        }
        int status = 0;
        waitpid(child, &status, 0);
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 0);
        fs::remove(path);
      }
    }
    CHECK(code.find("sound") == code_of('a'));
    CHECK(choices.find("sound") == "0 1 2");
  }

  TEST_CASE("cache: a full disk keeps nothing, leaves nothing, and harms nothing that was there") {
    const Folder folder;
    const DiskCache cache(folder.path.string());
    cache.keep("old", code_of('a'));
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      signal(SIGXFSZ, SIG_IGN);  // so that a write beyond the limit fails as on a full disk
      const rlimit none = {3000, 3000};
      if (setrlimit(RLIMIT_FSIZE, &none) != 0) _exit(2);
      cache.keep("new", code_of('b'));
      cache.keep("old", code_of('c'));
      _exit(!cache.find("new") && cache.find("old") == code_of('a') ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);
    CHECK(cache.find("old") == code_of('a'));
  }

  TEST_CASE("cache: no directory, or one that cannot be written, keeps nothing and fails nothing") {
    const DiskCache none("");
    none.keep("k", code_of('a'));
    CHECK_FALSE(none.find("k"));
    const Folder folder;
    std::ofstream(folder.path) << "no directory";
    for (const std::string& path :
         {std::string("/proc/nowhere"), folder.path.string(), (folder.path / "below").string()}) {
      const DiskCache bad(path);
      bad.keep("k", code_of('a'));
      CHECK_FALSE(bad.find("k"));
    }
  }

  TEST_CASE("cache: the directory and those above it are made for this user alone") {
    const Folder folder;
    const fs::path deep = folder.path / "a" / "b";
    const DiskCache cache(deep.string());
    const mode_t before = umask(0);
    CHECK(cache.keep("k", code_of('a')));
    umask(before);
    for (const fs::path& p : {folder.path, folder.path / "a", deep}) {
      CAPTURE(p.string());
      CHECK((fs::status(p).permissions() & fs::perms::mask) == fs::perms::owner_all);
    }
  }

  TEST_CASE("cache: a directory that others can write to, or own, is not used, and says why") {
    const Folder folder;
    const DiskCache cache(folder.path.string());
    CHECK(cache.keep("k", code_of('a')));
    const auto says = [&](const char* word) {
      return DiskCache::obstacle(folder.path.string()).find(word) != std::string::npos;
    };
    for (const fs::perms open : {fs::perms::group_write, fs::perms::others_write}) {
      fs::permissions(folder.path, fs::perms::owner_all | open);
      CHECK_FALSE(cache.find("k"));
      CHECK_FALSE(cache.keep("other", code_of('b')));
      CHECK_FALSE(cache.keep_first("other", code_of('b')));
      CHECK_FALSE(cache.writable());
      CHECK(says("others can write to it"));
      fs::permissions(folder.path, fs::perms::owner_all | fs::perms::group_read);
      CHECK(cache.find("k") == code_of('a'));
      CHECK(DiskCache::obstacle(folder.path.string()) == "");
    }
    CHECK_FALSE(cache.find("other"));
    if (geteuid() != 0) return;  // only root gives a directory away
    REQUIRE(chown(folder.path.c_str(), 1, 1) == 0);
    CHECK_FALSE(cache.find("k"));
    CHECK_FALSE(cache.keep("other", code_of('b')));
    CHECK(says("it belongs to user 1, not to user 0"));
  }

  TEST_CASE("cache: beyond the limit the code that was used least recently goes, choices last") {
    const Folder folder;
    const uint64_t limit = 4 * 5100;  // four files of code
    const DiskCache code(folder.path.string(), kCodeFiles, limit),
        choices(folder.path.string(), kChoiceFiles, limit);
    const auto hours_old = [&](const std::string& path, int hours) {
      fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
    };
    CHECK(choices.keep("choice", "0 1 2"));
    hours_old(choices.path_of("choice"), 9);
    for (int k = 0; k < 3; ++k) {
      CHECK(code.keep(std::to_string(k), code_of('a')));
      hours_old(code.path_of(std::to_string(k)), 5 - k);
    }
    std::ofstream(folder.path / "notes") << std::string(100000, 'n');  // not the cache's
    CHECK(code.find("0"));                                             // used now
    CHECK(code.keep("3", code_of('b')));
    CHECK(code.keep("4", code_of('c')));
    for (const char* gone : {"1", "2"}) CHECK_FALSE(code.find(gone));
    for (const char* there : {"0", "3", "4"}) CHECK(code.find(there));
    CHECK(choices.find("choice"));
    CHECK(fs::file_size(folder.path / "notes") == 100000);
    const DiskCache none(folder.path.string(), kCodeFiles, 0);
    CHECK(none.keep("5", code_of('d')));
    CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);
  }

  TEST_CASE("cache: the directory is not read for every file that is kept") {
    const Folder folder;
    const DiskCache cache(folder.path.string());
    for (int k = 0; k < 300; ++k) CHECK(cache.keep(std::to_string(k), code_of('a')));
    CHECK(cache.directory_reads() == 1);
    // Near the limit it is read more often, but not each time.
    const Folder small;
    const uint64_t limit = 200 * 5100;
    const DiskCache bounded(small.path.string(), kCodeFiles, limit);
    for (int k = 0; k < 1000; ++k) CHECK(bounded.keep(std::to_string(k), code_of('a')));
    CHECK(bounded.directory_reads() < 200);
  }

  TEST_CASE("cache: several writers stay within the limit together") {
    const Folder folder;
    const uint64_t limit = 40 * 5100;
    std::vector<std::unique_ptr<DiskCache>> writers;
    for (int w = 0; w < 4; ++w)
      writers.push_back(std::make_unique<DiskCache>(folder.path.string(), kCodeFiles, limit));
    for (int k = 0; k < 400; ++k) {
      CHECK(writers[static_cast<size_t>(k % 4)]->keep(std::to_string(k), code_of('a')));
      uint64_t sum = 0;
      for (const auto& file : fs::directory_iterator(folder.path)) sum += file.file_size();
      CHECK(sum <= limit + 4 * 5100);
    }
  }

  TEST_CASE("cache: files that processes left half-written go, those of now stay") {
    const Folder folder;
    const DiskCache cache(folder.path.string());
    CHECK(cache.keep("k", code_of('a')));
    const std::string old = cache.path_of("x") + ".17.0", fresh = cache.path_of("x") + ".18.0";
    for (const std::string& path : {old, fresh}) std::ofstream(path) << "half";
    fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(2));
    CHECK(DiskCache(folder.path.string()).keep("other", code_of('b')));
    CHECK_FALSE(fs::exists(old));
    CHECK(fs::exists(fresh));
  }

  TEST_CASE("cache: processes that write one key at once leave a sound file") {
    const Folder folder;
    const DiskCache cache(folder.path.string());
    std::vector<pid_t> children;
    for (int p = 0; p < 4; ++p) {
      const pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        bool good = true;
        for (int i = 0; i < 50; ++i) {
          cache.keep("k", code_of('a'));
          const auto found = cache.find("k");
          good &= found && *found == code_of('a');
        }
        _exit(good ? 0 : 1);
      }
      children.push_back(child);
    }
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      CHECK(WIFEXITED(status));
      CHECK(WEXITSTATUS(status) == 0);
    }
    CHECK(cache.find("k") == code_of('a'));
    CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);
  }
}
