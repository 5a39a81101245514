// SPDX-License-Identifier: Apache-2.0
// elementwise_kernel: choosing the vector width and how each operand is read, and writing the text
// around the body.
#include <algorithm>
#include <cstring>

#include "elementwise.hpp"
#include "loop.hpp"

namespace tenon::cuda {
namespace {

constexpr int kMostOperands = 16, kMostOutputs = 4, kThreads = 256;

// The kernel's one argument; made_text declares the same.
struct Arguments {
  const void* in[kMostOperands] = {};
  void* out[kMostOutputs] = {};
  int64_t count = 0;   // elements
  int64_t groups = 0;  // vectors: threads that work
  int64_t dims[sdk::kMaxRank] = {};
  Divisor divisors[sdk::kMaxRank] = {};
  int64_t strides[kMostOperands][sdk::kMaxRank] = {};
};

enum class Read : uint8_t {
  vector,   // elements lie together, aligned
  strided,  // one by one
  splat,    // one element for the whole vector
  once,     // one element for all
};

class Frame {
 public:
  Frame(const BodyText& text, const std::vector<sdk::Value>& in, std::span<const int64_t> shape,
        bool any_strides);
  std::string made_text(const BodyText& text) const;
  Arguments arguments() const;
  int64_t blocks() const { return blocks_for(groups_, kThreads); }

 private:
  void choose_width(const BodyText& text);
  Read read_of(size_t k, const sdk::Value& v, bool any_strides) const;
  std::string coordinates() const;
  std::string offset(size_t k) const;

