// SPDX-License-Identifier: Apache-2.0
// Sets, loads and saves named contents; orders the runs that read and update them.
#include "exec/store.hpp"

#include <algorithm>
#include <cstring>

namespace tenon::core {

std::string_view space_name(Space space) {
  constexpr std::string_view names[] = {"value", "input", "weight", "constant", "state"};
  return names[static_cast<size_t>(space)];
}

// ---- Entry

Entry::Copy& Entry::copy_on(Device& device) {
  Copy& copy = copies_[&device];
  const uint64_t size = type_bytes(type_);
  if (!copy.buffer && size) copy.buffer = device.buffer(size, space_name(space_));
  return copy;
}

Entry::Copy* Entry::any_current() {
  for (auto& [device, copy] : copies_)
    if (copy.current) return &copy;
  return nullptr;
}

void Entry::check_defined() const {
  std::lock_guard lock(mutex_);
  if (undefined_)
    fail(Code::undefined_state, space_name(space_), " '", name_, "' is undefined: ", *undefined_,
         "; set or load it again");
}

std::shared_ptr<Buffer> Entry::current(Device& device, const std::shared_ptr<EntryReader>& reader) {
  check_defined();
  std::lock_guard lock(mutex_);
  if (const auto found = copies_.find(&device);
      !borrowed_.empty() && (found == copies_.end() || !found->second.buffer))
    if (std::shared_ptr<Buffer> buffer = import_borrowed(device))
      copies_[&device] = {std::move(buffer), true, true};
  Copy& copy = copy_on(device);
  if (copy.borrowed && reader) {
    std::erase_if(readers_, [](const auto& r) { return r.expired(); });
    const auto is_same = [&](const auto& r) {
      return !r.owner_before(reader) && !reader.owner_before(r);
    };
    if (std::ranges::none_of(readers_, is_same)) readers_.push_back(reader);
  }
  if (copy.current || !copy.buffer) return copy.buffer;
  fill(*copy.buffer);
  copy.current = true;
  // One copy is enough; the device's is the one in use.
  Bytes().swap(host_);
  return copy.buffer;
}

bool Entry::is_on(Device& device) {
  std::lock_guard lock(mutex_);
  const auto found = copies_.find(&device);
  return found != copies_.end() && found->second.current;
}

// The content, from wherever it is current.
void Entry::fill(Buffer& buffer) {
  const uint64_t size = type_bytes(type_);
  if (!borrowed_.empty())
    buffer.write(0, borrowed_.data(), size);
  else if (Copy* from = any_current())
    core::copy(buffer, 0, *from->buffer, 0, size);
  else
    buffer.write(0, host_.data(), size);
}

// The borrowed memory as a buffer of a device; null if the device cannot read it in place.
std::shared_ptr<Buffer> Entry::import_borrowed(Device& device) {
  const uint64_t unit = std::max<uint64_t>(
      device.import_info().alignment, std::max<uint64_t>(1, tenon_dtype_bits(type_.dtype) / 8));
  const auto address = reinterpret_cast<uintptr_t>(borrowed_.data());
  if (!device.info().host_addressable || !device.import_info().alignment || address % unit != 0)
    return nullptr;
  try {
    return device.import_buffer(const_cast<std::byte*>(borrowed_.data()), borrowed_.size(),
                                space_name(space_), std::const_pointer_cast<void>(owner_));
  } catch (const Error& e) {
    if (e.code() != Code::unsupported && e.code() != Code::invalid_argument) throw;
    return nullptr;  // a copy serves as well
  }
}

void Entry::drop_borrowed() {
  borrowed_ = {};
  owner_.reset();
  std::erase_if(copies_, [](const auto& copy) { return copy.second.borrowed; });
  for (const auto& reader : std::exchange(readers_, {}))
    if (const auto there = reader.lock()) there->let_go();
}

void Entry::retire() {
  std::lock_guard lock(mutex_);
  if (borrowed_.empty()) return;
  undefined_ = "it was removed";  // so short that nothing is allocated
  content_changes();
  drop_borrowed();
}

std::shared_ptr<Buffer> Entry::derived(Device& device, const std::string& layout, uint64_t size,
                                       const MakeDerived& make) {
  check_defined();
  std::lock_guard lock(mutex_);
  DerivedCopy& derived = derived_[{&device, layout, size}];
  std::shared_ptr<Buffer> buffer = derived.buffer.lock();
  if (buffer && derived.current) return buffer;
  if (!buffer) buffer = device.buffer(size, "derived weight");
  if (const auto found = copies_.find(&device); found != copies_.end() && found->second.current) {
    make(*found->second.buffer, *buffer);
  } else {
    std::shared_ptr<Buffer> dense = borrowed_.empty() ? nullptr : import_borrowed(device);
    if (!dense) {
      dense = device.buffer(type_bytes(type_), "weight");
      fill(*dense);
    }
    make(*dense, *buffer);
  }
  derived = {buffer, true};
  return buffer;
}

void Entry::content_changes() {
  generation_.fetch_add(1, std::memory_order_release);
  std::erase_if(derived_, [](const auto& d) { return d.second.buffer.expired(); });
  for (auto& [key, derived] : derived_) derived.current = false;
}

std::shared_ptr<Buffer> Entry::target(Device& device) {
  std::lock_guard lock(mutex_);
  const auto found = copies_.find(&device);
  if (found == copies_.end() || !found->second.borrowed) return copy_on(device).buffer;
  // A run reads what it updates in the same buffer.
  Copy own{device.buffer(type_bytes(type_), space_name(space_)), true};
  fill(*own.buffer);
  return (found->second = std::move(own)).buffer;
}

void Entry::updated_on(Device& device) {
  std::lock_guard lock(mutex_);
  drop_borrowed();
  for (auto& [other, copy] : copies_) copy.current = other == &device;
  content_changes();
  Bytes().swap(host_);
  undefined_.reset();
}

void Entry::mark_undefined(const std::string& why) {
  std::lock_guard lock(mutex_);
  undefined_ = why;
  generation_.fetch_add(1, std::memory_order_release);
}

void Entry::write_host(std::span<const std::byte> content) {
  // The content may be the memory that is borrowed.
  std::shared_ptr<const void> kept_alive;
  std::lock_guard lock(mutex_);
  kept_alive = owner_;
  undefined_ = "setting it failed";
  content_changes();
  drop_borrowed();
  // In place where a device has it already, so that addresses stay; else kept here until a device
  // asks.
  bool kept = false;
  for (auto& [device, copy] : copies_) {
    copy.current = false;
    if (!copy.buffer || kept) continue;
    copy.buffer->write(0, content.data(), content.size());
    copy.current = kept = true;
  }
  Bytes host;
  if (!kept) host.assign(content.begin(), content.end());
  host_.swap(host);
  undefined_.reset();
}

void Entry::borrow_host(std::span<const std::byte> content, std::shared_ptr<const void> owner) {
  std::lock_guard lock(mutex_);
  content_changes();
  drop_borrowed();
  copies_.clear();  // of the old content; runs in flight keep what they read
  Bytes().swap(host_);
  borrowed_ = content;
  owner_ = std::move(owner);
  undefined_.reset();
}

void Entry::read_host(void* out) {
  check_defined();
  std::lock_guard lock(mutex_);
  const uint64_t size = type_bytes(type_);
  if (size == 0) return;
  if (!borrowed_.empty())
    std::memcpy(out, borrowed_.data(), size);
  else if (Copy* from = any_current())
    from->buffer->read(0, out, size);
  else
    std::memcpy(out, host_.data(), size);
}

// ---- Store

std::shared_ptr<Entry> Store::find(Space space, const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find({space, name});
  return found == entries_.end() ? nullptr : found->second;
}

std::string Store::home(Space space, const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto found = homes_.find({space, name});
  return found == homes_.end() ? std::string() : found->second;
}

void Store::keep_home(Space space, const std::string& name, const std::string& device) {
  std::lock_guard lock(mutex_);
  homes_.try_emplace({space, name}, device);
}

std::string Store::chosen_device() const {
  std::lock_guard lock(mutex_);
  return chosen_device_;
}

std::string Store::keep_chosen_device(const std::string& device) {
  std::lock_guard lock(mutex_);
  if (chosen_device_.empty()) chosen_device_ = device;
  return chosen_device_;
}

std::vector<std::shared_ptr<Completion>> Store::enter(
    std::span<const std::shared_ptr<Entry>> reads, std::span<const std::shared_ptr<Entry>> updates,
    const std::shared_ptr<Completion>& mine) {
  std::vector<std::shared_ptr<Completion>> wait_for;
  const auto add = [&](const std::shared_ptr<Completion>& c) {
    if (c && c != mine && !c->done()) wait_for.push_back(c);
  };
  std::lock_guard lock(mutex_);
  for (const auto& e : reads) {
    add(e->last_write_);
    std::erase_if(e->reads_, [](const auto& c) { return c->done(); });
    e->reads_.push_back(mine);
  }
  for (const auto& e : updates) {
    add(e->last_write_);
    for (const auto& c : e->reads_) add(c);
    e->reads_.clear();
    e->last_write_ = mine;
  }
  std::sort(wait_for.begin(), wait_for.end());
  wait_for.erase(std::unique(wait_for.begin(), wait_for.end()), wait_for.end());
  return wait_for;
}

std::vector<std::shared_ptr<Completion>> Store::runs_of(const Entry& entry) {
  std::vector<std::shared_ptr<Completion>> runs = entry.reads_;
  if (entry.last_write_) runs.push_back(entry.last_write_);
  return runs;
}

namespace {
// The entry is retired when these runs have ended.
void retire_after(const std::vector<std::shared_ptr<Completion>>& runs,
                  const std::shared_ptr<Entry>& entry) {
  // The last reference goes with the last run.
  const std::shared_ptr<void> end(nullptr, [entry](void*) { entry->retire(); });
  for (const auto& run : runs) run->then([end] {});
}

// Ends a place in line however the work ends.
struct FinishOnExit {
  Completion& completion;
  ~FinishOnExit() { completion.finish(); }
};
}  // namespace

void Store::replace(Space space, const std::string& name, const Type& type, uint64_t given,
                    const std::function<void(Entry&)>& write) {
  if (name.empty()) fail(Code::invalid_argument, space_name(space), ": the name is empty");
  if (const uint64_t size = type_bytes(type); size != given)
    fail(Code::invalid_argument, space_name(space), " '", name, "': expected ", size, " bytes for ",
         type.text(), ", got ", given);
  std::shared_ptr<Entry> entry;
  std::shared_ptr<Entry> old;  // may hold what is written, and outlives the lock
  std::vector<std::shared_ptr<Completion>> old_runs;
  {
    std::lock_guard lock(mutex_);
    auto& slot = entries_[{space, name}];
    if (!slot || slot->type() != type) {
      old = std::exchange(slot, std::make_shared<Entry>(space, name, type));
      write(*slot);  // nobody else has it yet
      version_.fetch_add(1, std::memory_order_release);
      if (old) old_runs = runs_of(*old);
    } else {
      entry = slot;
    }
  }
  if (!entry) {
    if (old) retire_after(old_runs, old);
    return;
  }
  const auto mine = std::make_shared<Completion>();
  const auto waits = enter({}, std::span(&entry, 1), mine);
  const FinishOnExit finish{*mine};
  for (const auto& w : waits) w->wait();
  write(*entry);
}

void Store::set(Space space, const std::string& name, const Type& type,
                std::span<const std::byte> content) {
  replace(space, name, type, content.size(), [&](Entry& e) { e.write_host(content); });
}

void Store::borrow(Space space, const std::string& name, const Type& type,
                   std::span<const std::byte> content, std::shared_ptr<const void> owner) {
  replace(space, name, type, content.size(),
          [&](Entry& e) { e.borrow_host(content, std::move(owner)); });
}

void Store::remove(Space space, const std::string& name) {
  std::shared_ptr<Entry> entry;
  std::vector<std::shared_ptr<Completion>> runs;
  {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find({space, name});
    if (found == entries_.end())
      fail(Code::not_found, space_name(space), " '", name, "' is not in the store");
    entry = std::move(found->second);
    entries_.erase(found);
    version_.fetch_add(1, std::memory_order_release);
    runs = runs_of(*entry);
  }
  retire_after(runs, entry);
}

void Store::get(Space space, const std::string& name, void* out, uint64_t size) {
  const auto entry = find(space, name);
  if (!entry) fail(Code::not_found, space_name(space), " '", name, "' is not in the store");
  if (const uint64_t expected = type_bytes(entry->type()); expected != size)
    fail(Code::invalid_argument, space_name(space), " '", name, "': ", entry->type().text(),
         " has ", expected, " bytes, got room for ", size);
  const auto mine = std::make_shared<Completion>();
  const auto waits = enter(std::span(&entry, 1), {}, mine);
  const FinishOnExit finish{*mine};
  for (const auto& w : waits) w->wait();
  entry->read_host(out);
}

Type Store::type(Space space, const std::string& name) const {
  const auto entry = find(space, name);
  if (!entry) fail(Code::not_found, space_name(space), " '", name, "' is not in the store");
  return entry->type();
}

std::vector<std::string> Store::names(Space space) const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [key, entry] : entries_)
    if (key.first == space) out.push_back(key.second);
  return out;
}

}  // namespace tenon::core
