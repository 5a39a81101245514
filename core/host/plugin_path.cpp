// SPDX-License-Identifier: Apache-2.0
// Walks a path folder by folder. Checks owners, modes and access control lists.
#include "host/plugin_path.hpp"

#include <fcntl.h>
#include <grp.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace tenon::core {
namespace {

std::string system_text(int code) { return std::generic_category().message(code); }

bool is_trusted(uid_t user) { return user == 0 || user == geteuid(); }

// ---- Groups

// True if /etc/passwd has an account with this primary group. getpwent is not used, because all
// threads share its position.
bool has_other_account(gid_t group) {
  const std::unique_ptr<FILE, int (*)(FILE*)> accounts(std::fopen("/etc/passwd", "re"), &fclose);
  if (!accounts) return false;
  std::vector<char> text(1 << 14);
  passwd account{}, *found = nullptr;
  while (fgetpwent_r(accounts.get(), &account, text.data(), text.size(), &found) == 0) {
    if (account.pw_gid == group && !is_trusted(account.pw_uid)) return true;
  }
  return false;
}

bool is_trusted_name(const char* name) {
  std::vector<char> text(1 << 14);
  passwd account{}, *found = nullptr;
  return getpwnam_r(name, &account, text.data(), text.size(), &found) == 0 && found &&
         is_trusted(found->pw_uid);
}

// True if only root and this user are in the group. The system's information is complete for two
// kinds of groups only: the group that many systems create per user, with the user's name, and
// static system groups, such as Debian's staff, which may write /usr/local.
bool is_harmless_group(gid_t group) {
  constexpr gid_t kStaticGroups = 100;
  std::vector<char> group_text(1 << 16), user_text(1 << 14);
  ::group entry{}, *found = nullptr;
  if (getgrgid_r(group, &entry, group_text.data(), group_text.size(), &found) != 0 || !found) {
    return false;
  }
  passwd account{}, *user = nullptr;
  const bool own =
      getpwuid_r(geteuid(), &account, user_text.data(), user_text.size(), &user) == 0 && user &&
      user->pw_gid == group && std::strcmp(user->pw_name, found->gr_name) == 0;
  if (!own && group >= kStaticGroups) return false;
  for (char** member = found->gr_mem; *member; ++member) {
    if (!is_trusted_name(*member)) return false;
  }
  return !has_other_account(group);
}

// ---- Who may write

std::string access_list(const Descriptor& file, const std::string& path) {
  const std::string link = path_of(file);
  std::string list(512, '\0');
  for (;;) {
    const ssize_t size =
        getxattr(link.c_str(), "system.posix_acl_access", list.data(), list.size());
    if (size >= 0) {
      list.resize(static_cast<size_t>(size));
      return list;
    }
    if (errno == ENODATA || errno == ENOTSUP) return {};
    if (errno != ERANGE || list.size() > (1 << 16)) {
      fail(Code::io_error, path, ": its access control list cannot be read: ", system_text(errno));
    }
    list.resize(list.size() * 4);
  }
}

std::string group_text(gid_t group) {
  return is_harmless_group(group) ? std::string() : cat("group ", group);
}

// Names others who may write according to a POSIX access control list; empty if there are none. The
// mask limits the entries of users and groups.
std::string writer_by_list(const std::string& list, gid_t owning_group, const std::string& path) {
  posix_acl_xattr_header header{};
  const size_t count =
      (list.size() - std::min(list.size(), sizeof header)) / sizeof(posix_acl_xattr_entry);
  if (list.size() >= sizeof header) std::memcpy(&header, list.data(), sizeof header);
  if (header.a_version != POSIX_ACL_XATTR_VERSION) {
    fail(Code::incompatible, path, ": its access control list is of version ", header.a_version,
         "; expected ", POSIX_ACL_XATTR_VERSION);
  }
  std::vector<posix_acl_xattr_entry> entries(count);
  std::memcpy(entries.data(), list.data() + sizeof header, count * sizeof(posix_acl_xattr_entry));
  unsigned mask = ~0u;
  for (const auto& entry : entries) {
    if (entry.e_tag == ACL_MASK) mask = entry.e_perm;
  }
  for (const auto& entry : entries) {
    std::string writer;
    if ((entry.e_perm & ACL_WRITE) == 0) continue;
    if (entry.e_tag == ACL_OTHER) return "everybody";
    if ((mask & ACL_WRITE) == 0) continue;
    if (entry.e_tag == ACL_USER && !is_trusted(entry.e_id)) writer = cat("user ", entry.e_id);
    if (entry.e_tag == ACL_GROUP) writer = group_text(entry.e_id);
    if (entry.e_tag == ACL_GROUP_OBJ) writer = group_text(owning_group);
    if (!writer.empty()) return writer;
  }
  return {};
}

// Names who else may write, for a message; empty if nobody may.
std::string other_writer(const Descriptor& file, const struct stat& info, const std::string& path) {
  if ((info.st_mode & S_IWOTH) != 0) return "everybody";
  const std::string list = access_list(file, path);
  if (!list.empty()) return writer_by_list(list, info.st_gid, path);
  return (info.st_mode & S_IWGRP) != 0 ? group_text(info.st_gid) : std::string();
}

std::string expected_writers() {
  return geteuid() == 0 ? std::string("; expected only root")
                        : cat("; expected only root and user ", geteuid());
}

void check_owner(const struct stat& info, const char* what, const std::string& path) {
  if (is_trusted(info.st_uid)) return;
  fail(Code::invalid_argument, what, " ", path, " belongs to user ", info.st_uid,
       ", expected root or this process's user ", geteuid());
}

[[noreturn]] void refuse(const char* what, const std::string& path, const std::string& writer) {
  fail(Code::invalid_argument, what, " ", path, " can be written by others (", writer, ")",
       expected_writers());
}

// ---- The walk

struct stat stat_of(const Descriptor& file, const std::string& path) {
  struct stat info {};
  if (fstat(file.get(), &info) != 0)
    fail(Code::io_error, path, " cannot be read: ", system_text(errno));
  return info;
}

// Walks down from the root. Opens each name in the directory before it, and checks it. Checked
// parts stay valid: renaming one requires write access to its directory.
class Walk {
 public:
  explicit Walk(std::string exempt) : exempt_(std::move(exempt)) { restart(); }

