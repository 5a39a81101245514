// SPDX-License-Identifier: Apache-2.0
// knn of points: the candidates are packed into panels, then each thread takes some blocks of points.
#include "knn.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "convert.hpp"
#include "slots.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t kMostRows = 64;  // of a block

// Rounded up, so that parts of an area are aligned.
constexpr int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

template <class T>
T* take(char*& area, int64_t count) {
  T* const part = reinterpret_cast<T*>(area);
  area += aligned(count * static_cast<int64_t>(sizeof(T)));
  return part;
}

struct Points {
  Knn knn;
  tenon_dtype dtype;
  int64_t batch, rows;
  int64_t block_rows;
  int x, y;  // operands

  int64_t blocks() const { return (rows + block_rows - 1) / block_rows; }
  // Bytes of the packed candidates of all batches, and of a block's area.
  int64_t packed_bytes() const {
    const int64_t panels = batch * knn.panels();
    return aligned(panels * knn.panel_floats() * 4) + aligned(panels * kKnnPanel) +
           aligned(panels * knn.coords * 4);
  }
  int64_t area_bytes() const {
    return aligned(block_rows * knn.coords * 4) + aligned(block_rows) +
           aligned(block_rows * knn.room() * 8) + aligned(block_rows * 8) + aligned(block_rows * 4);
  }
  const char* at(const sdk::Call& c, int operand, int64_t row) const {
    return c.in<char>(operand) + row * knn.coords * element_bytes(dtype);
  }

  // A point as floats, of length 1 for cosine. Returns true for a vector of zeros there.
  bool load(const char* from, float* to) const {
    widen(dtype, from, to, knn.coords);
    if (knn.metric != KnnMetric::cosine) return false;
    float largest = 0, squares = 0;
    bool zero = true;
    for (int64_t c = 0; c < knn.coords; ++c) {
      largest = std::max(largest, std::fabs(to[c]));
      zero = zero && to[c] == 0;
    }
    if (zero) return true;
    for (int64_t c = 0; c < knn.coords; ++c) {
      to[c] /= largest;
      squares += to[c] * to[c];
    }
    const float length = std::sqrt(squares);
    for (int64_t c = 0; c < knn.coords; ++c) to[c] /= length;
    return false;
  }

  // Panel p of all batches. point: room for one.
  void pack(const sdk::Call& c, int64_t p, float* panel, uint8_t* zeros, float* point) const {
    const int64_t begin = p % knn.panels() * kKnnPanel, first = p / knn.panels() * knn.candidates;
    for (int64_t j = 0; j < kKnnPanel; ++j) {
      zeros[j] = 0;
      if (begin + j < knn.candidates)
        zeros[j] = load(at(c, y, first + begin + j), point);
      else
        std::fill_n(point, knn.coords, std::numeric_limits<float>::quiet_NaN());
      for (int64_t i = 0; i < knn.coords; ++i) panel[i * kKnnPanel + j] = point[i];
    }
  }

  // Block b of all batches.
  void block(const sdk::Call& c, int64_t b, const float* packed, const uint8_t* zeros,
             char* area) const {
    const int64_t group = b / blocks(), first = b % blocks() * block_rows;
    float* const x_rows = take<float>(area, block_rows * knn.coords);
    uint8_t* const zero = take<uint8_t>(area, block_rows);
    KnnBlock part{.x = x_rows,
                  .zero = zero,
                  .first = first,
                  .rows = std::min(block_rows, rows - first),
                  .y = packed + group * knn.panels() * knn.panel_floats(),
                  .zeros = zeros + group * knn.panels() * kKnnPanel,
                  .keys = take<KnnKey>(area, block_rows * knn.room()),
                  .counts = take<int64_t>(area, block_rows),
                  .limits = take<float>(area, block_rows)};
    const int64_t row = group * rows + first;
    for (int64_t r = 0; r < part.rows; ++r)
      zero[r] = load(at(c, x, row + r), x_rows + r * knn.coords);
    std::fill(x_rows + part.rows * knn.coords, x_rows + block_rows * knn.coords, 0.f);
    knn_block(knn, part, c.out<int32_t>(0) + row * knn.k, c.out<float>(1) + row * knn.k);
  }
};

// Blocks of many rows reuse panels; a few rows are shared among threads, and long lists take memory.
int64_t block_rows_of(const Knn& knn, int64_t rows, int64_t batch) {
  constexpr int64_t kLists = 1 << 20;  // bytes
  const int64_t most =
      std::min({rows * batch / 16, rows + kKnnRows - 1, kLists / (knn.room() * 8), kMostRows});
  return std::max(most, kKnnRows) / kKnnRows * kKnnRows;
}

KnnMetric metric_of(const std::string& name) {
  if (name == "cosine") return KnnMetric::cosine;
  return name == "inner" ? KnnMetric::inner : KnnMetric::squares;
}

sdk::Kernel make_knn(const sdk::op::knn& n, const sdk::Node&) {
  if (!n.x) throw sdk::Refusal::shape("given distances are decomposed");
  const sdk::Type& x = n.x.type();
  const sdk::Type& y = n.y ? n.y.type() : x;
  if (!is_float(x.dtype) || x.dtype == TENON_DTYPE_F64) throw sdk::Refusal::dtype("x", x.dtype);
  int64_t batch = 1;
  for (int i = 0; i < x.rank - 2; ++i) batch *= x.dims[i];
  const int64_t rows = x.dims[x.rank - 2];
  const Knn knn{.coords = x.dims[x.rank - 1],
                .candidates = y.dims[y.rank - 2],
                .k = n.k,
                .metric = metric_of(n.metric),
                .root = n.metric == "euclidean",
                .own = !n.y,
                .excluded = !n.y && n.exclude_self};
  const Points points{.knn = knn,
                      .dtype = x.dtype,
                      .batch = batch,
                      .rows = rows,
                      .block_rows = block_rows_of(knn, rows, batch),
                      .x = n.x.position(),
                      .y = n.y ? n.y.position() : n.x.position()};
  const Slots slots = make_slots(batch * points.blocks(), points.area_bytes(),
                                 points.block_rows * knn.candidates * knn.coords);
  const int64_t packed_bytes = points.packed_bytes();
  sdk::Kernel kernel{.scratch = static_cast<uint64_t>(packed_bytes) + slots.scratch()};
  kernel.cost = 2.0 * static_cast<double>(batch * rows * knn.coords) *
                static_cast<double>(knn.candidates) / 1e11;
  kernel.run = [=](const sdk::Call& c) {
    char* area = static_cast<char*>(c.scratch);
    const int64_t panels = points.batch * points.knn.panels(), size = points.knn.panel_floats();
    float* const packed = take<float>(area, panels * size);
    uint8_t* const zeros = take<uint8_t>(area, panels * kKnnPanel);
    float* const room = take<float>(area, panels * points.knn.coords);
    parallel_for(panels, grain_for(8 * size), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        points.pack(c, p, packed + p * size, zeros + p * kKnnPanel, room + p * points.knn.coords);
    });
    slots.run(area, [&](int64_t begin, int64_t end, char* own) {
      for (int64_t b = begin; b < end; ++b) points.block(c, b, packed, zeros, own);
    });
  };
  return kernel;
}

constexpr sdk::Row kRows[] = {sdk::row<sdk::op::knn, make_knn>()};

}  // namespace

std::span<const sdk::Row> knn_rows() { return kRows; }

}  // namespace tenon::cpu
