// SPDX-License-Identifier: Apache-2.0
// Arithmetic and movement of known tensors, with the meaning of tenon's ops of these names. Results
// have at most kMostKnown elements: ask fits() first.
#pragma once

#include <functional>
#include <string_view>

#include "import/onnx/known.hpp"

namespace tenon::core::onnx {

bool fits(std::span<const int64_t> dims);
// NumPy's rule; fails if the dims do not fit.
Ints broadcast_dims(const Ints& a, const Ints& b);

// Element i of the result is element sources[i] of x.
Known known_pick(const Known& x, Ints dims, std::span<const int64_t> sources);
Known known_reshape(const Known& x, Ints dims);
Known known_expand(const Known& x, const Ints& dims);  // dims: the result's
Known known_transpose(const Known& x, const Ints& perm);
Known known_narrow(const Known& x, const Ints& start, const Ints& len, const Ints& step);
Known known_concat(std::span<const Known* const> xs, int axis);
// Fails if an index is outside of [-d, d).
Known known_gather(const Known& x, const Known& indices, int axis);

// kind: of binary (add sub mul div mod fmod max min pow), of compare, of logical; nothing if the kind
// is none of these for the dtype. Both of one dtype.
std::optional<Known> known_binary(std::string_view kind, const Known& a, const Known& b);
std::optional<Known> known_compare(std::string_view kind, const Known& a, const Known& b);
Known known_logical(std::string_view kind, const Known& a, const Known& b);
Known known_where(const Known& cond, const Known& a, const Known& b);
// kind: of unary; nothing for kinds whose result is not exact here.
std::optional<Known> known_unary(std::string_view kind, const Known& x);
// kind: sum mean max min prod; nothing for others, and for reductions of nothing.
std::optional<Known> known_reduce(std::string_view kind, const Known& x, const Ints& axes,
                                  bool keepdims);
// [rank, count], as ONNX has it.
Known known_non_zero(const Known& x);

}  // namespace tenon::core::onnx
