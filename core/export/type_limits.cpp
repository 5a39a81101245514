// SPDX-License-Identifier: Apache-2.0
// The dtypes that the ops of ONNX take, opset 21.
#include <algorithm>

#include "export/emitter.hpp"

namespace tenon::core::onnx {
namespace {

constexpr uint64_t bit(DType t) { return uint64_t{1} << t; }
constexpr uint64_t kBits64 = bit(kI64) | bit(kU64), kBits32 = bit(kI32) | bit(kU32);
constexpr uint64_t kSigned = bit(kI8) | bit(kI16) | bit(kI32) | bit(kI64);
constexpr uint64_t kIntegers = kSigned | bit(kU8) | bit(kU16) | kBits32 | kBits64;
constexpr uint64_t kNoBF16 = bit(kF16) | bit(kF32) | bit(kF64), kFloats = kNoBF16 | bit(kBF16);
constexpr uint64_t kNumbers = kFloats | kIntegers, kCommon = kNumbers | bit(kBool);
constexpr uint64_t kWide = kFloats | kBits32 | kBits64;
constexpr uint64_t kRare =
    bit(TENON_DTYPE_F8E4M3) | bit(TENON_DTYPE_F8E5M2) | bit(TENON_DTYPE_I4) | bit(TENON_DTYPE_U4);
constexpr uint64_t kAll = kCommon | kRare;
constexpr uint64_t kWords = bit(kI32) | bit(kI64);
constexpr uint64_t kBool1 = bit(kBool);
constexpr uint64_t kComplex = bit(TENON_DTYPE_C64) | bit(TENON_DTYPE_C128);

constexpr TypeLimits kLimits[] = {
    {"Add", kNumbers, "T", "T"},
    {"Sub", kNumbers, "T", "T"},
    {"Mul", kNumbers, "T", "T"},
    {"Div", kNumbers, "T", "T"},
    {"Max", kNumbers, "T", "T"},
    {"Min", kNumbers, "T", "T"},
    {"Pow", kFloats | kWords, "T", "T"},
    {"Mod", kNumbers, "T", "T"},
    {"BitwiseAnd", kIntegers, "T", "T"},
    {"BitwiseOr", kIntegers, "T", "T"},
    {"BitwiseXor", kIntegers, "T", "T"},
    {"BitwiseNot", kIntegers, "T", "T"},
    {"BitShift", kIntegers & ~kSigned, "T", "T"},
    {"Equal", kCommon, "T", "b"},
    {"Less", kNumbers, "T", "b"},
    {"LessOrEqual", kNumbers, "T", "b"},
    {"Greater", kNumbers, "T", "b"},
    {"GreaterOrEqual", kNumbers, "T", "b"},
    {"And", kBool1, "T", "b"},
    {"Or", kBool1, "T", "b"},
    {"Xor", kBool1, "T", "b"},
    {"Not", kBool1, "T", "b"},
    {"Neg", kFloats | kSigned, "T", "T"},
    {"Abs", kNumbers, "T", "T"},
    {"Sign", kNumbers, "T", "T"},
    {"Exp", kFloats, "T", "T"},
    {"Log", kFloats, "T", "T"},
    {"Sqrt", kFloats, "T", "T"},
    {"Floor", kFloats, "T", "T"},
    {"Ceil", kFloats, "T", "T"},
    {"Round", kNoBF16, "T", "T"},
    {"Sin", kNoBF16, "T", "T"},
    {"Cos", kNoBF16, "T", "T"},
    {"Tan", kNoBF16, "T", "T"},
    {"Asin", kNoBF16, "T", "T"},
    {"Acos", kNoBF16, "T", "T"},
    {"Atan", kNoBF16, "T", "T"},
    {"Asinh", kNoBF16, "T", "T"},
    {"Acosh", kNoBF16, "T", "T"},
    {"Atanh", kNoBF16, "T", "T"},
    {"Sinh", kNoBF16, "T", "T"},
    {"Cosh", kNoBF16, "T", "T"},
    {"Tanh", kFloats, "T", "T"},
    {"Erf", kFloats, "T", "T"},
    {"IsNaN", kFloats, "T", "b"},
    {"IsInf", kFloats, "T", "b"},
    {"Reciprocal", kFloats, "T", "T"},
    {"Relu", kFloats | kSigned, "T", "T"},
    {"LeakyRelu", kFloats, "T", "T"},
    {"Elu", kNoBF16, "T", "T"},
    {"Selu", kNoBF16, "T", "T"},
    {"Sigmoid", kFloats, "T", "T"},
    {"HardSigmoid", kNoBF16, "T", "T"},
    {"Softplus", kNoBF16, "T", "T"},
    {"Softsign", kNoBF16, "T", "T"},
    {"HardSwish", kNoBF16, "T", "T"},
    {"Mish", kNoBF16, "T", "T"},
    {"Gelu", kFloats, "T", "T"},
    {"Clip", kNumbers, "T", "T"},
    {"Identity", kAll | kComplex, "T", "T"},
    {"Where", kCommon | kComplex, ".TT", "T"},
    {"MatMul", kWide, "T", "T"},
    {"Gemm", kWide, "T", "T"},
    {"MatMulInteger", bit(kI8) | bit(kU8), ".", "w"},
    {"ReduceSum", kWide, "T.", "T"},
    {"ReduceMean", kWide, "T.", "T"},
    {"ReduceMax", kWide | bit(kI8) | bit(kU8) | kBool1, "T.", "T"},
    {"ReduceMin", kWide | bit(kI8) | bit(kU8) | kBool1, "T.", "T"},
    {"ReduceProd", kWide, "T.", "T"},
    {"ReduceSumSquare", kWide, "T.", "T"},
    {"ReduceL1", kWide, "T.", "T"},
    {"ReduceL2", kFloats, "T.", "T"},
    {"ReduceLogSumExp", kFloats, "T.", "T"},
    {"Softmax", kFloats, "T", "T"},
    {"LogSoftmax", kFloats, "T", "T"},
    {"ArgMax", kNumbers, "T", "l"},
    {"ArgMin", kNumbers, "T", "l"},
    {"TopK", kNoBF16 | kIntegers, "T.", "Tl"},
    {"CumSum", kWide, "T.", "T"},
    {"LayerNormalization", kFloats, "T", "T"},
    {"GroupNormalization", kFloats, "T", "T"},
    {"InstanceNormalization", kNoBF16, "T", "T"},
    {"Gather", kCommon | kComplex, "T.", "T"},
    {"GatherElements", kCommon | kComplex, "T.", "T"},
    {"ScatterND", kCommon | kComplex, "T.T", "T"},
    {"ScatterElements", kCommon | kComplex, "T.T", "T"},
    {"NonZero", kCommon, "T", "l"},
    {"Slice", kCommon | kComplex, "T.", "T"},
    {"Concat", kCommon | kComplex, "T", "T"},
    {"Transpose", kAll | kComplex, "T", "T"},
    {"Expand", kCommon | kComplex, "T.", "T"},
    {"Reshape", kAll | kComplex, "T.", "T"},
    {"Unsqueeze", kAll | kComplex, "T.", "T"},
    {"Pad", kAll | kComplex, "T.T.", "T"},
    {"Range", kWords | kNoBF16, "T", "T"},
    {"Shape", kAll | kComplex, ".", "l"},
    {"MaxPool", kNoBF16 | bit(kI8) | bit(kU8), "T", "Tl"},
    {"AveragePool", kNoBF16, "T", "T"},
    {"Conv", kNoBF16, "T", "T"},
    {"ConvTranspose", kNoBF16, "T", "T"},
    {"Resize", kCommon, "T.", "T"},
    {"GridSample", kNoBF16, "T.", "T"},
    {"RoiAlign", kNoBF16, "TT.", "T"},
};

// Does `wide` hold all numbers of `narrow`? Integers wrap in all ops, so their low bits are enough.
bool holds(DType wide, DType narrow) {
  const uint32_t bits = tenon_dtype_bits(narrow);
  if (is_float(narrow)) return is_float(wide) && tenon_dtype_bits(wide) > bits;
  if (narrow != kBool && !is_integer(narrow)) return false;
  if (is_integer(wide)) return narrow == kBool || tenon_dtype_bits(wide) > bits;
  return narrow == kBool || (wide == kF32 ? bits <= 16 : wide == kF64 && bits <= 32);
}

}  // namespace

const TypeLimits& type_limits(std::string_view op) {
  const auto row = std::ranges::find(kLimits, op, &TypeLimits::op);
  check(row != std::end(kLimits), "export: ", op, " has no row of dtypes");
  return *row;
}

DType fitting_dtype(const TypeLimits& limits, DType dtype) {
  if (limits.dtypes & bit(dtype)) return dtype;
  for (const DType t : {kF32, kI32, kI64, kF64})
    if ((limits.dtypes & bit(t)) && holds(t, dtype) &&
        (is_float(dtype) == is_float(t) || !(limits.dtypes & (bit(kI32) | bit(kI64)))))
      return t;
  return TENON_DTYPE_NONE;
}

}  // namespace tenon::core::onnx
