// SPDX-License-Identifier: Apache-2.0
// The entries of device/*.cu by name, with the types that they take (entries.def).
#pragma once

#include "../code.hpp"
#include "family_args.hpp"

namespace tenon::cuda::entries {

using namespace args;
using In = const void*;
using Out = void*;

#define ENTRY(name, file, entry, ...) inline constexpr Entry<__VA_ARGS__> name{file, entry};
#include "entries.def"

// Of N products: SETS=N.
template <int N>
inline constexpr Entry<JoinedProducts<N>> thin{"thin.cu", "thin"};
template <int N>
inline constexpr Entry<JoinedProducts<N>, JoinedMaps<N>> matmul_wgmma{"matmul_wgmma.cu", "product"};

}  // namespace tenon::cuda::entries
