// SPDX-License-Identifier: Apache-2.0
// Finds, reads and draws the inputs of tenon run.
#include "cli/run_input.hpp"

#include <cmath>
#include <cstring>

#include "cli/picture.hpp"
#include "cli/source.hpp"
#include "cli/tensor_text.hpp"
#include "cli/terminal.hpp"
#include "llm/tune/random.hpp"

namespace tenon::cli {
namespace {

struct Wanted {
  std::string name;
  TensorType type;  // with symbols
  std::string source{};
};

class Inputs {
 public:
  Inputs(const Args& args, const Graph& graph) : args_(args), graph_(graph) {
    for (const auto& in : graph.named(TENON_SPACE_INPUT))
      wanted_.push_back({in.name, graph.type(in.value)});
    for (const std::string& text : args.list("--input")) assign(text);
    bind();
  }

  std::vector<RunInput> make() {
    const PictureOptions pictures = picture_options_from(args_);
    bool any_picture = false;
    std::vector<RunInput> out;
    // Files first: they give symbols numbers.
    for (const Wanted& w : wanted_) {
      RunInput& in = out.emplace_back(RunInput{.name = w.name});
      if (w.source.empty() || w.source == "random" || w.source == "zeros") continue;
      try {
        const bool picture = w.source.ends_with(".png") || w.source.ends_with(".PNG");
        any_picture |= picture;
        in = picture ? from_picture(w, pictures) : from_file(w);
        take_numbers(w, in.tensor.type());
      } catch (const Error& e) {
        throw Error(e.code(), "input '" + w.name + "': " + e.what());
      }
    }
    if (!any_picture)
      args_.refuse({"--scale", "--mean", "--std", "--layout", "--channels"},
                   "applies to pictures; expected an input from a .png file");
    for (size_t i = 0; i < out.size(); ++i)
      if (out[i].origin.empty()) out[i] = drawn(wanted_[i], i);
    return out;
  }

 private:
  Wanted* find(std::string_view name) {
    for (Wanted& w : wanted_)
      if (w.name == name) return &w;
    return nullptr;
  }
  std::string names() const {
    std::string text;
    for (const Wanted& w : wanted_) text += (text.empty() ? "'" : ", '") + w.name + "'";
    return text.empty() ? "none" : text;
  }
  void give(Wanted& w, const std::string& source, const std::string& text) {
    if (!w.source.empty())
      throw UsageError("--input " + text + ": input '" + w.name + "' has a value already");
    if (source.empty()) throw UsageError("--input " + text + ": expected a file, random or zeros");
    w.source = source;
  }

  // "NAME=SOURCE"; names may have a '='. Without a name: a .npz file with all inputs, or the only
  // input.
  void assign(const std::string& text) {
    Wanted* best = nullptr;
    for (Wanted& w : wanted_)
      if (text.starts_with(w.name + "=") && (!best || w.name.size() > best->name.size())) best = &w;
    if (best) return give(*best, text.substr(best->name.size() + 1), text);
    if (const size_t at = text.find('='); at != std::string::npos)
      throw UsageError("--input " + text + ": there is no input '" + text.substr(0, at) +
                       "'; the inputs are " + names());
    if (text.ends_with(".npz")) {
      for (const auto& [name, tensor] : members(text)) {
        Wanted* const w = find(name);
        if (!w)
          throw UsageError("--input " + text + ": there is no input '" + name +
                           "'; the inputs are " + names());
        give(*w, text, text);
      }
      return;
    }
    if (wanted_.size() != 1)
      throw UsageError("--input " + text + ": expected NAME=" + text + "; the inputs are " +
                       names());
    give(wanted_[0], text, text);
  }

  const std::vector<std::pair<std::string, Tensor>>& members(const std::string& path) {
    const auto found = files_.find(path);
    return found != files_.end() ? found->second
                                 : files_.emplace(path, read_tensors(path)).first->second;
  }

  RunInput from_file(const Wanted& w) {
    const auto& tensors = members(w.source);
    const Tensor* t = tensors.size() == 1 ? &tensors[0].second : nullptr;
    for (const auto& [name, tensor] : tensors)
      if (name == w.name) t = &tensor;
    if (!t)
      throw Error(TENON_NOT_FOUND, w.source + " holds " + counted(tensors.size(), "tensor") +
                                       ", none of the input's name");
    RunInput in{w.name, converted(*t, w.type.dtype, w.source), w.source};
    if (t->dtype() != w.type.dtype) in.origin += ", converted from " + dtype_text(t->dtype());
    return in;
  }

