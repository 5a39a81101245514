// SPDX-License-Identifier: Apache-2.0
// A compiled region: what its plugin declared, validated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend.h"

namespace tenon::core {

class Buffer;
class Device;

struct ProgramValue {
  uint32_t source = TENON_NONE;  // value of the region's graph, or TENON_NONE
  uint64_t size = 0;             // bytes
  uint64_t alignment = 1;        // bytes, at least the device's; not for views
  std::string layout{};          // not empty: a derived weight
};

struct Alias {
  bool view = false;  // else in place
  uint32_t from = 0, to = 0;
  uint64_t offset = 0;  // bytes, views only
};

struct Step {
  uint32_t node = TENON_NONE;
  std::vector<uint32_t> reads, writes;  // a view is not in writes: its step's alias defines it
  std::vector<Alias> aliases;
  uint64_t scratch = 0;
  std::string label;
};

// A compiled region: what the plugin declared, validated. Holds for every program:
//  - a value of the graph has its type's size unless it is a view; what the region reads from
//    outside and what leaves it is listed;
//  - a source is listed once, except that one which enters and leaves may be listed twice: the copy
//    that a step writes is what leaves;
//  - a derived weight stands for a weight that the region's graph does not update, and its plugin
//    can derive; it is only read;
//  - every value is made once, by a step or as a view, before it is read; what enters is only read;
//  - views lie inside their base, and what leaves is no view.
class Program {
 public:
  Program(std::shared_ptr<Device> device, tenon_program* handle, const void* blob, size_t size);
  // A region that the host runs: there is no program of the plugin, and no instance can be made.
  Program(std::shared_ptr<Device> device, std::vector<ProgramValue> values,
          std::vector<Step> steps);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Device& device() const { return *device_; }
  const std::vector<ProgramValue>& values() const { return values_; }
  const std::vector<Step>& steps() const { return steps_; }
  // Makes a derived weight of the dense content; both buffers are of the program's device.
  void derive(uint32_t value, Buffer& dense, Buffer& derived) const;
  // What is still to be done before the first run, in parts that may be done in any thread; 0 when
  // the plugin does not tell. See prepare.h.
  uint32_t part_count() const;
  void prepare(uint32_t part) const;
  tenon_program* handle() const { return handle_; }

 private:
  void destroy() noexcept;

  std::shared_ptr<Device> device_;
  tenon_program* handle_;
  std::vector<ProgramValue> values_;
  std::vector<Step> steps_;
};

}  // namespace tenon::core
