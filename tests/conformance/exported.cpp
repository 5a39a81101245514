// SPDX-License-Identifier: Apache-2.0
// ONNX export on the cases of the kit:
//
//   tenon_exported_cases TEMPLATE_PLUGIN FAMILY... [--every N]
//
// Each case is written as an ONNX model and read again; both graphs must give the same results. Then
// the same with symbols for the lengths of axes, where the case takes that. A family's line names the
// ops that were refused; only the ones that ONNX has nothing for may be.
//
// With TENON_EXPORT_FOLDER=DIR, models and their data are also written below DIR, for other readers:
// DIR/<case>.<dtype>/model.onnx, inputs.npz and outputs.npz.
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <set>

#include "case_tool.hpp"

using namespace tenon;
using namespace tenon::case_tool;

namespace {

namespace fs = std::filesystem;

constexpr const char* kSeed = "first";

// Ops that need random numbers, factors of matrices, and dtypes that ONNX lacks.
bool may_be_refused(const std::string& why) {
  for (const char* reason :
       {"random_bits: ONNX has no op", "(random_bits): ONNX has no op", "sample: ONNX has no op",
        "(sample): ONNX has no op", "converts no complex numbers", "ONNX's Pow does not take u64",
        "lu: ONNX has no op", "lu): ONNX has no op", "triangular_solve: ONNX has no op",
        "triangular_solve): ONNX has no op", "cholesky: ONNX has no op",
        "cholesky): ONNX has no op", "view_as_real: ONNX has no op",
        "(view_as_real): ONNX has no op", "view_as_complex: ONNX has no op",
        "(view_as_complex): ONNX has no op", "dequantize_blocks: ONNX has no op",
        "(dequantize_blocks): ONNX has no op"})
    if (why.find(reason) != std::string::npos) return true;
  return false;
}

// Graphs with a symbol. Factors of matrices have no form. Most decompositions of attention, and all of
// recurrent layers, of scans over steps, of convolutions by transforms and of channel norms in f64
// need numbers.
size_t written = 0, refused_forms = 0;

struct Folder {
  fs::path path = fs::temp_directory_path() / ("tenon_exported_" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() {
    std::error_code error;
    fs::remove_all(path, error);
  }
};

double allowed(tenon_dtype t) {
  return t == f64 ? 1e-10 : t == f32 ? 2e-5 : t == f16 ? 4e-3 : 3e-2;
}

// Empty, or the first element that is off.
std::string far_apart(const HostTensor& got, const HostTensor& want) {
  if (got.type != want.type) return "another type";
  if (!is_float(want.type.dtype)) return got.bytes == want.bytes ? "" : "other bytes";
  double most = 1;
  for (size_t i = 0; i < want.size(); ++i)
    if (std::isfinite(want.real(i))) most = std::max(most, std::abs(want.real(i)));
  for (size_t i = 0; i < want.size(); ++i) {
    const double a = got.real(i), b = want.real(i);
    if ((std::isnan(a) && std::isnan(b)) || a == b) continue;
    if (std::abs(a - b) <= allowed(want.type.dtype) * most) continue;
    return place(want.type.dims, i) + ": expected " + want.text(i) + ", got " + got.text(i);
  }
  return "";
}

Graph with_symbol(const Graph& g, int64_t length) {
  const std::string text = g.print();
  const auto inputs = g.named(TENON_SPACE_INPUT);
  std::string out;
  size_t next = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    // Only the graph's own inputs are indented by two.
    if (line.starts_with("  input ") && next < inputs.size()) {
      std::string shape;
      const Dims dims = g.type(inputs[next++].value).dims;
      for (size_t i = 0; i < dims.size(); ++i)
        shape += (i ? "," : "") + (dims[i] == length ? "N" : std::to_string(dims[i]));
      line.replace(line.rfind('['), std::string::npos, "[" + shape + "]");
    }
    out += line + "\n";
    if (at == 0) out += "  symbols N\n";
    at = end + 1;
  }
  return Graph::parse(out, "case");
}

class Case : public CaseJudge {
 public:
  using CaseJudge::CaseJudge;

  void judge() {
    for (const bool reference : {true, false}) {
      if (reference && !is_float(dtype_)) continue;
      for (const tenon_dtype dtype : reference ? std::vector{dtype_} : row_.dtypes) {
        if (!reference && is_float(dtype) != is_float(dtype_)) continue;
        compare(dtype, reference);
      }
    }
  }

 private:
  CaseBuilder made(tenon_dtype dtype, bool reference) const {
    CaseBuilder b({.seed = kSeed, .dtype = dtype, .reference = reference});
    row_.build(b);
    return b;
  }

