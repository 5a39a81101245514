// SPDX-License-Identifier: Apache-2.0
// Finds the tensors of all experts, and reads matrices out of them.
#include "llm/arch/joint_experts.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "llm/arch/quantized_folder.hpp"

namespace tenon::llm {
namespace {

using Entry = Safetensors::Entry;

// Elements of a tensor, of which rows, columns and experts are some elements apart.
struct Strides {
  int64_t start = 0, expert = 0, row = 0, column = 0;
};

class Strided final : public EncodedWeight {
 public:
  Strided(const Entry& tensor, const Strides& strides, int64_t first, int64_t number,
          int64_t rows_of_each, int64_t columns_of_each)
      : tensor_(tensor), strides_(strides), first_(first), rows_of_each_(rows_of_each) {
    rows = number * rows_of_each, columns = columns_of_each;
  }

  void decode(int64_t first, int64_t count, float* to) const override {
    const tenon_dtype dtype = tensor_.type.dtype;
    const size_t width = tenon_dtype_bits(dtype) / 8;
    std::vector<float> aligned(static_cast<size_t>(columns));  // also for elements of 2 bytes
    auto* const row = reinterpret_cast<std::byte*>(aligned.data());
    for (int64_t r = first; r < first + count; ++r, to += columns) {
      const int64_t start = strides_.start + (first_ + r / rows_of_each_) * strides_.expert +
                            r % rows_of_each_ * strides_.row;
      for (int64_t c = 0; c < columns; ++c)
        std::memcpy(row + static_cast<size_t>(c) * width,
                    tensor_.data.data() + static_cast<size_t>(start + c * strides_.column) * width,
                    width);
      detail::check(tenon_convert(dtype, row, f32, to, static_cast<size_t>(columns)));
    }
  }

 private:
  const Entry tensor_;
  const Strides strides_;
  const int64_t first_, rows_of_each_;
};

// Blocks of 32 columns. In the folder, neighbours share a byte; in MXFP4 of GGUF, numbers that are
// 16 apart do, behind the scale.
class Mxfp4 final : public EncodedWeight {
 public:
  // Every `step`-th row of an expert from `start` on.
  Mxfp4(const Entry& numbers, const Entry& scales, int64_t start, int64_t step, int64_t first,
        int64_t number)
      : numbers_(numbers),
        scales_(scales),
        start_(start),
        step_(step),
        rows_of_each_(numbers.type.dims[1] / step),
        groups_(numbers.type.dims[2]),
        first_(first * numbers.type.dims[1]) {
    rows = number * rows_of_each_, columns = 32 * groups_;
    blocks = TENON_DTYPE_MXFP4;
  }

  void decode_blocks(int64_t first, int64_t count, std::byte* to) const override {
    for (int64_t r = first; r < first + count; ++r) {
      const int64_t row = first_ + r * step_ + start_;
      for (int64_t g = row * groups_; g < (row + 1) * groups_; ++g) {
        *to++ = scales_.data[static_cast<size_t>(g)];
        const std::byte* const from = numbers_.data.data() + 16 * g;
        const auto number = [from](int i) {
          return (i % 2 == 0 ? from[i / 2] : from[i / 2] >> 4) & std::byte{15};
        };
        for (int i = 0; i < 16; ++i) *to++ = number(i) | number(i + 16) << 4;
      }
    }
  }

  std::span<const std::byte> source() const override {
    return numbers_.data.subspan(static_cast<size_t>(16 * groups_ * first_),
                                 static_cast<size_t>(16 * groups_ * rows * step_));
  }

  void decode(int64_t first, int64_t count, float* to) const override {
    std::vector<std::byte> all(static_cast<size_t>(17 * count * groups_));
    decode_blocks(first, count, all.data());
    const std::vector<float> numbers =
        gguf_decode<float>(gguf_format(uint32_t{TENON_DTYPE_MXFP4 - TENON_DTYPE_BLOCKS}), all);
    std::ranges::copy(numbers, to);
  }

 private:
  const Entry numbers_, scales_;
  const int64_t start_, step_, rows_of_each_, groups_, first_;
};

class Finder {
 public:
  Finder(JointLayout layout, int64_t dim, const std::vector<Entry>& tensors,
         std::set<std::string, std::less<>>& used)
      : layout_(layout), dim_(dim), tensors_(tensors), used_(used) {}

