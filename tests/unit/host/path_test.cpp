// SPDX-License-Identifier: Apache-2.0
// Who else could change a plugin's file, or what stands in its place: modes, access control lists,
// every directory and symbolic link on the way.
#include <doctest/doctest.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/xattr.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "host/plugin_path.hpp"
#include "plugin_folder.hpp"

using namespace plugin_folder;
using namespace tenon::core;

namespace {

struct Entry {
  uint16_t tag, permissions;
  uint32_t id = ACL_UNDEFINED_ID;
};

// False where the file system has no access control lists.
bool set_list(const fs::path& file, const std::vector<Entry>& entries) {
  std::string bytes(sizeof(posix_acl_xattr_header), '\0');
  const uint32_t version = POSIX_ACL_XATTR_VERSION;
  std::memcpy(bytes.data(), &version, sizeof version);
  for (const Entry& e : entries) {
    const posix_acl_xattr_entry entry{e.tag, e.permissions, e.id};
    bytes.append(reinterpret_cast<const char*>(&entry), sizeof entry);
  }
  if (setxattr(file.c_str(), "system.posix_acl_access", bytes.data(), bytes.size(), 0) == 0) {
    return true;
  }
  CHECK(errno == ENOTSUP);
  MESSAGE("skipped: ", file.string(), " is on a file system without access control lists");
  return false;
}

std::string opened(const fs::path& file, const fs::path& exempt = {}) {
  try {
    return open_trusted(file.string(), exempt.string()).path;
  } catch (const Error& e) {
    return e.what();
  }
}

#define CHECK_SAYS(text, words)                                                \
  do {                                                                         \
    const std::string text_ = text;                                            \
    CHECK_MESSAGE(text_.find(std::string(words)) != std::string::npos, text_); \
  } while (false)

}  // namespace

