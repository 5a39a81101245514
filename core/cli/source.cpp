// SPDX-License-Identifier: Apache-2.0
// Opens the graph that a command line names.
#include "cli/source.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "cli/input.hpp"
#include "cli/lm/config.hpp"
#include "cli/op_text.hpp"

namespace tenon::cli {
namespace {

bool is_onnx(std::string_view what) { return what.ends_with(".onnx"); }

bool is_folder(const std::string& what) {
  std::error_code error;
  return std::filesystem::is_directory(what, error);
}

}  // namespace

Option part_option() {
  return {.name = "--part",
          .value = "NAME",
          .help = "part of a model folder",
          .otherwise = "decode",
          .choices = {"train", "accumulate", "apply", "eval", "decode", "prefill"}};
}

Option bind_option() {
  return {.name = "--bind",
          .value = "NAME=N",
          .help = "value of a symbol of the graph; repeatable",
          .repeats = true};
}

Option constant_option() {
  return {.name = "--constant",
          .value = "NAME=FILE",
          .help =
              "input of an ONNX model that becomes a constant, with the content of FILE.npy, "
              "FILE.npz or FILE.pb; for models whose shapes depend on it; repeatable",
          .completes = Completes::file,
          .repeats = true};
}

NamedTensors constants_from(const Args& args) {
  NamedTensors out;
  for (const std::string& text : args.list("--constant")) {
    const size_t at = text.rfind('=');
    if (at == std::string::npos || at == 0 || at + 1 == text.size())
      throw UsageError("--constant " + text + ": expected NAME=FILE");
    const std::string name = text.substr(0, at), path = text.substr(at + 1);
    NamedTensors tensors = read_tensors(path);
    const auto found =
        std::ranges::find_if(tensors, [&](const auto& t) { return t.first == name; });
    if (found == tensors.end() && tensors.size() != 1)
      throw Error(TENON_NOT_FOUND, path + ": has no tensor '" + name + "'");
    out.emplace_back(name, std::move((found == tensors.end() ? tensors[0] : *found).second));
  }
  return out;
}

Graph graph_from(const std::string& what, const std::string& part, const SourceOptions& o) {
  if (is_onnx(what) && !is_folder(what)) {
    const ImportOptions options{.trainable = {}, .fixed = o.constants};
    return o.store ? Graph::import(what, *o.store, options) : Graph::import(what, options);
  }
  if (is_folder(what)) {
    const lm::Config c = lm::load_config(what);
    const lm::TrainOptions training{.batch = o.batch, .checkpoint = o.checkpoint};
    if (part == "train") return lm::train_graph(c, training);
    if (part == "accumulate") return lm::accumulate_graph(c, training);
    if (part == "apply") return lm::apply_graph(c, training);
    if (part == "eval") return lm::eval_graph(c, o.batch);
    if (part == "decode") return lm::decode_graph(c, {});
    return lm::prefill_graph(c, c.recurrent() ? 16 : std::min<int64_t>(16, c.context), {});
  }
  return parse_graph(read_input(what), what);
}

void check_part(const Args& args, const std::string& what) {
  if (!is_folder(what)) {
    args.refuse({"--part", "--batch", "--checkpoint"},
                "applies to a model folder; " + what + " is a file");
    if (!is_onnx(what)) args.refuse({"--constant"}, "applies to an ONNX model");
    return;
  }
  args.refuse({"--bind"}, "sets symbols of a graph file; a model folder has none");
  args.refuse({"--constant"}, "applies to an ONNX model");
  const std::string part = args.text("--part", "decode");
  const bool steps = part == "train" || part == "accumulate";
  if (!steps && part != "eval")
    args.refuse({"--batch"}, "expected with --part train, accumulate or eval, got --part " + part);
  if (!steps)
    args.refuse({"--checkpoint"}, "expected with --part train or accumulate, got --part " + part);
}

std::vector<std::pair<std::string, int64_t>> bindings_from(const Args& args) {
  std::vector<std::pair<std::string, int64_t>> out;
  for (const std::string& b : args.list("--bind")) {
    const size_t at = b.find('=');
    int64_t number = 0;
    const char* end = b.data() + b.size();
    const auto parsed = at == std::string::npos
                            ? std::from_chars_result{b.data(), std::errc::invalid_argument}
                            : std::from_chars(b.data() + at + 1, end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end || number < 0)
      throw UsageError("--bind " + b + ": expected NAME=NUMBER, 0 or more");
    const std::string name = b.substr(0, at);
    for (const auto& [known, value] : out)
      if (known == name)
        throw UsageError("--bind " + b + ": " + name + " has the number " + std::to_string(value) +
                         " already");
    out.emplace_back(name, number);
  }
  return out;
}

}  // namespace tenon::cli
