// SPDX-License-Identifier: Apache-2.0
// Packs weights, runs pieces (a band of windows by a block of channels), finishes rows of sums. All
// sums are exact, so neither the pieces nor the unit change a result.
#include "qconv.hpp"

#include <algorithm>
#include <cstring>

#include "conv_padded.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t kTileColumns = 384;      // windows of a band, about
constexpr int64_t kTileBytes = 320 << 10;  // of a padded copy: it fits L2, beside weights
constexpr int64_t kTileRows = 1024;        // channels of y per piece
constexpr int64_t kRowColumns = 2048;      // windows of a band, for quads of rows
constexpr int64_t kPlaneColumns = 4096;    // likewise for few channels
constexpr int64_t kPlaneBytes = 128 << 10;
constexpr int64_t kFilters = 4;       // at a time, of few channels
constexpr int64_t kPieces = 32;       // of work that there should be, if they can be large
constexpr double kPieceSums = 4e6;    // products that make a piece large enough
constexpr int64_t kWide = 64;         // windows of a row that are worth a loop of their own
constexpr int64_t kExactTerms = 258;  // 258 * 255 * 255 < 2^24

int32_t element(tenon_dtype dtype, const void* x, int64_t at) {
  return dtype == TENON_DTYPE_U8 ? int32_t{static_cast<const uint8_t*>(x)[at]}
                                 : int32_t{static_cast<const int8_t*>(x)[at]};
}

int64_t wanted_pieces(const TapConv& t) {
  const double sums =
      static_cast<double>(t.m) * static_cast<double>(t.windows()) * static_cast<double>(t.depth());
  return std::min<int64_t>(divide_up(kPieces, std::max<int64_t>(t.batch * t.groups, 1)),
                           1 + static_cast<int64_t>(sums / kPieceSums));
}

}  // namespace

// A row of sums: windows of a band of one channel, rows of them `pitch` apart.
struct QConv::Row {
  void* sums;
  bool floats;
  int64_t pitch;
  int64_t image_group;  // image * groups + group
  int64_t row;          // in the group
  ConvBand band;
  int32_t weight_sum;
  const int32_t* column_sums;  // (optional), dense
};

bool QConv::takes_planes(const TapConv& t) {
  constexpr int64_t kFewFilters = 8;
  return t.m <= kFewFilters && t.depth() <= kExactTerms && t.c <= 2;
}

QConv::Form QConv::form_of(const TapConv& t, bool column_sums) {
  const ConvAxis& first = t.axes[0];
  if (t.c == 1 && !column_sums && first.in == 1 && first.out == 1 && first.taps.size() == 1)
    return Form::rows;
  return takes_planes(t) ? Form::planes : Form::channels;
}

// The same convolution over quads. Those of rows are channels of an image that has the rows of y.
TapConv QConv::over_quads() const {
  TapConv t = conv_;
  if (form_ == Form::channels) {
    t.c = q_quads(t.c);
  } else {
    ConvAxis& rows = t.axes[1];
    t.c = q_quads(static_cast<int64_t>(rows.taps.size()));
    rows = {.in = rows.out, .out = rows.out};
  }
  return t;
}

QConv::Place QConv::place_of(int64_t c, int64_t t) const {
  if (form_ == Form::channels) return {c / 4 * conv_.taps() + t, c % 4};
  const auto columns = static_cast<int64_t>(conv_.axes[2].taps.size());
  const int64_t row = t / columns;
  return {row / 4 * columns + t % columns, row % 4};
}

