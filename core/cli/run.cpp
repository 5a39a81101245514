// SPDX-License-Identifier: Apache-2.0
// tenon run: runs a model once, prints and stores its outputs, or compares them with stored ones.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <optional>
#include <set>

#include "cli/modes.hpp"
#include "cli/picture.hpp"
#include "cli/run_input.hpp"
#include "cli/source.hpp"
#include "cli/tensor_text.hpp"
#include "cli/terminal.hpp"
#include "cli/test_data.hpp"

namespace tenon::cli {
namespace {

namespace fs = std::filesystem;

using Named = std::vector<std::pair<std::string, Tensor>>;

// A model with its weights, compiled.
class Model {
 public:
  Model(const Runtime& runtime, const Args& args)
      : store_(runtime),
        graph_(
            graph_from(args.words()[0], "", {.store = &store_, .constants = constants_from(args)})),
        executable_(prepare(runtime, args)),
        context_(executable_) {}

  const Graph& graph() const { return graph_; }
  void set(const std::string& input, const Tensor& t) { context_.set(input, t); }
  void run() { context_.run(); }
  Named outputs() {
    Named out;
    for (const auto& [name, value] : graph_.outputs()) out.emplace_back(name, context_.get(name));
    return out;
  }

 private:
  Executable prepare(const Runtime& runtime, const Args& args) {
    if (args.has("--weights")) store_.load(TENON_SPACE_WEIGHT, args.text("--weights"));
    const std::vector<std::string> known = store_.names(TENON_SPACE_WEIGHT);
    for (const auto& w : graph_.named(TENON_SPACE_WEIGHT))
      if (!std::ranges::binary_search(known, w.name))
        throw Error(TENON_NOT_FOUND, "weight '" + w.name + "' " + type_text(graph_.type(w.value)) +
                                         ": has no content; expected --weights FILE.safetensors");
    store_.add_missing(graph_);
    return Executable(runtime, graph_, store_, executable_options(args));
  }

  Store store_;
  Graph graph_;
  Executable executable_;
  Context context_;
};

// ---- Printing

void print_lines(const std::vector<std::array<std::string, 4>>& lines) {
  std::array<size_t, 3> widths{};
  for (const auto& line : lines)
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  for (const auto& line : lines) {
    std::string text;
    for (size_t i = 0; i < widths.size(); ++i)
      text += line[i] + std::string(widths[i] - line[i].size() + 2, ' ');
    std::cout << without_control_bytes(text + line[3]) << "\n";
  }
}

std::string milliseconds(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f ms", ms);
  return text;
}

// The first run plans and compiles; the others show the model's speed.
std::string run_and_time(Model& model, int64_t times) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> later;
  double first = 0;
  for (int64_t i = 0; i < times; ++i) {
    const auto start = Clock::now();
    model.run();
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    if (i == 0)
      first = ms;
    else
      later.push_back(ms);
  }
  std::string text = "first run " + milliseconds(first);
  if (later.empty()) return text;
  std::sort(later.begin(), later.end());
  return text + ", then median " + milliseconds(later[later.size() / 2]) + " of " +
         counted(later.size(), "run");
}

// ---- Files

// A name as a file: other bytes than letters, digits, '.', '_' and '-' become '_'.
std::string file_name(const std::string& name, std::set<std::string>& taken) {
  std::string plain;
  for (const char c : name) {
    const bool good = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                      c == '.' || c == '_' || c == '-';
    plain += good ? c : '_';
  }
  if (plain.empty() || plain[0] == '.') plain = "_" + plain;
  plain.resize(std::min<size_t>(plain.size(), 200));
  std::string unique = plain;
  for (int i = 2; !taken.insert(unique).second; ++i) unique = plain + "_" + std::to_string(i);
  return unique;
}

void write_outputs(const std::string& folder, const Named& outputs) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(TENON_IO_ERROR, folder + ": " + error.message());
  std::set<std::string> taken;
  for (const auto& [name, tensor] : outputs) {
    const std::string path = folder + "/" + file_name(name, taken) + ".npy";
    // NumPy has no bf16.
    write_tensors(path, {{name, tensor.dtype() == bf16 ? tensor.to(f32) : tensor}});
    std::cout << "wrote " << without_control_bytes(path)
              << (tensor.dtype() == bf16 ? ", as f32 because NumPy has no bf16" : "") << "\n";
  }
}

// ---- The two ways to run

int run_once(const Runtime& runtime, const Args& args) {
  Model model(runtime, args);
  std::vector<std::array<std::string, 4>> lines;
  for (const RunInput& in : inputs_from(args, model.graph())) {
    model.set(in.name, in.tensor);
    lines.push_back({"input", in.name, type_text(in.tensor.type()), in.origin});
  }
  const std::string time = run_and_time(model, args.integer("--repeat", 1, 1, 1000000));
  const Named outputs = model.outputs();
  for (const auto& [name, tensor] : outputs)
    lines.push_back({"output", name, type_text(tensor.type()), summary(tensor)});
  print_lines(lines);
  std::cout << "time    " << time << "\n";
  if (args.has("--output")) write_outputs(args.text("--output"), outputs);
  return 0;
}

