// SPDX-License-Identifier: Apache-2.0
// Kernels of a device: a text with its defines becomes machine code (from the disk cache, else by
// NVRTC) when it is first prepared, once per device, and is launched on a call's stream.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cache.hpp"
#include "compiler.hpp"
#include "device/arguments.cuh"
#include "driver.hpp"
#include "tenon/stream_plugin.hpp"

namespace tenon::cuda {

// Lets this thread make calls that the driver forbids, for example waiting for an event, while a
// stream of the process is captured. Such a call would fail and end the other's capture. Without
// the driver's consent calls are made as before.
class Relaxed {
 public:
  Relaxed() { exchanged_ = driver().exchange_capture_mode(&mode_) == result::success; }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;
  ~Relaxed() {
    if (exchanged_) driver().exchange_capture_mode(&mode_);
  }

 private:
  int mode_ = kCaptureRelaxed;  // then the mode to go back to
  bool exchanged_;
};

// Makes a context the thread's own for a while. Every call that needs a context is made so.
class Current {
 public:
  explicit Current(Context context) { TENON_CUDA(context_push, context); }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    Context left = nullptr;
    driver().context_pop(&left);
  }

 private:
  Relaxed relaxed_{};
};

struct Grid {
  int64_t blocks = 0;  // at most 2^31 - 1; 0: nothing is launched
  uint32_t threads = 256;
  uint32_t shared = 0;  // bytes of dynamic shared memory, at most what the Code asked for
  uint32_t blocks_y = 1;
  uint32_t blocks_z = 1;
  // It may begin before the kernel launched before it has ended: every thread of it calls
  // await_earlier (common.cuh says what may be done ahead). Where Properties::early_starts.
  bool early = false;
};
inline int64_t blocks_for(int64_t items, int64_t per_block) {
  return (items + per_block - 1) / per_block;
}

// Where the machine code of a device comes from: the cache on disk, or a compiler.
class CodeSource {
 public:
  CodeSource(Context context, int major, int minor, std::string directory)
      : context_(context), major_(major), minor_(minor), disk_(std::move(directory)) {}
  // Why there is neither code of the text nor a compiler to make it; empty: there is one. Throws
  // Failure when the device is lost or full.
  std::string missing(const std::string& text);
  struct Code {
    std::string bytes;
    bool cached;
  };
  // `fresh`: compiled even if the cache has it. Throws Failure.
  Code get(const std::string& name, const std::string& text, bool fresh) const;
  bool compiles() const { return target().compiler != nullptr; }

 private:
  // A compiler whose code the device's driver takes, and what it compiles for.
  struct Target {
    const Compiler* compiler = nullptr;
    std::string name{};
  };
  Target target() const {
    const std::lock_guard lock(mutex_);
    return target_;
  }
  std::string find_target();
  std::string refused(const Compiler& c, const std::string& target) const;
  std::optional<std::string> find(const std::string& text, const Target& target) const;
  void keep(const std::string& text, const Target& target, const std::string& code) const;
  std::string compilers_key() const;
  Context context_;
  int major_, minor_;
  DiskCache disk_;
  mutable std::mutex mutex_{};
  Target target_{};
  mutable std::mutex listed_mutex_{};
  mutable std::set<std::string> listed_{};  // lines of the list of compilers, written or found
};

// One text with its defines on one device. Several kernels may share it.
class Unit {
 public:
  struct Source {
    std::string name;     // for messages
    std::string text;     // may include the files of device/
    std::string defines;  // "#define ..." lines that go before it
  };
  Unit(Source source, Context context, const CodeSource& from);
  Module load();
  // What launches of an entry of the loaded module may take of shared memory: the most that was
  // asked for, as kernels of other sizes may share the entry.
  void allow_shared(EntryPoint entry, uint32_t bytes);
  void unload() noexcept;

 private:
  Source source_;
  Context context_;
  const CodeSource& from_;
  std::mutex mutex_;
  Module module_ = nullptr;
  std::map<EntryPoint, uint32_t> shared_;  // of its entries
};

// May an argument be passed as a parameter? Types are the same, but for pointers, which may lose
// their type or become const: nothing is converted to another size.
template <class Argument, class Parameter>
inline constexpr bool kPassedAs = std::is_same_v<Argument, Parameter> ||
                                  (std::is_pointer_v<Parameter> && std::is_pointer_v<Argument> &&
                                   std::is_convertible_v<Argument, Parameter>);

// An entry of a text of device/, with the types of its parameters (kernels/entries.def).
template <class... Parameters>
struct Entry {
  std::string_view file;
  const char* name;

  template <class... Arguments>
  static constexpr bool takes() {
    if constexpr (sizeof...(Arguments) == sizeof...(Parameters))
      return (kPassedAs<Arguments, Parameters> && ...);
    else
      return false;
  }
};