QConv::QConv(QUnit unit, const TapConv& conv, tenon_dtype x, tenon_dtype w, bool w_zeros,
             bool w_packed)
    : unit_(unit),
      conv_(conv),
      x_(x),
      w_(w),
      column_sums_(w_zeros || w == TENON_DTYPE_U8),
      form_(form_of(conv, column_sums_)),
      w_packed_(w_packed && form_ != Form::planes),
      x_side_(q_side(x, false)),
      w_side_(q_side(w, true)),
      panels_(q_panels(unit)) {
  const int64_t wanted = wanted_pieces(conv_), m = std::max<int64_t>(conv_.m, 1);
  if (form_ == Form::planes) {
    const int64_t columns =
        std::min(kPlaneColumns, divide_up(conv_.axes[1].out * conv_.axes[2].out, wanted));
    padded_ = std::make_shared<PaddedTaps>(conv_, TENON_DTYPE_F32, columns, kPlaneBytes);
    ld_ = round_up(padded_->most_columns(), 64);  // whole vectors of any width, two at a time
    weights_ = aligned(conv_.m * conv_.depth() * 4);
    slot_ = padded_->bytes() + weights_ + aligned(kFilters * ld_ * 4);
    slots_ = conv_slots(conv_.batch * conv_.groups * padded_->bands());
    return;
  }
  if (conv_.pointwise()) {  // long rows are copied faster
    conv_.axes[2].in = conv_.axes[2].out = conv_.windows();
    conv_.axes[0] = conv_.axes[1] = {};
    conv_.y_pitch = {0, 0, 1};
  }
  const bool rows = form_ == Form::rows;
  padded_ = std::make_shared<PaddedTaps>(over_quads(), TENON_DTYPE_F32,
                                         rows ? kRowColumns : kTileColumns, kTileBytes);
  quads_ = static_cast<int64_t>(padded_->offsets().size());
  const int64_t bands = std::max<int64_t>(padded_->bands(), 1);
  row_blocks_ = std::max(std::min(divide_up(wanted, bands), divide_up(m, 4 * panels_.rows)),
                         divide_up(m, kTileRows));
  rows_ = round_up(divide_up(m, row_blocks_), panels_.rows);
  row_blocks_ = divide_up(m, rows_);
  ld_ = round_up(padded_->most_columns(), panels_.cols);
  slot_ = padded_->bytes() + aligned((panels_.rows + 1) * ld_ * 4);
  if (rows) slot_ += aligned(static_cast<int64_t>(padded_->row_bytes(conv_.axes[1])));
  slots_ = conv_slots(conv_.batch * conv_.groups * bands * row_blocks_);
  shared_ = w_packed_ ? 0 : packed_bytes();
}

// ---- weights: for each group, panels of rows; a panel whose first row is ones, for the sums of
// columns; the sum of each row

int64_t QConv::panels() const { return conv_.groups * divide_up(conv_.m, panels_.rows); }
int64_t QConv::panel_bytes() const { return quads_ * panels_.rows * 4; }
int64_t QConv::sums_at() const { return (panels() + 1) * panel_bytes(); }

std::string QConv::packed_layout() const {
  std::string text = form_ == Form::rows ? "quads of rows" : "quads of taps";
  for (const int64_t x : {static_cast<int64_t>(conv_.axes[2].taps.size()), static_cast<int64_t>(w_),
                          conv_.groups, conv_.m, conv_.c, conv_.taps(), panels_.rows})
    text += " " + std::to_string(x);
  for (const int64_t t : conv_.w_tap) text += "," + std::to_string(t);
  return text;
}

uint64_t QConv::packed_bytes() const { return aligned(sums_at() + conv_.groups * conv_.m * 4); }

void QConv::pack_panel(const void* w, int64_t group, int64_t row, char* packed,
                       int32_t* sums) const {
  const auto* const first = static_cast<const uint8_t*>(w) + group * conv_.w_group;
  auto* to = reinterpret_cast<uint8_t*>(packed);
  std::memset(to, 0, panel_bytes());
  const int64_t rows = std::min(panels_.rows, conv_.m - row), taps = conv_.taps();
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* const from = first + (row + r) * conv_.w_m;
    int32_t sum = 0;
    for (int64_t c = 0; c < conv_.c; ++c)
      for (int64_t t = 0; t < taps; ++t) {
        const auto byte = static_cast<uint8_t>(from[c * conv_.w_c + conv_.w_tap[t]] ^ w_side_.flip);
        const Place place = place_of(c, t);
        to[(place.quad * panels_.rows + r) * 4 + place.byte] = byte;
        sum += static_cast<int8_t>(byte);
      }
    sums[r] = sum;
  }
}

void QConv::pack(const void* w, void* packed) const {
  char* const to = static_cast<char*>(packed);
  auto* const sums = reinterpret_cast<int32_t*>(to + sums_at());
  const int64_t per_group = divide_up(conv_.m, panels_.rows);
  parallel_for(panels(), grain_for(panel_bytes()), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t group = p / per_group, row = p % per_group * panels_.rows;
      pack_panel(w, group, row, to + p * panel_bytes(), sums + group * conv_.m + row);
    }
  });
  auto* const ones = reinterpret_cast<uint8_t*>(to + panels() * panel_bytes());
  std::memset(ones, 0, panel_bytes());
  for (int64_t c = 0; c < conv_.c; ++c)
    for (int64_t t = 0; t < conv_.taps(); ++t) {
      const Place place = place_of(c, t);
      ones[place.quad * panels_.rows * 4 + place.byte] = 1;
    }
}

