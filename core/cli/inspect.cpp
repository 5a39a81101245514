// SPDX-License-Identifier: Apache-2.0
// tenon inspect: shows the verdict of each node on a device, and memory use; or what a GGUF file has.
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/inspect_gguf.hpp"
#include "cli/modes.hpp"
#include "cli/op_text.hpp"
#include "cli/source.hpp"
#include "cli/terminal.hpp"

namespace tenon::cli {
namespace {

using nlohmann::json;

std::string mib(const json& bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f MiB", bytes.get<double>() / (1 << 20));
  return text;
}

void print(const json& report, bool steps) {
  const bool lanes = report["exec"] == "multi_stream";
  std::map<std::string, int> counts;
  std::cout << "nodes:\n";
  for (const json& n : report["nodes"]) {
    const std::string verdict = n["verdict"];
    ++counts[verdict];
    std::cout << "  " << std::left << std::setw(11) << verdict << std::setw(12)
              << n["device"].get<std::string>() << std::setw(26) << n["op"].get<std::string>()
              << n["name"].get<std::string>();
    for (const char* why : {"reason", "note"})
      if (const std::string text = n[why]; !text.empty()) std::cout << "  (" << text << ")";
    std::cout << "\n";
  }
  std::cout << "verdicts:";
  for (const auto& [verdict, count] : counts) std::cout << " " << count << " " << verdict;
  std::cout << "\nregions:\n";
  for (const json& r : report["regions"]) {
    std::cout << "  " << r["device"].get<std::string>() << ": " << counted(r["steps"], "step")
              << ", " << counted(r["transfers_in"], "value") << " copied from other devices";
    if (lanes)
      std::cout << ", " << counted(r["lanes"], "lane") << ", " << counted(r["waits"], "wait");
    if (const std::string note = r["lanes_note"]; !note.empty()) std::cout << "  (" << note << ")";
    std::cout << "\n";
  }
  if (steps) {
    std::cout << "steps:\n";
    size_t region = SIZE_MAX, index = 0;  // of a step in its region
    for (const json& s : report["steps"]) {
      if (s["region"] != region) region = s["region"], index = 0;
      std::cout << "  region " << region;
      if (lanes)
        std::cout << "  step " << std::right << std::setw(4) << index << "  lane " << s["lane"];
      std::cout << "  " << std::left << std::setw(28) << s["label"].get<std::string>()
                << s["node"].get<std::string>()
                << (s["scratch"] == 0 ? "" : "  scratch " + mib(s["scratch"]));
      for (const json& step : s["after"]) std::cout << "  after " << step;
      std::cout << "\n";
      ++index;
    }
  }
  if (!report["remarks"].empty()) std::cout << "placement:\n";
  for (const json& remark : report["remarks"])
    std::cout << "  " << remark.get<std::string>() << "\n";
  std::cout << "memory:\n";
  for (const json& m : report["memory"])
    std::cout << "  " << m["device"].get<std::string>() << ": intermediates peak " << mib(m["peak"])
              << " (bound " << mib(m["bound"]) << "), weights " << mib(m["weights"])
              << ", derived weights " << mib(m["derived_weights"]) << ", state " << mib(m["state"])
              << ", constants " << mib(m["constants"]) << ", inputs " << mib(m["inputs"])
              << ", outputs " << mib(m["outputs"])
              << (m["limit"] == 0 ? "" : ", limit " + mib(m["limit"])) << "\n";
}

// The graph that the command line names.
Graph wanted_graph(const Args& args) {
  if (!args.has("--op")) {
    if (args.words().empty())
      throw UsageError("expected an ONNX file, a model folder, a graph file or a GGUF file");
    check_part(args, args.words()[0]);
    return graph_from(args.words()[0], args.text("--part", "decode"),
                      {.batch = args.integer("--batch", 1, 1, 1 << 20),
                       .checkpoint = args.has("--checkpoint"),
                       .constants = constants_from(args)});
  }
  if (!args.words().empty()) throw UsageError("--op: expected no graph beside it");
  args.refuse({"--part", "--batch", "--checkpoint", "--bind", "--constant"},
              "cannot be combined with --op");
  return graph_of_op(args.text("--op"));
}

int inspect(const Args& args) {
  if (args.words().size() == 1 && is_gguf(args.words()[0])) {
    args.refuse({"--part", "--batch", "--checkpoint", "--bind", "--constant", "--no-fallback",
                 "--memory", "--pin", "--bucket", "--exec", "--steps", "--op", "--text", "--unfuse",
                 "--json", "--device"},
                "applies to a graph; " + args.words()[0] + " is a GGUF file");
    inspect_gguf(args.words()[0]);
    return 0;
  }
  if (args.has("--unfuse"))
    args.refuse({"--text", "--json", "--steps", "--no-fallback", "--device", "--memory", "--pin",
                 "--bucket", "--threads", "--exec"},
                "with --unfuse the graph is only printed");
  if (args.has("--text"))
    args.refuse({"--json", "--steps", "--no-fallback", "--bind", "--device", "--memory", "--pin",
                 "--bucket", "--threads", "--exec"},
                "with --text the graph is only printed");
  if (args.has("--json")) args.refuse({"--steps"}, "--json has the steps in any case");
  const Runtime& runtime = open_runtime(args);
  const Graph graph = wanted_graph(args);
  if (args.has("--unfuse")) {
    std::cout << graph.decompose(bindings_from(args)).print();
    return 0;
  }
  if (args.has("--text")) {
    std::cout << graph.print();
    return 0;
  }
  const Store store(runtime);
  const Executable executable(runtime, graph, store, executable_options(args));
  const std::string report = executable.report(bindings_from(args));
  if (args.has("--json"))
    std::cout << report << "\n";
  else
    print(json::parse(report), args.has("--steps"));
  return 0;
}

}  // namespace

Command inspect_command() {
  return {
      .name = "inspect",
      .summary =
          "show how a graph runs on a device: verdicts, regions, steps, memory; or what a "
          "GGUF file has",
      .usage = "[MODEL.onnx | MODEL_DIR | GRAPH_FILE | MODEL.gguf] [options]",
      .options = {part_option(),
                  {.name = "--batch",
                   .value = "N",
                   .help = "sequences per batch of the parts train, accumulate and eval",
                   .otherwise = "1"},
                  {.name = "--checkpoint",
                   .help = "recompute layers in the parts train and accumulate, as lm train does"},
                  bind_option(),
                  constant_option(),
                  fallback_option(),
                  memory_option(),
                  pin_option(),
                  bucket_option(),
                  exec_option(),
                  {.name = "--steps",
                   .help = "also list the steps; with multi-stream, their lanes and waits"},
                  {.name = "--op",
                   .value = "TEXT",
                   .help = "inspect one op, written with types for operands: softmax(f32[8,1024])"},
                  {.name = "--text", .help = "print the text form of the graph and stop"},
                  {.name = "--unfuse",
                   .help = "print the graph in primitives, with its gradients, and stop"},
                  {.name = "--json", .help = "print the report as JSON"}},
      .examples =
          "tenon inspect model.onnx --bind N=1\ntenon inspect model --part train\ntenon inspect "
          "failing.tng --device cpu --bind "
          "N=4 --steps\n"
          "tenon inspect model --part train --exec multi-stream:4 --steps\n"
          "tenon inspect --op 'softmax(f32[8,1024])' --unfuse\n"
          "tenon inspect model.gguf\n",
      .words = 1,
      .completes = Completes::file,
      .run = inspect};
}

}  // namespace tenon::cli
