// SPDX-License-Identifier: Apache-2.0
// Loads, compiles and launches kernels.
#include "code.hpp"

#include <sstream>

#include "hash.hpp"
#include "static_shared.hpp"
#include "texts.hpp"

namespace tenon::cuda {

std::string_view text_of(std::string_view name) {
  for (const Text& t : texts())
    if (t.name == name) return t.content;
  throw sdk::Failure(TENON_INTERNAL, "there is no kernel text " + std::string(name));
}

// All that the code depends on: texts that may be included, options, target, compiler, plugin.
static std::string key_of(const std::string& text, const std::string& target,
                          const std::string& compiler_version) {
  static const std::string& common = *new std::string([] {
    std::string all = "tenon " TENON_CUDA_VERSION "\n";
    for (const Text& t : texts())
      if (t.name.ends_with(".cuh"))
        all += std::string(t.name) + "\n" + std::string(t.content) + "\n";
    return "headers " + hex(sha256(all)) + "\n";
  }());
  std::string key = "NVRTC " + compiler_version + "\n";
  for (const std::string& o : compile_options(target)) key += o + "\n";
  return key + common + text;
}

// A process without a compiler takes the code of any. One file per architecture lists the compilers
// that kept code: lines of a version and a target, the latest first.
std::string CodeSource::compilers_key() const {
  return "compilers for " + Compiler::architecture(major_, minor_);
}
std::optional<std::string> CodeSource::find(const std::string& text, const Target& target) const {
  if (target.compiler) return disk_.find(key_of(text, target.name, target.compiler->version()));
  std::istringstream list(disk_.find(compilers_key()).value_or(""));
  for (std::string version, name; list >> version >> name;)
    if (auto code = disk_.find(key_of(text, name, version))) return code;
  return std::nullopt;
}
void CodeSource::keep(const std::string& text, const Target& target,
                      const std::string& code) const {
  const std::string& version = target.compiler->version();
  const std::string line = version + " " + target.name + "\n";
  if (!disk_.keep(key_of(text, target.name, version), code)) return;
  const std::lock_guard lock(listed_mutex_);
  if (!listed_.insert(line).second) return;
  std::string list = disk_.find(compilers_key()).value_or("");
  if (list.starts_with(line)) return;
  if (const size_t at = list.find("\n" + line); at != list.npos) list.erase(at + 1, line.size());
  disk_.keep(compilers_key(), line + list);
}

// Why the device's driver does not take code of the compiler. A tiny kernel tells.
std::string CodeSource::refused(const Compiler& c, const std::string& target) const {
  static const std::string text = "extern \"C\" __global__ void probe() {}\n";
  const auto loads = [&](const std::string& code) {
    const Current current(context_);
    Module module = nullptr;
    const Result r = driver().module_load(&module, code.data());
    if (r == result::success) driver().module_unload(module);
    return r;
  };
  try {
    if (const auto code = find(text, {&c, target}); code && loads(*code) == result::success)
      return {};
    const std::string code = c.compile("probe", text, compile_options(target), {});
    driver().check("module_load", loads(code));
    keep(text, {&c, target}, code);
    return {};
  } catch (const sdk::Failure& e) {
    if (e.code() != TENON_INTERNAL) throw;
    return e.what();
  }
}

// Empty, or why no compiler will do; then the next call tries again.
std::string CodeSource::find_target() {
  const std::lock_guard lock(mutex_);
  if (target_.compiler) return {};
  if (!compiler()) return compiler().reason();
  std::string reasons;
  for (const Compiler* c = &compiler(); c; c = compiler_after(*c)) {
    const std::string target = c->target(major_, minor_);
    const std::string why =
        target.empty() ? "it knows no architecture up to " + Compiler::architecture(major_, minor_)
                       : refused(*c, target);
    compiler_tried(*c, why);
    if (why.empty()) {
      target_ = {c, target};
      return {};
    }
    reasons += (reasons.empty() ? "" : "; ") + c->path() + ": " + why;
  }
  return "no NVRTC that this driver can use (" + reasons + ")";
}

std::string CodeSource::missing(const std::string& text) {
  const std::string why = find_target();
  return why.empty() || find(text, {}) ? std::string() : why;
}

CodeSource::Code CodeSource::get(const std::string& name, const std::string& text,
                                 bool fresh) const {
  const Target to = target();
  if (!fresh)
    if (std::optional<std::string> code = find(text, to)) return {*code, true};
  if (!to.compiler)
    throw sdk::Failure(TENON_UNSUPPORTED, "kernel text " + name +
                                              ": its machine code has left the cache, and there "
                                              "is no compiler");
  std::string code = to.compiler->compile(name, text, compile_options(to.name), texts());
  keep(text, to, code);
  return {std::move(code), false};
}

Unit::Unit(Source source, Context context, const CodeSource& from)
    : source_(std::move(source)), context_(context), from_(from) {}

Module Unit::load() {
  const std::lock_guard lock(mutex_);
  if (module_) return module_;
  const std::string text = source_.defines + source_.text;
  CodeSource::Code code = from_.get(source_.name, text, false);
  const Current current(context_);
  Result r = driver().module_load(&module_, code.bytes.data());
  if (r != result::success && code.cached && code_of(r) == TENON_INTERNAL && from_.compiles()) {
    // Sound as bytes, but not for this driver.
    code = from_.get(source_.name, text, true);
    r = driver().module_load(&module_, code.bytes.data());
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

bool Code::takes_words(size_t count) const {
  if (!driver().parameter_info) return true;
  const Current current(state_->context);
  size_t offset = 0, size = 0;
  for (size_t i = 0; i < count; ++i) {
    const Result r = driver().parameter_info(state_->entry, i, &offset, &size);
    if (r == result::invalid_value || (r == result::success && size != 8)) return false;
    if (r != result::success) return true;
  }
  return driver().parameter_info(state_->entry, count, &offset, &size) != result::success;
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
    if (const std::string why = from_.missing(source.defines + source.text); !why.empty())
      throw sdk::Refusal(TENON_REASON_OTHER, why);
    auto unit = std::make_shared<Unit>(std::move(source), context_, from_);
    at = units_.emplace(std::move(key), std::move(unit)).first;
  }
  return {at->second, entry, shared, context_};
}

}  // namespace tenon::cuda
