// SPDX-License-Identifier: Apache-2.0
// From a path to a plugin: each bad file ends at its stage with its reason, and nothing crashes.
#include <doctest/doctest.h>
#include <fcntl.h>

#include <random>

#include "fake_plugin.hpp"
#include "host/host.hpp"
#include "host/loader.hpp"
#include "host/plugin_file.hpp"
#include "options.hpp"
#include "plugin_folder.hpp"

using namespace tenon::core;
using fake::answers;
using namespace plugin_folder;

namespace {
tenon_manifest manifest_of(const fs::path& file) {
  const Descriptor descriptor(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  return read_manifest(ElfFile(descriptor, file.string()));
}
}  // namespace

#define CHECK_FAILS(expression, words) \
  CHECK_THROWS_WITH_AS(expression, doctest::Contains(std::string(words).c_str()), Error)

TEST_SUITE("host/loader") {
  TEST_CASE("search: a folder of bad plugins loads the good ones and reports each other") {
    const Host host(directory(kBad));
    const auto of = [&](const std::string& fault) {
      return outcome(host, "tenon_plugin_" + fault + ".so");
    };
    CHECK_OUTCOME(of("good"), loaded, "");
    CHECK(of("good").plugin == "good");
    CHECK(of("good").version == "1.0.0");
    CHECK(of("good").vendor == "tests");
    CHECK_FALSE(of("good").named);
    REQUIRE(of("good").devices.size() == 1);
    CHECK(of("good").devices[0].id == "fixture:0");
    CHECK(of("good").devices[0].alignment == 64);
    CHECK(of("good").devices[0].max_allocation > 0);
    CHECK_OUTCOME(of("no_device"), loaded, "");
    CHECK(of("no_device").note == "the driver is not installed");
    CHECK(of("no_device").devices.empty());

    CHECK_OUTCOME(of("no_manifest"), manifest, "has no tenon manifest");
    CHECK_OUTCOME(of("manifest_abi"), manifest,
                  "plugin manifest_abi wants ABI 7.3 to 7.5, host tenon ");
    CHECK_OUTCOME(of("manifest_abi"), manifest, " offers 0.2");
    CHECK_OUTCOME(of("manifest_abi_range"), manifest, "range that is empty: 0.5 to 0.3");
    CHECK_OUTCOME(of("sanitizer"), manifest, "was built with sanitizers: ");
    CHECK_OUTCOME(of("isa"), manifest, "needs a processor with x86-64-v9");
    CHECK_OUTCOME(of("arch"), manifest, "plugin arch is for architecture 40, this host is ");

    CHECK_OUTCOME(of("undefined_symbol"), dlopen, "tenon_fixture_nobody_defines_this");
    CHECK_OUTCOME(of("no_entry"), symbol, "undefined symbol: tenon_backend_entry");

    CHECK_OUTCOME(of("refuses"), negotiate, "refused: the fixture wants a licence");
    CHECK_OUTCOME(of("silent"), negotiate, "refused: it gave no reason");
    CHECK_OUTCOME(
        of("table_abi"), negotiate,
        "plugin table_abi wants ABI 7." + std::to_string(TENON_ABI_MINOR) + ", host tenon ");
    CHECK_OUTCOME(of("small_table"), negotiate,
                  "its table is too small: 224 bytes, needed are 320");
    CHECK_OUTCOME(of("tiny_table"), negotiate, "table is too small: 8 bytes");
    CHECK_OUTCOME(of("null_slot"), negotiate, "required slot run is null");
    CHECK_OUTCOME(of("half_streams"), negotiate, "has stream_create but not stream_destroy");
    CHECK_OUTCOME(of("bad_name"), negotiate, "the plugin's name is 'Two Words?[2J'");
    CHECK_OUTCOME(of("manifest_name"), negotiate, "its manifest says somebody_else");

    CHECK_OUTCOME(of("create_fails"), create,
                  "plugin create_fails: create: the fixture cannot be made today");
    CHECK_OUTCOME(of("enumerate_fails"), enumerate,
                  "plugin enumerate_fails: enumerate: the fixture cannot count");
    CHECK_OUTCOME(of("enumerate_nothing"), enumerate, "succeeded without a list");
    CHECK_OUTCOME(of("enumerate_no_array"), enumerate, "says 3 devices, but gives none");
    CHECK_OUTCOME(of("enumerate_null"), enumerate, "device 1 is null");
    CHECK_OUTCOME(of("enumerate_many"), enumerate, "says 4000000000 devices");
    CHECK_OUTCOME(of("small_info"), enumerate, "its description is too small: 40 bytes");
    CHECK_OUTCOME(of("bad_kind"), enumerate, "device 0: its kind is 'two words'");
    CHECK_OUTCOME(of("bad_alignment"), enumerate, "its alignment is 48");
    CHECK_OUTCOME(of("no_address"), enumerate, "buffer_address is null");
    CHECK(host.devices().size() == 1);
  }

  TEST_CASE("named file: loads, or throws with path, stage and reason") {
    HostOptions o = only({});
    o.plugin_files = {kGood.string(), kGood.string()};
    const Host host(o);
    REQUIRE(host.report().candidates.size() == 2);
    CHECK(host.report().candidates[0].named);
    CHECK_OUTCOME(host.report().candidates[1], found, "the same file as " + kGood.string());
    CHECK(host.devices().size() == 1);

    const auto named = [](const std::string& path) {
      HostOptions n = only({});
      n.plugin_files = {path};
      return Host(n).devices();
    };
    const std::string refuses = (kBad / "tenon_plugin_refuses.so").string();
    CHECK_FAILS(named(refuses), "cannot load " + refuses + ": negotiate: ");
    CHECK_FAILS(named("/nowhere/x.so"), "cannot load /nowhere/x.so: No such file");
    CHECK_FAILS(named("tenon_plugin_good.so"), "is not an absolute path");
  }

  TEST_CASE("search: the same file by two ways, and a second plugin of one name") {
    const Folder folder;
    fs::create_symlink(kGood, folder.path / "a.so");
    fs::create_symlink(kGood, folder.path / "b.so");
    folder.copy_of_good("c.so");
    fs::create_symlink("/nowhere", folder.path / "d.so");
    folder.write("readme.txt", "not looked at");
    const Host host(directory(folder.path));
    REQUIRE(host.report().candidates.size() == 4);
    CHECK_OUTCOME(host.report().candidates[0], loaded, "");
    CHECK_OUTCOME(host.report().candidates[1], found, "the same file as ");
    CHECK_OUTCOME(
        host.report().candidates[2], negotiate,
        "a plugin of the name good is loaded already: version 1.0.0 from " + kGood.string());
    CHECK_OUTCOME(host.report().candidates[3], found, "No such file");
    CHECK(host.devices().size() == 1);
  }

  TEST_CASE("search: a directory that is missing or relative is reported") {
    HostOptions o = only({});
    o.plugin_dirs = {"/nowhere/plugins", "plugins"};
    const Host host(o);
    REQUIRE(host.report().candidates.size() == 2);
    CHECK_OUTCOME(host.report().candidates[0], found,
                  "cannot be searched: /nowhere/plugins: No such");
    CHECK_OUTCOME(host.report().candidates[1], found, "'plugins' is not an absolute path");
  }

  TEST_CASE("environment: searched last, and only when the app allows it") {
    setenv("TENON_PLUGIN_PATH", (":relative::" + kBad.string() + ":").c_str(), 1);
    HostOptions o = only({});
    CHECK(Host(o).report().candidates.empty());
    o.use_environment = true;
    const Host host(o);
    unsetenv("TENON_PLUGIN_PATH");
    CHECK_OUTCOME(host.report().candidates[0], found, "'relative' is not an absolute path");
    CHECK_OUTCOME(outcome(host, "tenon_plugin_good.so"), loaded, "");
  }

  TEST_CASE("built-in directory: beside the image that holds the loader, and missing is reported") {
    const std::string self = fs::read_symlink("/proc/self/exe");
    CHECK(builtin_plugin_directory() == (fs::path(self).parent_path() / "tenon/plugins").string());
    HostOptions o = only({});
    o.use_builtin_dir = true;
    if (!fs::exists(builtin_plugin_directory())) {
      CHECK_OUTCOME(Host(o).report().candidates.at(0), found, "cannot be searched");
    }
  }
}

TEST_SUITE("host/loader files") {
  TEST_CASE("manifest: what is no plugin") {
    const Folder folder;
    CHECK_OUTCOME(outcome(folder.write("text.so", std::string(5000, 'a'))), manifest,
                  "is no ELF file");
    CHECK_OUTCOME(outcome(folder.write("short.so", "#!/bin/sh\n")), manifest, "is too short");
    CHECK_OUTCOME(outcome(folder.write("empty.so", "")), manifest, "is empty");
    std::string bytes = bytes_of(kGood);
    bytes[18] = 40, bytes[19] = 0;  // e_machine
    CHECK_OUTCOME(outcome(folder.write("arm.so", bytes)), manifest, "is for ELF machine 40");
    bytes = bytes_of(kGood);
    bytes[4] = 1;  // 32 bits
    CHECK_OUTCOME(outcome(folder.write("narrow.so", bytes)), manifest, "no 64-bit little-endian");
    bytes = bytes_of(kGood);
    bytes[16] = 1;  // an object file
    CHECK_OUTCOME(outcome(folder.write("object.so", bytes)), manifest, "is no shared library");
  }

  TEST_CASE("manifest: a file cut short at any place is refused before it is mapped to run") {
    const Folder folder;
    const std::string whole = bytes_of(kGood);
    uint64_t end = 0;  // of the last segment: what follows is not loaded
    for (size_t cut = 0; cut < whole.size(); cut += cut < 4096 ? 61 : 997) {
      const fs::path file = folder.write("cut.so", whole.substr(0, cut));
      try {
        manifest_of(file);
        end = cut;
        break;
      } catch (const Error& e) {
        CHECK(std::string(e.what()).find("cut.so") != std::string::npos);
      }
    }
    CHECK(end > 4096);
    CHECK_OUTCOME(outcome(folder.write("half.so", whole.substr(0, end / 2))), manifest,
                  "is truncated or damaged");
  }

  TEST_CASE("manifest: changed bytes never crash the reader") {
    const Folder folder;
    const std::string whole = bytes_of(kGood);
    std::mt19937 random(7);
    int accepted = 0, refused = 0;
    for (int i = 0; i < 600; ++i) {
      std::string bytes = whole;
      for (int k = 0; k < 4; ++k) bytes[random() % 1024] = static_cast<char>(random());
      const fs::path file = folder.write("mutant.so", bytes);
      try {
        check_manifest(manifest_of(file));
        ++accepted;
      } catch (const Error&) {
        ++refused;
      }
    }
    CHECK(accepted > 0);
    CHECK(refused > 0);
  }

  TEST_CASE("permissions: neither the file nor its directory may be written by others") {
    const Folder folder;
    const fs::path file = folder.copy_of_good();
    CHECK_OUTCOME(outcome(file), loaded, "");
    chmod(file.c_str(), 0646);
    CHECK_OUTCOME(outcome(file), permissions,
                  "file " + file.string() + " can be written by others");
    chmod(file.c_str(), 0644);
    chmod(folder.path.c_str(), 0757);
    CHECK_OUTCOME(outcome(file), permissions,
                  "directory " + folder.path.string() + " can be written by others");
    chmod(folder.path.c_str(), 0755);
    CHECK_OUTCOME(outcome(file), loaded, "");
  }

  TEST_CASE("permissions: only regular files, and nothing blocks") {
    const Folder folder;
    fs::create_directory(folder.path / "folder.so");
    mkfifo((folder.path / "pipe.so").c_str(), 0644);
    fs::create_symlink("/dev/zero", folder.path / "zero.so");
    const Host host(directory(folder.path));
    REQUIRE(host.report().candidates.size() == 3);
    for (const LoadCandidate& c : host.report().candidates) {
      CHECK_OUTCOME(c, permissions, "is not a regular file");
    }
  }

  TEST_CASE("permissions: another user's files, and files that cannot be read") {
    const Folder folder;
    const fs::path file = folder.copy_of_good();
    const auto try_it = [&] {
      const LoadCandidate c = outcome(file);
      return std::string(stage_name(c.stage)) + ": " + c.text;
    };
    const bool root = geteuid() == 0;
    const auto unprivileged = [&] { return root ? in_child(try_it, kNobody) : try_it(); };
    chmod(file.c_str(), 0);
    CHECK_MESSAGE(
        unprivileged() == "permissions: " + file.string() + " cannot be read: Permission denied",
        "an unreadable file");
    chmod(file.c_str(), 0644);
    if (!root) {
      MESSAGE("skipped: needs root, to give files to another user");
      return;
    }
    CHECK(unprivileged() == "loaded: ");  // root's files are fine for everybody
    CHECK(chown(file.c_str(), 65534, 65534) == 0);
    CHECK_OUTCOME(outcome(file), permissions, "belongs to user 65534, expected root");
    CHECK(unprivileged() == "loaded: ");
    CHECK(chown(file.c_str(), 1, 1) == 0);
    CHECK(unprivileged().find("belongs to user 1, expected root or this process's user 65534") !=
          std::string::npos);
    CHECK(chown(file.c_str(), 0, 0) == 0);
    chmod(folder.path.c_str(), 0700);
    CHECK_MESSAGE(in_child(
                      [&] {
                        HostOptions o = directory(folder.path);
                        return Host(o).report().candidates.at(0).text;
                      },
                      kNobody)
                          .find("cannot be searched") != std::string::npos,
                  "an unreadable directory");
  }
}

TEST_SUITE("host/open") {
  TEST_CASE("entries: kinds are numbered over all plugins, one name loads once") {
    fake::reset();
    answers.devices.push_back(answers.devices[0]);
    HostOptions o = only({});
    o.entries = {fake::entry, fake::other_entry};
    const Host host(o);
    REQUIRE(host.devices().size() == 4);
    CHECK(host.devices()[3].id == "fake:3");
    CHECK(host.devices()[3].plugin == "other");
    CHECK(host.devices()[1].plugin == "fake");
    CHECK(host.report().candidates[1].devices[0].id == "fake:2");
    o.entries = {fake::entry, fake::entry};
    CHECK_FAILS(Host{o},
                "cannot load static: negotiate: a plugin of the name fake is loaded already");
    o.entries = {nullptr};
    CHECK_FAILS(Host{o}, "the entry is null");
  }

  TEST_CASE("open: by id, by kind, auto; one device per id") {
    fake::reset();
    tenon_device_info accelerator = answers.devices[0];
    accelerator.flags = 0;
    answers.devices.push_back(accelerator);
    HostOptions o = only({});
    o.entries = {fake::entry};
    Host host(o);
    CHECK(host.open("fake")->info().id == "fake:0");
    CHECK(host.open("fake:1")->info().id == "fake:1");
    CHECK(host.open("auto")->info().id == "fake:1");
    const auto one = host.open("fake:0"), two = host.open("fake:0");
    CHECK(one == two);
    CHECK(answers.opened == 1);
    CHECK_FAILS(host.open("cuda:0"), "there is no device 'cuda:0'; there are: fake:0, fake:1");
    CHECK_FAILS(host.open(""), "there is no device ''");
  }

  TEST_CASE("open: what cannot be opened is passed over, and named when nothing opens") {
    fake::reset();
    answers.devices.push_back(answers.devices[0]);
    static const char reason[] = "switched off";
    answers.devices[0].reason = {reason, sizeof reason - 1};
    HostOptions o = only({});
    o.entries = {fake::entry};
    Host host(o);
    CHECK(host.open("auto")->info().id == "fake:1");
    CHECK(host.open("fake")->info().id == "fake:1");
    CHECK_FAILS(host.open("fake:0"), "cannot be opened: switched off");
    answers.open_fails = true;
    CHECK_FAILS(host.open("auto"), "no device 'auto' opens: fake:0: ");
    CHECK_FAILS(host.open("auto"), "the card fell out");
    CHECK_FAILS(Host(only({})).open("auto"), "there is none at all, see the load report");
  }

  TEST_CASE("register_static: every later host has it") {
    fake::reset();
    CHECK(Host(only({})).devices().empty());
    register_static(fake::entry);
    register_static(fake::entry);
    const Host host(only({}));
    REQUIRE(host.report().candidates.size() == 1);
    CHECK_FALSE(host.report().candidates[0].named);
    CHECK(host.devices().size() == 1);
  }
}