// ---- runs

int32_t QConv::w_zero(const QConvRun& run, int64_t channel) const {
  return run.w_zeros == nullptr ? 0
                                : element(w_, run.w_zeros, run.w_zeros_per_channel ? channel : 0);
}

// Σ(x - p)(w - q) = Σxw - p·Σw - q·Σx + depth·p·q, modulo 2^32. Floats have no zero points left.
void QConv::finish(const QConvRun& run, const Row& row) const {
  const int64_t group = row.image_group % conv_.groups, channel = group * conv_.m + row.row;
  const ConvBand& band = row.band;  // several rows are whole ones: they follow each other in y
  const int64_t width = band.width;
  if (row.pitch != width)  // floats, too: their bits move
    q_close_rows(static_cast<int32_t*>(row.sums), band.rows, width, row.pitch);
  uint32_t add = run.bias != nullptr ? static_cast<uint32_t>(run.bias[channel]) : 0;
  uint32_t factor = 0;
  if (!row.floats) {
    const auto p = static_cast<uint32_t>(run.x_zero + x_side_.shift);
    const auto q = static_cast<uint32_t>(w_zero(run, channel) + w_side_.shift);
    add += p * (static_cast<uint32_t>(conv_.depth()) * q - static_cast<uint32_t>(row.weight_sum));
    factor = 0u - q;
  }
  const int64_t at = (row.image_group * conv_.m + row.row) * conv_.y_plane +
                     band.slice * conv_.y_pitch[0] + band.row * conv_.y_pitch[1] + band.column;
  const bool scaled = run.multipliers != nullptr;
  q_row({.sums = row.sums,
         .floats = row.floats,
         .count = band.rows * width,
         .add = static_cast<int32_t>(add),
         .adds = nullptr,
         .factor = static_cast<int32_t>(factor),
         .factors = row.column_sums,
         .scaled = scaled,
         .multiplier = scaled ? run.multipliers[run.multipliers_per_channel ? channel : 0] : 1.0f,
         .multipliers = nullptr,
         .low = run.low,
         .high = run.high,
         .zero = run.y_zero,
         .y = run.y_dtype,
         .to = static_cast<char*>(run.y) + at * (run.y_dtype == TENON_DTYPE_I32 ? 4 : 1)});
}

void QConv::run_tiles(const QConvRun& run, const char* weights, int64_t piece, bool fill,
                      char* own) const {
  const int64_t blocks = padded_->bands() * row_blocks_;
  const int64_t which = piece / blocks, group = which % conv_.groups;
  const ConvBand band = padded_->band(piece % blocks / row_blocks_);
  const int64_t begin = piece % row_blocks_ * rows_, end = std::min(begin + rows_, conv_.m);
  auto* const padded = reinterpret_cast<uint32_t*>(own);
  auto* const sums = reinterpret_cast<int32_t*>(own + padded_->bytes());
  int32_t* const column_sums = sums + panels_.rows * ld_;
  const auto* const x = static_cast<const uint8_t*>(run.x) + which * conv_.c * conv_.pixels();
  const auto outside = static_cast<uint8_t>(run.x_zero);
  if (fill && quads_ > 0 && form_ == Form::channels)
    padded_->fill_quads(x, conv_.c, x_side_.flip, outside, band, padded);
  if (fill && quads_ > 0 && form_ == Form::rows) {
    auto* const bytes = reinterpret_cast<uint8_t*>(column_sums + ld_);
    padded_->fill_row_quads(x, conv_.axes[1], x_side_.flip, outside, band, bytes, padded);
  }
  QTiles tiles{.unit = unit_,
               .left_signed = true,
               .rows = 1,
               .cols = padded_->columns(band),
               .quads = quads_,
               .a = weights + panels() * panel_bytes(),
               .b = padded,
               .b_panel = panels_.cols,
               .offsets = padded_->offsets().data(),
               .sums = column_sums,
               .ld = ld_};
  const int64_t width = band.width, pitch = padded_->pitch();
  if (column_sums_) {
    q_tiles(tiles);
    if (pitch != width) q_close_rows(column_sums, band.rows, width, pitch);
  }
  const auto* const weight_sums =
      reinterpret_cast<const int32_t*>(weights + sums_at()) + group * conv_.m;
  const char* a =
      weights + (group * divide_up(conv_.m, panels_.rows) + begin / panels_.rows) * panel_bytes();
  tiles.sums = sums;
  for (int64_t i = begin; i < end; i += panels_.rows, a += panel_bytes()) {
    tiles.rows = std::min(panels_.rows, end - i), tiles.a = a;
    q_tiles(tiles);
    for (int64_t r = 0; r < tiles.rows; ++r)
      finish(run, {.sums = sums + r * ld_,
                   .floats = false,
                   .pitch = pitch,
                   .image_group = which,
                   .row = i + r,
                   .band = band,
                   .weight_sum = weight_sums[i + r],
                   .column_sums = column_sums_ ? column_sums : nullptr});
  }
}

