// SPDX-License-Identifier: Apache-2.0
// Spectra on the mel scale, for a group of frames, dispatched by instruction set.
#pragma once

#include <cstdint>
#include <vector>

namespace tenon::cpu {

enum class MelScope : uint8_t { example, tensor, frame };

// The weights of a filter are neighbours.
struct MelFilter {
  int64_t bin = 0, count = 0, weights = 0;  // the first bin, and where its weights begin
};

struct Mel {
  int64_t bins = 0;
  std::vector<MelFilter> filters;
  std::vector<float> weights;
  float floor = 0, lowest = 0;  // and its logarithm
  float factor = 1;             // of natural logarithms
  float range = 0;              // 0 = off
  bool affine = false;
  MelScope scope = MelScope::example;

  // All is done by mel_group.
  bool one_pass() const { return range == 0 || scope == MelScope::frame; }
  int64_t powers_floats() const;  // of a work area
};

// y[m * pitch + t] = logarithm of filter m in frame t, for `count` frames, whose bins are rows.
// Returns the largest one, or NaN if there is one. With one_pass() they are the final result.
float mel_group(const Mel& mel, const float* bins, int64_t count, float* powers, float* y,
                int64_t pitch);
// Of n logarithms, in place: the range below `most`, and the affine map.
void mel_range(const Mel& mel, float* y, int64_t n, float most);

}  // namespace tenon::cpu
