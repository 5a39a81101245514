// SPDX-License-Identifier: Apache-2.0
// rope: rotary positions in the layouts bshd, bhsd and bsh; tables indexed by position or by token.
#include <string>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "axis.hpp"
#include "nontemporal.hpp"
#include "rope_core.hpp"

namespace tenon::cpu {
namespace {

struct Rope {
  RopeRows rows;
  int64_t batch, table_rows;
  int x, cos, sin, ids;  // positions of operands; ids is -1 if absent
  bool per_token;
  tenon_dtype ids_dtype;

  // Reads the table rows of all tokens, and checks them before anything is written.
  void read_ids(const sdk::Call& c, int64_t* to) const {
    for (int64_t i = 0; i < batch * rows.steps; ++i) {
      to[i] = ids_dtype == TENON_DTYPE_I32 ? c.in<int32_t>(ids)[i] : c.in<int64_t>(ids)[i];
      if (to[i] < 0 || to[i] >= table_rows)
        throw sdk::Failure(TENON_INDEX_OUT_OF_RANGE,
                           "operand position_ids: " + std::to_string(to[i]) + " at " +
                               std::to_string(i) + " is outside the tables' [0, " +
                               std::to_string(table_rows) + ")",
                           i);
    }
  }
  void run(const sdk::Call& c) const {
    RopeRows r = rows;
    r.cos = c.inputs[cos], r.sin = c.inputs[sin];
    int64_t* const positions = static_cast<int64_t*>(c.scratch);
    if (ids >= 0) read_ids(c, positions);
    if (per_token)
      for (int64_t i = 0; i < batch * rows.steps; ++i) positions[i] = i;
    if (ids >= 0 || per_token) r.positions = positions;
    const int64_t bytes = 2 * r.dim * element_bytes(r.dtype);
    r.nontemporal =
        bypasses_cache(c.outputs[0], batch * r.steps * r.heads * bytes / 2, {c.inputs[x]});
    parallel_for(batch * r.steps * r.heads, grain_for(bytes), [&](int64_t begin, int64_t end) {
      rope_turn(r, c.inputs[x], c.outputs[0], begin, end);
    });
  }
};

sdk::Kernel make_rope(const sdk::op::rope& n, const sdk::Node&) {
  const sdk::Type &x = n.x.type(), &table = n.cos.type();
  if (!is_float(x.dtype)) throw sdk::Refusal::dtype("x", x.dtype);
  const bool flat = n.layout == "bsh", heads_first = n.layout == "bhsd";
  if (!flat && !heads_first && n.layout != "bshd")
    throw sdk::Refusal::attribute("layout", n.layout);

  Rope work{};
  work.batch = x.dims[0];
  work.rows.dtype = x.dtype, work.rows.heads_first = heads_first;
  work.rows.steps = x.dims[heads_first ? 2 : 1];
  work.rows.heads = flat ? n.num_heads : x.dims[heads_first ? 1 : 2];
  work.rows.dim = flat ? x.dims[2] / n.num_heads : x.dims[3];
  work.rows.half = (n.n_rot == 0 ? work.rows.dim : n.n_rot) / 2;
  work.rows.interleaved = n.interleaved, work.rows.inverse = n.inverse, work.rows.offset = n.offset;
  work.per_token = table.rank == 3;
  work.table_rows = table.dims[0];
  work.x = n.x.position(), work.cos = n.cos.position(), work.sin = n.sin.position(), work.ids = -1;
  if (n.position_ids)
    work.ids = n.position_ids.position(), work.ids_dtype = n.position_ids.type().dtype;

  sdk::Kernel kernel;
  if (n.position_ids || work.per_token)
    kernel.scratch = work.batch * work.rows.steps * sizeof(int64_t);
  kernel.in_place = {{work.x, 0}};
  kernel.run = [work](const sdk::Call& c) { work.run(c); };
  return kernel;
}

constexpr sdk::Row kRows[] = {sdk::row<sdk::op::rope, make_rope>()};

}  // namespace

std::span<const sdk::Row> rope_rows() { return kRows; }

}  // namespace tenon::cpu
