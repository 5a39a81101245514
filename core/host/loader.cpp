// SPDX-License-Identifier: Apache-2.0
// Finds plugin files, takes each through the stages of loading, and reports the result.
#include "host/loader.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "host/active_call.hpp"
#include "host/plugin_file.hpp"
#include "host/plugin_image.hpp"
#include "host/plugin_needs.hpp"
#include "host/status.hpp"

namespace tenon::core {
namespace {

namespace fs = std::filesystem;

std::string canonical_path(const std::string& path) {
  if (!fs::path(path).is_absolute()) {
    fail(Code::invalid_argument, "'", path, "' is not an absolute path");
  }
  std::error_code failure;
  const fs::path canonical = fs::canonical(path, failure);
  if (failure) {
    const bool absent = failure == std::errc::no_such_file_or_directory;
    fail(absent ? Code::not_found : Code::io_error, path, ": ", failure.message());
  }
  return canonical.string();
}

// The file from which an address was mapped. dladdr would return a name that may be relative to a
// previous working directory.
std::string image_of(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  // "begin-end permissions offset device inode    path"
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    const char* last = line.data() + line.size();
    const char* dash = std::from_chars(line.data(), last, begin, 16).ptr;
    if (dash == last || *dash != '-') continue;
    std::from_chars(dash + 1, last, end, 16);
    if (wanted < begin || wanted >= end) continue;
    const size_t path = line.find('/');
    return path == line.npos ? std::string() : line.substr(path);
  }
  return {};
}

}  // namespace

std::string builtin_plugin_directory() {
  const std::string image = image_of(reinterpret_cast<const void*>(&builtin_plugin_directory));
  if (image.empty()) return {};
  std::error_code failure;
  const fs::path canonical = fs::canonical(image, failure);
  return failure ? std::string() : (canonical.parent_path() / "tenon" / "plugins").string();
}

// Runs body, which advances the candidate from stage to stage, and stores the result.
template <class Body>
void Loader::attempt(LoadCandidate candidate, bool builtin, Body body) {
  std::shared_ptr<Plugin> plugin;
  try {
    plugin = body(candidate);
    candidate.stage = LoadStage::loaded;
  } catch (const Error& e) {
    candidate.code = e.code();
    candidate.text = e.what();
  } catch (const std::exception& e) {
    candidate.code = Code::internal;
    candidate.text = e.what();
  } catch (...) {
    candidate.code = Code::internal;
    candidate.text = "threw an object that is not a std::exception";
  }
  const bool named = candidate.named;
  report_.candidates.push_back(std::move(candidate));
  const LoadCandidate& filed = report_.candidates.back();
  if (plugin) {
    loaded_.push_back({std::move(plugin), report_.candidates.size() - 1, builtin});
  } else if (named) {
    // Errors about the path itself begin with it.
    const std::string_view stage = filed.stage == LoadStage::found ? "" : stage_name(filed.stage);
    fail(filed.code, "cannot load ", filed.text.starts_with(filed.path) ? "" : filed.path + ": ",
         stage, stage.empty() ? "" : ": ", filed.text);
  } else {
    log(LogLevel::debug,
        cat("not loaded: ", filed.path, ": ", stage_name(filed.stage), ": ", filed.text));
  }
}

std::shared_ptr<Plugin> Loader::start(tenon_backend_entry_fn entry, LoadCandidate& candidate,
                                      const tenon_manifest* manifest) {
  const std::lock_guard lock(load_mutex());
  candidate.stage = LoadStage::negotiate;
  const AgreedTable agreed = negotiate(entry, kept_text(candidate.path));
  candidate.plugin = copy_text(agreed.table.name);
  candidate.version = copy_text(agreed.table.version);
  candidate.vendor = copy_text(agreed.table.vendor);
  if (manifest && candidate.plugin != manifest->name) {
    fail(Code::incompatible, "plugin ", candidate.plugin, ": its manifest says ",
         copy_text({manifest->name, std::char_traits<char>::length(manifest->name)}));
  }
  for (const Loaded& other : loaded_) {
    if (other.plugin->name() != candidate.plugin) continue;
    fail(Code::invalid_argument, "a plugin of the name ", candidate.plugin,
         " is loaded already: version ", other.plugin->version(), " from ",
         report_.candidates[other.candidate].path);
  }
  candidate.stage = LoadStage::create;
  auto plugin = std::make_shared<Plugin>(agreed, threads_);
  candidate.stage = LoadStage::enumerate;
  plugin->enumerate();
  candidate.note = plugin->note();
  candidate.stage = LoadStage::ops;
  plugin->register_ops();
  return plugin;
}

