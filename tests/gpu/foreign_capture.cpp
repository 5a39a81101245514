// SPDX-License-Identifier: Apache-2.0
// tenon_foreign_capture [DEVICE]: an app captures CUDA graphs in the driver's global mode, as
// PyTorch does, while tenon runs in another thread of the process, and in the same one. Tenon's
// results must be right, and the app's graph must be complete and do what was captured. Exit status
// 77 where there is no such device.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "app.hpp"
#include "machine.hpp"

namespace {

using namespace tenon;
using cuda::driver;
using gpu::must;

constexpr int kGlobal = 0, kForbidden = 900;
constexpr size_t kBytes = 1 << 20;

// What PyTorch does in torch.cuda.graph: a stream of its own in the device's primary context.
class App {
 public:
  explicit App(int device) : context_(device) {
    must("stream_create", driver().stream_create(&stream_, 1));
    for (cuda::Address* a : {&from_, &to_})
      must("plain_allocate", driver().plain_allocate(a, kBytes));
  }
  App(const App&) = delete;
  App& operator=(const App&) = delete;
  ~App() {
    for (const cuda::Address a : {from_, to_}) driver().plain_free(a);
    driver().stream_destroy(stream_);
  }

  void begin() {
    must("capture_begin", driver().capture_begin(stream_, kGlobal));
    number_ = 0;
  }
  // One more piece of the graph: the copy has the number of the last one.
  void go_on() {
    must("fill_bytes", driver().fill_bytes(from_, ++number_, kBytes, stream_));
    must("copy_on_device", driver().copy_on_device(to_, from_, kBytes, stream_));
  }
  // Ends the capture; then runs the graph and looks at its result.
  void end() {
    cuda::Graph graph = nullptr;
    must("capture_end", driver().capture_end(stream_, &graph));
    cuda::GraphExec ready = nullptr;
    must("graph_instantiate", driver().graph_instantiate(&ready, graph, 0));
    must("fill_bytes", driver().fill_bytes(to_, 0, kBytes, stream_));
    must("graph_launch", driver().graph_launch(ready, stream_));
    std::vector<unsigned char> bytes(kBytes);
    must("copy_to_host", driver().copy_to_host(bytes.data(), to_, kBytes, stream_));
    must("stream_synchronize", driver().stream_synchronize(stream_));
    driver().graph_exec_destroy(ready);
    driver().graph_destroy(graph);
    for (const unsigned char b : bytes)
      if (b != number_)
        throw std::runtime_error("the app's graph: expected bytes of " + std::to_string(number_) +
                                 ", got " + std::to_string(b));
  }
  // Ends a capture that is of no use any more.
  void give_up() {
    cuda::Graph graph = nullptr;
    if (driver().capture_end(stream_, &graph) == 0 && graph) driver().graph_destroy(graph);
  }
  // Does a forbidden call of another thread fail and end the capture? Else nothing here is a test.
  bool can_be_broken() {
    begin();
    int refused = 0;
    std::thread([&] {
      driver().context_push(context_.handle());
      void* memory = nullptr;
      refused = driver().host_allocate(&memory, 64, 0);
      if (memory) driver().host_free(memory);
      cuda::Context left = nullptr;
      driver().context_pop(&left);
    }).join();
    cuda::Graph graph = nullptr;
    const int ended = driver().capture_end(stream_, &graph);
    if (graph) driver().graph_destroy(graph);
    return refused == kForbidden && ended != 0;
  }

 private:
  gpu::Primary context_;
  cuda::Stream stream_ = nullptr;
  cuda::Address from_{}, to_{};
  unsigned char number_ = 0;
};

struct Way {
  const char* name;
  decltype(ExecutableOptions{}.exec_mode) mode;
  bool async;
};
constexpr Way kWays[] = {{"graph", TENON_EXEC_GRAPH, false},
                         {"graph, asynchronous", TENON_EXEC_GRAPH, true},
                         {"stream", TENON_EXEC_STREAM, false},
                         {"multi-stream", TENON_EXEC_MULTI_STREAM, false}};

// From opening the device to closing it.
void run_tenon(const std::string& device, const Way& way) {
  ExecutableOptions options{.device = device, .exec_mode = way.mode};
  if (way.mode == TENON_EXEC_MULTI_STREAM) options.lanes = 2;
  const Runtime runtime;
  if (!test::whole_life(way.async, options, runtime))
    throw std::runtime_error("tenon's results are wrong");
}

// The app captures all the while that tenon lives.
void beside(App& app, const std::string& device, const Way& way) {
  std::string error;
  std::atomic<bool> over = false;
  app.begin();
  app.go_on();
  std::thread other([&] {
    try {
      run_tenon(device, way);
    } catch (const std::exception& e) {
      error = e.what();
    }
    over = true;
  });
  std::string broken;
  try {
    for (int pieces = 0; !over; std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      if (++pieces < 1000) app.go_on();
    app.go_on();
  } catch (const std::exception& e) {
    broken = e.what();
  }
  other.join();
  if (!error.empty() || !broken.empty())
    throw std::runtime_error(error + (error.empty() || broken.empty() ? "" : "; ") + broken);
  app.end();
}

int run(const std::string& device) {
  if (!gpu::has_device(Runtime(), device)) return 77;
  App app(gpu::index_of(device));
  if (!app.can_be_broken()) {
    std::printf("BAD a forbidden call in another thread leaves the app's capture whole\n");
    return 1;
  }
  bool good = true;
  const auto report = [&](const char* where, const Way& way, const auto& act) {
    std::string error;
    try {
      act();
    } catch (const std::exception& e) {
      error = e.what();
      good = false;
      app.give_up();
    }
    std::printf("%-15s %-20s %s%s\n", where, way.name, error.empty() ? "ok" : "BAD ",
                error.c_str());
  };
  for (const Way& way : kWays) {
    report("another thread", way, [&] { beside(app, device, way); });
    report("the same thread", way, [&] {
      app.begin();
      app.go_on();
      run_tenon(device, way);
      app.go_on();
      app.end();
    });
  }
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  setenv("TENON_CUDA_CACHE", "", 1);  // each life compiles, loads and tunes
  try {
    return run(argc > 1 ? argv[1] : "cuda:0");
  } catch (const std::exception& e) {
    std::printf("BAD %s\n", e.what());
    return 1;
  }
}
