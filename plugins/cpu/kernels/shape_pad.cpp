// SPDX-License-Identifier: Apache-2.0
// pad: each row of the result is a source row between two borders, which the mode fills.
#include <algorithm>
#include <array>
#include <cstring>

#include "../parallel.hpp"
#include "axis.hpp"
#include "convert.hpp"
#include "shape.hpp"
#include "tenon/axis.hpp"
#include "tenon/constant.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;

enum class Mode { constant, edge, reflect, symmetric };

Mode parse_mode(std::string_view text) {
  if (text == "constant") return Mode::constant;
  if (text == "edge") return Mode::edge;
  if (text == "reflect") return Mode::reflect;
  if (text == "symmetric") return Mode::symmetric;
  throw sdk::Refusal::attribute("mode", text);
}

struct PadAxis {
  int64_t before = 0;
  int64_t in = 0;
  int64_t out = 0;
};

struct Pad {
  Mode mode = Mode::constant;
  int rank = 0;  // axes up to the last padded one; the others form one item
  std::array<PadAxis, sdk::kMaxRank> axes{};
  int64_t item = 0;  // bytes
  int64_t bytes = 0;
  std::array<uint8_t, 8> value{};  // one element

  // The index that position j of an axis reads, or -1 for the constant.
  int64_t source(const PadAxis& a, int64_t j) const {
    const int64_t i = j - a.before;
    if (i >= 0 && i < a.in) return i;
    switch (mode) {
      case Mode::constant:
        return -1;
      case Mode::edge:
        return i < 0 ? 0 : a.in - 1;
      case Mode::reflect:
        return i < 0 ? -i : 2 * (a.in - 1) - i;
      case Mode::symmetric:
        return i < 0 ? -i - 1 : 2 * a.in - 1 - i;
    }
    return -1;
  }

  void fill(char* y, int64_t items) const {
    const int64_t n = items * item;
    const bool alike =
        std::all_of(value.begin(), value.begin() + bytes, [&](uint8_t b) { return b == value[0]; });
    if (alike) {
      std::memset(y, value[0], static_cast<size_t>(n));
      return;
    }
    for (int64_t i = 0; i < n; i += bytes) std::memcpy(y + i, value.data(), bytes);
  }

  // Positions [begin, end) of the last padded axis. x is the source row, or null if all positions
  // are constant.
  void row(const char* x, char* y, int64_t begin, int64_t end) const {
    const PadAxis& a = axes[rank - 1];
    if (x == nullptr) return fill(y, end - begin);
    for (int64_t j = begin; j < end;) {
      int64_t run = 1;
      const int64_t at = source(a, j);
      if (at >= 0 && at == j - a.before) {
        run = std::min(end, a.before + a.in) - j;
        std::memcpy(y, x + at * item, run * item);
      } else if (at < 0) {
        run = (j < a.before ? std::min(end, a.before) : end) - j;
        fill(y, run);
      } else {
        std::memcpy(y, x + at * item, item);
      }
      y += run * item;
      j += run;
    }
  }

  const char* source_row(const char* x, int64_t row) const {
    int64_t at = 0, stride = axes[rank - 1].in;
    for (int i = rank - 2; i >= 0; --i) {
      const int64_t from = source(axes[i], row % axes[i].out);
      if (from < 0) return nullptr;
      at += from * stride;
      row /= axes[i].out;
      stride *= axes[i].in;
    }
    return x + at * item;
  }

  void run(const char* x, char* y) const {
    const int64_t length = axes[rank - 1].out;
    int64_t items = 1;
    for (int i = 0; i < rank; ++i) items *= axes[i].out;
    if (item == 0) return;
    parallel_for(items, grain_for(2 * item), [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t r = begin / length, stop = std::min(end, (r + 1) * length);
        row(source_row(x, r), y + begin * item, begin - r * length, stop - r * length);
        begin = stop;
      }
    });
  }
};

}  // namespace

Kernel make_pad(const sdk::op::pad& n, const Node& node) {
  const sdk::Type &x = n.x.type(), &y = node.out(0).type();
  Pad p{.mode = parse_mode(n.mode), .bytes = element_bytes("x", x.dtype)};
  p.value = sdk::constant_bytes("x", x.dtype, p.mode == Mode::constant ? n.value : 0);
  if (p.bytes > static_cast<int64_t>(p.value.size())) throw sdk::Refusal::dtype("x", x.dtype);
  p.item = p.bytes;
  for (int i = 0; i < x.rank; ++i) {
    p.axes[i] = {sdk::entry_of(n.before, i, 0), x.dims[i], y.dims[i]};
    if (x.dims[i] != y.dims[i]) p.rank = i + 1;
  }
  for (int i = std::max(p.rank, 1); i < x.rank; ++i) p.item *= x.dims[i];
  if (p.rank == 0) {  // no padding: one axis, or a scalar
    p.rank = 1;
    if (x.rank == 0) p.axes[0] = {0, 1, 1};
  }
  return {.run = [p](const Call& c) { p.run(c.in<char>(0), c.out<char>(0)); }};
}

}  // namespace tenon::cpu
