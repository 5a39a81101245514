// SPDX-License-Identifier: Apache-2.0
// Any bytes as the config.json of a language model whose folder has the weights that its family asks
// for: refused with an Error, or the graph of what was read can be built.
#include <map>
#include <sstream>

#include "check.hpp"
#include "llm/arch/step.hpp"

using namespace tenon;
using namespace tenon::fuzz;

namespace {

constexpr int kMostAsked = 600;        // of one input: it takes time
constexpr size_t kMostWeights = 2000;  // kept, of a family

// Adds or changes the weight that an error names. Returns false if it names none.
bool answer(const Error& e, llm::TensorSource& tensors) {
  const std::string text = e.what();
  const size_t begin = text.find("weight '"), list = text.find("expected [");
  const bool missing = e.code() == TENON_NOT_FOUND;
  if (begin == text.npos || (!missing && (e.code() != TENON_SHAPE_MISMATCH || list == text.npos)))
    return false;
  const size_t name = begin + 8;
  std::vector<int64_t> dims;
  if (!missing) {
    std::istringstream in(text.substr(list + 10));
    char c = ',';
    for (int64_t dim = 0; c == ',' && in >> dim; in >> c) dims.push_back(dim);
  }
  tensors.types.insert_or_assign(text.substr(name, text.find('\'', name) - name),
                                 TensorType(f32, std::move(dims)));
  return true;
}

void build(const llm::ModelConfig& config, const llm::TensorSource& tensors) {
  llm::Weights weights(tensors);
  llm::step_graph(config, {.slots = 2, .capacity = 4, .batch = 1, .time = 3}, weights);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Kept, because most inputs ask for the same weights as those before them.
  static std::map<std::string_view, llm::TensorSource> families;
  try {
    const std::string text(reinterpret_cast<const char*>(data), size);
    const llm::ModelConfig config = llm::parse_config(text, "config.json");
    llm::TensorSource& tensors = families[config.architecture->model_type];
    if (tensors.types.size() > kMostWeights) tensors.types.clear();
    for (int asked = 0; asked < kMostAsked; ++asked) try {
        build(config, tensors);
        break;
      } catch (const Error& e) {
        if (!answer(e, tensors)) throw;
      }
  } catch (const Error& e) {
    must(e.code() != TENON_INTERNAL, e.what());
  }
  return 0;
}
