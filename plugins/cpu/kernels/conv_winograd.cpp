// SPDX-License-Identifier: Apache-2.0
// Plans and runs the convolutions of conv_winograd.hpp. A piece of work is a band of rows of tiles by
// a block of panels of channels; its thread transforms the pixels of a band once.
#include "conv_winograd.hpp"

#include <algorithm>
#include <new>

#include "../parallel.hpp"
#include "gemm_core.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t kTiles = 56;          // of a band, about: transformed pixels and products fit L2
constexpr int64_t kLeastChannels = 16;  // fewer do not pay for the transforms
constexpr int64_t kLeastTiles = 32;     // fewer read 16/9 of the weights for little
constexpr int64_t kMostWeights = 32 << 20;  // bytes
constexpr int64_t kMostRow = 8 << 20;       // bytes of the transformed pixels of a row of tiles
constexpr uint64_t kLine = 64;              // bytes at the start of a work area
constexpr int64_t kVector = 16;             // elements, at most
constexpr int64_t kPiecesPerThread = 4;

uint64_t floats(int64_t count) { return aligned(count * static_cast<int64_t>(sizeof(float))); }

// Three taps that follow each other, in either order.
bool three_in_a_row(const ConvAxis& a) {
  if (a.step != 1 || a.taps.size() != 3) return false;
  const int64_t by = a.taps[1] - a.taps[0];
  return (by == 1 || by == -1) && a.taps[2] - a.taps[1] == by;
}
int64_t first_tap(const ConvAxis& a) { return std::min(a.taps.front(), a.taps.back()); }

int64_t tiles(int64_t windows) { return divide_up(windows, 2); }

// g[row][column], of the filter in the order of pixels.
void read_filter(const TapConv& conv, const float* w, float (&g)[3][3]) {
  const ConvAxis &rows = conv.axes[1], &columns = conv.axes[2];
  for (size_t r = 0; r < 3; ++r)
    for (size_t c = 0; c < 3; ++c)
      g[rows.taps[r] - first_tap(rows)][columns.taps[c] - first_tap(columns)] =
          w[conv.w_tap[r * 3 + c]];
}

// u = G g Gᵀ
void transform_filter(const float (&g)[3][3], float (&u)[kWinogradProducts]) {
  const auto line = [](float a, float b, float c, float* to, int64_t step) {
    to[0] = a, to[step] = 0.5f * (a + b + c), to[2 * step] = 0.5f * (a - b + c), to[3 * step] = c;
  };
  float down[4][3];
  for (int c = 0; c < 3; ++c) line(g[0][c], g[1][c], g[2][c], &down[0][c], 3);
  for (int r = 0; r < 4; ++r) line(down[r][0], down[r][1], down[r][2], u + 4 * r, 1);
}

// g of u: the two halves of G differ by the middle tap.
void restore_filter(const float (&u)[kWinogradProducts], float (&g)[3][3]) {
  float down[3][4];
  for (int c = 0; c < 4; ++c)
    down[0][c] = u[c], down[1][c] = u[4 + c] - u[8 + c], down[2][c] = u[12 + c];
  for (int r = 0; r < 3; ++r)
    g[r][0] = down[r][0], g[r][1] = down[r][1] - down[r][2], g[r][2] = down[r][3];
}

}  // namespace

bool ConvWinograd::takes(const TapConv& conv, tenon_dtype dtype) {
  constexpr int64_t kTileBytes = kWinogradProducts * sizeof(float);  // of one channel
  if (dtype != TENON_DTYPE_F32 || conv.groups != 1 || !conv.dense() || !conv.flat()) return false;
  return three_in_a_row(conv.axes[1]) && three_in_a_row(conv.axes[2]) && conv.c >= kLeastChannels &&
         conv.m >= kLeastChannels &&
         tiles(conv.axes[1].out) * tiles(conv.axes[2].out) >= kLeastTiles &&
         conv.c * conv.m * kTileBytes <= kMostWeights &&
         conv.c * tiles(conv.axes[2].out) * kTileBytes <= kMostRow;
}

