// SPDX-License-Identifier: Apache-2.0
// The store: named weights and state that executables share. It knows where each content is current
// (host memory, devices) and orders the runs that read and update it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "exec/completion.hpp"
#include "host/device.hpp"
#include "ir/graph.hpp"

namespace tenon::core {

// Keeps buffers over borrowed memory of entries, for its next run.
class EntryReader {
 public:
  virtual ~EntryReader() = default;
  // The memory is no longer the entry's: gives its buffers up, at once or when the run under way has
  // ended. Any thread may call it.
  virtual void let_go() noexcept = 0;
};

// One weight or state. Its content may lie on several devices and in host memory; at least one of
// them is current.
class Entry {
 public:
  Entry(Space space, std::string name, const Type& type)
      : space_(space), name_(std::move(name)), type_(type) {}
  Space space() const { return space_; }
  const std::string& name() const { return name_; }
  const Type& type() const { return type_; }

  // Another number whenever what the calls below answer may be another: the content changed or
  // became undefined. While a run is in its place in line it stays. Never 0.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // The calls below come from runs that the store has ordered, or from the store itself.
  // The buffer on a device, with current content; fails, by name, when a failed run left it
  // undefined.
  // A reader that keeps the buffer is told when it must let go of borrowed memory; others pass null.
  std::shared_ptr<Buffer> current(Device& device,
                                  const std::shared_ptr<EntryReader>& reader = nullptr);
  bool is_on(Device& device);  // is there one with current content?
  // The buffer on a device that a run will overwrite; its content counts for nothing.
  std::shared_ptr<Buffer> target(Device& device);
  // The content as `make` lays it out, of `size` bytes on a device; made when there is none of that
  // layout and size or the content is newer. It lives as long as somebody holds it.
  using MakeDerived = std::function<void(Buffer& dense, Buffer& derived)>;
  std::shared_ptr<Buffer> derived(Device& device, const std::string& layout, uint64_t size,
                                  const MakeDerived& make);
  void updated_on(Device& device);
  void mark_undefined(const std::string& why);
  void check_defined() const;
  void write_host(std::span<const std::byte> content);
  // The content stays where it is, which `owner` keeps in place, and is never written.
  void borrow_host(std::span<const std::byte> content, std::shared_ptr<const void> owner);
  // The store no longer has the entry, and no run may read it: borrowed memory is given up.
  void retire();
  void read_host(void* out);

 private:
  friend class Store;
  struct Copy {
    std::shared_ptr<Buffer> buffer;
    bool current = false;
    bool borrowed = false;  // over borrowed memory: only read
  };
  // Layouts of one id may differ in size: a program may pad it for the shape it serves.
  using DerivedKey = std::tuple<Device*, std::string, uint64_t>;
  struct DerivedCopy {
    std::weak_ptr<Buffer> buffer;
    bool current = false;
  };
  Copy& copy_on(Device& device);
  std::shared_ptr<Buffer> import_borrowed(Device& device);
  void fill(Buffer& buffer);
  void content_changes();
  void drop_borrowed();
  Copy* any_current();

  const Space space_;
  const std::string name_;
  const Type type_;

  // Order of runs; guarded by the store's mutex.
  std::shared_ptr<Completion> last_write_;
  std::vector<std::shared_ptr<Completion>> reads_;  // since last_write_

  mutable std::mutex mutex_;  // guards what follows
  std::map<Device*, Copy> copies_;
  std::map<DerivedKey, DerivedCopy> derived_;
  Bytes host_;
  // Content of borrowed memory, while it is the entry's.
  std::span<const std::byte> borrowed_;
  std::shared_ptr<const void> owner_;
  std::vector<std::weak_ptr<EntryReader>> readers_;  // that keep buffers over it
  std::optional<std::string> undefined_;
  std::atomic<uint64_t> generation_{1};
};

class Store {
 public:
  // Sets or replaces; waits for runs that use the old content.
  void set(Space space, const std::string& name, const Type& type,
           std::span<const std::byte> content);
  // The same without a copy, where devices can read the memory in place. The memory, which `owner`
  // keeps in place, is not written: runs that update the entry update a copy.
  void borrow(Space space, const std::string& name, const Type& type,
              std::span<const std::byte> content, std::shared_ptr<const void> owner);
  // Runs that are under way keep the entry until they end; not_found where there is none.
  void remove(Space space, const std::string& name);
  void get(Space space, const std::string& name, void* out, uint64_t size);
  Type type(Space space, const std::string& name) const;
  std::vector<std::string> names(Space space) const;
  bool has(Space space, const std::string& name) const { return find(space, name) != nullptr; }
  // nullptr when there is none.
  std::shared_ptr<Entry> find(Space space, const std::string& name) const;
  // Changes when an entry comes, goes, or is replaced by one of another type: what find returned may
  // be stale.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }

  // The id of the device on which executables of several devices keep a weight or state; empty if
  // none has chosen one yet. The first choice stays, also when the entry is removed or replaced.
  std::string home(Space space, const std::string& name) const;
  void keep_home(Space space, const std::string& name, const std::string& device);
  // The device chosen for the first executable that updates the store without a device named by the
  // app. Later executables without a named device run there too. Empty: none is chosen yet.
  std::string chosen_device() const;
  // Keeps the device unless there is one. Returns the one that is kept.
  std::string keep_chosen_device(const std::string& device);

  // Takes a place in line: `mine` finishes after all that it must wait for. Returns what to wait
  // for. Updated entries are in both lists or in updates alone.
  std::vector<std::shared_ptr<Completion>> enter(std::span<const std::shared_ptr<Entry>> reads,
                                                 std::span<const std::shared_ptr<Entry>> updates,
                                                 const std::shared_ptr<Completion>& mine);

 private:
  // write(entry) changes its content; waits for runs that use the old one.
  void replace(Space space, const std::string& name, const Type& type, uint64_t size,
               const std::function<void(Entry&)>& write);
  // The runs that use the entry and have not ended. Needs mutex_.
  static std::vector<std::shared_ptr<Completion>> runs_of(const Entry& entry);

  mutable std::mutex mutex_;
  std::map<std::pair<Space, std::string>, std::shared_ptr<Entry>> entries_;
  std::map<std::pair<Space, std::string>, std::string> homes_;
  std::string chosen_device_;
  std::atomic<uint64_t> version_{1};
};

std::string_view space_name(Space space);

}  // namespace tenon::core
