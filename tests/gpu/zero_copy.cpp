// SPDX-License-Identifier: Apache-2.0
// tenon_zero_copy [DEVICE [ROUNDS]]: an app with memory, streams and events of its own on a CUDA
// device. Tenon reads and writes that memory in place, on the app's stream, between the app's own
// copies, while another thread captures CUDA graphs in the driver's global mode. Exit status 77
// where there is no such device.
#include <tenon/tenon.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "app.hpp"
#include "code.hpp"

struct DLManagedTensorVersioned {  // what is read of it here
  uint32_t major, minor;
  void* context;
  void (*deleter)(DLManagedTensorVersioned*);
  uint64_t flags;
  void* data;
  int32_t device_type, device_id;
};

namespace {

using namespace tenon;
using cuda::driver;
using gpu::index_of;
using gpu::must;

// Elements of a tensor: few for the stub of the driver, which computes slowly.
int64_t elements = 1 << 18;
uint64_t byte_size() { return static_cast<uint64_t>(elements) * sizeof(float); }

void expect(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error("not so: " + what);
}

// What the app has on the device.
class App {
 public:
  explicit App(int device) : context_(device) {}
  App(const App&) = delete;
  App& operator=(const App&) = delete;
  ~App() {
    for (const cuda::Event e : events_) driver().event_destroy(e);
    for (const cuda::Stream s : streams_) driver().stream_destroy(s);
    for (const cuda::Address a : memory_) driver().plain_free(a);
  }
  cuda::Address allocate(uint64_t bytes) {
    memory_.push_back(0);
    must("plain_allocate", driver().plain_allocate(&memory_.back(), bytes));
    return memory_.back();
  }
  cuda::Stream stream() {
    streams_.push_back(nullptr);
    must("stream_create", driver().stream_create(&streams_.back(), cuda::kStreamNonBlocking));
    return streams_.back();
  }
  cuda::Event event() {
    events_.push_back(nullptr);
    must("event_create", driver().event_create(&events_.back(), cuda::kEventNoTiming));
    return events_.back();
  }

 private:
  gpu::Primary context_;
  std::vector<cuda::Address> memory_;
  std::vector<cuda::Stream> streams_;
  std::vector<cuda::Event> events_;
};

// Captures graphs in global mode, over and over, until it is destroyed.
class Capturing {
 public:
  explicit Capturing(int device)
      : thread_([this, device] {
          try {
            loop(device);
          } catch (const std::exception& e) {
            failure_ = e.what();
          }
        }) {}
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;
  ~Capturing() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Ends it; says how many graphs were captured.
  int end() {
    stop_ = true;
    thread_.join();
    if (!failure_.empty()) throw std::runtime_error(failure_);
    return graphs_;
  }

