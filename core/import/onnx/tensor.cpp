// SPDX-License-Identifier: Apache-2.0
// TensorProto: dims, dtype, and the content in each of the fields that may have it.
#include "import/onnx/tensor.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace tenon::core::onnx {
namespace {

// How a dtype is stored where it is not raw_data.
enum class Field : uint32_t {
  none = 0,
  float_data = 4,
  int32_data = 5,
  string_data = 6,
  int64_data = 7,
  raw_data = 9,
  double_data = 10,
  uint64_data = 11,
};

const char* field_name(Field field) {
  switch (field) {
    case Field::float_data:
      return "float_data";
    case Field::int32_data:
      return "int32_data";
    case Field::string_data:
      return "string_data";
    case Field::int64_data:
      return "int64_data";
    case Field::raw_data:
      return "raw_data";
    case Field::double_data:
      return "double_data";
    case Field::uint64_data:
      return "uint64_data";
    case Field::none:
      break;
  }
  return "no field";
}

struct Element {
  const char* name;
  DType dtype;
  Field field;
};

// By TensorProto.DataType.
constexpr Element kElements[] = {
    {"UNDEFINED", TENON_DTYPE_NONE, Field::none},
    {"FLOAT", kF32, Field::float_data},
    {"UINT8", kU8, Field::int32_data},
    {"INT8", kI8, Field::int32_data},
    {"UINT16", kU16, Field::int32_data},
    {"INT16", kI16, Field::int32_data},
    {"INT32", kI32, Field::int32_data},
    {"INT64", kI64, Field::int64_data},
    {"STRING", TENON_DTYPE_NONE, Field::string_data},
    {"BOOL", kBool, Field::int32_data},
    {"FLOAT16", kF16, Field::int32_data},
    {"DOUBLE", kF64, Field::double_data},
    {"UINT32", kU32, Field::uint64_data},
    {"UINT64", kU64, Field::uint64_data},
    {"COMPLEX64", TENON_DTYPE_C64, Field::float_data},
    {"COMPLEX128", TENON_DTYPE_C128, Field::double_data},
    {"BFLOAT16", kBF16, Field::int32_data},
    {"FLOAT8E4M3FN", TENON_DTYPE_F8E4M3, Field::int32_data},
    {"FLOAT8E4M3FNUZ", TENON_DTYPE_NONE, Field::int32_data},
    {"FLOAT8E5M2", TENON_DTYPE_F8E5M2, Field::int32_data},
    {"FLOAT8E5M2FNUZ", TENON_DTYPE_NONE, Field::int32_data},
    {"UINT4", TENON_DTYPE_U4, Field::int32_data},
    {"INT4", TENON_DTYPE_I4, Field::int32_data},
    {"FLOAT4E2M1", TENON_DTYPE_NONE, Field::int32_data},
    {"FLOAT8E8M0", TENON_DTYPE_NONE, Field::int32_data},
    {"UINT2", TENON_DTYPE_NONE, Field::int32_data},
    {"INT2", TENON_DTYPE_NONE, Field::int32_data},
    {"FLOAT6E2M3", TENON_DTYPE_NONE, Field::int32_data},
    {"FLOAT6E3M2", TENON_DTYPE_NONE, Field::int32_data},
};
constexpr int32_t kString = 8;

const Element& element_of(int32_t element) {
  return kElements[element >= 0 && element < static_cast<int32_t>(std::size(kElements)) ? element
                                                                                        : 0];
}

// As for shapes of tenon: no size in bits overflows.
constexpr int64_t kMostElements = INT64_MAX >> 7;

void check_dims(const Message& m, const std::vector<int64_t>& dims) {
  int64_t n = 1;
  for (int64_t d : dims) {
    if (d > 0 && n > kMostElements / d)
      m.corrupt("the number of elements overflows; expected less than 2^56");
    if (d > 0) n *= d;
  }
}

uint64_t number(const Message& m, const std::string& key, const std::string& text) {
  uint64_t v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size() || text.empty())
    m.corrupt("external_data ", key, ": expected a number of bytes, got '", text, "'");
  return v;
}

