// SPDX-License-Identifier: Apache-2.0
// Describes and opens devices; streams, events and graphs are thin over the driver's own.
#include "device.hpp"

#include <stdlib.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstring>

#include "blas.hpp"
#include "compiler.hpp"

namespace tenon::cuda {
namespace {

constexpr int kOldestMajor = 7, kOldestMinor = 5;
constexpr uint64_t kAlignment = 256;
constexpr uint32_t kDlpackCuda = 2;

// TENON_CUDA_EARLY_LAUNCH=0: no kernel is launched early.
bool early_launches_wanted() {
  const char* text = secure_getenv("TENON_CUDA_EARLY_LAUNCH");
  return !text || std::string_view(text) != "0";
}

std::string_view batch_invariance_setting() {
  const char* text = secure_getenv("TENON_CUDA_BATCH_INVARIANT");
  return text ? text : "";
}
// What it rests on was measured on sm_90.
bool can_be_batch_invariant(int major) { return major == 9; }
Invariance invariance_of(int major) {
  const std::string_view setting = batch_invariance_setting();
  if (!can_be_batch_invariant(major) || setting == "0") return Invariance::never;
  return setting == "1" ? Invariance::always : Invariance::where_asked;
}

int attribute_of(DeviceId id, int which) {
  int value = 0;
  TENON_CUDA(device_attribute, &value, which, id);
  return value;
}

Properties read_properties(DeviceId id) {
  Properties p;
  std::array<char, 256> name{};
  TENON_CUDA(device_name, name.data(), static_cast<int>(name.size()) - 1, id);
  p.name = name.data();
  p.major = attribute_of(id, attribute::major);
  p.minor = attribute_of(id, attribute::minor);
  p.multiprocessors = attribute_of(id, attribute::multiprocessors);
  p.integrated = attribute_of(id, attribute::integrated) != 0;
  p.shared_per_block = static_cast<uint32_t>(attribute_of(id, attribute::shared_per_block_optin));
  constexpr int kStartsEarly = 9;
  p.early_starts =
      p.major >= kStartsEarly && driver().has_early_starts() && early_launches_wanted();
  p.invariance = invariance_of(p.major);
  p.l2_bytes = static_cast<uint64_t>(attribute_of(id, attribute::l2_bytes));
  size_t bytes = 0;
  TENON_CUDA(device_memory, &bytes, id);
  p.memory_bytes = bytes;
  return p;
}

// Why a device cannot be used, empty when it can.
std::string obstacle(DeviceId id, const Properties& p) {
  constexpr int kProhibited = 2;
  if (p.major * 10 + p.minor < kOldestMajor * 10 + kOldestMinor)
    return "compute capability " + std::to_string(p.major) + "." + std::to_string(p.minor) +
           ", needed is 7.5 or later";
  if (attribute_of(id, attribute::compute_mode) == kProhibited)
    return "its compute mode prohibits contexts";
  return {};
}

// TENON_CUDA_MEMORY_LIMIT, in bytes; 0 = none.
uint64_t memory_limit() {
  const char* text = secure_getenv("TENON_CUDA_MEMORY_LIMIT");
  uint64_t bytes = 0;
  if (text) std::from_chars(text, text + std::strlen(text), bytes);
  return bytes;
}

Stream stream_of(void* s) { return static_cast<Stream>(s); }
Event event_of(void* e) { return static_cast<Event>(e); }
Address address_of(const void* p) { return reinterpret_cast<Address>(p); }
Address address_of(const sdk::Place& p) { return address_of(p.address()); }

}  // namespace

std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&) {
  std::vector<sdk::DeviceSpec> list;
  int count = 0;
  if (!driver()) return list;
  if (const Result r = driver().device_count(&count); r != result::success) {
    // One in place of all, so that whoever asks for a device is told why there is none.
    list.push_back({.kind = "cuda",
                    .name = "NVIDIA devices",
                    .reason = driver().describe("device_count", r),
                    .alignment = kAlignment});
    return list;
  }
  for (int i = 0; i < count; ++i) {
    sdk::DeviceSpec& spec = list.emplace_back();
    spec.kind = "cuda";
    spec.alignment = kAlignment;
    spec.flags = TENON_DEVICE_REBIND_DEAR | TENON_DEVICE_LANES;
    spec.dlpack_type = kDlpackCuda;
    spec.dlpack_id = static_cast<uint32_t>(i);
    try {
      DeviceId id = 0;
      TENON_CUDA(device_get, &id, i);
      const Properties p = read_properties(id);
      spec.name = p.name;
      spec.memory_size = p.memory_bytes;
      spec.device_class =
          p.integrated ? TENON_DEVICE_CLASS_INTEGRATED : TENON_DEVICE_CLASS_DISCRETE;
      spec.reason = obstacle(id, p);
    } catch (const std::exception& e) {
      spec.reason = e.what();
    }
    if (spec.name.empty()) spec.name = "NVIDIA device " + std::to_string(i);
  }
  return list;
}

