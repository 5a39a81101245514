// SPDX-License-Identifier: Apache-2.0
// Loads, compiles and launches kernels.
#include "code.hpp"

#include <cstdio>

#include "static_shared.hpp"
#include "texts.hpp"

namespace tenon::cuda {

std::string_view text_of(std::string_view name) {
  for (const Text& t : texts())
    if (t.name == name) return t.content;
  throw sdk::Failure(TENON_INTERNAL, "there is no kernel text " + std::string(name));
}

Unit::Unit(Source source, Context context, std::string architecture, const DiskCache& cache)
    : source_(std::move(source)),
      context_(context),
      architecture_(std::move(architecture)),
      cache_(cache) {}

// All that the code depends on: texts that may be included, options, architecture, compiler,
// plugin.
static std::string key_of(const std::string& text, const std::string& architecture,
                          const std::string& compiler_version) {
  static const std::string& common = *new std::string([] {
    std::string all = "tenon " TENON_CUDA_VERSION "\n";
    for (const Text& t : texts())
      if (t.name.ends_with(".cuh"))
        all += std::string(t.name) + "\n" + std::string(t.content) + "\n";
    return all;
  }());
  std::string key = "NVRTC " + compiler_version + "\n";
  for (const std::string& o : compile_options(architecture)) key += o + "\n";
  return key + common + text;
}

// Without a compiler the code of any will do: under the key of none stands which one's was kept
// last.
static std::optional<std::string> find_code(const DiskCache& cache, const std::string& text,
                                            const std::string& architecture) {
  if (compiler()) return cache.find(key_of(text, architecture, compiler().version()));
  const auto version = cache.find(key_of(text, architecture, {}));
  return version ? cache.find(key_of(text, architecture, *version)) : std::nullopt;
}
static void keep_code(const DiskCache& cache, const std::string& text,
                      const std::string& architecture, const std::string& code) {
  cache.keep(key_of(text, architecture, compiler().version()), code);
  cache.keep(key_of(text, architecture, {}), compiler().version());
}

std::string Unit::missing() const {
  if (compiler()) return {};
  const std::string text = source_.defines + source_.text;
  return find_code(cache_, text, architecture_) ? std::string() : compiler().reason();
}

std::string Unit::make_code() const {
  const std::vector<std::string> options = compile_options(architecture_);
  return compiler().compile(source_.name, source_.defines + source_.text, options, texts());
}

Module Unit::load() {
  const std::lock_guard lock(mutex_);
  if (module_) return module_;
  const std::string text = source_.defines + source_.text;
  std::optional<std::string> code = find_code(cache_, text, architecture_);
  const bool cached = code.has_value();
  if (!code) keep_code(cache_, text, architecture_, *(code = make_code()));
  const Current current(context_);
  Result r = driver().module_load(&module_, code->data());
  if (r != result::success && cached && code_of(r) == TENON_INTERNAL && compiler()) {
    // Sound as bytes, but not for this driver.
    keep_code(cache_, text, architecture_, *(code = make_code()));
    r = driver().module_load(&module_, code->data());
  }
  if (r != result::success) module_ = nullptr;
  driver().check("module_load", r);
  return module_;
}

// Always: with what the kernel has of its own it may be more than is given unasked.
void Unit::allow_shared(EntryPoint entry, uint32_t bytes) {
  const std::lock_guard lock(mutex_);
  uint32_t& most = shared_[entry];
  if (bytes <= most) return;
  TENON_CUDA(function_set_attribute, entry, attribute::function_dynamic_shared,
             static_cast<int>(bytes));
  most = bytes;
}

void Unit::unload() noexcept {
  if (module_) driver().module_unload(module_);
  module_ = nullptr;
  shared_.clear();
}

Code::Code(std::shared_ptr<Unit> unit, std::string entry, uint32_t shared, Context context)
    : state_(std::make_shared<State>(std::move(unit), std::move(entry), shared, context)) {}

void Code::prepare() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->entry) return;
  Module module = state_->unit->load();
  const Current current(state_->context);
  EntryPoint entry = nullptr;
  TENON_CUDA(module_function, &entry, module, state_->name.c_str());
  if (state_->shared > 0) state_->unit->allow_shared(entry, state_->shared);
  state_->entry = entry;
}

void Code::launch_list(void* stream, const Grid& grid, void** arguments) const {
  if (grid.blocks == 0) return;
  constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;
  if (grid.blocks > kMostBlocks)
    throw sdk::Failure(TENON_INTERNAL,
                       state_->name + ": a launch of " + std::to_string(grid.blocks) + " blocks");
  if (grid.early) {
    const LaunchAttribute early;
    const LaunchConfig config{{static_cast<unsigned>(grid.blocks), grid.blocks_y, grid.blocks_z},
                              {grid.threads, 1, 1},
                              grid.shared,
                              static_cast<Stream>(stream),
                              &early,
                              1};
    TENON_CUDA(launch_with, &config, state_->entry, arguments, nullptr);
    return;
  }
  TENON_CUDA(launch, state_->entry, static_cast<unsigned>(grid.blocks), grid.blocks_y,
             grid.blocks_z, grid.threads, 1, 1, grid.shared, static_cast<Stream>(stream), arguments,
             nullptr);
}

Code CodeStore::code(std::string_view file, const std::string& entry,
                     const std::vector<std::string>& defines, uint32_t shared) {
  const uint32_t own = shared > 0 ? static_shared(file, entry, defines) : 0;
  if (own + shared > most_shared_)
    throw sdk::Refusal::shape("the kernel needs " + std::to_string(own + shared) +
                              " bytes of shared memory, a block has " +
                              std::to_string(most_shared_));
  std::string lines;
  for (const std::string& d : defines) {
    const size_t equal = d.find('=');
    lines += "#define " + d.substr(0, equal) +
             (equal == d.npos ? " 1" : " " + d.substr(equal + 1)) + "\n";
  }
  return find({std::string(file), std::string(text_of(file)), std::move(lines)}, entry, shared);
}

Code CodeStore::generated(std::string_view name, std::string text, const std::string& entry,
                          uint32_t shared) {
  return find({std::string(name), std::move(text), {}}, entry, shared);
}

void CodeStore::unload() noexcept {
  for (const auto& [key, unit] : units_) unit->unload();
  units_.clear();
}

Code CodeStore::find(Unit::Source source, const std::string& entry, uint32_t shared) {
  const std::lock_guard lock(mutex_);
  std::string key = source.name + "\n" + source.defines + source.text;
  auto at = units_.find(key);
  if (at == units_.end()) {
    auto unit = std::make_shared<Unit>(std::move(source), context_, architecture_, disk_);
    if (const std::string why = unit->missing(); !why.empty())
      throw sdk::Refusal(TENON_REASON_OTHER, why);
    at = units_.emplace(std::move(key), std::move(unit)).first;
  }
  return {at->second, entry, shared, context_};
}

}  // namespace tenon::cuda
