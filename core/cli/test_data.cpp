// SPDX-License-Identifier: Apache-2.0
// Finds and reads stored inputs and outputs.
#include "cli/test_data.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>

#include "cli/source.hpp"

namespace tenon::cli {
namespace {

namespace fs = std::filesystem;

// The number in PREFIX<number>SUFFIX, or -1.
int64_t number_in(std::string_view name, std::string_view prefix, std::string_view suffix) {
  if (name.size() <= prefix.size() + suffix.size() || !name.starts_with(prefix) ||
      !name.ends_with(suffix))
    return -1;
  name.remove_prefix(prefix.size());
  name.remove_suffix(suffix.size());
  int64_t number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? number : -1;
}

// Paths in a folder, by the number in their names.
std::map<int64_t, std::string> numbered(const std::string& folder, std::string_view prefix,
                                        std::string_view suffix) {
  std::map<int64_t, std::string> out;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (const int64_t n = number_in(at->path().filename().string(), prefix, suffix); n >= 0)
      out.emplace(n, at->path().string());
  if (error) throw Error(TENON_IO_ERROR, folder + ": " + error.message());
  return out;
}

std::vector<std::string> files_in(const std::string& folder, std::string_view prefix) {
  std::vector<std::string> out;
  for (const auto& [number, path] : numbered(folder, prefix, ".pb")) {
    if (number != static_cast<int64_t>(out.size()))
      throw Error(TENON_NOT_FOUND, folder + ": expected " + std::string(prefix) +
                                       std::to_string(out.size()) + ".pb before " + path);
    out.push_back(path);
  }
  return out;
}

std::vector<std::pair<std::string, Tensor>> named(const std::vector<std::string>& files,
                                                  const std::vector<std::string>& names,
                                                  const std::string& what) {
  std::vector<std::pair<std::string, Tensor>> out;
  for (size_t i = 0; i < files.size(); ++i) {
    auto [name, tensor] = read_tensors(files[i]).at(0);
    if (std::ranges::find(names, name) == names.end()) {
      if (i >= names.size())
        throw Error(TENON_NOT_FOUND,
                    files[i] + ": the model has " + std::to_string(names.size()) + " " + what);
      name = names[i];
    }
    out.emplace_back(std::move(name), std::move(tensor));
  }
  return out;
}

}  // namespace

std::vector<TestData> test_data(const std::string& folder) {
  std::map<int64_t, std::string> folders = numbered(folder, "test_data_set_", "");
  if (folders.empty()) folders.emplace(0, folder);
  std::vector<TestData> out;
  for (const auto& [number, path] : folders) {
    TestData d{
        .folder = path, .inputs = files_in(path, "input_"), .outputs = files_in(path, "output_")};
    if (d.outputs.empty())
      throw Error(
          TENON_NOT_FOUND,
          path + ": has no stored outputs; expected output_0.pb, or folders test_data_set_N");
    out.push_back(std::move(d));
  }
  return out;
}

std::vector<std::pair<std::string, Tensor>> inputs_of(const TestData& data, const Graph& graph,
                                                      const Args& args) {
  std::vector<std::string> names, constant;
  for (const auto& in : graph.named(TENON_SPACE_INPUT)) names.push_back(in.name);
  for (const auto& [name, tensor] : constants_from(args)) constant.push_back(name);
  std::vector<std::string> files = data.inputs;
  // A constant is no input of the graph any more, but its file is still there.
  std::erase_if(files, [&](const std::string& file) {
    return !constant.empty() &&
           std::ranges::find(constant, read_tensors(file).at(0).first) != constant.end();
  });
  return named(files, names, "inputs");
}

std::vector<std::pair<std::string, Tensor>> outputs_of(const TestData& data, const Graph& graph) {
  std::vector<std::string> names;
  for (const auto& [name, value] : graph.outputs()) names.push_back(name);
  return named(data.outputs, names, "outputs");
}

}  // namespace tenon::cli
