// SPDX-License-Identifier: Apache-2.0
// How tuning picks the fastest candidate.
#include "tune.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

using namespace tenon::cuda;
namespace fs = std::filesystem;

namespace {

constexpr double kFails = std::numeric_limits<double>::infinity();

struct Times {
  double cold, warm;
};

// Ways with known times; every seventh run is disturbed.
class Known final : public Trial {
 public:
  explicit Known(std::vector<Times> times) : times_(std::move(times)), runs_(times_.size()) {}
  size_t ways() const override { return times_.size(); }
  double cold(size_t way) override { return disturbed(way, times_[way].cold); }
  double warm(size_t way) override { return disturbed(way, times_[way].warm); }
  void heat(size_t, double) override {}
  int runs(size_t way) const { return runs_[way]; }

 private:
  double disturbed(size_t way, double t) {
    ++runs_[way];
    return ++count_ % 7 == 0 ? t * 10 : t;
  }
  std::vector<Times> times_;
  std::vector<int> runs_;
  int count_ = 3;
};

// Ways whose times depend on how long the device has run, in seconds.
class Changing final : public Trial {
 public:
  using Time = std::function<double(size_t way, double heat, int run)>;
  Changing(size_t ways, Time time) : ways_(ways), time_(std::move(time)) {}
  size_t ways() const override { return ways_; }
  double cold(size_t way) override { return run(way); }
  double warm(size_t way) override { return run(way); }
  void heat(size_t, double seconds) override { heat_ += seconds; }

 private:
  double run(size_t way) {
    const double t = time_(way, heat_, runs_++);
    heat_ += t;
    return t;
  }
  size_t ways_;
  Time time_;
  double heat_ = 0;
  int runs_ = 0;
};

struct Folder {
  fs::path path = fs::temp_directory_path() / ("tenon_choices_" + std::to_string(getpid()));
  Folder() { fs::remove_all(path); }
  ~Folder() { fs::remove_all(path); }
};

bool any(const std::string&) { return true; }

// Counts how often it is asked.
struct Chooser {
  std::string timed, untimed;
  int asked_timed = 0, asked_untimed = 0;
  std::optional<std::string> operator()(bool with_time) {
    ++(with_time ? asked_timed : asked_untimed);
    return with_time ? timed : untimed;
  }
};

std::string choose(Choices& choices, const std::string& key, Chooser& chooser) {
  return choices.of(
      key, [&](bool timed) { return chooser(timed); }, any);
}

}  // namespace

