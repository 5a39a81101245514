// SPDX-License-Identifier: Apache-2.0
// What is moved and not computed with: units of 1 to 16 bytes.
#pragma once
#include "types.cuh"

template <int>
struct UnitOf;
template <>
struct UnitOf<1> {
  typedef u8 type;
};
template <>
struct UnitOf<2> {
  typedef u16 type;
};
template <>
struct UnitOf<4> {
  typedef u32 type;
};
template <>
struct UnitOf<8> {
  typedef u64 type;
};
template <>
struct UnitOf<16> {
  typedef Vec<u32, 4> type;
};