  std::vector<JointPart> find() {
    for (const Entry& t : tensors_) {
      const auto is = [&](std::string_view end) { return t.name.ends_with(end); };
      if (layout_ == JointLayout::half_rows) {
        if (is(".block_sparse_moe.input_linear.weight")) rows(t, 2);
        if (is(".block_sparse_moe.output_linear.weight")) rows(t, 1);
        continue;
      }
      for (const int64_t parts : {2, 1}) {
        const std::string name = parts == 2 ? ".experts.gate_up_proj" : ".experts.down_proj";
        if (is(name)) {
          if (has_rows(t, parts))
            rows(t, parts);
          else
            columns(t, parts);
        }
        if (layout_ != JointLayout::turns) continue;
        if (is(name + "_bias")) bias(t, parts);
        if (is(name + "_blocks")) blocks(t, parts);
      }
    }
    refuse_others();
    return std::move(parts_);
  }

 private:
  [[noreturn]] static void refuse_twice(const std::string& one, const std::string& other) {
    throw Error(TENON_CORRUPT, "expected one tensor for the same matrices of experts, got '" + one +
                                   "' and '" + other + "'");
  }

  // Tensors that have the name of a part, or that of an expert of it.
  void refuse_others() const {
    std::set<std::string_view> others;
    for (const Entry& t : tensors_)
      if (t.name.find(".experts.") != std::string::npos && !used_.contains(t.name))
        others.insert(t.name);
    if (others.empty()) return;
    for (const JointPart& part : parts_) {
      const std::string name = part.name();
      if (others.contains(name)) refuse_twice(name, from_.at(name));
      for (int64_t e = 0; e < part.count && !part.bias; ++e)
        if (const std::string one = part.name_of(e); others.contains(one))
          refuse_twice(one, from_.at(name));
    }
  }

  // The dims of a tensor of floats whose axis `divided` has the outputs of `parts` matrices.
  const std::vector<int64_t>& checked(const Entry& t, size_t rank, size_t divided, int64_t parts) {
    const std::vector<int64_t>& dims = t.type.dims;
    const tenon_dtype d = t.type.dtype;
    if (d != f32 && d != f16 && d != bf16)
      throw Error(TENON_UNSUPPORTED, "tensor " + described(t) + ": expected f32, f16 or bf16");
    if (dims.size() != rank || std::ranges::any_of(dims, [](int64_t n) { return n < 1; }) ||
        dims[divided] % parts != 0 || dims[0] > 4096)
      throw Error(TENON_SHAPE_MISMATCH, "tensor " + described(t) + ": expected " +
                                            std::to_string(rank) +
                                            " axes, the first one of at most 4096 experts" +
                                            (parts > 1 ? ", and an even number of outputs" : ""));
    return dims;
  }

  // What the outputs of a tensor are. Open if hidden_size is both of its axes, or none.
  enum class Outputs : uint8_t { rows, columns, open };
  Outputs outputs_of(const Entry& t, int64_t parts) const {
    const std::vector<int64_t>& dims = t.type.dims;
    if (dims.size() != 3 || (dims[1] == dim_) == (dims[2] == dim_)) return Outputs::open;
    return dims[parts == 2 ? 2 : 1] == dim_ ? Outputs::rows : Outputs::columns;
  }