namespace {

// What becomes of TENON_CUDA_BATCH_INVARIANT on `count` devices.
std::string batch_invariance_note(int count) {
  const std::string_view setting = batch_invariance_setting();
  if (count == 0 || setting.empty() || setting == "0") return "";
  if (setting != "1")
    return "; TENON_CUDA_BATCH_INVARIANT: expected 0 or 1, got '" + std::string(setting) + "'";
  int able = 0;
  for (int i = 0; i < count; ++i) {
    DeviceId id = 0;
    int major = 0;
    if (driver().device_get(&id, i) == result::success &&
        driver().device_attribute(&major, attribute::major, id) == result::success &&
        can_be_batch_invariant(major))
      ++able;
  }
  if (able == count)
    return std::string("; devices are batch invariant") +
           (compiler() ? "" : ", if the cache has the code that compares products");
  const std::string on =
      able == 0 ? "no device is"
                : std::to_string(able) + " of " + std::to_string(count) + " devices are";
  return "; TENON_CUDA_BATCH_INVARIANT is set, but " + on + " batch invariant, which needs sm_90";
}

}  // namespace

std::string note(const sdk::Runtime&) {
  if (!driver()) return driver().reason;
  std::string text = "driver for CUDA " + std::to_string(driver().version / 1000) + "." +
                     std::to_string(driver().version % 1000 / 10);
  int count = 0;
  if (driver().device_count(&count) != result::success)
    count = 0;
  else if (count == 0)
    text += "; the NVIDIA driver sees no device";
  text += compiler_note();
  text += blas() ? ", cuBLASLt " + blas().version() : "; " + blas().reason();
  if (blas() && !blas().passed_over().empty())
    text += " (passed over: " + blas().passed_over() + ")";
  text += batch_invariance_note(count);
  if (const std::string why = DiskCache::obstacle(DiskCache::usual_directory()); !why.empty())
    text += "; no cache: " + why;
  return text;
}

std::unique_ptr<sdk::Device> open(const sdk::Runtime& runtime, uint32_t index, uint32_t) {
  static std::atomic<bool> told{false};
  if (!ranges().reason().empty() && !told.exchange(true)) {
    const std::string text = "cuda: no ranges for a profiler: " + ranges().reason();
    runtime.host->log(2, {text.data(), text.size()});
  }
  DeviceId id = 0;
  TENON_CUDA(device_get, &id, static_cast<int>(index));
  return std::make_unique<CudaDevice>(id);
}

// For what gives back and cannot fail: does nothing when the context cannot be entered.
template <class Body>
void CudaDevice::quietly(Body&& body) const noexcept {
  const Relaxed relaxed;
  if (driver().context_push(context()) != result::success) return;
  body();
  Context left = nullptr;
  driver().context_pop(&left);
}

CudaDevice::Primary::Primary(DeviceId device) : id(device) {
  const Relaxed relaxed;
  TENON_CUDA(context_retain, &handle, id);
}
CudaDevice::Primary::~Primary() {
  const Relaxed relaxed;
  driver().context_release(id);
}

CudaDevice::CudaDevice(DeviceId id)
    : context_(id),
      properties_(read_properties(id)),
      codes_(context_.handle, properties_.major, properties_.minor, properties_.shared_per_block),
      choices_(DiskCache::usual_directory(), Choices::usually_timed()) {
  const Current current(context());
  try {
    const bool pools = attribute_of(id, attribute::memory_pools) != 0;
    memory_ = std::make_unique<Memory>(id, pools, memory_limit());
    staging_ = std::make_unique<Staging>();
    callbacks_ = std::make_unique<Callbacks>();
  } catch (...) {
    // While the context is the thread's own.
    staging_ = nullptr;
    memory_ = nullptr;
    throw;
  }
}

CudaDevice::~CudaDevice() {
  const auto close = [this] {
    callbacks_ = nullptr;
    staging_ = nullptr;
    memory_ = nullptr;
    if (blas_) give_blas_handle(blas_);
    blas_ = nullptr;
    codes_.unload();
  };
  quietly(close);
  close();  // where the context could not be entered: the host's part at least
}

bool CudaDevice::multiplies() {
  try {
    return blas() && blas_handle();
  } catch (const sdk::Failure& e) {
    if (e.code() != TENON_INTERNAL) throw;
    return false;
  }
}