void take_external(Message m, ExternalData& data) {
  std::string key, value;
  while (m.next()) switch (m.field()) {
      case 1:
        key = m.text("key");
        break;
      case 2:
        value = m.text("value");
        break;
      default:
        m.skip();
    }
  if (key == "location") data.location = value;
  if (key == "offset") data.offset = number(m, key, value);
  if (key == "length") data.size = number(m, key, value);
}

// The typed field of a tensor, as elements of `width` bytes.
struct Filler {
  const Message& m;
  Field field;
  Bytes& out;
  size_t width;  // bytes that an entry gives
  DType dtype;
  size_t filled = 0;

  void put(uint64_t bits) {
    if (out.size() - filled < width)
      m.corrupt(field_name(field), " has too many entries; expected ", out.size() / width);
    std::memcpy(out.data() + filled, &bits, width);
    filled += width;
  }
  // Small types in an integer of 32 bits: as the number, or as its bits.
  void put_int32(uint64_t v) {
    const auto s = static_cast<int64_t>(v);
    const unsigned bits = static_cast<unsigned>(width) * 8;
    if (s < -(int64_t{1} << (bits - 1)) || s >= int64_t{1} << bits)
      m.corrupt(field_name(field), ": ", s, " does not fit in ", bits, " bits");
    put(v);
  }
};

void take_typed(const Tensor& t, Field field, Bytes& out) {
  const Tensor::Source& s = *t.source;
  Cursor cursor(s.input);
  Message m(cursor, s.begin, s.end);
  const unsigned bits = tenon_dtype_bits(t.dtype);
  Filler f{m, field, out, is_complex(t.dtype) ? bits / 16 : std::max(1u, bits / 8), t.dtype};
  while (m.next()) {
    if (m.field() != static_cast<uint32_t>(field)) {
      m.skip();
      continue;
    }
    switch (field) {
      case Field::float_data:
        m.fixed32s("float_data", [&](uint32_t v) { f.put(v); });
        break;
      case Field::double_data:
        m.fixed64s("double_data", [&](uint64_t v) { f.put(v); });
        break;
      case Field::int32_data:
        m.varints("int32_data", [&](uint64_t v) { f.put_int32(v); });
        break;
      case Field::int64_data:
        m.varints("int64_data", [&](uint64_t v) { f.put(v); });
        break;
      case Field::uint64_data:
        m.varints("uint64_data", [&](uint64_t v) {
          if (t.dtype == kU32 && v > UINT32_MAX)
            m.corrupt("uint64_data: ", v, " does not fit in 32 bits");
          f.put(v);
        });
        break;
      default:
        m.skip();
    }
  }
  if (f.filled != out.size())
    fail(Code::corrupt, s.where, ": tensor '", t.name, "': ", field_name(field), " has ",
         f.filled / f.width, " entries; expected ", out.size() / f.width);
}

// tenon's form of bytes that any writer may have made: a bool is 0 or 1, the half of the last byte
// that no 4-bit element uses is 0.
void normalize(const Tensor& t, int64_t elements, Bytes& bytes) {
  if (t.dtype == kBool)
    for (std::byte& b : bytes) b = std::byte{b != std::byte{0}};
  if (tenon_dtype_bits(t.dtype) == 4 && elements % 2 != 0) bytes.back() &= std::byte{0x0f};
}

}  // namespace

DType element_dtype(int32_t element) { return element_of(element).dtype; }

std::string element_name(int32_t element) {
  const Element& e = element_of(element);
  return &e == kElements && element != 0 ? cat("element type ", element) : std::string(e.name);
}

int32_t element_of_dtype(DType dtype) {
  for (int32_t i = 0; i < static_cast<int32_t>(std::size(kElements)); ++i)
    if (dtype != TENON_DTYPE_NONE && kElements[i].dtype == dtype) return i;
  return 0;
}

