// SPDX-License-Identifier: Apache-2.0
// Joins the sums of spans of keys that blocks of attention_steps.cu or decode_attention_spans.cu left, in order:
// a block for each query row.
// Defines: as attention.cuh.
//variant: TT=bf16 TS=f32 MASK=0 KV_LEN=i64 PAST_LEN=i64
//entry: attention_join = join(Attention)
#include "attention_spans.cuh"

extern "C" __global__ void join(const Attention p) {
  const i32 rows = p.q_len * p.group, r = (i32)(blockIdx.x % rows);
  const Head head(p, (i32)(blockIdx.x / rows));
  join_spans(p, head, limits_of(p, head.batch, r / p.group), r, threadIdx.x, blockDim.x,
             [&](i32 span) { return span_part(p, span, (i32)(blockIdx.x / rows), r); });
}