  // Are the outputs of a tensor without blocks its rows? Both tensors of a layer have the same
  // form, and at most one of them is square.
  bool has_rows(const Entry& t, int64_t parts) const {
    if (layout_ != JointLayout::half_columns) return layout_ == JointLayout::half_rows_by_name;
    const std::string name =
        t.name.substr(0, t.name.rfind('.')) + (parts == 2 ? ".down_proj" : ".gate_up_proj");
    const auto other = std::ranges::find(tensors_, name, &Entry::name);
    const bool alone = other == tensors_.end();
    const Outputs own = outputs_of(t, parts),
                  others = alone ? Outputs::open : outputs_of(*other, 3 - parts);
    const bool open = own == Outputs::open && others == Outputs::open;
    const auto refuse = [&](const std::string& expected) {
      throw Error(TENON_SHAPE_MISMATCH, "tensor " + described(t) + " beside " +
                                            (alone ? "no '" + name + "'" : described(*other)) +
                                            ": expected " + expected);
    };
    const std::string size = "hidden_size " + std::to_string(dim_);
    if (own != Outputs::open && others != Outputs::open && own != others)
      refuse(size + " once as the middle axis and once as the last one");
    const std::vector<int64_t>& dims = t.type.dims;
    if (open && dims.size() == 3 && dims[1] == dim_ && dims[2] == dim_)
      refuse("an axis other than " + size + " in one of the two, which tells rows from columns");
    return own == Outputs::rows || others == Outputs::rows;
  }

  void add(const Entry& t, int64_t part, int64_t parts, JointPart found) {
    constexpr std::string_view kSparse = ".block_sparse_moe";
    const size_t sparse = t.name.rfind(kSparse);
    found.experts = layout_ == JointLayout::half_rows
                        ? t.name.substr(0, sparse + kSparse.size()) + ".experts"
                        : t.name.substr(0, t.name.rfind('.'));
    found.which = parts == 1 ? "down_proj" : part == 0 ? "gate_proj" : "up_proj";
    if (const auto [at, fresh] = from_.emplace(found.name(), t.name); !fresh)
      refuse_twice(t.name, at->second);
    used_.insert(t.name);
    parts_.push_back(std::move(found));
  }

  JointPart strided(const Entry& t, const Strides& strides, int64_t rows, int64_t columns) {
    return {.count = t.type.dims[0],
            .rows = rows,
            .columns = columns,
            .dtype = t.type.dtype,
            .matrices = [t, strides, rows, columns](int64_t first, int64_t number) {
              return std::make_unique<Strided>(t, strides, first, number, rows, columns);
            }};
  }

  void rows(const Entry& t, int64_t parts) {
    const std::vector<int64_t>& dims = checked(t, 3, 1, parts);
    const int64_t outputs = dims[1] / parts;
    for (int64_t part = 0; part < parts; ++part)
      add(t, part, parts,
          strided(t, {part * outputs * dims[2], dims[1] * dims[2], dims[2], 1}, outputs, dims[2]));
  }

  // Where the outputs of a part begin, and how far they are apart.
  std::pair<int64_t, int64_t> outputs_of(int64_t part, int64_t parts, int64_t outputs) const {
    if (layout_ == JointLayout::turns) return {part, parts};
    return {part * outputs, 1};
  }

  void columns(const Entry& t, int64_t parts) {
    const std::vector<int64_t>& dims = checked(t, 3, 2, parts);
    const int64_t outputs = dims[2] / parts;
    for (int64_t part = 0; part < parts; ++part) {
      const auto [start, step] = outputs_of(part, parts, outputs);
      add(t, part, parts, strided(t, {start, dims[1] * dims[2], step, dims[2]}, outputs, dims[1]));
    }
  }

  void bias(const Entry& t, int64_t parts) {
    const std::vector<int64_t>& dims = checked(t, 2, 1, parts);
    const int64_t outputs = dims[1] / parts;
    for (int64_t part = 0; part < parts; ++part) {
      const auto [start, step] = outputs_of(part, parts, outputs);
      JointPart found = strided(t, {start, dims[1], 0, step}, 1, outputs);
      found.bias = true;
      add(t, part, parts, std::move(found));
    }
  }

