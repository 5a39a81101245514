// SPDX-License-Identifier: Apache-2.0
// The text around a body.
#include <algorithm>

#include "frame.hpp"

namespace tenon::cuda {
namespace {

std::string number(size_t k) { return std::to_string(k); }

}  // namespace

// c<axis> for axes [first, last): where vector `rest` of them begins, or the row of that number.
std::string Frame::coordinates(std::string rest, size_t first, size_t last) const {
  std::string text;
  for (size_t i = last; i-- > first;) {
    const std::string k = number(i);
    std::string here = rest;
    if (i > first) {
      const std::string quotient =
          wide_ ? rest + " / a.dims[" + k + "]" : "a.divisors[" + k + "].quotient(" + rest + ")";
      text += "  const " + index() + " u" + k + " = " + quotient + ";\n";
      here = rest + " - u" + k + " * (" + index() + ")a.dims[" + k + "]";
      rest = "u" + k;
    }
    if (i + 1 == loop_.rank()) here = "(" + here + ") * kWidth";
    text += "  const " + index() + " c" + k + " = " + here + ";\n";
  }
  return text;
}

// Operand k at the coordinates of axes [first, last).
std::string Frame::pointer(size_t k, const std::string& name, const std::string& base, size_t first,
                           size_t last) const {
  std::string sum;
  for (size_t i = first; i < last; ++i) {
    if (loop_.strides[k][i] == 0) continue;
    sum += " + (i64)c" + number(i);
    if (loop_.strides[k][i] != 1) sum += " * a.strides[" + number(k) + "][" + number(i) + "]";
  }
  return "  const T" + number(k) + "* " + name + " = " + base + sum + ";\n";
}

// v<k>: an element, or a vector.
std::string Frame::load(size_t k, const std::string& from) const {
  const std::string i = number(k);
  const Read read = operands_[k].read;
  if (read == Read::once) return "  const T" + i + " v" + i + " = *" + from + ";\n";
  const std::string step =
      read == Read::vector ? "1" : "a.strides[" + i + "][" + number(loop_.rank() - 1) + "]";
  const std::string each =
      "read_each(v" + i + ", " + from + ", " + step + ", " + (tail_ ? "n" : "kWidth") + ");\n";
  std::string s = "  Vec<T" + i + ", kWidth> v" + i + ";\n";
  if (read == Read::strided) return s + "  " + each;
  s += std::string("  if (") + (tail_ ? "n == kWidth" : "true") + ") v" + i + " = load<T" + i +
       ", kWidth>(" + from + ");\n  else " + each;
  return s;
}

// y<k>, the vectors that the body makes.
std::string Frame::compute(size_t outputs) const {
  std::string s, call;
  for (size_t k = 0; k < operands_.size(); ++k)
    call += "v" + number(k) + (operands_[k].read == Read::once ? ", " : ".v[k], ");
  for (size_t k = 0; k < outputs; ++k) {
    s += "  Vec<U" + number(k) + ", kWidth> y" + number(k) + ";\n";
    call += (k ? ", y" : "y") + number(k) + ".v[k]";
  }
  return s + "#pragma unroll\n  for (int k = 0; k < kWidth; ++k) body(" + call + ");\n";
}

std::string Frame::store(size_t k, const std::string& at) const {
  const std::string i = number(k);
  std::string s = "  U" + i + "* to" + i + " = static_cast<U" + i + "*>(a.out[" + i + "]) + " + at;
  s += std::string(";\n  if (") + (tail_ ? "n == kWidth" : "true") + ") store(to" + i + ", y" + i;
  return s + ");\n  else write_each(to" + i + ", y" + i + ", " + (tail_ ? "n" : "kWidth") + ");\n";
}

// A thread for a vector.
std::string Frame::vectors_text(const BodyText& body) const {
  const size_t rank = loop_.rank();
  std::string s = "  const " + index() + " g = (" + index() + ")block * 256 + threadIdx.x;\n";
  s += "  if (g >= a.groups) return;\n" + coordinates("g", 0, rank);
  if (tail_) s += "  const int n = (int)min((i64)kWidth, a.count - (i64)c0);\n";
  for (size_t k = 0; k < operands_.size(); ++k) {
    const std::string i = number(k);
    s += pointer(k, "p" + i, "static_cast<const T" + i + "*>(a.in[" + i + "])", 0, rank);
    s += load(k, "p" + i);
  }
  s += compute(body.outputs().size());
  for (size_t k = 0; k < body.outputs().size(); ++k) s += store(k, "(i64)g * kWidth");
  return s;
}

// p<k>: where the part of operand k begins that a thread reduces; what stays the same is read.
std::string Frame::fixed_text(size_t first) const {
  const size_t split = loop_.splits[0];
  std::string s = coordinates("outer", 0, split) + coordinates("column", first, loop_.rank());
  for (size_t k = 0; k < operands_.size(); ++k) {
    const std::string i = number(k);
    s += pointer(k, "o" + i, "static_cast<const T" + i + "*>(a.in[" + i + "])", 0, split);
    s += pointer(k, "p" + i, "o" + i, first, loop_.rank());
    if (operands_[k].fixed) s += load(k, "p" + i);
  }
  return s;
}

// What is done for each vector: `at` is where its elements stand in an output.
std::string Frame::step_text(const BodyText& body, size_t first, size_t last,
                             const std::string& at) const {
  std::string s = coordinates("g", first, last);
  for (size_t k = 0; k < operands_.size(); ++k) {
    if (operands_[k].fixed) continue;
    const std::string i = number(k);
    s += pointer(k, "q" + i, "p" + i, first, last) + load(k, "q" + i);
  }
  s += compute(body.outputs().size());
  for (size_t k = 0; k < body.outputs().size(); ++k)
    if (k != fold_->output) s += store(k, at);
  return s;
}

// A group of lanes for a row, or for one of its pieces, whose partial result it then leaves.
std::string Frame::rows_text(const BodyText& body) const {
  const bool pieces = stage_.pieces > 1;
  std::string s =
      "  const i64 item = (i64)block * Group<kLanes>::per_block + Group<kLanes>::in_block();\n"
      "  const u32 lane = Group<kLanes>::lane();\n"
      "  Partial partial = Kind::identity();\n"
      "  if (item < a.groups) {\n";
  s += pieces ? "  const i64 row = item / a.pieces, from = (item - row * a.pieces) * a.piece;\n"
                "  const u32 n = (u32)min(a.piece, a.length - from);\n"
              : "  const i64 row = item, from = 0;\n  const u32 n = (u32)a.length;\n";
  s += "  const " + index() + " outer = (" + index() + ")row;\n" + fixed_text(loop_.rank());
  s += unrolled(body) + "  for (u32 i = lane * kWidth; i < n; i += kLanes * kWidth) {\n";
  s += "  const i64 at = from + i;\n  const " + index() + " g = (" + index() + ")at / kWidth;\n";
  s += step_text(body, loop_.splits[0], loop_.rank(), "row * a.length + at");
  const std::string folded = number(fold_->output);
  s += "  Kind::take_terms(partial, y" + folded + ");\n  }\n  }\n";
  s += "  partial = join_lanes<kLanes>(partial, Kind());\n";
  s += "  if (item < a.groups && lane == 0)\n    static_cast<Result*>(a.out[" + folded;
  return s + "])[item] = result(partial, a.length);\n";
}

// A block for kLanes vectors of neighbouring columns, or for a piece of them.
std::string Frame::columns_text(const BodyText& body) const {
  const std::string folded = number(fold_->output);
  std::string s =
      "  const u32 down = threadIdx.x / kLanes;\n"
      "  const i64 tiles = (a.inner + kLanes - 1) / kLanes, item = block / tiles;\n"
      "  const " +
      index() + " column = (" + index() +
      ")(block - item * tiles) * kLanes + threadIdx.x % kLanes;\n"
      "  const i64 line = item / a.pieces, from = (item - line * a.pieces) * a.piece;\n"
      "  const i64 end = min(from + a.piece, a.length);\n"
      "  Partial partial[kWidth];\n"
      "#pragma unroll\n  for (int k = 0; k < kWidth; ++k) partial[k] = Kind::identity();\n"
      "  if (column < a.inner) {\n";
  s += "  const " + index() + " outer = (" + index() + ")line;\n" + fixed_text(loop_.splits[1]);
  s += unrolled(body) + "  for (i64 at = from + down; at < end; at += 256 / kLanes) {\n";
  s += "  const " + index() + " g = (" + index() + ")at;\n";
  s += step_text(body, loop_.splits[0], loop_.splits[1],
                 "((line * a.length + at) * a.inner + column) * kWidth");
  s +=
      "#pragma unroll\n  for (int k = 0; k < kWidth; ++k)\n    Kind::take_terms(partial[k], Vec<U" +
      folded + ", 1>{{y" + folded + ".v[k]}});\n  }\n  }\n";
  s += "  join_columns(partial, kLanes);\n  if (down > 0 || column >= a.inner) return;\n";
  s += "  Result* to = static_cast<Result*>(a.out[" + folded +
       "]) + (item * a.inner + column) * kWidth;\n";
  return s +
         "#pragma unroll\n"
         "  for (int k = 0; k < kWidth; ++k) to[k] = result(partial[k], a.length);\n";
}

// So that loads of several steps are on their way, while registers last.
std::string Frame::unrolled(const BodyText& body) const {
  const int steps = std::clamp(128 / (width_ * std::max(body.steps(), 1)), 1, 4);
  return "#pragma unroll " + std::to_string(steps) + "\n";
}

std::string Frame::text(const BodyText& body, int64_t sets) const {
  std::string s = "#include \"elementwise.cuh\"\n";
  if (fold_) {
    const auto define = [&s](const char* name, const std::string& value) {
      s += std::string("#define ") + name + " " + value + "\n";
    };
    define("TYPE", type_name("y", fold_->result)), define("KIND", fold_->how.name);
    define("MEAN", fold_->how.mean ? "1" : "0"), define("ROOT", fold_->how.root ? "1" : "0");
    define("LAST", stage_.pieces > 1 ? "0" : "1");
    s += "#include \"reduce.cuh\"\nconstexpr int kLanes = " + std::to_string(lanes_) + ";\n";
  }
  s += body.function() + "constexpr int kWidth = " + std::to_string(width_) + ";\n";
  const std::string threads = is_rows() ? "Group<kLanes>::threads" : "256";
  s += "typedef Arguments<" + number(operands_.size()) + ", " + number(body.outputs().size()) +
       ", " + number(loop_.rank()) + "> Set;\n";
  s += "extern \"C\" __global__ void __launch_bounds__(" + threads + ") elementwise(const ";
  s += sets == 0 ? "Set a) {\n  const u32 block = blockIdx.x;\n"
                 : "__grid_constant__ Sets<Set, " + std::to_string(sets) +
                       "> all) {\n  const Set& a = all.of(blockIdx.x);\n"
                       "  const u32 block = blockIdx.x - a.first_block;\n";
  s += "  begin_early();\n";
  return s +
         (!fold_      ? vectors_text(body)
          : is_rows() ? rows_text(body)
                      : columns_text(body)) +
         "}\n";
}

}  // namespace tenon::cuda