  // Returns whether the path exists. Missing directories are accepted if others cannot create them.
  // closed: a directory that this process may not search counts as missing.
  bool go(const std::string& path, bool closed = false) {
    std::vector<std::string> rest;  // in reverse order
    push(rest, path);
    int links = 0;
    while (!rest.empty()) {
      const std::string name = std::move(rest.back());
      rest.pop_back();
      if (name == "..") {
        leave();
        continue;
      }
      const std::string next_path = join(name);
      Descriptor next(openat(here_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
      if (!next) {
        if (errno != ENOENT && !(closed && errno == EACCES))
          fail(Code::io_error, next_path, " cannot be read: ", system_text(errno));
        return false;
      }
      const struct stat info = stat_of(next, next_path);
      if (S_ISLNK(info.st_mode)) {
        check_owner(info, "symbolic link", next_path);
        if (++links > 40) fail(Code::io_error, next_path, ": too many symbolic links");
        const std::string target = link_target(next, next_path);
        if (target.starts_with('/')) restart();
        push(rest, target);
      } else if (S_ISDIR(info.st_mode)) {
        enter(std::move(next), info, next_path);
      } else {
        if (!rest.empty()) fail(Code::io_error, next_path, " is not a directory");
        last_ = std::move(next);
        last_info_ = info;
        path_ = next_path;
      }
    }
    return true;
  }

  // In the directory reached: nobody else may add or replace anything.
  void check_closed() const {
    if (!writer_.empty()) refuse("directory", directory_, writer_);
  }

  TrustedFile take_file() {
    if (!last_ || !S_ISREG(last_info_.st_mode)) {
      fail(Code::invalid_argument, last_ ? path_ : directory_, " is not a regular file");
    }
    check_closed();
    check_owner(last_info_, "file", path_);
    const std::string writer = other_writer(last_, last_info_, path_);
    if (!writer.empty()) refuse("file", path_, writer);
    Descriptor file(open(path_of(last_).c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) fail(Code::io_error, path_, " cannot be read: ", system_text(errno));
    return {path_, std::move(file), std::move(here_), {last_info_.st_dev, last_info_.st_ino}};
  }

 private:
  static void push(std::vector<std::string>& rest, const std::string& path) {
    std::vector<std::string> names;
    for (const auto& part : std::filesystem::path(path).relative_path()) {
      if (!part.empty() && part != ".") names.push_back(part.string());
    }
    rest.insert(rest.end(), names.rbegin(), names.rend());
  }

  std::string join(const std::string& name) const {
    return directory_ == "/" ? "/" + name : directory_ + "/" + name;
  }

  bool is_exempt(const std::string& directory) const {
    if (directory == "/") return !exempt_.empty();
    return exempt_ == directory || exempt_.starts_with(directory + "/");
  }

  void restart() {
    Descriptor root(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!root) fail(Code::io_error, "/ cannot be read: ", system_text(errno));
    const struct stat info = stat_of(root, "/");
    enter(std::move(root), info, "/");
  }

  void enter(Descriptor directory, const struct stat& info, const std::string& path) {
    std::string writer;
    if (!is_exempt(path)) {
      check_owner(info, "directory", path);
      writer = other_writer(directory, info, path);
      // In a sticky directory, only the owner of a file can rename it, and the owner of the next
      // entry is checked.
      if (!writer.empty() && (info.st_mode & S_ISVTX) == 0) refuse("directory", path, writer);
    }
    here_ = std::move(directory);
    directory_ = path;
    writer_ = std::move(writer);
  }

  void leave() {
    Descriptor above(openat(here_.get(), "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!above) fail(Code::io_error, directory_, "/.. cannot be read: ", system_text(errno));
    const std::string path = std::filesystem::path(directory_).parent_path().string();
    const struct stat info = stat_of(above, path);
    enter(std::move(above), info, path);
  }

  static std::string link_target(const Descriptor& link, const std::string& path) {
    std::string target(4096, '\0');
    const ssize_t size = readlinkat(link.get(), "", target.data(), target.size());
    if (size <= 0) fail(Code::io_error, path, " cannot be read: ", system_text(errno));
    target.resize(static_cast<size_t>(size));
    return target;
  }

  std::string exempt_;
  Descriptor here_, last_;
  std::string directory_, path_;
  std::string writer_;  // who else may add files to the sticky directory
  struct stat last_info_ {};
};

}  // namespace

Descriptor::~Descriptor() {
  if (descriptor_ >= 0) close(descriptor_);
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

std::string path_of(const Descriptor& descriptor) {
  char process[32];
  const ssize_t size = readlink("/proc/self", process, sizeof process);
  if (size <= 0) {
    fail(Code::io_error, "/proc/self cannot be read: ", system_text(errno),
         "; expected /proc to be mounted");
  }
  return cat("/proc/", std::string_view(process, static_cast<size_t>(size)), "/fd/",
             descriptor.get());
}

TrustedFile open_trusted(const std::string& path, const std::string& exempt) {
  Walk walk(exempt);
  if (!walk.go(path)) fail(Code::not_found, path, ": ", system_text(ENOENT));
  return walk.take_file();
}

bool check_directory(const std::string& path, const std::string& exempt) {
  Walk walk(exempt);
  const bool exists = walk.go(path, true);
  walk.check_closed();
  return exists;
}

}  // namespace tenon::core
