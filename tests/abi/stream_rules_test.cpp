// SPDX-License-Identifier: Apache-2.0
// What backend.h states about events and copies, on every plugin of the tree with streams that are
// threads.
#include <doctest/doctest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "fake_host.hpp"

namespace tenon::test {

namespace {

void require(tenon_status* status) {
  const Problem p = Plugin::problem(status);
  CHECK(p.text == "");
  REQUIRE(p.code == TENON_OK);
}

// Counts callbacks. While it is shut, a callback blocks the thread that makes it, unless this is
// the thread of the test: an event that is done calls back at once.
class Gate {
 public:
  static void pass(void* gate) {
    auto& g = *static_cast<Gate*>(gate);
    std::unique_lock lock(g.mutex_);
    g.changed_.wait(lock, [&] { return g.open_ || std::this_thread::get_id() == g.test_; });
    ++g.count_;
    g.changed_.notify_all();
  }
  void shut() { set(false); }
  void open() { set(true); }
  int count() {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  // False if there are fewer callbacks after some seconds.
  bool reaches(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), [&] { return count_ >= count; });
  }

 private:
  void set(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  std::mutex mutex_{};
  std::condition_variable changed_{};
  const std::thread::id test_ = std::this_thread::get_id();
  bool open_ = true;
  int count_ = 0;
};

// A plugin with three streams and a buffer.
struct Rig {
  static constexpr uint64_t kSize = 1 << 16;
  explicit Rig(const std::string& path) : plugin(path), t(plugin.table()) {
    for (tenon_stream*& s : streams) require(t.stream_create(plugin.device(), nullptr, &s));
    const tenon_buffer_options options = buffer_options(kSize);
    require(t.buffer_create(plugin.device(), &options, &buffer));
  }
  ~Rig() {
    for (tenon_stream* s : streams) t.stream_destroy(s);
    t.buffer_destroy(buffer);
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;
  tenon_event* event() {
    tenon_event* e = nullptr;
    require(t.event_create(plugin.device(), &e));
    return e;
  }
  bool done(tenon_event* e) {
    uint32_t done = 2;
    require(t.event_query(e, &done));
    CHECK(done <= 1);
    return done == 1;
  }
  // Work that takes a while, at the end of the buffer.
  void keep_busy(tenon_stream* stream) {
    for (int i = 0; i < 100; ++i)
      require(t.buffer_write(buffer, kSize / 2, work.data(), kSize / 2, stream));
  }
  Bytes read(uint64_t offset, uint64_t size, tenon_stream* stream = nullptr) {
    Bytes bytes(size);
    require(t.buffer_read(buffer, offset, bytes.data(), size, stream));
    if (stream) require(t.stream_synchronize(stream));
    return bytes;
  }

  Plugin plugin;
  const tenon_backend& t;
  tenon_stream* streams[3] = {};
  tenon_buffer* buffer = nullptr;
  const Bytes work = Bytes(kSize / 2, 9);
};

const char* const kPlugins[] = {TENON_STREAM_PLUGINS};

}  // namespace

TEST_SUITE("abi/stream_rules") {
  TEST_CASE("event: done until it is recorded for the first time") {
    for (const char* path : kPlugins) {
      CAPTURE(std::string(path));
      Rig rig(path);
      tenon_event* e = rig.event();
      CHECK(rig.done(e));
      require(rig.t.event_wait(e));
      require(rig.t.stream_wait_event(rig.streams[0], e));
      require(rig.t.stream_synchronize(rig.streams[0]));
      Gate gate;
      require(rig.t.event_on_done(e, Gate::pass, &gate));
      CHECK(gate.reaches(1));
      rig.t.event_destroy(e);
    }
  }

  TEST_CASE("event: destroyed or recorded again, earlier callbacks and waits keep their point") {
    for (const char* path : kPlugins) {
      CAPTURE(std::string(path));
      Rig rig(path);
      Gate first, rest;
      first.shut();
      tenon_event *blocked = rig.event(), *e = rig.event();
      const Bytes content(64, 7);
      // The first callback may hold up the stream that makes it.
      rig.keep_busy(rig.streams[0]);
      require(rig.t.event_record(blocked, rig.streams[0]));
      require(rig.t.event_on_done(blocked, Gate::pass, &first));
      require(rig.t.buffer_write(rig.buffer, 0, content.data(), content.size(), rig.streams[0]));
      require(rig.t.event_record(e, rig.streams[0]));
      require(rig.t.event_on_done(e, Gate::pass, &rest));
      require(rig.t.stream_wait_event(rig.streams[1], e));
      // The second point is on a stream without work.
      require(rig.t.event_record(e, rig.streams[2]));
      require(rig.t.event_on_done(e, Gate::pass, &rest));
      require(rig.t.stream_synchronize(rig.streams[2]));
      rig.t.event_destroy(e);
      rig.t.event_destroy(blocked);
      first.open();
      CHECK(rig.read(0, 64, rig.streams[1]) == content);
      require(rig.t.stream_synchronize(rig.streams[0]));
      CHECK(first.reaches(1));
      CHECK(rest.reaches(2));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      CHECK(first.count() == 1);
      CHECK(rest.count() == 2);
    }
  }

  TEST_CASE("callbacks: the last one comes before the device is closed") {
    for (const char* path : kPlugins) {
      CAPTURE(std::string(path));
      Gate gate;
      {
        Rig rig(path);
        tenon_event* e = rig.event();
        rig.keep_busy(rig.streams[0]);
        require(rig.t.event_record(e, rig.streams[0]));
        require(rig.t.event_on_done(e, Gate::pass, &gate));
        rig.t.event_destroy(e);
      }
      CHECK(gate.count() == 1);
    }
  }

  TEST_CASE("copies without a stream: they do not wait for streams that use the same buffer") {
    for (const char* path : kPlugins) {
      CAPTURE(std::string(path));
      Rig rig(path);
      const Bytes content(Rig::kSize, 3), other(100, 5);
      Gate gate;
      gate.shut();
      tenon_event* blocked = rig.event();
      rig.keep_busy(rig.streams[0]);
      require(rig.t.event_record(blocked, rig.streams[0]));
      require(rig.t.event_on_done(blocked, Gate::pass, &gate));
      require(rig.t.buffer_write(rig.buffer, 1024, content.data(), 2048, rig.streams[0]));
      require(rig.t.buffer_write(rig.buffer, 0, other.data(), other.size(), nullptr));
      CHECK(rig.read(0, other.size()) == other);
      if (rig.t.buffer_copy) {
        require(rig.t.buffer_copy(rig.buffer, 8192, rig.buffer, 0, other.size(), nullptr));
        CHECK(rig.read(8192, other.size()) == other);
      }
      gate.open();
      require(rig.t.stream_synchronize(rig.streams[0]));
      CHECK(rig.read(1024, 2048) == Bytes(2048, 3));
      CHECK(rig.read(0, other.size()) == other);
      CHECK(gate.reaches(1));
      rig.t.event_destroy(blocked);
    }
  }

  TEST_CASE("one buffer: streams write ranges of it side by side") {
    for (const char* path : kPlugins) {
      CAPTURE(std::string(path));
      Rig rig(path);
      constexpr uint64_t kPiece = 48;
      std::vector<Bytes> pieces;
      for (uint64_t k = 0; k < 256; ++k) pieces.emplace_back(kPiece, static_cast<uint8_t>(k));
      for (uint64_t k = 0; k < pieces.size(); ++k)
        require(rig.t.buffer_write(rig.buffer, k * kPiece, pieces[k].data(), kPiece,
                                   rig.streams[k % 2]));
      for (tenon_stream* s : rig.streams) require(rig.t.stream_synchronize(s));
      for (uint64_t k = 0; k < pieces.size(); ++k) CHECK(rig.read(k * kPiece, kPiece) == pieces[k]);
    }
  }
}

}  // namespace tenon::test
