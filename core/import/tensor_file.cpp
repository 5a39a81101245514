// SPDX-License-Identifier: Apache-2.0
// Finds the format of a file of tensors.
#include "import/tensor_file.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "import/onnx/model.hpp"

namespace tenon::core {

std::vector<NamedTensor> read_tensors(const std::string& path) {
  std::string begin;
  {
    const FileReader file(path);
    begin.resize(static_cast<size_t>(std::min<uint64_t>(file.size(), 6)));
    file.read(0, begin.data(), begin.size());
  }
  std::vector<NamedTensor> out;
  if (begin == std::string_view("\x93NUMPY", 6)) {
    out.push_back(read_npy(path));
    return out;
  }
  // An archive without members begins with its end.
  if (begin.starts_with("PK\3\4") || begin.starts_with("PK\5\6")) return read_npz(path);
  if (!path.ends_with(".pb"))
    fail(Code::unsupported, path,
         ": is no file of tensors; expected .npy, .npz, or a TensorProto in .pb");
  const onnx::Tensor t = onnx::read_tensor(path);
  if (t.dims.size() > TENON_MAX_RANK)
    fail(Code::unsupported, path, ": rank ", t.dims.size(), "; expected at most ", TENON_MAX_RANK);
  Bytes content = t.content();
  out.push_back({t.name, {t.dtype, Shape(t.dims)}, std::move(content)});
  return out;
}

void write_tensors(const std::string& path, std::span<const TensorView> tensors, bool deflate) {
  if (path.ends_with(".npz")) return write_npz(path, tensors, deflate);
  if (!path.ends_with(".npy"))
    fail(Code::invalid_argument, path, ": expected a name that ends with .npy or .npz");
  if (tensors.size() != 1)
    fail(Code::invalid_argument, path, ": a .npy file holds one tensor, got ", tensors.size(),
         "; hint: .npz holds several");
  if (deflate)
    fail(Code::invalid_argument, path, ": a .npy file is not compressed; hint: use .npz");
  write_npy(path, tensors[0]);
}

}  // namespace tenon::core
