// SPDX-License-Identifier: Apache-2.0
// Arguments of decode_attention.cu.
#pragma once
#include "arguments.cuh"

TENON_ARGUMENTS
// `attention`: of one query step over the caches. The steps of its q_strides, and of new_k and new_v,
// the strides of k and v, are those from element to element.
struct DecodeAttention {
  Attention attention;
  const void *k, *v, *rows, *cosines, *sines, *ids;
  void *k_next, *v_next;
  AttentionStrides new_k, new_v;
  i64 cache_rows, table_rows;
  i32 half;  // pairs of a head that turn
};
TENON_ARGUMENTS_END
