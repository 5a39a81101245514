// SPDX-License-Identifier: Apache-2.0
// One transform of device/fft.cuh on the host, in a namespace NAME: POINTS, LANES, COLUMNS, PARTS and LIST, the
// radices with commas. THREADS is that of all columns. A thread of the host stands for each of the device.
#define RADICES LIST
#define THREADS (LANES * COLUMNS)
namespace NAME {

#include "../../../plugins/cuda/device/fft.cuh"

// x: [POINTS, COLUMNS].
std::vector<c64> run(const std::vector<c64>& x) {
  const FftPlan plan{.points = POINTS, .radices = {LIST}, .lanes = LANES};
  const std::vector<float> table = fft_roots(plan, true);
  const auto* roots = reinterpret_cast<const c64*>(table.data());
  std::vector<f32> area(static_cast<size_t>(fft_area(POINTS, COLUMNS, 2, LANES)));
  CHECK(area.size() * sizeof(f32) == static_cast<size_t>(plan.bytes(COLUMNS, 2)));
  std::vector<c64> direct(x.size()), y(x.size());
  together(THREADS, [&](int thread) {
    const Lane lane{thread / COLUMNS, thread % COLUMNS};
    const auto place = [&](int i) { return static_cast<size_t>(i * COLUMNS + lane.column); };
    const auto load = [&](int i) { return x[place(i)]; };
    transform_each<false>(roots, area.data(), lane, load,
                          [&](int i, c64 v) { direct[place(i)] = v; });
    meet();
    transform_kept(roots, area.data(), lane, load);
    for (int i = lane.index; i < POINTS; i += LANES) y[place(i)] = kept(area.data(), lane, i);
  });
  // What stays in shared memory is what is stored.
  for (size_t i = 0; i < y.size(); ++i) CHECK((y[i].re == direct[i].re && y[i].im == direct[i].im));
  return y;
}

}  // namespace NAME
#undef RADICES
#undef THREADS
#undef NAME
#undef POINTS
#undef LIST
#undef LANES
#undef COLUMNS
#undef PARTS