ConvWinograd::ConvWinograd(TapConv conv) : conv_(std::move(conv)) {
  panel_ = gemm_panels(TENON_DTYPE_F32).cols;
  panels_ = divide_up(conv_.m, panel_);
  tile_rows_ = tiles(conv_.axes[1].out), tile_columns_ = tiles(conv_.axes[2].out);
  bands_ = divide_up(tile_rows_, std::max<int64_t>(kTiles / tile_columns_, 1));
  const int64_t wanted =
      std::max<int64_t>(kPiecesPerThread * widest_arena() / std::max<int64_t>(conv_.batch, 1), 1);
  bands_ = std::min(std::max(bands_, divide_up(wanted, panels_)), tile_rows_);
  band_rows_ = divide_up(tile_rows_, bands_);
  bands_ = divide_up(tile_rows_, band_rows_);
  row_blocks_ = std::min(divide_up(wanted, bands_), panels_);
  row_panels_ = divide_up(panels_, row_blocks_);
  row_blocks_ = divide_up(panels_, row_panels_);

  // An odd number of cache lines: channels do not share sets.
  pitch_ = (divide_up(band_rows_ * tile_columns_ + kVector, kVector) | 1) * kVector;
  sums_pitch_ = 2 * band_rows_ * conv_.axes[2].out + 2 * kVector;
  for (int64_t c = 0; c < conv_.c; ++c) offsets_.push_back(c * pitch_);
  pixels_ = floats(kWinogradProducts * conv_.c * pitch_);
  products_ = floats(kWinogradProducts * panel_ * pitch_);
  sums_ = floats(sums_pitch_);
  slot_ = kLine + pixels_ + products_ + sums_ + floats(winograd_rows(band_rows_, tile_columns_));
  slots_ = conv_slots(conv_.batch * bands_ * row_blocks_);
}

std::string ConvWinograd::layout() const {
  std::string text = "winograd";
  for (const int64_t n : {conv_.m, conv_.c, conv_.w_m, conv_.w_c, panel_, conv_.axes[1].taps[0],
                          conv_.axes[1].taps[1], conv_.axes[2].taps[0], conv_.axes[2].taps[1]})
    text += " " + std::to_string(n);
  for (const int64_t t : conv_.w_tap) text += "," + std::to_string(t);
  return text;
}

uint64_t ConvWinograd::bytes() const { return floats(part(panels_, 0)); }

int64_t ConvWinograd::part(int64_t panel, int64_t product) const {
  return (panel * kWinogradProducts + product) * conv_.c * panel_;
}

void ConvWinograd::pack(const void* w, void* packed) const {
  float* const to = static_cast<float*>(packed);
  parallel_for(panels_, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      for (int64_t c = 0; c < conv_.c; ++c)
        for (int64_t r = 0; r < panel_; ++r) {
          float g[3][3] = {}, u[kWinogradProducts];
          const int64_t m = p * panel_ + r;
          if (m < conv_.m)
            read_filter(conv_, static_cast<const float*>(w) + m * conv_.w_m + c * conv_.w_c, g);
          transform_filter(g, u);
          for (int64_t k = 0; k < kWinogradProducts; ++k) to[part(p, k) + c * panel_ + r] = u[k];
        }
  });
}

ConvWinograd::Band ConvWinograd::band(int64_t k) const {
  const int64_t first = k * band_rows_;
  return {first, std::min(band_rows_, tile_rows_ - first)};
}

// Whether all pixels are ones that may be mixed.
bool ConvWinograd::transform(const float* image, const Band& band, float* v, float* rows) const {
  const ConvAxis &down = conv_.axes[1], &across = conv_.axes[2];
  bool fine = true;
  for (int64_t c = 0; c < conv_.c; ++c)
    fine &= winograd_pixels({image + c * conv_.pixels(), down.in, across.in,
                             2 * band.first + first_tap(down), first_tap(across), band.rows,
                             tile_columns_, v + c * pitch_, conv_.c * pitch_, rows});
  return fine;
}

void ConvWinograd::sum_tiles(const float* packed, const float* v, int64_t panel, int64_t channels,
                             int64_t tiles, float* products) const {
  TapTiles sums{.m = channels, .rows = 1, .width = tiles, .steps = conv_.c};
  sums.offsets = offsets_.data(), sums.ldc = pitch_;
  for (int64_t k = 0; k < kWinogradProducts; ++k) {
    sums.w = packed + part(panel, k), sums.next = packed + part(panel, k + 1);
    sums.x = v + k * conv_.c * pitch_, sums.c = products + k * panel_ * pitch_;
    if (panel + 1 == panels_ && k + 1 == kWinogradProducts) sums.next = nullptr;
    tap_tiles(sums);
  }
}