// Returns the number of outputs that differ.
int compare(Model& model, const TestData& data, const Args& args, const Tolerance& tolerance) {
  for (const auto& [name, tensor] : inputs_of(data, model.graph(), args)) model.set(name, tensor);
  const std::string time = run_and_time(model, args.integer("--repeat", 1, 1, 1000000));
  const Named outputs = model.outputs(), expected = outputs_of(data, model.graph());
  int differ = 0;
  std::vector<std::array<std::string, 4>> lines;
  for (const auto& [name, want] : expected) {
    const auto got =
        std::ranges::find_if(outputs, [&](const auto& output) { return output.first == name; });
    const std::string text = difference(got->second, want, tolerance);
    differ += !text.empty();
    lines.push_back({text.empty() ? "equal" : "DIFFERS", name, type_text(want.type()),
                     text.empty() ? summary(got->second) : text});
  }
  std::cout << without_control_bytes(data.folder) << ": " << time << "\n";
  print_lines(lines);
  if (args.has("--output"))
    write_outputs(args.text("--output") + "/" + fs::path(data.folder).filename().string(), outputs);
  return differ;
}

int compare_all(const Runtime& runtime, const Args& args) {
  args.refuse(
      {"--input", "--bind", "--seed", "--scale", "--mean", "--std", "--layout", "--channels"},
      "cannot be combined with --compare, whose folder has the inputs");
  const Tolerance tolerance{.relative = args.number("--rtol", Tolerance{}.relative, 0, 1e30),
                            .absolute = args.number("--atol", Tolerance{}.absolute, 0, 1e30)};
  Model model(runtime, args);
  int differ = 0, sets = 0;
  for (const TestData& data : test_data(args.text("--compare"))) {
    differ += compare(model, data, args, tolerance);
    ++sets;
  }
  if (differ == 0)
    std::cout << "all outputs of " << counted(static_cast<uint64_t>(sets), "set") << " are equal\n";
  else
    std::cerr << "tenon: " << counted(static_cast<uint64_t>(differ), "output")
              << (differ == 1 ? " differs" : " differ") << "\n";
  return differ == 0 ? 0 : kFailure;
}

int run(const Args& args) {
  if (args.words().empty()) throw UsageError("expected a model: a file .onnx or .tng");
  if (fs::is_directory(args.words()[0]))
    throw UsageError(args.words()[0] +
                     ": is a folder, expected a file; tenon lm generate runs a language model");
  if (!args.has("--compare")) args.refuse({"--rtol", "--atol"}, "needs --compare");
  const Runtime& runtime = open_runtime(args);
  TraceFile trace(runtime, args);
  const int status = args.has("--compare") ? compare_all(runtime, args) : run_once(runtime, args);
  trace.save();
  return status;
}

}  // namespace

Command run_command() {
  Command c{
      .name = "run",
      .summary = "run a model once, print and store its outputs",
      .usage = "MODEL.onnx | GRAPH_FILE [options]",
      .options =
          {{.name = "--input",
            .value = "NAME=SOURCE",
            .help =
                "content of an input: FILE.npy, FILE.npz, FILE.png, random or zeros; a FILE.npz "
                "alone gives all inputs that it names; repeatable",
            .otherwise = "random",
            .completes = Completes::file,
            .repeats = true},
           bind_option(),
           {.name = "--seed", .value = "N", .help = "of random inputs", .otherwise = "1"},
           constant_option(),
           {.name = "--weights",
            .value = "FILE",
            .help = "weights of a graph file, safetensors",
            .completes = Completes::file},
           {.name = "--output",
            .value = "DIR",
            .help = "write each output to DIR/NAME.npy",
            .completes = Completes::folder},
           {.name = "--compare",
            .value = "DIR",
            .help = "run on the stored inputs of DIR and compare the outputs with the stored ones: "
                    "input_0.pb ... and output_0.pb ..., in DIR or in DIR/test_data_set_N",
            .completes = Completes::folder},
           {.name = "--rtol",
            .value = "X",
            .help = "relative tolerance of --compare",
            .otherwise = "0.001"},
           {.name = "--atol",
            .value = "X",
            .help = "absolute tolerance of --compare",
            .otherwise = "1e-05"},
           {.name = "--repeat",
            .value = "N",
            .help = "number of runs, for the time",
            .otherwise = "1"}},
      .examples =
          "tenon run model.onnx\n"
          "tenon run model.onnx --bind N=4 --input mask=zeros --output out\n"
          "tenon run model.onnx --input picture.png --mean 0.485,0.456,0.406 --std "
          "0.229,0.224,0.225\n"
          "tenon run model.onnx --compare test_data --rtol 1e-4\n",
      .words = 1,
      .completes = Completes::file,
      .run = run};
  for (const Option& o : picture_options()) c.options.push_back(o);
  for (const Option& o : {fallback_option(), memory_option(), pin_option(), bucket_option(),
                          exec_option(), compile_option(), trace_option()})
    c.options.push_back(o);
  return c;
}

}  // namespace tenon::cli
