// SPDX-License-Identifier: Apache-2.0
// Reads machine code: an ELF file with a section of code, of shared memory and of facts for each
// kernel.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::cuda {

class Cubin {
 public:
  // Throws std::out_of_range when the bytes are no ELF file. They must outlive the object.
  explicit Cubin(std::string_view bytes) : bytes_(bytes) {
    constexpr size_t kTable = 0x28, kEntrySize = 0x3A, kCount = 0x3C, kNames = 0x3E;
    const auto table = read<uint64_t>(kTable);
    const auto size = read<uint16_t>(kEntrySize), count = read<uint16_t>(kCount),
               names = read<uint16_t>(kNames);
    const auto header = [&](size_t i) { return table + i * size; };
    const auto name_table = read<uint64_t>(header(names) + 0x18);
    for (size_t i = 0; i < count; ++i) {
      const std::string name = bytes_.substr(name_table + read<uint32_t>(header(i))).data();
      sections_[name] = {read<uint64_t>(header(i) + 0x18), read<uint64_t>(header(i) + 0x20)};
    }
  }
  explicit Cubin(std::string&&) = delete;

  // Those have a bank of parameters. Functions that were not inlined have code only.
  std::vector<std::string> kernels() const {
    constexpr std::string_view kBank = ".nv.constant0.";
    std::vector<std::string> list;
    for (const auto& [name, section] : sections_)
      if (name.starts_with(kBank)) list.push_back(name.substr(kBank.size()));
    return list;
  }

  // Bytes of shared memory that the kernel declares. From sm_90 on the section begins with 1 KiB
  // that the system keeps for itself, outside of the limit of a block.
  uint64_t static_shared(const std::string& kernel, int architecture) const {
    constexpr uint64_t kReserved = 1024;
    const auto found = sections_.find(".nv.shared." + kernel);
    const uint64_t size = found == sections_.end() ? 0 : found->second.size;
    return architecture >= 90 && size >= kReserved ? size - kReserved : size;
  }

  // Sizes of the kernel's parameters, in order.
  std::vector<uint32_t> parameters(const std::string& kernel) const {
    constexpr uint8_t kWithSize = 4, kParameter = 0x17;
    std::map<uint16_t, uint32_t> sizes;
    const Section facts = sections_.at(".nv.info." + kernel);
    for (size_t at = facts.begin; at < facts.begin + facts.size;) {
      const auto format = read<uint8_t>(at), what = read<uint8_t>(at + 1);
      const auto length = read<uint16_t>(at + 2);
      at += 4;
      // The parameter's number behind an index; its size in the high bits of the last word.
      if (what == kParameter) sizes[read<uint16_t>(at + 4)] = read<uint32_t>(at + 8) >> 18;
      if (format == kWithSize) at += length;
    }
    std::vector<uint32_t> list;
    for (const auto& [number, size] : sizes) list.push_back(size);
    return list;
  }

 private:
  struct Section {
    size_t begin, size;
  };
  template <class T>
  T read(size_t at) const {
    T value;
    std::memcpy(&value, bytes_.substr(at, sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view bytes_;
  std::map<std::string, Section> sections_{};
};

}  // namespace tenon::cuda