BlasHandle CudaDevice::blas_handle() {
  const std::lock_guard lock(blas_mutex_);
  if (blas_) return blas_;
  const Current current(context());
  return blas_ = take_blas_handle();
}

// ---- Memory

void* CudaDevice::allocate(uint64_t bytes, uint64_t) {
  const Current current(context());
  return memory_->allocate(bytes);
}
void CudaDevice::deallocate(void* memory, uint64_t bytes) noexcept {
  quietly([&] { memory_->free(memory, bytes); });
}

// Pinned and managed memory has one address on the host and on the device.
void* CudaDevice::allocate(uint64_t bytes, uint64_t alignment, uint32_t kind) {
  if (kind == TENON_MEMORY_DEVICE) return allocate(bytes, alignment);
  const Current current(context());
  if (kind == TENON_MEMORY_HOST_VISIBLE) {
    void* memory = nullptr;
    TENON_CUDA(host_allocate, &memory, bytes, kHostPortable | kHostMapped);
    return memory;
  }
  if (!driver().allocate_managed)
    throw sdk::Failure(TENON_UNSUPPORTED, "this driver has no unified memory");
  Address memory = 0;
  TENON_CUDA(allocate_managed, &memory, bytes, kManagedGlobal);
  return reinterpret_cast<void*>(memory);
}
void CudaDevice::deallocate(void* memory, uint64_t bytes, uint32_t kind) noexcept {
  if (kind == TENON_MEMORY_DEVICE) return deallocate(memory, bytes);
  quietly([&] {
    if (kind == TENON_MEMORY_HOST_VISIBLE)
      driver().host_free(memory);
    else
      driver().plain_free(address_of(memory));
  });
}

// Checks only the first and the last byte, because a range may cover several allocations. Does not
// detect a hole between them.
void* CudaDevice::import_memory(void* address, uint64_t bytes) {
  const Current current(context());
  constexpr unsigned kOnDevice = 2;
  for (const Address at : {address_of(address), address_of(address) + bytes - 1}) {
    unsigned memory = 0;
    int device = -1;
    const Result r = driver().pointer_attribute(&memory, attribute::pointer_memory, at);
    if (r != result::success && r != result::invalid_value) driver().check("pointer_attribute", r);
    if (r != result::success || memory != kOnDevice)
      throw sdk::Failure(TENON_INVALID_ARGUMENT, "memory of " + std::to_string(bytes) +
                                                     " bytes: it is not memory of a CUDA device");
    TENON_CUDA(pointer_attribute, &device, attribute::pointer_device, at);
    if (device != context_.id)
      throw sdk::Failure(TENON_INVALID_ARGUMENT, "memory of " + std::to_string(bytes) +
                                                     " bytes: expected device " +
                                                     std::to_string(context_.id) +
                                                     ", it is on device " + std::to_string(device));
  }
  return address;
}

void CudaDevice::write(sdk::Place target, const void* source, uint64_t size, void* stream) {
  const Current current(context());
  if (!stream) return staging_->write(address_of(target), source, size);
  TENON_CUDA(copy_to_device, address_of(target), source, size, stream_of(stream));
}
void CudaDevice::read(void* target, sdk::Place source, uint64_t size, void* stream) {
  const Current current(context());
  if (!stream) return staging_->read(target, address_of(source), size);
  TENON_CUDA(copy_to_host, target, address_of(source), size, stream_of(stream));
}
void CudaDevice::copy(sdk::Place target, StreamDevice& from, sdk::Place source, uint64_t size,
                      void* stream) {
  const Current current(context());
  auto& owner = static_cast<CudaDevice&>(from);
  const Context other = owner.context();
  if (other != context()) {
    owner.let_in(*this);
    let_in(owner);
  }
  Stream on = stream_of(stream);
  if (!stream) TENON_CUDA(stream_create, &on, kStreamNonBlocking);
  Result r = other == context()
                 ? driver().copy_on_device(address_of(target), address_of(source), size, on)
                 : driver().copy_between(address_of(target), context(), address_of(source), other,
                                         size, on);
  if (!stream) {
    if (r == result::success) r = driver().stream_synchronize(on);
    driver().stream_destroy(on);
  }
  driver().check("copy", r);
}

void CudaDevice::let_in(const CudaDevice& peer) {
  const std::lock_guard lock(peers_mutex_);
  if (peers_.contains(peer.context_.id)) return;
  // Where it cannot be opened the driver takes copies through the host; what keeps those from being
  // made too, they tell themselves.
  int can = 0;
  const Result r = driver().device_can_access_peer(&can, peer.context_.id, context_.id);
  if (r != result::success || (can && memory_->let_in(peer.context_.id) != result::success)) return;
  peers_.insert(peer.context_.id);
}