  void compare(tenon_dtype dtype, bool reference) {
    CaseBuilder b = made(dtype, reference);
    if (b.outputs().empty()) {
      ++totals_.skipped;
      return;
    }
    // ONNX has one space of names for inputs and outputs.
    for (const auto& o : b.outputs()) b.graph().output("y " + o.name, o.value);
    Tensors inputs;
    for (const auto& in : b.inputs()) inputs.emplace(in.name, in.content);
    const std::string what = dtype_text(dtype) + (reference ? " in f64" : "");
    const Tensors expected = run(runtime_, b.graph(), inputs);
    const std::string why = round_trip(what, b.graph(), inputs, expected);
    if (!why.empty()) return report(what, may_be_refused(why) ? "" : why);
    if (!reference) return;
    // All axes of one length, one after the other.
    std::set<int64_t> lengths;
    for (const auto& [name, x] : inputs)
      for (int64_t d : x.type.dims)
        if (d > 0 && d <= 4096) lengths.insert(d);
    for (const int64_t n : lengths) {
      std::optional<Graph> g;
      try {
        g.emplace(with_symbol(b.graph(), n));
        run(runtime_, *g, inputs);
      } catch (const Error&) {
        continue;  // a case may need that number
      }
      const std::string form = what + " with a symbol for " + std::to_string(n);
      guarded(form, [&] {
        const std::string refused = round_trip(form, *g, inputs, expected);
        if (!refused.empty() && !refused.starts_with("export: ")) report(form, refused);
        ++(refused.empty() ? written : refused_forms);
      });
    }
    if (!row_.gradient) return;
    CaseBuilder c = made(dtype, true);
    if (!add_gradients(c)) return;
    const std::string refused =
        round_trip(what + " gradients", c.graph(), inputs, run(runtime_, c.graph(), inputs));
    if (!refused.empty() && !may_be_refused(refused)) report(what + " gradients", refused);
  }

  // Why the graph was refused; empty if it was not.
  std::string round_trip(const std::string& what, const Graph& g, const Tensors& inputs,
                         const Tensors& expected) {
    static const Folder folder;
    const std::string file = (folder.path / "model.onnx").string();
    try {
      g.save_onnx(file);
    } catch (const Error& e) {
      if (fs::exists(file)) return "left a file behind";
      if (e.code() != TENON_UNSUPPORTED) return std::string("another code: ") + e.what();
      if (!std::string_view(e.what()).starts_with("export: ")) return e.what();
      if (std::getenv("TENON_SHOW_REFUSED"))
        std::printf("refused %s %s: %s\n", row_.id.c_str(), what.c_str(), e.what());
      return e.what();
    }
    guarded(what, [&] {
      Store store(runtime_);
      const Graph again = Graph::import(file, store);
      Tensors known;
      for (const auto& in : again.named(TENON_SPACE_INPUT))
        known.emplace(in.name, inputs.at(in.name));
      const Executable exe(runtime_, again, store, {.device = "template:0"});
      Context context(exe);
      for (const auto& [name, x] : known) context.set(name, x.type, x.bytes.data(), x.bytes.size());
      context.run();
      for (const auto& [name, want] : expected) {
        HostTensor got(context.output_type(name));
        context.get(name, got.bytes.data(), got.bytes.size());
        report(what + " output " + name, far_apart(got, want));
      }
    });
    if (const char* kept = std::getenv("TENON_EXPORT_FOLDER"))
      keep(fs::path(kept), what, file, inputs, expected);
    fs::remove(file);
    return "";
  }

  void keep(const fs::path& root, const std::string& what, const std::string& file,
            const Tensors& inputs, const Tensors& expected) const {
    std::string name = row_.id + "." + what;
    std::replace(name.begin(), name.end(), ' ', '-');
    const fs::path folder = root / name;
    fs::create_directories(folder);
    fs::copy_file(file, folder / "model.onnx", fs::copy_options::overwrite_existing);
    const auto write = [&](const char* kind, const Tensors& given) {
      std::vector<std::pair<std::string, Tensor>> tensors;
      for (const auto& [tensor, t] : given) {
        tensors.emplace_back(tensor, Tensor(t.type));
        std::memcpy(tensors.back().second.data(), t.bytes.data(), t.bytes.size());
      }
      write_tensors((folder / (std::string(kind) + ".npz")).string(), tensors);
    };
    try {
      write("inputs", inputs);
      write("outputs", expected);
    } catch (const Error&) {  // a dtype that NumPy lacks
      fs::remove_all(folder);
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int status = judge_cases<Case>("tenon_exported_cases", argc, argv);
  if (written + refused_forms == 0) return status;
  std::printf("graphs with a symbol: %zu written, %zu refused\n", written, refused_forms);
  const bool any = std::any_of(argv + 2, argv + argc, [](std::string_view family) {
    return family != "channel_norm" && family != "recurrent" && family != "selective_scan" &&
           family != "delta_rule" && family != "linalg" && family != "fft";
  });
  if ((written > 0) == any) return status;
  std::printf("FAIL: expected %s of them\n", any ? "some" : "none");
  return 1;
}