  Loop loop_;
  std::vector<Read> reads_;
  int width_ = 1;
  int64_t groups_ = 0;
  bool tail_ = false;  // the last vector is not full
  bool wide_ = false;  // index math of 64 bits
};

Frame::Frame(const BodyText& text, const std::vector<sdk::Value>& in,
             std::span<const int64_t> shape, bool any_strides) {
  if (in.size() > kMostOperands || text.outputs().size() > kMostOutputs)
    throw sdk::Refusal::shape("too many operands or results for one kernel");
  std::vector<const sdk::Type*> types;
  for (const sdk::Value& v : in) types.push_back(&v.type());
  loop_ = make_loop(shape, types);
  choose_width(text);
  for (size_t k = 0; k < in.size(); ++k) reads_.push_back(read_of(k, in[k], any_strides));
  const int64_t inner_groups = (loop_.inner() + width_ - 1) / width_;
  groups_ = loop_.inner() == 0 ? 0 : loop_.count / loop_.inner() * inner_groups;
  tail_ = loop_.inner() % width_ != 0;
  wide_ = loop_.count >= kNarrowIndex;
  for (size_t k = 0; k < in.size(); ++k) {
    int64_t reach = 0;
    for (size_t i = 0; i < loop_.rank(); ++i)
      reach += std::abs(loop_.strides[k][i]) * std::max<int64_t>(loop_.dims[i] - 1, 0);
    wide_ |= reach >= kNarrowIndex;
  }
}

// 16 bytes of the widest type, up to 32 where others are narrower; whole vectors in every row.
void Frame::choose_width(const BodyText& text) {
  int64_t most = 1, least = 8;
  for (const auto* list : {&text.inputs(), &text.outputs()})
    for (const tenon_dtype t : *list) {
      most = std::max(most, type_bytes(t));
      least = std::min(least, type_bytes(t));
    }
  width_ = static_cast<int>(std::clamp<int64_t>(16 / least, 16 / most, 32 / most));
  if (loop_.rank() > 1)
    while (loop_.inner() % width_ != 0) width_ /= 2;
}

Read Frame::read_of(size_t k, const sdk::Value& v, bool any_strides) const {
  const auto& strides = loop_.strides[k];
  if (std::ranges::all_of(strides, [](int64_t s) { return s == 0; })) return Read::once;
  if (strides.back() == 0) return Read::splat;
  constexpr int64_t kNear = 4;
  if (!any_strides && std::abs(strides.back()) > kNear && loop_.inner() > 1)
    throw sdk::Refusal::shape("an operand's elements lie too far apart");
  const int64_t size = type_bytes(v.type().dtype);
  const auto alignment = std::min<int64_t>(size * width_, 16);
  bool aligned = strides.back() == 1 && v.alignment() % static_cast<uint64_t>(alignment) == 0;
  for (size_t i = 0; i + 1 < strides.size(); ++i) aligned &= strides[i] * size % alignment == 0;
  return aligned ? Read::vector : Read::strided;
}

// c<axis>: where the vector begins.
std::string Frame::coordinates() const {
  std::string text;
  std::string rest = "g";
  const std::string index = wide_ ? "i64" : "u32";
  for (size_t i = loop_.rank(); i-- > 0;) {
    const std::string k = std::to_string(i);
    std::string here = rest;
    if (i > 0) {
      const std::string quotient =
          wide_ ? rest + " / a.dims[" + k + "]" : "a.divisors[" + k + "].quotient(" + rest + ")";
      text += "  const " + index + " q" + k + " = " + quotient + ";\n";
      here = rest + " - q" + k + " * (" + index + ")a.dims[" + k + "]";
      rest = "q" + k;
    }
    if (i + 1 == loop_.rank()) here = "(" + here + ") * W";
    text += "  const " + index + " c" + k + " = " + here + ";\n";
  }
  return text;
}

std::string Frame::offset(size_t k) const {
  std::string sum;
  for (size_t i = 0; i < loop_.rank(); ++i) {
    if (loop_.strides[k][i] == 0) continue;
    sum += (sum.empty() ? "" : " + ") + std::string("(i64)c") + std::to_string(i);
    if (loop_.strides[k][i] != 1)
      sum += " * a.strides[" + std::to_string(k) + "][" + std::to_string(i) + "]";
  }
  return sum;
}

std::string Frame::made_text(const BodyText& text) const {
  const size_t inputs = reads_.size(), outputs = text.outputs().size();
  std::string s = "#include \"elementwise.cuh\"\n" + text.function();
  s += "constexpr int W = " + std::to_string(width_) + ";\n";
  s += "extern \"C\" __global__ void __launch_bounds__(256) elementwise(const Arguments a) {\n";
  s += wide_ ? "  const i64 g = (i64)blockIdx.x * 256 + threadIdx.x;\n"
             : "  const u32 g = blockIdx.x * 256 + threadIdx.x;\n";
  s += "  if (g >= a.groups) return;\n" + coordinates();
  const std::string last = "c" + std::to_string(loop_.rank() - 1);
  if (tail_) s += "  const int n = (int)min((i64)W, a.count - (i64)" + last + ");\n";
  const std::string guard = tail_ ? "n == W" : "true";
  std::string call;
  for (size_t k = 0; k < inputs; ++k) {
    const std::string i = std::to_string(k), pointer = "p" + i;
    s += "  const T" + i + "* " + pointer + " = static_cast<const T" + i + "*>(a.in[" + i + "])";
    const std::string at = offset(k);
    s += (at.empty() ? "" : " + (" + at + ")") + ";\n";
    const bool several = reads_[k] == Read::vector || reads_[k] == Read::strided;
    if (!several) {
      s += "  const T" + i + " v" + i + " = *" + pointer + ";\n";
    } else {
      s += "  Vec<T" + i + ", W> v" + i + ";\n";
      const std::string step =
          reads_[k] == Read::vector
              ? "1"
              : "a.strides[" + i + "][" + std::to_string(loop_.rank() - 1) + "]";
      const std::string each =
          "read_each(v" + i + ", " + pointer + ", " + step + ", " + (tail_ ? "n" : "W") + ");\n";
      s += reads_[k] == Read::vector ? "  if (" + guard + ") v" + i + " = load<T" + i + ", W>(" +
                                           pointer + ");\n  else " + each
                                     : "  " + each;
    }
    call += "v" + i + (several ? ".v[k], " : ", ");
  }
  for (size_t k = 0; k < outputs; ++k) {
    const std::string i = std::to_string(k);
    s += "  Vec<U" + i + ", W> y" + i + ";\n";
    call += "y" + i + ".v[k]" + (k + 1 < outputs ? ", " : "");
  }
  s += "#pragma unroll\n  for (int k = 0; k < W; ++k) body(" + call + ");\n";
  for (size_t k = 0; k < outputs; ++k) {
    const std::string i = std::to_string(k);
    s += "  U" + i + "* to" + i + " = static_cast<U" + i + "*>(a.out[" + i + "]) + (i64)g * W;\n";
    s += "  if (" + guard + ") store(to" + i + ", y" + i + ");\n  else write_each(to" + i + ", y" +
         i + ", " + (tail_ ? "n" : "W") + ");\n";
  }
  return s + "}\n";
}

Arguments Frame::arguments() const {
  Arguments a;
  a.count = loop_.count;
  a.groups = groups_;
  for (size_t i = 0; i < loop_.rank(); ++i) {
    a.dims[i] = i + 1 == loop_.rank() ? loop_.dims[i] / width_ : loop_.dims[i];
    if (a.dims[i] > 0 && a.dims[i] < kNarrowIndex)
      a.divisors[i] = Divisor(static_cast<uint32_t>(a.dims[i]));
    for (size_t k = 0; k < reads_.size(); ++k) a.strides[k][i] = loop_.strides[k][i];
  }
  return a;
}

// May y be written over x element by element?
bool replaceable(const sdk::Type& x, std::span<const int64_t> shape, tenon_dtype out) {
  return tenon_dtype_bits(x.dtype) == tenon_dtype_bits(out) && x.dense() &&
         std::ranges::equal(x.shape(), shape);
}

}  // namespace

std::string elementwise_text(const BodyText& text, const std::vector<sdk::Value>& in,
                             std::span<const int64_t> shape) {
  return Frame(text, in, shape, true).made_text(text);
}

sdk::Kernel elementwise_kernel(CudaDevice& device, const std::string& name, const BodyText& text,
                               const std::vector<sdk::Value>& in, std::span<const int64_t> shape,
                               int first_out, bool any_strides) {
  const Frame frame(text, in, shape, any_strides);
  const Code code = device.generated(name, frame.made_text(text), "elementwise");
  std::vector<int> positions;
  for (const sdk::Value& v : in) positions.push_back(v.position());
  const auto outputs = static_cast<int>(text.outputs().size());
  sdk::Kernel kernel =
      kernel_of({code}, [=, arguments = frame.arguments(),
                         grid = Grid{.blocks = frame.blocks()}](const sdk::Call& c) {
        Arguments a = arguments;
        for (size_t k = 0; k < positions.size(); ++k) a.in[k] = c.inputs[positions[k]];
        for (int k = 0; k < outputs; ++k) a.out[k] = c.outputs[first_out + k];
        code.launch(c, grid, a);
      });
  if (outputs == 1)
    for (const sdk::Value& v : in)
      if (replaceable(v.type(), shape, text.outputs()[0]))
        kernel.in_place.push_back({v.position(), first_out});
  return kernel;
}

}  // namespace tenon::cuda
