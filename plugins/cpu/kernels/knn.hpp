// SPDX-License-Identifier: Apache-2.0
// The nearest candidates of a block of points, dispatched by instruction set.
#pragma once

#include <cstdint>

namespace tenon::cpu {

enum class KnnMetric : uint8_t { squares, cosine, inner };

constexpr int64_t kKnnPanel = 64;  // candidates of a panel
constexpr int64_t kKnnRows = 4;    // points that share the loads of a panel

struct Knn {
  int64_t coords, candidates, k;
  KnnMetric metric;
  bool root;      // distances are roots of squares
  bool own;       // points are candidates too, at their own index
  bool excluded;  // and are left out there

  int64_t panels() const { return (candidates + kKnnPanel - 1) / kKnnPanel; }
  int64_t panel_floats() const { return coords * kKnnPanel; }
  // Entries of a list of candidates: k, and room for those of some panels before they are sifted.
  int64_t room() const { return (k > 64 ? 2 * k : k + 64) + kKnnPanel; }
};

// A candidate's distance and index, as a number that orders candidates.
using KnnKey = uint64_t;

// What one block of points needs.
struct KnnBlock {
  const float* x;        // [rows, coords], and zeros up to a multiple of kKnnRows
  const uint8_t* zero;   // of each row: a vector of zeros (cosine)
  int64_t first, rows;   // of the points
  const float* y;        // panels [coords, kKnnPanel]; behind the last candidate NaN
  const uint8_t* zeros;  // of each candidate
  KnnKey* keys;          // rows * room()
  int64_t* counts;       // rows
  float* limits;         // rows
};
// Writes k indices and distances for each row.
void knn_block(const Knn& n, const KnnBlock& block, int32_t* index, float* distance);

}  // namespace tenon::cpu
