// SPDX-License-Identifier: Apache-2.0
// Fields of config.json as keys of an architecture of GGUF, and the way back.
#pragma once

#include <string>

#include "llm/files/config_keys.hpp"
#include "llm/files/own_keys.hpp"

namespace tenon::llm::files {

// Fields of config.json, and keys of the architecture that they become.
class Fields {
 public:
  Fields(GgufWriter& out, const Family& family, const Json& config, const std::string& file)
      : out_(out), family_(family), config_(config), file_(file) {}

  std::string key(std::string_view name) const {
    return std::string(family_.gguf) + "." + std::string(name);
  }
  void set(std::string_view name, int64_t number) {
    if (number < 0 || number > INT32_MAX) refuse(name, std::to_string(number), "0 to 2147483647");
    out_.set(key(name), static_cast<uint32_t>(number));
  }
  void set_real(std::string_view name, double number) {
    out_.set(key(name), static_cast<float>(number));
  }
  void set_flag(std::string_view name, bool value) { out_.set(key(name), value); }
  void set_text(std::string_view name, const char* value) { out_.set(key(name), value); }
  // Of 32 bits, so that sums do not overflow.
  int64_t integer(std::string_view name, int64_t otherwise) const {
    const int64_t number = field<int64_t>(config_, name, file_).value_or(otherwise);
    if (number < INT32_MIN || number > INT32_MAX)
      refuse(name, std::to_string(number), "-2147483648 to 2147483647");
    return number;
  }
  bool flag(std::string_view name, bool otherwise) const {
    return field<bool>(config_, name, file_).value_or(otherwise);
  }
  std::string text(std::string_view name, const char* otherwise) const {
    return field<std::string>(config_, name, file_).value_or(otherwise);
  }
  int64_t size(std::string_view name) const { return need_size(config_, name, file_); }
  void expect(std::string_view name, bool value) const {
    if (flag(name, value) != value)
      refuse(name, value ? "false" : "true", value ? "true" : "false");
  }
  [[noreturn]] void refuse(std::string_view name, const std::string& given,
                           const std::string& expected) const {
    throw Error(TENON_UNSUPPORTED, file_ + ": '" + std::string(name) + "': '" + given +
                                       "' has no form in GGUF for this model_type; expected " +
                                       expected);
  }
  double real(std::string_view name, double otherwise) const {
    return field<double>(config_, name, file_).value_or(otherwise);
  }

 private:
  GgufWriter& out_;
  const Family& family_;
  const Json& config_;
  const std::string& file_;
};

// The reading side: keys of the file.
class FileKeys {
 public:
  FileKeys(const Gguf& model, const Family& family, const std::string& file)
      : model_(model), prefix_(std::string(family.gguf) + "."), file_(file) {}

  bool has(const std::string& name) const { return model_.has(prefix_ + name); }
  int64_t integer(const std::string& name, int64_t otherwise = -1) const {
    if (otherwise >= 0 && !has(name)) return otherwise;
    const int64_t n = read<int64_t>(name);
    if (n < 0 || n > INT32_MAX)
      throw Error(TENON_CORRUPT, file_ + ": key '" + prefix_ + name + "' is " + std::to_string(n));
    return n;
  }
  [[noreturn]] void refuse(const std::string& name, const std::string& what) const {
    throw Error(TENON_CORRUPT, file_ + ": key '" + prefix_ + name + "' is " + what);
  }
  // One number, or a list; true counts as 1.
  std::vector<int64_t> integers(const std::string& name) const {
    try {
      return model_.numbers<int64_t>(prefix_ + name);
    } catch (const Error& e) {
      throw Error(e.code(), file_ + ": " + e.what());
    }
  }
  double real(const std::string& name) const {
    return finite(read<float>(name), prefix_ + name, file_);
  }
  bool flag(const std::string& name) const { return has(name) && read<bool>(name); }

 private:
  template <class T>
  T read(const std::string& name) const {
    try {
      return model_.number<T>(prefix_ + name);
    } catch (const Error& e) {
      throw Error(e.code(), file_ + ": " + e.what());
    }
  }
  const Gguf& model_;
  const std::string prefix_, file_;
};

// nextn_predict_layers: layers behind the last one that predict further tokens are none of the model's.
// name: of their number in config.json.
void read_extra_layers(const FileKeys& keys, Json& out,
                       const char* name = "num_nextn_predict_layers");

}  // namespace tenon::llm::files
