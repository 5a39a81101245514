// SPDX-License-Identifier: Apache-2.0
// Files of exported models.
#include "export/file.hpp"

#include <filesystem>
#include <optional>

#include "base/file.hpp"
#include "import/onnx/write.hpp"

namespace tenon::core::onnx {
namespace {

// Readers of protocol buffers take messages of less than 2 GiB.
constexpr uint64_t kMostInside = (uint64_t{1} << 31) - (uint64_t{1} << 26);
constexpr uint64_t kLeastBeside = 1024;  // smaller tensors stay in the model
constexpr uint64_t kPage = 4096;         // tensors beside the model begin at pages

}  // namespace

void write_file(const ExportedModel& exported, const std::string& path, bool beside,
                const ContentOf& content) {
  if (std::filesystem::is_directory(path))
    fail(Code::io_error, "export: '", path, "' is a folder; expected the name of a file");
  // Both files lie where a link leads.
  const std::string place =
      std::filesystem::is_symlink(path) ? std::filesystem::weakly_canonical(path).string() : path;
  const std::vector<Emitter::Constant>& constants = exported.constants;
  uint64_t total = 0;
  for (const Emitter::Constant& c : constants) total += type_bytes(c.type);
  beside = beside || total >= kMostInside;
  const std::string data = std::filesystem::path(place).filename().string() + ".data";
  std::vector<ApartTensor> tensors;
  uint64_t end = 0;
  for (const Emitter::Constant& c : constants) {
    ApartTensor t{.name = c.name, .type = c.type};
    if (beside && type_bytes(c.type) >= kLeastBeside) {
      t.file = data;
      t.offset = (end + kPage - 1) / kPage * kPage;
      end = t.offset + type_bytes(c.type);
    }
    tensors.push_back(std::move(t));
  }
  const auto put_bytes = [&](FileWriter& file, const Emitter::Constant& c) {
    if (c.data) return file.write(c.data->data(), c.data->size());
    const Bytes bytes = content(c.space, c.stored, c.type);
    file.write(bytes.data(), bytes.size());
  };

  FileWriter model(place);
  write_model(
      exported.model, tensors, [&](std::string_view s) { model.write(s.data(), s.size()); },
      [&](size_t k) { put_bytes(model, constants[k]); });
  if (end > 0) {
    FileWriter apart(place + ".data");
    uint64_t at = 0;
    for (size_t k = 0; k < tensors.size(); ++k) {
      if (tensors[k].file.empty()) continue;
      const std::string gap(tensors[k].offset - at, '\0');
      apart.write(gap.data(), gap.size());
      put_bytes(apart, constants[k]);
      at = tensors[k].offset + type_bytes(tensors[k].type);
    }
    apart.commit();
  }
  model.commit();
}

}  // namespace tenon::core::onnx
