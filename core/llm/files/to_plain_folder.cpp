// SPDX-License-Identifier: Apache-2.0
// A Hugging Face folder to another one: weights that are quantized become plain, adapters a part of
// them.
#include <cmath>
#include <filesystem>

#include "llm/files/check_tensors.hpp"
#include "llm/files/convert.hpp"
#include "llm/files/folder_writer.hpp"

namespace tenon::llm::files {
namespace {

namespace fs = std::filesystem;

bool is_float(tenon_dtype t) { return t == f32 || t == f16 || t == bf16; }

class ToPlainFolder {
 public:
  ToPlainFolder(const std::string& from, const std::string& to, const ConvertOptions& options)
      : from_(from),
        to_(to),
        options_(options),
        model_(engine_config(from_)),
        type_(options.type.empty() ? from_.own_type() : options.type) {
    if (type_ != "F32" && type_ != "F16" && type_ != "BF16")
      throw Error(TENON_INVALID_ARGUMENT,
                  "--type " + type_ +
                      ": expected F32, F16 or BF16 for a folder; hint: a name "
                      "that ends with .gguf makes a GGUF file");
    if (from_.has_joint_experts())
      throw Error(TENON_UNSUPPORTED, from + ": models of model_type '" +
                                         std::string(model_.architecture->model_type) +
                                         "' are converted to GGUF only; expected a name that ends "
                                         "with .gguf");
    std::error_code error;
    if (fs::equivalent(from, to, error))
      throw Error(TENON_INVALID_ARGUMENT, to + ": expected another folder than that of the model");
  }

  Converted convert() {
    plan();
    make_folder(to_);
    const uint64_t bytes = write_tensors(to_, tensors_, options_);
    write_config();
    for (const char* folder : {"", "1_Pooling"}) copy_files(folder);
    return {.tensors = tensors_.size(), .bytes = bytes, .notes = {}};
  }

 private:
  tenon_dtype target() const { return type_ == "F32" ? f32 : type_ == "F16" ? f16 : bf16; }

  // The dtype of a tensor: --type if given, or what it has.
  tenon_dtype dtype_of(const ModelFolder::Entry& entry) const {
    const bool becomes = entry.encoded || (!options_.type.empty() && is_float(entry.type.dtype));
    return becomes ? target() : entry.type.dtype;
  }

  void plan() {
    if (options_.changes) options_.changes->check_model(model_);
    const bool inputs_are_rows = model_.architecture->model_type == "gpt2";
    const auto left_out =
        check_tensors(from_, model_, [this](const auto& entry) { return dtype_of(entry); });
    for (const auto& [name, entry] : from_.tensors()) {
      if (left_out.contains(name)) continue;
      const bool changes =
          options_.changes && options_.changes->plan(name, entry.type.dims, inputs_are_rows);
      tensors_.push_back({name, {dtype_of(entry), entry.type.dims}, [this, e = &entry, changes] {
                            return made(*e, changes);
                          }});
    }
    if (options_.changes) options_.changes->check_used();
  }

  std::shared_ptr<Tensor> made(const ModelFolder::Entry& entry, bool changes) const {
    const TensorType type(dtype_of(entry), entry.type.dims);
    auto out = std::make_shared<Tensor>(type);
    if (!entry.encoded && !changes && type.dtype == entry.type.dtype) {
      if (out->size() > 0) std::memcpy(out->data(), entry.data.data(), out->size());
      return out;
    }
    std::vector<float> numbers = entry.numbers();
    if (changes) options_.changes->add(entry.name, entry.type.dims, numbers);
    if (type.dtype == f16)
      for (const float v : numbers)
        if (std::fabs(v) >= 65520 && std::isfinite(v))
          throw Error(TENON_NUMERIC_ERROR, from_.path() + ": tensor '" + entry.name +
                                               "': " + std::to_string(v) +
                                               " does not fit f16; hint: --type BF16");
    detail::check(tenon_convert(f32, numbers.data(), type.dtype, out->data(), numbers.size()));
    return out;
  }

  void write_config() const {
    Json config = from_.config();
    const bool old_name = config.contains("torch_dtype") && !config.contains("dtype");
    config[old_name ? "torch_dtype" : "dtype"] = type_ == "F32"   ? "float32"
                                                 : type_ == "F16" ? "float16"
                                                                  : "bfloat16";
    write_text(to_, "config.json",
               config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  }

  // Tokenizer, chat template and other small files: all but weights and what describes them.
  void copy_files(const std::string& folder) const {
    const fs::path from = fs::path(from_.path()) / folder, to = fs::path(to_) / folder;
    std::error_code error;
    if (!fs::is_directory(from, error)) return;
    fs::create_directories(to, error);
    for (const fs::directory_entry& file : fs::directory_iterator(from, error)) {
      const std::string name = file.path().filename().string(),
                        end = file.path().extension().string();
      if (!file.is_regular_file(error) || name.starts_with(".")) continue;
      if (end != ".json" && end != ".jinja" && end != ".txt" && end != ".model") continue;
      if (name.ends_with(".index.json") || name == "quantize_config.json" ||
          name == "quant_config.json" || (folder.empty() && name == "config.json"))
        continue;
      fs::copy_file(file.path(), to / name, fs::copy_options::overwrite_existing, error);
      if (error) throw Error(TENON_IO_ERROR, (to / name).string() + ": " + error.message());
    }
    if (error) throw Error(TENON_IO_ERROR, from.string() + ": " + error.message());
  }

  const ModelFolder from_;
  const std::string to_;
  const ConvertOptions& options_;
  const ModelConfig model_;
  const std::string type_;
  std::vector<FolderTensor> tensors_;
};

}  // namespace

Converted folder_to_folder(const std::string& from, const std::string& to,
                           const ConvertOptions& options) {
  return ToPlainFolder(from, to, options).convert();
}

}  // namespace tenon::llm::files
