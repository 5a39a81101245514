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

Graph graph_from(const std::string& what, const std::string& part, const PartOptions& o) {
  if (is_folder(what)) {
    const lm::Config c = lm::load_config(what);
    const lm::TrainOptions training{.batch = o.batch, .checkpoint = o.checkpoint};
    if (part == "train") return lm::train_graph(c, training);
    if (part == "accumulate") return lm::accumulate_graph(c, training);
    if (part == "apply") return lm::apply_graph(c, training);
    if (part == "eval") return lm::eval_graph(c, o.batch);
    if (part == "decode") return lm::decode_graph(c, {});
    return lm::prefill_graph(c, std::min<int64_t>(16, c.context), {});
  }
  return parse_graph(read_input(what), what);
}

void check_part(const Args& args, const std::string& what) {
  if (!is_folder(what)) {
    args.refuse({"--part", "--batch", "--checkpoint"},
                "applies to a model folder; " + what + " is a file");
    return;
  }
  args.refuse({"--bind"}, "sets symbols of a graph file; a model folder has none");
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
