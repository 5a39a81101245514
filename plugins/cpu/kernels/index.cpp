// SPDX-License-Identifier: Apache-2.0
// gather and the dynamic slices: copies rows of bytes whose positions are data. The scatters are in
// index_scatter.cpp.
#include "index.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "axis.hpp"
#include "block_copy.hpp"
#include "index_policy.hpp"
#include "nontemporal.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;

// ---- gather

struct Gather {
  IndexAxis axis;
  int64_t outer = 0;
  int64_t count = 0;  // indices
  int64_t row = 0;    // bytes
  bool nontemporal = false;
};

// Prefetch distance in rows, and bytes per row. The addresses are known early.
constexpr int64_t kAhead = 8, kPrefetched = 2048;

template <int64_t fixed, class X>
void gather_rows(const Gather& g, const char* data, const X* indices, char* y, int64_t begin,
                 int64_t end) {
  const int64_t row = fixed > 0 ? fixed : g.row;
  int64_t k = begin % g.count;
  const char* from = data + begin / g.count * g.axis.length * row;
  y += begin * row;
  for (int64_t r = begin; r < end; ++r, y += row) {
    if (fixed == 0 && k + kAhead < g.count) {
      const char* next = from + std::max<int64_t>(g.axis.resolve(indices[k + kAhead]), 0) * row;
      for (int64_t i = 0; i < std::min(row, kPrefetched); i += 64) __builtin_prefetch(next + i);
    }
    const int64_t at = g.axis.resolve(indices[k]);
    if (at >= 0 && fixed == 0 && g.nontemporal) {
      nontemporal_copy(from + at * row, y, row);
    } else if (at >= 0) {
      std::memcpy(y, from + at * row, static_cast<size_t>(row));
    } else {
      std::memset(y, 0, static_cast<size_t>(row));
    }
    if (++k == g.count) k = 0, from += g.axis.length * row;
  }
  if (g.nontemporal) nontemporal_fence();
}

template <class X>
void gather(const Gather& g, const char* data, const X* indices, char* y) {
  g.axis.check(indices, g.count);
  const auto rows = [&](auto fixed) {
    parallel_for(g.outer * g.count, grain_for(2 * g.row), [&](int64_t begin, int64_t end) {
      gather_rows<fixed>(g, data, indices, y, begin, end);
    });
  };
  switch (g.row) {
    case 1:
      return rows(std::integral_constant<int64_t, 1>{});
    case 2:
      return rows(std::integral_constant<int64_t, 2>{});
    case 4:
      return rows(std::integral_constant<int64_t, 4>{});
    case 8:
      return rows(std::integral_constant<int64_t, 8>{});
    case 16:
      return rows(std::integral_constant<int64_t, 16>{});
    default:
      return rows(std::integral_constant<int64_t, 0>{});
  }
}

Kernel make_gather(const sdk::op::gather& n, const Node&) {
  const AxisView view = along_axis(n.data.type(), n.axis);
  const tenon_dtype index = n.indices.type().dtype;
  Gather g{.axis = {view.axis, view.length, parse_oob(n.oob)},
           .outer = view.outer,
           .count = n.indices.type().elements(),
           .row = row_bytes("data", n.data.type().dtype, view.inner)};
  g.nontemporal = beyond_cache(2 * g.outer * g.count * g.row);
  return {.run = [g, index](const Call& c) {
    with_indices(index, c.inputs[1], [&](const auto* indices) {
      if (g.outer > 0 && g.row > 0) gather(g, c.in<char>(0), indices, c.out<char>(0));
    });
  }};
}

// ---- dynamic_slice, dynamic_update_slice

// The block of shape `size` within `whole`; its start is data.
struct Window {
  sdk::Type whole;
  sdk::Dims size{};
  bool clamp = false;
  int64_t bytes = 0;

  // Byte offset of the first element of the block.
  template <class X>
  int64_t offset(const X* start) const {
    int64_t at = 0;
    for (int i = 0; i < whole.rank; ++i) {
      const int64_t last_start = whole.dims[i] - size[i];
      int64_t s = start[i];
      if (clamp) s = std::clamp<int64_t>(s, 0, last_start);
      if (s < 0 || s > last_start)
        throw sdk::Failure(TENON_INDEX_OUT_OF_RANGE,
                           "operand start: " + std::to_string(s) + " at position " +
                               std::to_string(i) + " is outside [0, " + std::to_string(last_start) +
                               "], the starts of a block of " + std::to_string(size[i]) +
                               " in an axis of length " + std::to_string(whole.dims[i]),
                           i);
      at += s * whole.strides[i];
    }
    return at * bytes;
  }
};

Window make_window(const sdk::Type& whole, std::span<const int64_t> size, std::string_view oob,
                   const sdk::Type& start) {
  if (oob != "error" && oob != "clamp") throw sdk::Refusal::attribute("oob", oob);
  if (!start.dense()) throw sdk::Refusal::shape("start must be dense");
  Window w{.whole = whole, .clamp = oob == "clamp", .bytes = element_bytes("x", whole.dtype)};
  std::ranges::copy(size, w.size.begin());
  return w;
}

sdk::Dims dense_strides(std::span<const int64_t> dims) {
  sdk::Dims strides{};
  int64_t s = 1;
  for (size_t i = dims.size(); i-- > 0;) strides[i] = s, s *= dims[i];
  return strides;
}

Kernel make_dynamic_slice(const sdk::op::dynamic_slice& n, const Node&) {
  const Window w = make_window(n.x.type(), n.size, n.oob, n.start.type());
  const BlockCopy copy = block_copy(n.size, w.whole.strides, dense_strides(n.size), w.bytes);
  return {.run = [w, copy, index = n.start.type().dtype](const Call& c) {
    with_indices(index, c.inputs[1],
                 [&](const auto* start) { copy(c.in<char>(0) + w.offset(start), c.outputs[0]); });
  }};
}

Kernel make_dynamic_update_slice(const sdk::op::dynamic_update_slice& n, const Node&) {
  const std::span<const int64_t> size = n.update.type().shape();
  const Window w = make_window(n.base.type(), size, n.oob, n.start.type());
  if (!w.whole.dense()) throw sdk::Refusal::shape("base must be dense");
  const BlockCopy copy =
      block_copy(size, n.update.type().strides, dense_strides(w.whole.shape()), w.bytes);
  const int64_t all = static_cast<int64_t>(n.base.type().bytes());
  return {.run =
              [w, copy, all, index = n.start.type().dtype](const Call& c) {
                with_indices(index, c.inputs[2], [&](const auto* start) {
                  const int64_t offset = w.offset(start);
                  if (c.outputs[0] != c.inputs[0]) copy_bytes(c.inputs[0], c.outputs[0], all);
                  copy(c.inputs[1], c.out<char>(0) + offset);
                });
              },
          .in_place = {{0, 0}}};
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::gather, make_gather>(sdk::kBlocks),
    sdk::row<sdk::op::gather_backward, make_gather_backward>(),
    sdk::row<sdk::op::scatter, make_scatter>(sdk::kBlocks),
    sdk::row<sdk::op::scatter_add, make_scatter_add>(),
    sdk::row<sdk::op::scatter_reduce, make_scatter_reduce>(),
    sdk::row<sdk::op::dynamic_slice, make_dynamic_slice>(sdk::kStrided),
    sdk::row<sdk::op::dynamic_update_slice, make_dynamic_update_slice>(sdk::kStrided),
};

}  // namespace

std::span<const sdk::Row> index_rows() { return kRows; }

}  // namespace tenon::cpu