  RunInput from_picture(const Wanted& w, const PictureOptions& options) const {
    const Picture p = read_png(w.source);
    try {
      return {w.name, picture_tensor(p, w.type, options), w.source};
    } catch (const Error& e) {
      throw Error(e.code(),
                  w.source + ": " + e.what() + "; the input is " + type_text(graph_, w.type));
    }
  }

  // ---- Symbols

  void bind() {
    std::map<std::string, int64_t> dims;
    for (const Wanted& w : wanted_)
      for (const int64_t d : w.type.dims)
        if (d < 0) dims.emplace(graph_.symbol_name(d), d);
    for (const auto& [name, number] : bindings_from(args_)) {
      const auto found = dims.find(name);
      if (found == dims.end()) {
        std::vector<std::string_view> known;
        for (const auto& [symbol, dim] : dims) known.push_back(symbol);
        throw UsageError("--bind " + name + ": the inputs have no symbol '" + name + "'" +
                         did_you_mean(name, known));
      }
      numbers_[found->second] = number;
    }
  }
  void take_numbers(const Wanted& w, const TensorType& type) {
    if (type.dims.size() != w.type.dims.size())
      throw Error(TENON_SHAPE_MISMATCH,
                  "expected " + type_text(graph_, w.type) + ", got " + type_text(type));
    for (size_t i = 0; i < type.dims.size(); ++i) {
      const int64_t dim = w.type.dims[i];
      const int64_t expected = dim >= 0 ? dim : numbers_.emplace(dim, type.dims[i]).first->second;
      if (expected == type.dims[i]) continue;
      std::string why;
      if (dim < 0) why = " with " + graph_.symbol_name(dim) + "=" + std::to_string(expected);
      throw Error(TENON_SHAPE_MISMATCH,
                  "expected " + type_text(graph_, w.type) + why + ", got " + type_text(type));
    }
  }

  // ---- Random ones

  RunInput drawn(const Wanted& w, size_t index) const {
    TensorType type = w.type;
    for (int64_t& d : type.dims) {
      if (d >= 0) continue;
      const auto found = numbers_.find(d);
      if (found == numbers_.end())
        throw UsageError("input '" + w.name + "' " + type_text(graph_, w.type) + ": symbol " +
                         graph_.symbol_name(d) + " has no number; expected --bind " +
                         shell_word(graph_.symbol_name(d)) + "=N");
      d = found->second;
    }
    Tensor t(type);
    if (w.source == "zeros") return {w.name, std::move(t), "zeros"};
    const auto seed = static_cast<uint64_t>(args_.integer("--seed", 1, 0, INT64_MAX));
    fill(t, llm::mix(seed, index));
    return {w.name, std::move(t), "random, seed " + std::to_string(seed)};
  }

  // Floats are standard normal, integers 0 to 9, bools 0 or 1.
  static void fill(Tensor& t, uint64_t seed) {
    if (sdk::is_blocks(t.dtype()))
      return llm::fill_blocks(seed, {static_cast<std::byte*>(t.data()), t.size()});
    const bool whole = !sdk::is_float(t.dtype()) && !sdk::is_complex(t.dtype());
    const double most = t.dtype() == boolean ? 2 : 10;
    const auto number = [&](size_t i) {
      return static_cast<float>(whole ? std::floor(most * llm::uniform(seed, i))
                                      : llm::normal(seed, i));
    };
    std::vector<int64_t> dims = t.dims();
    if (sdk::is_complex(t.dtype())) dims.push_back(2);
    Tensor values(TensorType(f32, dims));
    const std::span<float> to = values.values<float>();
    for (size_t i = 0; i < to.size(); ++i) to[i] = number(i);
    if (!sdk::is_complex(t.dtype())) {
      t = values.to(t.dtype());
    } else if (t.size() > 0) {
      const Tensor parts = values.to(sdk::part_dtype(t.dtype()));
      std::memcpy(t.data(), parts.data(), t.size());
    }
  }

  const Args& args_;
  const Graph& graph_;
  std::vector<Wanted> wanted_{};
  std::map<int64_t, int64_t> numbers_{};  // of symbolic dims
  std::map<std::string, std::vector<std::pair<std::string, Tensor>>> files_{};
};

}  // namespace

std::vector<RunInput> inputs_from(const Args& args, const Graph& graph) {
  return Inputs(args, graph).make();
}

}  // namespace tenon::cli
