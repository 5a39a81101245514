// SPDX-License-Identifier: Apache-2.0
// tenon cache: shows and removes what the cuda plugin stores on disk: machine code and tuning
// choices.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"

namespace tenon::cli {
namespace {

namespace fs = std::filesystem;

// The folder of plugins/cuda/cache.cpp.
fs::path cache_folder() {
  if (const char* given = std::getenv("TENON_CUDA_CACHE")) return given;
  if (const char* base = std::getenv("XDG_CACHE_HOME"); base && *base == '/')
    return fs::path(base) / "tenon" / "cuda";
  if (const char* home = std::getenv("HOME"); home && *home == '/')
    return fs::path(home) / ".cache" / "tenon" / "cuda";
  return {};
}

struct File {
  fs::path path;
  uint64_t bytes;
  fs::file_time_type used;
};

// The files of the folder with this suffix, least recently used first. Skips links.
std::vector<File> files_of(const fs::path& folder, std::string_view suffix) {
  std::vector<File> list;
  std::error_code failure;
  for (fs::directory_iterator at(folder, failure), end; !failure && at != end;
       at.increment(failure)) {
    std::error_code gone;  // another process may remove it meanwhile
    if (!at->path().string().ends_with(suffix) || !fs::is_regular_file(at->symlink_status(gone)))
      continue;
    File f{at->path(), at->file_size(gone), at->last_write_time(gone)};
    if (!gone) list.push_back(std::move(f));
  }
  if (failure && fs::exists(folder))
    throw Error(TENON_IO_ERROR, folder.string() + ": " + failure.message());
  std::ranges::sort(list, {}, &File::used);
  return list;
}

uint64_t bytes_of(const std::vector<File>& files) {
  uint64_t sum = 0;
  for (const File& f : files) sum += f.bytes;
  return sum;
}

// Removes files from the front until at most `most` bytes are left.
void prune(std::vector<File>& files, uint64_t most) {
  uint64_t sum = bytes_of(files);
  while (sum > most && !files.empty()) {
    std::error_code failure;
    fs::remove(files.front().path, failure);
    if (failure)
      throw Error(TENON_IO_ERROR, files.front().path.string() + ": " + failure.message());
    sum -= files.front().bytes;
    files.erase(files.begin());
  }
}

void print(const char* what, const std::vector<File>& files) {
  std::printf("  %-14s %6zu file%s %10.1f MiB\n", what, files.size(), files.size() == 1 ? " " : "s",
              static_cast<double>(bytes_of(files)) / (1 << 20));
}

int cache(const Args& args) {
  const fs::path folder = cache_folder();
  if (folder.empty()) {
    std::cout << (args.has("--json") ? "{}\n" : "no cache: it is turned off, or HOME is not set\n");
    return 0;
  }
  std::vector<File> code = files_of(folder, ".cubin"), choices = files_of(folder, ".choice");
  constexpr int64_t kMost = int64_t{1} << 40;
  if (args.has("--prune"))
    prune(code, static_cast<uint64_t>(args.integer("--prune", 0, 0, kMost)) << 20);
  if (args.has("--choices")) prune(choices, 0);
  if (args.has("--json")) {
    const auto entry = [](const std::vector<File>& files) {
      return nlohmann::json{{"files", files.size()}, {"bytes", bytes_of(files)}};
    };
    std::cout << nlohmann::json{{"folder", folder.string()},
                                {"machine_code", entry(code)},
                                {"choices", entry(choices)}}
                     .dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
              << "\n";
    return 0;
  }
  std::cout << folder.string() << "\n" << std::flush;
  print("machine code", code);
  print("tuned choices", choices);
  return 0;
}

}  // namespace

Command cache_command() {
  return {.name = "cache",
          .summary = "show or prune the disk cache of the cuda plugin",
          .usage = "[--prune MIB] [--choices] [--json]",
          .options = {{.name = "--prune",
                       .value = "MIB",
                       .help = "evict the least recently used machine code down to MIB"},
                      {.name = "--choices",
                       .help = "remove tuning results; the last bits of results may change"},
                      {.name = "--json", .help = "print JSON"}},
          .examples = "tenon cache\ntenon cache --prune 0\n",
          .loads_plugins = false,
          .opens_device = false,
          .run = cache};
}

}  // namespace tenon::cli