 private:
  void loop(int device) {
    App app(device);
    const cuda::Address from = app.allocate(1 << 16), to = app.allocate(1 << 16);
    const cuda::Stream stream = app.stream();
    constexpr int kGlobal = 0;
    while (!stop_) {
      must("capture_begin", driver().capture_begin(stream, kGlobal));
      for (int k = 0; k < 20; ++k) {
        must("copy_on_device", driver().copy_on_device(to, from, 1 << 16, stream));
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      cuda::Graph graph = nullptr;
      must("capture_end", driver().capture_end(stream, &graph));
      must("graph_destroy", driver().graph_destroy(graph));
      ++graphs_;
    }
  }
  std::atomic<bool> stop_{false};
  int graphs_ = 0;
  std::string failure_;
  std::thread thread_;  // last: uses the rest
};

float float_of(unsigned char byte) {
  float value = 0;
  const unsigned char bytes[] = {byte, byte, byte, byte};
  std::memcpy(&value, bytes, 4);
  return value;
}

struct Subject {
  Store store;
  Executable executable;
  Context context;
  Subject(const Runtime& runtime, const std::string& device, const std::string& text,
          uint32_t mode = TENON_EXEC_DEFAULT)
      : store(runtime),
        executable(runtime, Graph::parse(text, "zero copy"), store,
                   {.device = device, .allow_fallback = false, .exec_mode = mode}),
        context(executable) {}
};

// One op, which the stub of the driver computes too.
std::string twice() {
  return "graph {\n input x: f32[" + std::to_string(elements) +
         "]\n y = binary(x, x) {kind=\"add\"}\n output \"y\" = y\n}";
}

void* pointer(cuda::Address a) { return reinterpret_cast<void*>(a); }

void use(Context& context, const std::string& name, const TensorType& type, cuda::Address at,
         const std::string& device) {
  context.bind(name, type, pointer(at), byte_size(), device);
}

// The app fills x, tenon computes y, the app copies y to z: all on one stream, nobody waits between.
void rounds(const Runtime& runtime, const std::string& device, int rounds, uint32_t mode) {
  App app(index_of(device));
  const cuda::Stream stream = app.stream();
  const cuda::Address inputs[] = {app.allocate(byte_size()), app.allocate(byte_size())};
  const cuda::Address y = app.allocate(byte_size()), z = app.allocate(byte_size());
  Subject s(runtime, device, twice(), mode);
  const TensorType type(f32, {elements});
  use(s.context, "y", type, y, device);
  s.context.use_stream(device, stream);
  expect(s.context.stream(device) == stream, "the context says which stream it uses");
  std::atomic<int> ends{0};
  s.context.on_end([&](tenon_code code) { ends += code == TENON_OK; });
  Capturing other(index_of(device));
  std::vector<float> got(elements);
  for (int k = 0; k < rounds; ++k) {
    const auto byte = static_cast<unsigned char>(k % 60);
    const cuda::Address x = inputs[k / 20 % 2];  // imported while the other thread captures
    use(s.context, "x", type, x, device);
    must("fill_bytes", driver().fill_bytes(x, byte, byte_size(), stream));
    s.context.run_async();
    must("copy_on_device", driver().copy_on_device(z, y, byte_size(), stream));
    must("fill_bytes", driver().fill_bytes(y, 0xFF, byte_size(), stream));
    if (k % 50 == 0 || k == rounds - 1) {
      const cuda::Relaxed relaxed;  // a capture elsewhere would forbid this call
      must("copy_to_host", driver().copy_to_host(got.data(), z, byte_size(), stream));
      must("stream_synchronize", driver().stream_synchronize(stream));
      for (const float v : got) expect(v == float_of(byte) * 2, "z of round " + std::to_string(k));
    }
    s.context.wait();
    expect(ends == k + 1, "the callback of round " + std::to_string(k));
  }
  const int graphs = other.end();
  expect(graphs > 0, "graphs were captured beside the rounds");
  std::printf("%s mode: %d rounds on the app's stream, %d graphs captured beside them: right\n",
              mode == TENON_EXEC_GRAPH ? "graph" : "default", rounds, graphs);
}

// Work of the app on another stream, ordered by its events.
void events(const Runtime& runtime, const std::string& device) {
  App app(index_of(device));
  const cuda::Stream mine = app.stream(), tenons = app.stream();
  const cuda::Event filled = app.event(), done = app.event();
  const cuda::Address x = app.allocate(byte_size()), y = app.allocate(byte_size()),
                      z = app.allocate(byte_size());
  Subject s(runtime, device, twice());
  const TensorType type(f32, {elements});
  use(s.context, "x", type, x, device);
  use(s.context, "y", type, y, device);
  s.context.use_stream(device, tenons);
  std::vector<float> got(elements);
  for (int k = 0; k < 50; ++k) {
    const auto byte = static_cast<unsigned char>(k + 1);
    for (int more = 0; more < 20; ++more)  // so that x is late
      must("fill_bytes", driver().fill_bytes(x, 0, byte_size(), mine));
    must("fill_bytes", driver().fill_bytes(x, byte, byte_size(), mine));
    must("event_record", driver().event_record(filled, mine));
    s.context.wait_event(device, filled);
    s.context.record_event(device, done);
    s.context.run_async();
    must("stream_wait", driver().stream_wait(mine, done, 0));
    must("copy_on_device", driver().copy_on_device(z, y, byte_size(), mine));
    must("copy_to_host", driver().copy_to_host(got.data(), z, byte_size(), mine));
    must("stream_synchronize", driver().stream_synchronize(mine));
    for (const float v : got) expect(v == float_of(byte) * 2, "z of round " + std::to_string(k));
    s.context.wait();
  }
  // A run that only waits for an event, which is gone once the run is started.
  s.context.use_stream(device, nullptr);
  for (int k = 0; k < 20; ++k) {
    const auto byte = static_cast<unsigned char>(k + 1);
    cuda::Event event = nullptr;
    must("event_create", driver().event_create(&event, cuda::kEventNoTiming));
    for (int more = 0; more < 20; ++more)
      must("fill_bytes", driver().fill_bytes(x, 0, byte_size(), mine));
    must("fill_bytes", driver().fill_bytes(x, byte, byte_size(), mine));
    must("event_record", driver().event_record(event, mine));
    s.context.wait_event(device, event);
    s.context.run_async();
    must("event_destroy", driver().event_destroy(event));
    s.context.wait();
    for (const float v : s.context.get<float>("y"))
      expect(v == float_of(byte) * 2, "y behind an event");
  }
  // Events of a run that is cancelled or does not start are forgotten.
  s.context.unbind("x");
  s.context.wait_event(device, pointer(16));  // no event
  bool failed = false;
  try {
    s.context.run();
  } catch (const Error&) {
    failed = true;  // x is not set
  }
  expect(failed, "a run without its input fails");
  use(s.context, "x", type, x, device);
  s.context.run();
  std::printf("events of the app: 70 rounds, right\n");
}

int occurrences(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// What a run moves between host and device, from its trace.
int moved_by_run(const Runtime& runtime, Context& context) {
  detail::check(tenon_trace_start(runtime.handle(), nullptr));
  context.run();
  tenon_text* text = nullptr;
  detail::check(tenon_trace_stop(runtime.handle(), &text));
  const tenon_str s = tenon_text_str(text);
  const std::string json(s.data, s.size);
  tenon_text_destroy(text);
  expect(occurrences(json, "\"cat\":\"region\"") > 0, "the trace has the run");
  return occurrences(json, "\"cat\":\"write\"") + occurrences(json, "\"cat\":\"copy\"") +
         occurrences(json, "\"cat\":\"read\"");
}

void traced(const Runtime& runtime, const std::string& device) {
  App app(index_of(device));
  const TensorType type(f32, {elements});
  const cuda::Address x = app.allocate(byte_size()), y = app.allocate(byte_size());
  std::vector<float> host(elements, 1.0f), back(elements);
  Subject s(runtime, device, twice());
  use(s.context, "x", type, x, device);
  use(s.context, "y", type, y, device);
  s.context.run();
  expect(moved_by_run(runtime, s.context) == 0, "nothing is moved for bound device memory");
  expect(s.context.output("y").data == pointer(y), "the output is where the app wants it");
  s.context.bind("x", {elements}, std::span<float>(host));
  s.context.bind("y", {elements}, std::span<float>(back));
  s.context.run();
  expect(moved_by_run(runtime, s.context) == 2, "host memory is moved there and back");
  for (const float v : back) expect(v == 2, "what came back: " + std::to_string(v));
  std::printf("traces: device memory in place, host memory moved once each way\n");
}

// Addresses change between runs of a captured program, and come back.
void moves(const Runtime& runtime, const std::string& device) {
  App app(index_of(device));
  const TensorType type(f32, {elements});
  Subject s(runtime, device, twice(), TENON_EXEC_GRAPH);
  const cuda::Stream stream = app.stream();
  std::vector<cuda::Address> x, y;
  for (int k = 0; k < 3; ++k) {
    x.push_back(app.allocate(byte_size() + 256)), y.push_back(app.allocate(byte_size()));
    must("fill_bytes", driver().fill_bytes(x.back() + 256, static_cast<unsigned char>(k + 5),
                                           byte_size(), stream));
  }
  must("stream_synchronize", driver().stream_synchronize(stream));
  for (int k = 0; k < 12; ++k) {
    const size_t at = static_cast<size_t>(k / 2 % 3);  // each twice
    use(s.context, "x", type, x[at] + 256, device);    // aligned to 256 bytes and no more
    use(s.context, "y", type, y[at], device);
    s.context.run();
    const float want = float_of(static_cast<unsigned char>(at + 5)) * 2;
    for (const float v : s.context.get<float>("y")) expect(v == want, "y at another address");
  }
  // Outputs given away stay what they are.
  s.context.unbind("y");
  std::vector<DLManagedTensorVersioned*> kept;
  for (size_t at = 0; at < 3; ++at) {
    use(s.context, "x", type, x[at] + 256, device);
    s.context.run();
    kept.push_back(s.context.output_dlpack("y"));
    expect(kept.back()->device_type == 2 && kept.back()->device_id == index_of(device),
           "DLPack's device");
  }
  Subject next(runtime, device, twice());
  for (size_t at = 0; at < 3; ++at) {
    next.context.bind_dlpack("x", kept[at]);  // which owns it from here on
    next.context.run();
    const float want = float_of(static_cast<unsigned char>(at + 5)) * 4;
    for (const float v : next.context.get<float>("y")) expect(v == want, "a tensor given away");
  }
  std::printf("addresses that change, outputs given away: right\n");
}

void refusals(const Runtime& runtime, const std::string& device) {
  App app(index_of(device));
  const TensorType type(f32, {elements});
  const cuda::Address x = app.allocate(byte_size());
  std::vector<float> host(elements);
  Subject s(runtime, device, twice());
  const auto refused = [&](const char* what, cuda::Address at, const std::string& words) {
    try {
      use(s.context, "x", type, at, device);
    } catch (const Error& e) {
      expect(e.code() == TENON_INVALID_ARGUMENT, std::string(what) + ": the code");
      expect(std::string(e.what()).find(words) != std::string::npos,
             std::string(what) + ": the message, " + e.what());
      return;
    }
    throw std::runtime_error(std::string(what) + " was accepted");
  };
  refused("memory aligned to 4 bytes", x + 4, "aligned to 4 bytes");
  refused("host memory", (reinterpret_cast<cuda::Address>(host.data()) + 255) / 256 * 256,
          "not memory of a CUDA device");
  refused("memory that ends too early", x + (1 << 10), "not memory of a CUDA device");
  s.context.bind("x", {elements}, std::span<float>(host));
  s.context.run();
  std::printf("refusals: as they should be\n");
}

int run(const std::string& device, int count) {
  const Runtime runtime;
  if (!gpu::has_device(runtime, device)) return 77;
  if (std::getenv("TENON_STUB_CUDA")) elements = 1 << 12;
  traced(runtime, device);
  moves(runtime, device);
  refusals(runtime, device);
  events(runtime, device);
  rounds(runtime, device, count, TENON_EXEC_DEFAULT);
  rounds(runtime, device, count, TENON_EXEC_GRAPH);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "cuda:0", argc > 2 ? std::atoi(argv[2]) : 1000);
  } catch (const std::exception& e) {
    std::printf("BAD %s\n", e.what());
    return 1;
  }
}