TEST_SUITE("host/path") {
  TEST_CASE("access control list: an entry that grants writing to others is refused") {
    const Folder folder;
    const fs::path file = folder.copy_of_good();
    const uint32_t self = geteuid(), other = 1234567;
    const auto with = [&](std::vector<Entry> named, uint16_t mask) {
      std::vector<Entry> list{{ACL_USER_OBJ, 7}};
      list.insert(list.end(), named.begin(), named.end());
      list.insert(list.end(), {{ACL_MASK, mask}, {ACL_OTHER, 5}});
      return list;
    };
    for (const fs::path& target : {file, folder.path}) {
      const std::string name = target.string();
      const char* what = target == file ? "file " : "directory ";
      const std::vector<Entry> group{{ACL_GROUP_OBJ, 5}};
      if (!set_list(target, with({{ACL_USER, 6, other}, group[0]}, 7))) return;
      CHECK_OUTCOME(outcome(file), permissions,
                    what + name + " can be written by others (user 1234567)");
      set_list(target, with({group[0], {ACL_GROUP, 7, other}}, 7));
      CHECK_OUTCOME(outcome(file), permissions,
                    what + name + " can be written by others (group 1234567)");
      // What the mask takes away is not granted.
      set_list(target, with({{ACL_USER, 7, other}, group[0], {ACL_GROUP, 7, other}}, 5));
      CHECK_OUTCOME(outcome(file), loaded, "");
      // Reading is no writing, and this user may write anyway.
      set_list(target, with({{ACL_USER, 7, self}, {ACL_USER, 5, other}, group[0]}, 7));
      CHECK_OUTCOME(outcome(file), loaded, "");
      set_list(target, {{ACL_USER_OBJ, 7}, {ACL_GROUP_OBJ, 5}, {ACL_OTHER, 7}});
      CHECK_OUTCOME(outcome(file), permissions, "can be written by others (everybody)");
      set_list(target, {{ACL_USER_OBJ, 7}, {ACL_GROUP_OBJ, 5}, {ACL_OTHER, 5}});
      CHECK_OUTCOME(outcome(file), loaded, "");
    }
  }

  TEST_CASE("ancestors: one that others can write is refused, however far above") {
    const Folder folder;
    folder.make("a/b/c");
    const fs::path file = folder.copy(kGood, "a/b/c/plugin.so");
    CHECK(opened(file) == file.string());
    for (const char* above : {"a", "a/b"}) {
      const fs::path at = folder.path / above;
      chmod(at.c_str(), 0757);
      CHECK_SAYS(opened(file),
                 "directory " + at.string() + " can be written by others (everybody)");
      CHECK_OUTCOME(outcome(file), permissions, at.string());
      chmod(at.c_str(), 01777);  // only owners can rename
      CHECK(opened(file) == file.string());
      chmod(at.c_str(), 0755);
    }
    // In its own directory others could add files.
    chmod((folder.path / "a/b/c").c_str(), 01777);
    CHECK_SAYS(opened(file), "a/b/c can be written by others (everybody)");
  }

  TEST_CASE("ancestors: one of another user is refused") {
    if (geteuid() != 0) {
      MESSAGE("skipped: needs root, to give a directory to another user");
      return;
    }
    const Folder folder;
    folder.make("a/b");
    const fs::path file = folder.copy(kGood, "a/b/plugin.so");
    CHECK(chown((folder.path / "a").c_str(), kNobody, 0) == 0);
    CHECK_SAYS(opened(file), "/a belongs to user 65534, expected root");
    chmod(folder.path.c_str(), 01777);
    CHECK_SAYS(opened(file), "/a belongs to user 65534, expected root");
    CHECK(in_child([&] { return opened(file); }, kNobody) == file.string());
    CHECK(in_child([&] { return opened(file); }, 1).find("expected root or") != std::string::npos);
  }

  TEST_CASE("groups: one with members besides this user counts as others") {
    if (geteuid() != 0) {
      MESSAGE("skipped: needs root, to give a directory to a group");
      return;
    }
    const Folder folder;
    const fs::path file = folder.copy_of_good();
    chmod(folder.path.c_str(), 0775);
    CHECK(opened(file) == file.string());  // group root has no other members
    CHECK(chown(folder.path.c_str(), 0, kNobody) == 0);
    CHECK_SAYS(opened(file), "can be written by others (group 65534)");
    CHECK(chown(folder.path.c_str(), 0, 54321) == 0);  // a group that the system does not know
    CHECK_SAYS(opened(file), "can be written by others (group 54321)");
  }

  TEST_CASE("links: the directory of each is checked, and so is its owner") {
    const Folder folder;
    folder.make("real");
    folder.make("links");
    const fs::path file = folder.copy(kGood, "real/plugin.so");
    const fs::path link = folder.path / "links/plugin.so";
    fs::create_symlink("../real/../real/plugin.so", link);
    CHECK(opened(link) == file.string());
    CHECK_OUTCOME(outcome(link), loaded, "");
    fs::create_directory_symlink(folder.path / "real", folder.path / "links/folder");
    CHECK(opened(folder.path / "links/folder/plugin.so") == file.string());
    CHECK(opened(folder.path / "links/folder/../real/./plugin.so") == file.string());

    chmod((folder.path / "links").c_str(), 0777);
    CHECK_SAYS(opened(link), "links can be written by others");
    CHECK_OUTCOME(outcome(link), permissions, "links can be written by others");
    CHECK_SAYS(opened(folder.path / "links/folder/plugin.so"), "links can be written by others");
    chmod((folder.path / "links").c_str(), 01777);
    CHECK(opened(link) == file.string());
    if (geteuid() == 0) {
      CHECK(lchown(link.c_str(), kNobody, kNobody) == 0);
      CHECK_SAYS(opened(link), "symbolic link " + link.string() + " belongs to user 65534");
    }

    fs::create_symlink("loop", folder.path / "loop");
    CHECK_SAYS(opened(folder.path / "loop"), "too many symbolic links");
    fs::create_symlink("/nowhere/at/all", folder.path / "dangling");
    CHECK_SAYS(opened(folder.path / "dangling"), "No such file");
    CHECK_SAYS(opened(file / "more"), "is not a directory");
    CHECK_SAYS(opened(folder.path / "real"), "real is not a regular file");
  }

  TEST_CASE("exempt: the directories down to one that is taken as it is") {
    const Folder folder;
    folder.make("open/lib/plugins");
    const fs::path file = folder.copy(kGood, "open/lib/plugins/plugin.so");
    chmod((folder.path / "open").c_str(), 0777);
    CHECK_SAYS(opened(file), "open can be written");
    CHECK(opened(file, folder.path / "open/lib") == file.string());
    CHECK(opened(file, folder.path / "open") == file.string());
    CHECK_SAYS(opened(file, folder.path), "open can be written");
    chmod((folder.path / "open/lib").c_str(), 0777);
    CHECK(opened(file, folder.path / "open/lib") == file.string());
    CHECK_SAYS(opened(file, folder.path / "open/li"), "open/lib can be written");
    chmod((folder.path / "open/lib").c_str(), 0755);
    chmod((folder.path / "open/lib/plugins").c_str(), 0777);
    CHECK_SAYS(opened(file, folder.path / "open/lib"), "plugins can be written");
  }

  TEST_CASE("descriptor: its path leads to the same file after everything was renamed") {
    const Folder folder;
    folder.make("a");
    const TrustedFile file = open_trusted(folder.copy(kGood, "a/plugin.so").string());
    fs::rename(folder.path / "a", folder.path / "b");
    folder.make("a");
    folder.write("a/plugin.so", "another one");
    CHECK(bytes_of(path_of(file.file)) == bytes_of(kGood));
    CHECK(bytes_of(path_of(file.directory) + "/plugin.so") == bytes_of(kGood));
  }
}