int64_t Tensor::elements() const {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

Tensor take_tensor(Message m) {
  Tensor t;
  auto source = std::make_shared<Tensor::Source>();
  source->input = m.cursor().input();
  source->begin = m.at();
  source->end = m.end();
  source->where = m.where();
  ExternalData external;
  int32_t location = 0;
  while (m.next()) switch (m.field()) {
      case 1:
        m.varints("dims", [&](uint64_t v) {
          if (t.dims.size() == 1024) m.corrupt("more than 1024 dims");
          if (static_cast<int64_t>(v) < 0)
            m.corrupt("dim ", static_cast<int64_t>(v), " is negative");
          t.dims.push_back(static_cast<int64_t>(v));
        });
        break;
      case 2:
        t.element = m.int32("data_type");
        break;
      case 3:
        m.fail_at(m.at(), Code::unsupported, "the tensor is a segment of a larger one");
      case 6:
        if (t.strings.size() == kMostEntries) m.corrupt("more than ", kMostEntries, " strings");
        t.strings.push_back(m.bytes("string_data"));
        break;
      case 8:
        t.name = m.text("name");
        break;
      case 9:
        source->raw_size = m.range("raw_data");
        source->raw_at = m.at() - source->raw_size;
        break;
      case 13:
        take_external(m.message("external_data"), external);
        break;
      case 14:
        location = m.int32("data_location");
        break;
      default:
        m.skip();
    }
  check_dims(m, t.dims);
  t.dtype = element_dtype(t.element);
  if (t.element != kString)
    t.strings.clear();
  else if (static_cast<int64_t>(t.strings.size()) != t.elements())
    m.corrupt("tensor '", t.name, "': string_data has ", t.strings.size(), " entries; expected ",
              t.elements());
  if (location != 0 && location != 1)
    m.corrupt("data_location ", location, " is not known; expected 0 or 1");
  if (location == 1) source->external = std::move(external);
  t.source = std::move(source);
  return t;
}

Tensor make_tensor(std::string name, const Type& type, std::span<const std::byte> content) {
  check(content.size() == type_bytes(type), "tensor '", name, "': its content has ", content.size(),
        " bytes");
  auto source = std::make_shared<Tensor::Source>();
  source->input = std::make_shared<Input>(
      std::string(reinterpret_cast<const char*>(content.data()), content.size()), "");
  source->raw_size = content.size();
  source->where = name;
  Tensor t;
  t.name = std::move(name);
  t.element = element_of_dtype(type.dtype);
  t.dtype = type.dtype;
  t.dims.assign(type.shape.begin(), type.shape.end());
  t.source = std::move(source);
  return t;
}

Bytes Tensor::content() const {
  check(source != nullptr, "tensor '", name, "' has no source");
  const Source& s = *source;
  if (dtype == TENON_DTYPE_NONE)
    fail(Code::unsupported, s.where, ": tensor '", name, "': tenon has no dtype for ",
         element_name(element));
  const int64_t n = elements();
  const uint64_t size = tenon_dense_bytes(dtype, n);
  const Field field = element_of(element).field;
  Bytes out;
  if (s.external) {
    try {
      out = read_external(*s.input, *s.external, size);
    } catch (const Error& e) {
      fail(e.code(), s.where, ": tensor '", name, "': ", e.what());
    }
  } else if (s.raw_size > 0) {
    if (s.raw_size != size)
      fail(Code::corrupt, s.where, ": byte ", s.raw_at, ": tensor '", name, "': raw_data has ",
           s.raw_size, " bytes; expected ", size);
    out.resize(size);
    s.input->read(s.raw_at, out.data(), out.size());
  } else {
    // Every entry takes at least one byte of the message and gives at most eight.
    if (size / 8 > s.end - s.begin)
      fail(Code::corrupt, s.where, ": byte ", s.begin, ": tensor '", name, "': expected ", size,
           " bytes of data in raw_data or ", field_name(field), ", the message has ",
           s.end - s.begin);
    out.resize(size);
    take_typed(*this, field, out);
  }
  if (n > 0) normalize(*this, n, out);
  return out;
}

Tensor read_tensor(const std::string& path) {
  Cursor cursor(std::make_shared<Input>(path));
  return take_tensor(Message(cursor));
}

}  // namespace tenon::core::onnx
