// SPDX-License-Identifier: Apache-2.0
// Writes an ONNX model to a file, with its weights inside or beside it.
#pragma once

#include <string>
#include <vector>

#include "export/emitter.hpp"
#include "export/export.hpp"

namespace tenon::core::onnx {

struct ExportedModel {
  Model model{};
  std::vector<Emitter::Constant> constants{};
};

void write_file(const ExportedModel& exported, const std::string& path, bool beside,
                const ContentOf& content);

}  // namespace tenon::core::onnx