// One kernel. Cheap to copy.
class Code {
 public:
  Code() = default;
  Code(std::shared_ptr<Unit> unit, std::string entry, uint32_t shared, Context context);
  // Compiles and loads unless that was done. Throws Failure.
  void prepare() const;
  // After prepare. This is the code of `entry`; other arguments than it takes do not compile.
  template <class... Parameters, class... Arguments,
            std::enable_if_t<Entry<Parameters...>::template takes<Arguments...>(), int> = 0>
  void launch_as(const Entry<Parameters...>& /*entry*/, const sdk::Call& call, const Grid& grid,
                 const Arguments&... arguments) const {
    pass<Parameters...>(call.stream, grid, arguments...);
  }
  // The same of a generated text, whose one parameter is made of words.
  void launch_words(const sdk::Call& call, const Grid& grid, const uint64_t* words) const {
    const void* list[] = {words, nullptr};
    launch_list(call.stream, grid, const_cast<void**>(list));
  }
  // After prepare. Does the entry take so many parameters of 8 bytes each? Yes where the driver does
  // not tell.
  bool takes_words(size_t count) const;
  // The same of a text of another plugin: one parameter of 8 bytes for each word.
  void launch_each(const sdk::Call& call, const Grid& grid, std::span<const uint64_t> words) const {
    std::vector<void*> list;
    list.reserve(words.size() + 1);
    for (const uint64_t& w : words) list.push_back(const_cast<uint64_t*>(&w));
    list.push_back(nullptr);
    launch_list(call.stream, grid, list.data());
  }

 private:
  template <class... Parameters>
  void pass(void* stream, const Grid& grid, const Parameters&... parameters) const {
    const void* list[] = {static_cast<const void*>(&parameters)..., nullptr};
    launch_list(stream, grid, const_cast<void**>(list));
  }
  struct State {
    std::shared_ptr<Unit> unit;
    std::string name;
    uint32_t shared;
    Context context;
    std::mutex mutex{};
    EntryPoint entry = nullptr;
  };
  void launch_list(void* stream, const Grid& grid, void** arguments) const;
  std::shared_ptr<State> state_;
};

// The code of an entry: launched with what the entry takes, and nothing else.
template <class... Parameters>
class TypedCode : public Code {
 public:
  TypedCode() = default;
  explicit TypedCode(Code code) : Code(std::move(code)) {}
  template <class... Arguments,
            std::enable_if_t<Entry<Parameters...>::template takes<Arguments...>(), int> = 0>
  void launch(const sdk::Call& call, const Grid& grid, const Arguments&... arguments) const {
    launch_as(Entry<Parameters...>{}, call, grid, arguments...);
  }
};
template <class... Parameters>
TypedCode<Parameters...> typed_code(const Entry<Parameters...>&);
// CodeFor<entries::softmax>: the type of its code.
template <const auto& entry>
using CodeFor = decltype(typed_code(entry));

// A Kernel that launches these codes.
inline sdk::Kernel kernel_of(std::vector<Code> codes, std::function<void(const sdk::Call&)> run) {
  sdk::Kernel kernel;
  kernel.run = std::move(run);
  kernel.prepare = [codes = std::move(codes)] {
    for (const Code& c : codes) c.prepare();
  };
  return kernel;
}

static_assert(args::kMostAxes == sdk::kMaxRank);

// Where kernels report bad data. The Kernel must say can_fail.
inline args::ErrorSink error_sink(const sdk::Call& call) {
  return {static_cast<args::DeviceWord*>(call.error), call.step};
}

// All units of a device.
class CodeStore {
 public:
  // Of a device of compute capability major.minor. most_shared: bytes of shared memory that a block
  // may have.
  CodeStore(Context context, int major, int minor, uint32_t most_shared)
      : context_(context),
        most_shared_(most_shared),
        from_(context, major, minor, DiskCache::usual_directory()) {}
  // defines: "NAME=VALUE". Throws sdk::Refusal when there is neither code nor a compiler, and when
  // `shared` bytes of dynamic shared memory are more than the kernel can have.
  Code code(std::string_view file, const std::string& entry,
            const std::vector<std::string>& defines, uint32_t shared);
  // A text made at run time; `name` is for messages.
  Code generated(std::string_view name, std::string text, const std::string& entry,
                 uint32_t shared);
  // No code of it is used any more; the context is the thread's own.
  void unload() noexcept;

 private:
  Code find(Unit::Source source, const std::string& entry, uint32_t shared);
  Context context_;
  uint32_t most_shared_;
  CodeSource from_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Unit>> units_;
};

}  // namespace tenon::cuda
