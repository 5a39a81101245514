// SPDX-License-Identifier: Apache-2.0
// Arguments of decode_attention.cu.
#pragma once
#include "arguments.cuh"

TENON_ARGUMENTS
// `attention`: of one query step over the caches. new_k and new_v: the strides of k and v.
struct DecodeAttention {
  Attention attention;
  const void *k, *v, *rows, *cosines, *sines, *ids;
  void *k_next, *v_next;
  AttentionStrides new_k, new_v;
  i64 cache_rows, table_rows;
};
TENON_ARGUMENTS_END