  void blocks(const Entry& t, int64_t parts) {
    const std::string name = t.name.substr(0, t.name.size() - 6) + "scales";
    const auto scales = std::ranges::find(tensors_, name, &Entry::name);
    if (scales == tensors_.end())
      throw Error(TENON_NOT_FOUND, "tensor " + described(t) + ": '" + name + "' is missing");
    const std::vector<int64_t>& dims = t.type.dims;
    if (t.type.dtype != TENON_DTYPE_U8 || dims.size() != 4 || dims[3] != 16 ||
        std::ranges::any_of(dims, [](int64_t n) { return n < 1; }) || dims[1] % parts != 0 ||
        dims[0] > 4096)
      throw Error(TENON_SHAPE_MISMATCH,
                  "tensor " + described(t) +
                      ": expected u8[experts, outputs, groups, 16], at most 4096 experts");
    if (scales->type != TensorType(TENON_DTYPE_U8, {dims[0], dims[1], dims[2]}))
      throw Error(TENON_SHAPE_MISMATCH, "tensor " + described(*scales) +
                                            ": expected a number for each 16 bytes of " +
                                            described(t));
    used_.insert(name);
    for (int64_t part = 0; part < parts; ++part)
      add(t, part, parts,
          {.count = dims[0],
           .rows = dims[1] / parts,
           .columns = 32 * dims[2],
           .dtype = TENON_DTYPE_MXFP4,
           .matrices = [t, s = *scales, part, parts](int64_t first, int64_t number) {
             return std::make_unique<Mxfp4>(t, s, part, parts, first, number);
           }});
  }

  const JointLayout layout_;
  const int64_t dim_;
  const std::vector<Entry>& tensors_;
  std::set<std::string, std::less<>>& used_;
  std::vector<JointPart> parts_;
  std::map<std::string, std::string, std::less<>> from_;  // names of parts, and of their tensors
};

struct Source {
  Source(const std::string& path, JointLayout layout, int64_t dim, const DecodeOptions& o)
      : folder(path, {}), options(o) {
    std::vector<Entry> entries;
    for (const auto& [name, place] : folder.places) entries.push_back(place.entry);
    std::set<std::string, std::less<>> used;
    try {
      for (JointPart& part : joint_parts(layout, dim, entries, used)) {
        std::string name = part.name();
        dtypes.emplace(name, part.dtype);
        parts.emplace(std::move(name), std::move(part));
      }
    } catch (const Error& e) {
      throw Error(e.code(), path + ": " + e.what());
    }
    for (const std::string& name : used) folder.places.erase(name);
  }

  TensorType type(const std::string& name) const {
    const JointPart& p = parts.at(name);
    std::vector<int64_t> dims = {p.count, p.rows, p.columns};
    if (p.bias) dims.erase(dims.begin() + 1);
    return {dtypes.at(name), std::move(dims)};
  }

  void load(Store& store) const {
    for (const auto& [name, part] : parts) {
      const Tensor all = part.matrices(0, part.count)->tensor(dtypes.at(name), false);
      store.set(TENON_SPACE_WEIGHT, name, type(name), all.data(), all.size());
    }
  }

  QuantizedFolder folder;
  const DecodeOptions options;
  std::map<std::string, JointPart, std::less<>> parts;
  std::map<std::string, tenon_dtype, std::less<>> dtypes;  // in the store
};

}  // namespace

JointLayout joint_layout(std::string_view model_type) {
  if (model_type == "gpt_oss") return JointLayout::turns;
  if (model_type == "qwen3_moe" || model_type == "llama4_text") return JointLayout::half_columns;
  if (model_type == "qwen3_5_moe_text" || model_type == "gemma4_text" || model_type == "mistral4" ||
      model_type == "hy_v3" || model_type == "granitemoe_swa")
    return JointLayout::half_rows_by_name;
  return model_type.starts_with("granitemoe") ? JointLayout::half_rows : JointLayout::none;
}

bool is_joint(std::string_view tensor) {
  constexpr std::string_view kMarks[] = {".experts.gate_up_proj", ".experts.down_proj",
                                         ".block_sparse_moe.input_linear.",
                                         ".block_sparse_moe.output_linear."};
  return std::ranges::any_of(
      kMarks, [&](std::string_view mark) { return tensor.find(mark) != std::string_view::npos; });
}

std::vector<JointPart> joint_parts(JointLayout layout, int64_t dim,
                                   const std::vector<Entry>& tensors,
                                   std::set<std::string, std::less<>>& used) {
  if (layout == JointLayout::none) return {};
  return Finder(layout, dim, tensors, used).find();
}

TensorSource joint_tensors(const std::string& folder, JointLayout layout, int64_t dim,
                           const DecodeOptions& options) {
  return tensors_of(std::make_shared<Source>(folder, layout, dim, options));
}

}  // namespace tenon::llm