// sums[channel * sums_pitch_ + window], window by window.
void ConvWinograd::sum_directly(const float* packed, const float* image, int64_t panel,
                                int64_t channel, const Band& band, float* sums) const {
  const ConvAxis &down = conv_.axes[1], &across = conv_.axes[2];
  const int64_t first = 2 * band.first, last = std::min(first + 2 * band.rows, down.out);
  std::fill_n(sums, (last - first) * across.out, 0.f);
  for (int64_t c = 0; c < conv_.c; ++c) {
    float u[kWinogradProducts], g[3][3];
    for (int64_t k = 0; k < kWinogradProducts; ++k)
      u[k] = packed[part(panel, k) + c * panel_ + channel];
    restore_filter(u, g);
    const float* const plane = image + c * conv_.pixels();
    for (int64_t o = first; o < last; ++o)
      for (int64_t r = 0; r < 3; ++r) {
        const int64_t row = o + first_tap(down) + r;
        if (row < 0 || row >= down.in) continue;
        for (int64_t k = 0; k < 3; ++k) {
          const int64_t shift = first_tap(across) + k;
          const int64_t begin = std::clamp<int64_t>(-shift, 0, across.out);
          const int64_t end = std::clamp<int64_t>(across.in - shift, begin, across.out);
          float* const to = sums + (o - first) * across.out;
          for (int64_t j = begin; j < end; ++j)
            to[j] += g[r][k] * plane[row * across.in + j + shift];
        }
      }
  }
}

void ConvWinograd::run(const sdk::Call& call, const void* x, const void* packed,
                       const ConvEnds& ends) const {
  // A work area begins with what it holds: pieces of a band follow each other.
  struct Held {
    int64_t band = -1;
    bool fine = false;
  };
  static_assert(sizeof(Held) <= kLine);
  const auto area = [&](int slot) { return static_cast<char*>(call.scratch) + slot * slot_; };
  for (int slot = 0; slot < slots_; ++slot) new (area(slot)) Held;
  const float* const weights = static_cast<const float*>(packed);
  const int64_t width = conv_.axes[2].out, blocks = bands_ * row_blocks_;
  const auto piece = [&](int64_t k, int slot) {
    Held& here = *reinterpret_cast<Held*>(area(slot));
    char* const own = area(slot) + kLine;
    float* const v = reinterpret_cast<float*>(own);
    float* const products = reinterpret_cast<float*>(own + pixels_);
    float* const sums = reinterpret_cast<float*>(own + pixels_ + products_);
    float* const rows = reinterpret_cast<float*>(own + pixels_ + products_ + sums_);
    const int64_t image_index = k / blocks;
    const float* const image =
        static_cast<const float*>(x) + image_index * conv_.c * conv_.pixels();
    const Band band = this->band(k % blocks / row_blocks_);
    if (here.band != k / row_blocks_) here = {k / row_blocks_, transform(image, band, v, rows)};
    const int64_t first_row = 2 * band.first;
    const int64_t windows = std::min(2 * band.rows, conv_.axes[1].out - first_row);
    const int64_t first = k % row_blocks_ * row_panels_;
    for (int64_t p = first; p < std::min(first + row_panels_, panels_); ++p) {
      const int64_t channels = std::min(panel_, conv_.m - p * panel_);
      if (here.fine) sum_tiles(weights, v, p, channels, band.rows * tile_columns_, products);
      for (int64_t i = 0; i < channels; ++i) {
        if (here.fine)
          winograd_sums(
              {products + i * pitch_, panel_ * pitch_, tile_columns_, sums, windows, width});
        else
          sum_directly(weights, image, p, i, band, sums);
        const int64_t channel = p * panel_ + i, plane = image_index * conv_.m + channel;
        ends.run(call, TENON_DTYPE_F32, TENON_DTYPE_F32, sums, channel,
                 plane * conv_.y_plane + first_row * width, 1, windows * width);
      }
    }
  };
  parallel_for_slots(conv_.batch * blocks, 1, slots_, [&](int slot, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) piece(k, slot);
  });
}

}  // namespace tenon::cpu
