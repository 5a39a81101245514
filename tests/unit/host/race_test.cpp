// SPDX-License-Identifier: Apache-2.0
// A plugin's file, or a folder above it, is exchanged all the time while it is loaded: only what
// was checked may run. The fixture "marker" says so in a file when any of its code runs.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>

#include "plugin_folder.hpp"

using namespace plugin_folder;
using namespace tenon::core;

namespace {

constexpr int kTries = 400;
const fs::path kMarker = kPath / "tenon_plugin_marker.so";

// Exchanges two names as fast as it can, as another user where one is given, until it ends.
class Racer {
 public:
  Racer(const fs::path& a, const fs::path& b, unsigned user) : process_(fork()) {
    REQUIRE(process_ >= 0);
    if (process_ != 0) return;
    if (user != geteuid() && (setgid(user) != 0 || setuid(user) != 0)) _exit(1);
    for (;;) renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
  }
  ~Racer() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }

 private:
  pid_t process_;
};

struct Outcomes {
  int loaded = 0, refused = 0;
};

// Loads the folder's one plugin many times, each in a process of its own.
Outcomes load_often(const fs::path& folder) {
  Outcomes outcomes;
  for (int i = 0; i < kTries; ++i) {
    const std::string text = in_child([&] {
      const Host host(directory(folder));
      for (const LoadCandidate& c : host.report().candidates) {
        if (c.stage == LoadStage::loaded) return c.plugin;
      }
      return std::string("refused");
    });
    if (text == "good") ++outcomes.loaded;
    if (text == "refused") ++outcomes.refused;
    CHECK_MESSAGE((text == "good" || text == "refused"), text);
  }
  return outcomes;
}

struct Marker {
  explicit Marker(const Folder& folder) : file(folder.path / "marker") {
    setenv("TENON_FIXTURE_MARKER", file.c_str(), 1);
  }
  ~Marker() { unsetenv("TENON_FIXTURE_MARKER"); }
  bool exists() const { return fs::exists(file); }
  fs::path file;
};

}  // namespace

TEST_SUITE("host/race") {
  TEST_CASE("the marker is left by any code of the fixture, so that these tests can fail") {
    const Folder folder;
    const Marker marker(folder);
    folder.make("plugins");
    const fs::path file = folder.copy(kMarker, "plugins/marker.so");
    CHECK(in_child([&] { return outcome_text(file); }).starts_with("loaded"));
    CHECK(marker.exists());
  }

  TEST_CASE("file: one that others can write takes the place of one that they cannot") {
    const Folder folder;
    const Marker marker(folder);
    folder.make("plugins");
    const fs::path good = folder.copy(kGood, "plugins/plugin.so");
    const fs::path bad = folder.copy(kMarker, "plugins/plugin.off", 0666);
    Outcomes outcomes;
    {
      const Racer racer(good, bad, geteuid());
      outcomes = load_often(folder.path / "plugins");
    }
    CHECK_FALSE(marker.exists());
    MESSAGE("loaded ", outcomes.loaded, ", refused ", outcomes.refused);
    CHECK(outcomes.loaded > 0);
    CHECK(outcomes.refused > 0);
  }

  TEST_CASE("folder: the one above a plugin takes turns with one that others can write") {
    const Folder folder;
    const Marker marker(folder);
    const fs::path good = folder.make("good/plugins").parent_path();
    folder.copy(kGood, "good/plugins/plugin.so");
    const fs::path bad = folder.make("bad/plugins", 0777).parent_path();
    folder.copy(kMarker, "bad/plugins/plugin.so");
    Outcomes outcomes;
    {
      const Racer racer(good, bad, geteuid());
      outcomes = load_often(folder.path / "good/plugins");
    }
    CHECK_FALSE(marker.exists());
    MESSAGE("loaded ", outcomes.loaded, ", refused ", outcomes.refused);
    CHECK(outcomes.loaded > 0);
    CHECK(outcomes.refused > 0);
  }

  TEST_CASE("folder: another user exchanges it in a folder that everybody can write") {
    if (geteuid() != 0) {
      MESSAGE("skipped: needs root, to be two users");
      return;
    }
    const Folder folder;
    const Marker marker(folder);
    folder.make("open", 0777);
    const fs::path good = folder.make("open/good");
    const fs::path bad = folder.make("open/bad");
    folder.copy(kGood, "open/good/plugin.so");
    CHECK(chown(folder.copy(kMarker, "open/bad/plugin.so").c_str(), kNobody, kNobody) == 0);
    CHECK(chown(bad.c_str(), kNobody, kNobody) == 0);
    Outcomes outcomes;
    {
      const Racer racer(good, bad, kNobody);
      outcomes = load_often(good);
    }
    CHECK_FALSE(marker.exists());
    CHECK(outcomes.refused == kTries);
    // The sticky bit stops the racer, and the plugin loads.
    chmod((folder.path / "open").c_str(), 01777);
    const fs::path name =
        fs::exists(good / "plugin.so") && bytes_of(good / "plugin.so") == bytes_of(kGood) ? good
                                                                                          : bad;
    {
      const Racer racer(good, bad, kNobody);
      outcomes = load_often(name);
    }
    CHECK_FALSE(marker.exists());
    CHECK(outcomes.loaded == kTries);
  }
}
