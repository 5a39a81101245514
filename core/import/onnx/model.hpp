// SPDX-License-Identifier: Apache-2.0
// An ONNX model as data: what its file says, checked for form but not for meaning. Field numbers and
// semantics: onnx.proto and IR.md of onnx 1.23.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.hpp"

namespace tenon::core::onnx {

struct Graph;

// The dtype of a TensorProto.DataType; NONE if tenon lacks it. The name is ONNX's: "FLOAT16".
DType element_dtype(int32_t element);
std::string element_name(int32_t element);
int32_t element_of_dtype(DType dtype);

// A constant. Its content stays in the file, or in the file beside it, until it is asked for.
struct Tensor {
  std::string name{};
  int32_t element = 0;                 // TensorProto.DataType
  DType dtype = TENON_DTYPE_NONE;      // NONE: a dtype that tenon lacks, such as string
  std::vector<int64_t> dims{};         // not negative; the number of elements is below 2^56
  std::vector<std::string> strings{};  // of dtype string only
  int64_t elements() const;            // the product of dims
  // Dense and row-major in the layout of `dtype`. Fails with the tensor's name if the data is
  // missing, has another size, or lies in a file outside of the model's folder.
  Bytes content() const;
  struct Source;  // where the content is (tensor.hpp)
  std::shared_ptr<const Source> source{};
};

// A constant that is in no file. content: dense, of the type's size.
Tensor make_tensor(std::string name, const Type& type, std::span<const std::byte> content);

// values [n] and indices, [n] (flat, row-major) or [n, rank]; all others are 0.
struct SparseTensor {
  Tensor values{}, indices{};
  std::vector<int64_t> dims{};
};

struct Attribute {
  // AttributeProto.AttributeType
  enum Kind : int32_t {
    none = 0,
    f32 = 1,
    i64 = 2,
    string = 3,
    tensor = 4,
    graph = 5,
    floats = 6,
    ints = 7,
    strings_ = 8,
    tensors_ = 9,
    graphs_ = 10,
    sparse = 11,
    sparses = 12,
    type = 13,
    types = 14,
  };
  std::string name{};
  Kind kind = none;
  std::string refers_to{};  // inside a function: the attribute of the calling node
  float f = 0;
  int64_t i = 0;
  std::string s{};
  std::shared_ptr<const Tensor> t{};
  std::shared_ptr<const Graph> g{};
  std::shared_ptr<const SparseTensor> sparse_t{};
  std::vector<float> fs{};
  std::vector<int64_t> is{};
  std::vector<std::string> strings{};
  std::vector<Tensor> tensors{};
};

struct Node {
  std::string name{}, op{}, domain{}, overload{};  // domain "" is "ai.onnx"
  std::vector<std::string> inputs{}, outputs{};    // "" is absent
  std::vector<Attribute> attributes{};
};

struct ValueInfo {
  enum class Kind : uint8_t { none, tensor, sparse, sequence, optional, map };
  struct Dim {
    int64_t size = -1;     // -1: not a number
    std::string symbol{};  // may be empty: any size
  };
  std::string name{};
  Kind kind = Kind::none;
  int32_t element = 0;
  DType dtype = TENON_DTYPE_NONE;
  std::optional<std::vector<Dim>> dims{};  // absent: of any rank
};

struct Graph {
  std::string name{};
  std::vector<Node> nodes{};
  std::vector<Tensor> initializers{};
  std::vector<std::pair<std::string, SparseTensor>> sparse_initializers{};
  std::vector<ValueInfo> inputs{}, outputs{}, values{};
};

// A function of the model, by which nodes of its domain, name and overload are replaced.
struct Function {
  std::string name{}, domain{}, overload{};
  std::vector<std::string> inputs{}, outputs{};
  std::vector<std::string> attributes{};  // without a default
  std::vector<Attribute> attribute_defaults{};
  std::vector<Node> nodes{};
  std::map<std::string, int64_t, std::less<>> opsets{};
};

struct Model {
  int64_t ir_version = 0;
  std::string producer{};
  std::map<std::string, int64_t, std::less<>> opsets{};  // by domain; "" for "ai.onnx"
  Graph graph{};
  std::vector<Function> functions{};
};

// Reads a model. External data is looked for in the folder of `path`; nothing outside of it is
// opened. Fails with path, field and byte offset for a file that is damaged or not ONNX; memory is
// bounded by the size of the file. The model holds the file open until the last tensor is gone.
Model read_model(const std::string& path);
// The same from memory. folder: of external data; empty: none is read.
Model read_model(std::string bytes, const std::string& folder);

// A tensor in a file of its own, such as those of ONNX's test data (TensorProto).
Tensor read_tensor(const std::string& path);

}  // namespace tenon::core::onnx