// ---- Running

void CudaDevice::run(void (*body)(void*), void* arg) {
  const Current current(context());
  body(arg);
}

void* CudaDevice::stream_create() {
  const Current current(context());
  Stream stream = nullptr;
  TENON_CUDA(stream_create, &stream, kStreamNonBlocking);
  return stream;
}
void CudaDevice::stream_destroy(void* stream) noexcept {
  quietly([&] {
    driver().stream_synchronize(stream_of(stream));
    driver().stream_destroy(stream_of(stream));
  });
}
void CudaDevice::stream_synchronize(void* stream) {
  const Current current(context());
  TENON_CUDA(stream_synchronize, stream_of(stream));
}
void CudaDevice::stream_wait(void* stream, void* event) {
  const Current current(context());
  TENON_CUDA(stream_wait, stream_of(stream), event_of(event), 0);
}
void* CudaDevice::event_create() {
  const Current current(context());
  Event event = nullptr;
  TENON_CUDA(event_create, &event, kEventNoTiming);
  return event;
}
void CudaDevice::event_destroy(void* event) noexcept {
  quietly([&] { driver().event_destroy(event_of(event)); });
}
void CudaDevice::event_record(void* event, void* stream) {
  const Current current(context());
  TENON_CUDA(event_record, event_of(event), stream_of(stream));
}
bool CudaDevice::event_done(void* event) {
  const Current current(context());
  const Result r = driver().event_query(event_of(event));
  if (r == result::not_ready) return false;
  driver().check("event_query", r);
  return true;
}
void CudaDevice::event_synchronize(void* event) {
  const Current current(context());
  TENON_CUDA(event_synchronize, event_of(event));
}
void CudaDevice::event_on_done(void* event, void (*callback)(void*), void* user) {
  const Current current(context());
  callbacks_->call_when_done(event_of(event), callback, user);
}

// ---- Error words

CudaDevice::ErrorWord CudaDevice::error_word_create() {
  const Current current(context());
  ErrorWord word;
  args::DeviceWord on_device;
  void* host = nullptr;
  TENON_CUDA(host_allocate, &host, sizeof(uint64_t), kHostPortable | kHostMapped);
  word.host = on_device.told = static_cast<uint64_t*>(host);
  *word.host = sdk::kNoError;
  try {
    word.device = memory_->allocate(kAlignment);
    write({word.device, 0}, &on_device, sizeof on_device, nullptr);
  } catch (...) {
    error_word_destroy(word);
    throw;
  }
  return word;
}
void CudaDevice::error_word_destroy(const ErrorWord& word) noexcept {
  if (word.device) deallocate(word.device, kAlignment);
  quietly([&] { driver().host_free(const_cast<uint64_t*>(word.host)); });
}
void CudaDevice::error_word_reset(const ErrorWord& word, void* stream) {
  TENON_CUDA(fill_bytes, address_of(word.device), 0xFF, sizeof(uint64_t), stream_of(stream));
}
void CudaDevice::error_word_fetch(const ErrorWord&, void*) {}  // kernels told the host

// ---- Graphs

void CudaDevice::record_begin(void* stream) {
  TENON_CUDA(capture_begin, stream_of(stream), kCaptureThreadLocal);
}
void* CudaDevice::record_end(void* stream) {
  Graph graph = nullptr;
  TENON_CUDA(capture_end, stream_of(stream), &graph);
  GraphExec recording = nullptr;
  const Result r = driver().graph_instantiate(&recording, graph, 0);
  driver().graph_destroy(graph);
  driver().check("graph_instantiate", r);
  return recording;
}
void CudaDevice::replay(void* recording, void* stream) {
  TENON_CUDA(graph_launch, static_cast<GraphExec>(recording), stream_of(stream));
}
void CudaDevice::recording_destroy(void* recording) noexcept {
  quietly([&] { driver().graph_exec_destroy(static_cast<GraphExec>(recording)); });
}

// ---- Timers

void* CudaDevice::timer_create() {
  const Current current(context());
  Event timer = nullptr;
  TENON_CUDA(event_create, &timer, kEventTiming);
  return timer;
}
void CudaDevice::timer_destroy(void* timer) noexcept { event_destroy(timer); }
void CudaDevice::timer_record(void* timer, void* stream) {
  TENON_CUDA(event_record, event_of(timer), stream_of(stream));
}
double CudaDevice::timer_elapsed(void* from, void* to) {
  float milliseconds = 0;
  TENON_CUDA(event_elapsed, &milliseconds, event_of(from), event_of(to));
  return 1e-3 * milliseconds;
}

}  // namespace tenon::cuda
