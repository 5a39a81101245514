// SPDX-License-Identifier: Apache-2.0
// tenon inspect FILE.gguf: metadata and tensors.
#include "cli/inspect_gguf.hpp"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <map>

#include "cli/terminal.hpp"
#include "tenon/tenon.hpp"

namespace tenon::cli {
namespace {

constexpr uint64_t kMostElements = 8;  // of an array
constexpr size_t kMostText = 200;      // bytes of a value

std::string dims_text(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (const int64_t d : dims) text += (text.size() > 1 ? "," : "") + std::to_string(d);
  return text + "]";
}

std::string value_text(const Gguf& model, const GgufKey& key) {
  std::string text = cut_to(without_control_bytes(model.json(key.name, kMostElements)), kMostText);
  if (key.type == TENON_GGUF_ARRAY && key.count > kMostElements)
    text += "  (" + std::to_string(key.count) + " elements)";
  return text;
}

}  // namespace

bool is_gguf(std::string_view path) { return path.ends_with(".gguf"); }

void inspect_gguf(const std::string& path) {
  const Gguf model(path);
  std::cout << "GGUF version " << model.version();
  if (model.shard_count() > 1) std::cout << ", " << counted(model.shard_count(), "file");
  std::cout << "\nmetadata:\n";
  for (const GgufKey& key : model.keys())
    std::cout << "  " << without_control_bytes(key.name) << " = " << value_text(model, key) << "\n";
  struct Sum {
    uint64_t tensors = 0, bytes = 0;
  };
  std::map<std::string, Sum> formats;
  const std::vector<GgufTensor> tensors = model.tensors();
  size_t width = 0;
  for (const GgufTensor& t : tensors) width = std::max(width, std::min<size_t>(t.name.size(), 48));
  std::cout << "tensors:\n";
  for (const GgufTensor& t : tensors) {
    const std::string format =
        t.format.empty() ? "type " + std::to_string(t.type) : std::string(t.format);
    Sum& sum = formats[format];
    ++sum.tensors, sum.bytes += t.data.size();
    std::cout << "  " << std::left << std::setw(static_cast<int>(width))
              << without_control_bytes(t.name) << "  " << std::setw(7) << format << "  "
              << std::setw(16) << dims_text(t.dims) << "  "
              << (t.format.empty() ? "unknown size" : size_text(t.data.size())) << "\n";
  }
  std::cout << "formats:\n";
  uint64_t total = 0;
  for (const auto& [name, sum] : formats) {
    std::cout << "  " << std::left << std::setw(7) << name << "  " << counted(sum.tensors, "tensor")
              << ", " << size_text(sum.bytes) << "\n";
    total += sum.bytes;
  }
  std::cout << "total: " << counted(tensors.size(), "tensor") << ", " << size_text(total) << "\n";
}

}  // namespace tenon::cli
