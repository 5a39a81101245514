// SPDX-License-Identifier: Apache-2.0
// tenon export: writes a graph or a model as an ONNX model.
#include <filesystem>
#include <iostream>

#include "cli/source.hpp"
#include "cli/terminal.hpp"

namespace tenon::cli {
namespace {

int export_model(const Args& args) {
  if (args.words().size() != 2)
    throw UsageError(
        "expected a graph file, a model folder or an ONNX file, and the file to write");
  const std::string &from = args.words()[0], &to = args.words()[1];
  std::error_code error;
  if (std::filesystem::is_directory(from, error))
    throw UsageError(from + ": expected a graph file or an ONNX file, got a folder");
  check_part(args, from);
  const Runtime& runtime = open_runtime(args);
  Store store(runtime);
  const Graph graph = graph_from(from, "", {.store = &store, .constants = constants_from(args)});
  if (args.has("--weights")) store.load(TENON_SPACE_WEIGHT, args.text("--weights"));
  const ExportOptions options{.outputs = args.list("--output"),
                              .symbols = bindings_from(args),
                              .external_data = args.has("--external-data")
                                                   ? TENON_EXTERNAL_DATA_ALWAYS
                                                   : TENON_EXTERNAL_DATA_AUTO};
  graph.save_onnx(to, store, options);
  std::cout << "wrote " << without_control_bytes(to) << "\n";
  return 0;
}

}  // namespace

Command export_command() {
  return {.name = "export",
          .summary = "write a graph or a model as an ONNX model",
          .usage = "MODEL.onnx | GRAPH_FILE FILE.onnx [options]",
          .options = {{.name = "--weights",
                       .value = "FILE",
                       .help = "safetensors file with the weights of a graph file",
                       .completes = Completes::file},
                      {.name = "--output",
                       .value = "NAME",
                       .help = "export this output and what it needs, without updates; repeatable",
                       .otherwise = "all outputs",
                       .repeats = true},
                      bind_option(),
                      constant_option(),
                      {.name = "--external-data",
                       .help = "write tensors of 1 KiB or more to the file FILE.onnx.data"}},
          .examples =
              "tenon export graph.tng model.onnx\n"
              "tenon export graph.tng model.onnx --weights weights.safetensors\n"
              "tenon export model.onnx fixed.onnx --bind N=1\n",
          .words = 2,
          .completes = Completes::file,
          .opens_device = false,
          .run = export_model};
}

}  // namespace tenon::cli
