// SPDX-License-Identifier: Apache-2.0
// Pools hidden states.
#include "llm/embedding.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "llm/json_text.hpp"
#include "llm/model_folder.hpp"

namespace tenon::llm {

std::optional<Pooling> pooling_of_name(std::string_view name) {
  if (name == "mean") return Pooling::mean;
  if (name == "cls") return Pooling::cls;
  if (name == "last") return Pooling::last;
  return {};
}

void read_folder_pooling(const std::string& folder, ModelConfig& config) {
  const std::string file = folder + "/1_Pooling/config.json";
  const auto text = read_if_there(file);
  if (!text) return;
  constexpr std::string_view kPrefix = "pooling_mode_";
  std::vector<std::string> modes;
  const nlohmann::json json = parse_object(*text, file);
  for (const auto& [key, value] : json.items()) {
    if (key.starts_with(kPrefix) && value.is_boolean() && value.get<bool>())
      modes.push_back(key.substr(kPrefix.size()));
    if (key == "pooling_mode" && value.is_string()) modes.push_back(value.get<std::string>());
  }
  const std::string mode = modes.size() == 1 ? modes[0] : "";
  if (mode == "mean_tokens" || mode == "mean")
    config.pooling = Pooling::mean;
  else if (mode == "cls_token" || mode == "cls")
    config.pooling = Pooling::cls;
  else if (mode == "lasttoken")
    config.pooling = Pooling::last;
  else if (modes.size() == 1)
    config.other_pooling = mode.substr(0, 80);
  else if (!modes.empty())
    config.other_pooling = "several modes";
}

void set_gguf_pooling(int64_t type, ModelConfig& config) {
  switch (type) {
    case 0:  // the file leaves the choice to the program
    case 1:
      config.pooling = Pooling::mean;
      return;
    case 2:
      config.pooling = Pooling::cls;
      return;
    case 3:
      config.pooling = Pooling::last;
      return;
    case 4:
      config.other_pooling = "rank";
      return;
    default:
      config.other_pooling = "type " + std::to_string(type);
  }
}

int64_t gguf_pooling(Pooling pooling) {
  return pooling == Pooling::mean ? 1 : pooling == Pooling::cls ? 2 : 3;
}

Pooling own_pooling(const ModelConfig& config) {
  if (!config.other_pooling.empty())
    throw Error(TENON_UNSUPPORTED, "embed: the model's pooling is '" + config.other_pooling +
                                       "'; expected mean, cls or last. hint: choose one of them");
  return config.pooling;
}

Pool::Pool(Pooling pooling, int64_t dim)
    : pooling_(pooling), dim_(static_cast<size_t>(dim)), sum_(dim_, 0) {}

void Pool::add(std::span<const float> rows) {
  for (size_t at = 0; at < rows.size(); at += dim_) {
    const std::span<const float> row = rows.subspan(at, dim_);
    if (pooling_ == Pooling::mean)
      for (size_t i = 0; i < dim_; ++i) sum_[i] += row[i];
    else if (pooling_ == Pooling::last || count_ == 0)
      sum_.assign(row.begin(), row.end());
    ++count_;
  }
}

std::vector<float> Pool::take(bool normalized) {
  const double divisor = pooling_ == Pooling::mean && count_ > 0 ? static_cast<double>(count_) : 1;
  std::vector<float> out(dim_);
  for (size_t i = 0; i < dim_; ++i) out[i] = static_cast<float>(sum_[i] / divisor);
  if (!std::ranges::all_of(out, [](float v) { return std::isfinite(v); }))
    throw Error(TENON_NUMERIC_ERROR, "embed: the model gave numbers that are not finite");
  if (normalized) normalize(out);
  sum_.assign(dim_, 0);
  count_ = 0;
  return out;
}

std::string json_list(std::span<const float> numbers) {
  std::string out = "[";
  char text[32];
  for (const float n : numbers) {
    if (out.size() > 1) out += ", ";
    out.append(text, std::to_chars(text, text + sizeof text, n).ptr);
  }
  return out + "]";
}

void normalize(std::span<float> vector) {
  double squares = 0;
  for (const float v : vector) squares += static_cast<double>(v) * v;
  if (squares == 0) return;
  const double length = std::sqrt(squares);
  for (float& v : vector) v = static_cast<float>(v / length);
}

}  // namespace tenon::llm