void QConv::run_planes(const QConvRun& run, int64_t piece, char* own) const {
  const int64_t which = piece / padded_->bands(), group = which % conv_.groups;
  const ConvBand band = padded_->band(piece % padded_->bands());
  const int64_t depth = conv_.depth(), width = band.width, pitch = padded_->pitch();
  auto* const padded = reinterpret_cast<float*>(own);
  auto* const weights = reinterpret_cast<float*>(own + padded_->bytes());
  auto* const sums = reinterpret_cast<float*>(own + padded_->bytes() + weights_);
  if (depth > 0)
    padded_->fill_centered(static_cast<const uint8_t*>(run.x) + which * conv_.c * conv_.pixels(),
                           x_, run.x_zero, band, padded);
  float* next = weights;
  for (int64_t m = 0; m < conv_.m; ++m) {
    const int32_t zero = w_zero(run, group * conv_.m + m);
    for (int64_t c = 0; c < conv_.c; ++c)
      for (const int64_t t : conv_.w_tap)
        *next++ = static_cast<float>(
            element(w_, run.w, group * conv_.w_group + m * conv_.w_m + c * conv_.w_c + t) - zero);
  }
  const bool wide = width >= kWide;  // else all rows are one, with the columns between them
  const int64_t whole = round_up(padded_->columns(band), 64);
  for (int64_t m = 0; m < conv_.m; m += kFilters) {
    const int64_t filters = std::min(kFilters, conv_.m - m);
    plane_sums({TENON_DTYPE_F32, padded, pitch, padded_->offsets().data(), depth,
                weights + m * depth, filters, wide ? band.rows : 1, wide ? width : whole, sums,
                wide ? width : ld_, ld_});
    for (int64_t f = 0; f < filters; ++f)
      finish(run, {.sums = sums + f * ld_,
                   .floats = true,
                   .pitch = wide ? width : pitch,
                   .image_group = which,
                   .row = m + f,
                   .band = band,
                   .weight_sum = 0,
                   .column_sums = nullptr});
  }
}

void QConv::run(const QConvRun& run) const {
  char* const scratch = static_cast<char*>(run.scratch);
  const char* weights = static_cast<const char*>(run.w);
  const bool planes = form_ == Form::planes;
  if (!planes && !w_packed_) pack(run.w, scratch), weights = scratch;
  const int64_t blocks = padded_->bands() * (planes ? 1 : row_blocks_);
  // What a window costs beside its products: it is copied, finished and written.
  const int64_t grain = planes ? grain_for(ld_ * conv_.m * (conv_.depth() + 8 * (conv_.c + 1)))
                        : form_ == Form::rows ? grain_for(ld_ * (quads_ + 8) * (conv_.m + 1))
                                              : 1;
  parallel_for_slots(conv_.batch * conv_.groups * blocks, grain, slots_,
                     [&](int slot, int64_t begin, int64_t end) {
                       char* const own = scratch + shared_ + slot * slot_;
                       int64_t filled = -1;  // the band that is in the padded copy
                       for (int64_t piece = begin; piece < end; ++piece) {
                         if (planes) {
                           run_planes(run, piece, own);
                           continue;
                         }
                         const bool fill = filled != piece / row_blocks_;
                         filled = piece / row_blocks_;
                         run_tiles(run, weights, piece, fill, own);
                       }
                     });
}

}  // namespace tenon::cpu
