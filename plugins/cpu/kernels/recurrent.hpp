// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the recurrent family: a step of an lstm or gru.
#pragma once

#include <cstdint>

namespace tenon::cpu {

enum class Cell : uint8_t { lstm, gru };
// The order of gates in packed weights and in RecurrentStep: i f g o, or r z n.
inline constexpr int kMostGates = 4;
constexpr int gates_of(Cell cell) { return cell == Cell::lstm ? 4 : 3; }

// One step of one direction, for some rows (sequences) and some panels of units. A panel has
// recurrent_lanes() units.
struct RecurrentStep {
  Cell cell{};
  int64_t hidden = 0;
  int64_t gate[kMostGates] = {};  // where the gate begins in a row of x
  const float* x = nullptr;       // row b begins at x[b * x_row]
  int64_t x_row = 0;
  // A weight of gate g, unit j of panel p, for unit k of h: r[((g * panels + p) * hidden + k) *
  // lanes + j].
  const float* r = nullptr;
  const float* n_bias = nullptr;  // gru; may be null
  const float* h = nullptr;       // [batch, hidden]
  float* next_h = nullptr;        // likewise; not h
  float* c = nullptr;             // lstm: likewise, updated
  float* y = nullptr;             // row b begins at y[b * y_row]
  int64_t y_row = 0;
  const int64_t* lengths = nullptr;  // may be null
  int64_t t = 0;                     // a row whose length is at most t has ended
};
void recurrent_step(const RecurrentStep& step, int64_t first_row, int64_t end_row,
                    int64_t first_panel, int64_t end_panel);
int64_t recurrent_lanes();

}  // namespace tenon::cpu