void Loader::load_entry(tenon_backend_entry_fn entry, bool named) {
  LoadCandidate candidate;
  candidate.path = "static";
  candidate.named = named;
  attempt(std::move(candidate), false, [&](LoadCandidate& c) {
    if (!entry) fail(Code::invalid_argument, "the entry is null");
    return start(entry, c, nullptr);
  });
}

void Loader::load_file(const std::string& path, bool named, bool builtin) {
  LoadCandidate candidate;
  candidate.path = path;
  candidate.named = named;
  // The folders above the built-in one are not checked: anyone who can change them can replace
  // libtenon itself.
  const std::string exempt =
      builtin ? fs::path(path).parent_path().parent_path().parent_path().string() : std::string();
  attempt(std::move(candidate), builtin, [&](LoadCandidate& c) {
    c.path = canonical_path(path);
    c.stage = LoadStage::permissions;
    const TrustedFile file = open_trusted(path, exempt);
    c.path = file.path;
    if (const auto found = seen_.find(file.id); found != seen_.end()) {
      c.stage = LoadStage::found;
      c.named = false;  // it was found already
      fail(Code::invalid_argument, "the same file as ", report_.candidates[found->second].path,
           ", which comes first");
    }
    seen_[file.id] = report_.candidates.size();
    c.stage = LoadStage::manifest;
    const ElfFile elf(file.file, file.path);
    const tenon_manifest manifest = read_manifest(elf);
    c.plugin = copy_text({manifest.name, std::char_traits<char>::length(manifest.name)});
    c.version = copy_text({manifest.version, std::char_traits<char>::length(manifest.version)});
    c.vendor = copy_text({manifest.vendor, std::char_traits<char>::length(manifest.vendor)});
    check_manifest(manifest);
    c.stage = LoadStage::dlopen;
    boost::dll::shared_library& library = load_image(file, check_needs(elf, exempt));
    c.stage = LoadStage::symbol;
    if (!library.has(TENON_BACKEND_ENTRY_NAME))
      fail(Code::incompatible, "undefined symbol: ", TENON_BACKEND_ENTRY_NAME);
    auto& entry = library.get<const tenon_backend*(const tenon_host*)>(TENON_BACKEND_ENTRY_NAME);
    return start(&entry, c, &manifest);
  });
}

void Loader::load_named_file(const std::string& path) { load_file(path, true, false); }

void Loader::search_builtin_directory() {
  const std::string directory = builtin_plugin_directory();
  if (!directory.empty()) search_directory(directory, true);
}

void Loader::search_directory(const std::string& path, bool builtin) {
  std::vector<std::string> files;
  try {
    const std::string directory = canonical_path(path);
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
      // By the given path, so that its links are checked too.
      if (entry.path().extension() == ".so") {
        files.push_back((fs::path(path) / entry.path().filename()).string());
      }
    }
  } catch (const std::exception& e) {
    LoadCandidate candidate;
    candidate.path = path;
    const auto* error = dynamic_cast<const Error*>(&e);
    candidate.code = error ? error->code() : Code::io_error;
    candidate.text = cat("the directory cannot be searched: ", e.what());
    report_.candidates.push_back(std::move(candidate));
    return;
  }
  std::ranges::sort(files);
  for (const std::string& file : files) load_file(file, false, builtin);
}

void Loader::search_environment() {
  const char* text = secure_getenv("TENON_PLUGIN_PATH");  // null in a privileged process
  std::string_view rest = text ? text : "";
  while (!rest.empty()) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    if (colon != 0) search_directory(std::string(rest.substr(0, colon)));
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
}

}  // namespace tenon::core