TEST_SUITE("cuda/tune") {
  TEST_CASE("fastest: the way with the least of both times, in spite of disturbed runs") {
    Known plain({{10e-6, 8e-6}, {9e-6, 7e-6}, {7e-6, 6e-6}, {12e-6, 9e-6}});
    CHECK(fastest(plain) == 2);
    Known both({{10e-6, 8e-6}, {8e-6, 12e-6}, {9e-6, 8e-6}});
    CHECK(fastest(both) == 2);
  }

  TEST_CASE("fastest: the first unless another is clearly faster") {
    Known close({{10e-6, 10e-6}, {9.9e-6, 9.9e-6}});
    CHECK(fastest(close) == 0);
    Known clear({{10e-6, 10e-6}, {9.5e-6, 9.5e-6}});
    CHECK(fastest(clear) == 1);
  }

  TEST_CASE("fastest: a way that fails is never taken, one that is hopeless is not run again") {
    Known failing({{kFails, kFails}, {50e-6, 50e-6}, {kFails, 1e-6}, {3, 3}});
    CHECK(fastest(failing) == 1);
    CHECK(failing.runs(3) == 1);
    CHECK(failing.runs(2) == 1);
    Known none({{kFails, kFails}, {kFails, kFails}});
    CHECK(fastest(none) == 0);
  }

  TEST_CASE("fastest: what counts is the time with settled clocks") {
    // Way 1 is faster on a device that was idle, and slower when clocks have dropped.
    Changing clocks(2, [](size_t way, double heat, int) {
      return 1e-3 * (heat < 0.1 ? (way == 1 ? 0.8 : 1) : (way == 1 ? 1.3 : 1.2));
    });
    CHECK(fastest(clocks) == 0);
  }

  TEST_CASE("fastest: a device that slows down favours none") {
    for (size_t best = 0; best < 4; ++best) {
      Changing drift(4, [=](size_t way, double, int run) {
        return 10e-6 * (way == best ? 0.95 : 1) * (1 + 0.004 * run);
      });
      CHECK(fastest(drift) == best);
    }
  }

  TEST_CASE("fastest: the best two are compared once more") {
    // Way 2 is disturbed during the rounds of all: three looks, then five rounds of four ways.
    Changing disturbed(4, [](size_t way, double, int run) {
      return 10e-6 * (way == 2 ? (run > 10 && run < 52 ? 0.93 : 0.8) : way == 1 ? 0.9 : 1);
    });
    CHECK(fastest(disturbed) == 2);
    Changing lucky(4, [](size_t way, double, int run) {
      return 10e-6 * (way == 3 ? (run < 52 ? 0.85 : 0.95) : way == 1 ? 0.9 : 1);
    });
    CHECK(fastest(lucky) == 1);
  }

  TEST_CASE("choices: made once, by later processes found again") {
    const Folder folder;
    Chooser first{.timed = "b", .untimed = "a"}, later{.timed = "c", .untimed = "a"};
    Choices choices(folder.path, true);
    CHECK(choose(choices, "8x8", first) == "b");
    CHECK(choose(choices, "8x8", first) == "b");
    CHECK(first.asked_timed == 1);
    Choices again(folder.path, true);
    CHECK(choose(again, "8x8", later) == "b");
    CHECK(later.asked_timed == 0);
    CHECK(choose(again, "8x9", later) == "c");
  }

  TEST_CASE("choices: untimed where they are turned off or cannot be kept") {
    const Folder folder;
    Chooser kept{.timed = "b", .untimed = "a"};
    Choices on(folder.path, true);
    CHECK(choose(on, "k", kept) == "b");
    const std::pair<std::string, bool> cases[] = {
        {folder.path, false}, {"", true}, {"/proc/nowhere", true}};
    for (const auto& [directory, timed] : cases) {
      Chooser chooser{.timed = "b", .untimed = "a"};
      Choices choices(directory, timed);
      CHECK(choose(choices, "k", chooser) == "a");
      CHECK(choose(choices, "k", chooser) == "a");
      CHECK(chooser.asked_timed == 0);
      CHECK(chooser.asked_untimed == 1);
    }
  }

  TEST_CASE("choices: what could not be timed is chosen without, and not kept") {
    const Folder folder;
    Choices choices(folder.path, true);
    const auto cannot = [](bool timed) -> std::optional<std::string> {
      return timed ? std::nullopt : std::optional<std::string>("a");
    };
    CHECK(choices.of("k", cannot, any) == "a");
    Chooser chooser{.timed = "b", .untimed = "a"};
    Choices later(folder.path, true);
    CHECK(choose(later, "k", chooser) == "b");
  }

  TEST_CASE("choices: a damaged or unusable file is none, and is replaced") {
    const Folder folder;
    Chooser chooser{.timed = "b", .untimed = "a"};
    {
      Choices choices(folder.path, true);
      CHECK(choose(choices, "k", chooser) == "b");
    }
    const fs::path file = *fs::directory_iterator(folder.path);
    fs::resize_file(file, fs::file_size(file) - 1);
    {
      Choices choices(folder.path, true);
      CHECK(choose(choices, "k", chooser) == "b");
      CHECK(chooser.asked_timed == 2);
    }
    Choices strict(folder.path, true);
    Chooser other{.timed = "c", .untimed = "a"};
    CHECK(strict.of(
              "k", [&](bool timed) { return other(timed); },
              [](const std::string& text) { return text == "c"; }) == "c");
    Choices after(folder.path, true);
    CHECK(choose(after, "k", chooser) == "c");
  }

  TEST_CASE("choices: of two processes that choose at once both take what was kept first") {
    const Folder folder;
    Choices slow(folder.path, true), quick(folder.path, true);
    Chooser chooser{.timed = "quick", .untimed = "a"};
    const std::string taken = slow.of(
        "k",
        [&](bool) {
          CHECK(choose(quick, "k", chooser) == "quick");
          return std::optional<std::string>("slow");
        },
        any);
    CHECK(taken == "quick");
  }

  TEST_CASE("choices: one that was taken comes before all others, where it is offered") {
    const Folder folder;
    Chooser chooser{.timed = "b", .untimed = "a"};
    Choices first(folder.path, true);
    CHECK(choose(first, "8x8\n", chooser) == "b");
    const std::vector<std::string> texts = first.texts();
    CHECK(texts == std::vector<std::string>{"8x8\n\nb"});
    for (const bool timed : {false, true}) {
      Chooser other{.timed = "c", .untimed = "d"};
      Choices elsewhere("", timed);
      elsewhere.take(texts[0]);
      elsewhere.take("no choice");
      CHECK(choose(elsewhere, "8x8\n", other) == "b");
      CHECK(elsewhere.texts() == texts);
      CHECK(choose(elsewhere, "9x9\n", other) == "d");
      elsewhere.take("9x9\n\nb");  // too late
      CHECK(choose(elsewhere, "9x9\n", other) == "d");
    }
    Choices strict("", true);
    strict.take(texts[0]);
    CHECK(strict.of(
              "8x8\n", [&](bool timed) { return chooser(timed); },
              [](const std::string& text) { return text != "b"; }) == "a");
  }
}
