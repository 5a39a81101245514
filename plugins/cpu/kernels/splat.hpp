// SPDX-License-Identifier: Apache-2.0
// The splat family: colors (splat_color.cpp), entries of tiles (splat_bin.cpp), and the blending of one
// tile (splat_tile.cpp, splat_tile_backward.cpp), dispatched by instruction set.
#pragma once

#include <cstdint>

#include "tenon/kernel.hpp"

namespace tenon::cpu {

// A Gaussian in an image, ready for the pixels. With d the way from a pixel to the mean, the power is
//   form = square·u² + mixed·u·dy + rest·dy², u = dx + ratio·dy,
// and along rays form/(along² + 2·near·form), along = 1 + along_x·dx + along_y·dy.
// If a > 0: u = dx + (b/a)·dy and rest = det/2a, which does not cancel for thin ellipses. Otherwise
// ratio is 0.
template <class T>
struct SplatPair {
  double x, y, ratio;
  T square, mixed, rest, slant;  // slant: b
  T opacity;
  T reach;           // a larger power makes alpha too small; negative: every power does
  T half_x, half_y;  // no pixel passes beyond this distance from the mean
  T along_x = 0, along_y = 0, near = 0;
};

// The tiles of all images.
struct SplatGrid {
  int64_t images, points, width, height, size;
  int64_t channels = 0;
  bool rays = false;  // responses along rays

  int64_t conic() const { return rays ? 6 : 3; }                // numbers of a conic
  int64_t gradients() const { return 3 + conic() + channels; }  // of an entry

  int64_t rows() const { return (height + size - 1) / size; }
  int64_t columns() const { return (width + size - 1) / size; }
  int64_t each() const { return rows() * columns(); }  // tiles of an image
  int64_t tiles() const { return images * each(); }
  int64_t pairs() const { return images * points; }
  int64_t pixels() const { return images * width * height; }
  // Pixels of a tile, in rows of whole vectors. 16 floats are the longest one.
  int64_t stride() const { return (size + 15) / 16 * 16; }
  int64_t area() const { return size * stride(); }
};

// One tile. All planes are [size, stride].
template <class T>
struct SplatTile {
  SplatGrid grid;
  const SplatPair<T>* pairs;
  const T* colors;        // [pairs, channels]
  const int32_t* ids;     // of all entries
  int64_t begin, end;     // entries of the tile
  double x, y;            // the centre of its first pixel
  int64_t rows, columns;  // inside the image
  const T* background;    // [channels], or null
  char* area;             // splat_area_bytes or splat_backward_area_bytes
  int64_t pixel;          // of the first one, in the planes of all images
};

template <class T>
struct SplatOutputs {
  T *image, *alpha;
  int32_t* last;
};
template <class T>
struct SplatUpstream {
  const T *dimage, *dalpha;  // dalpha may be null
  const int32_t* last;
  T* gradients;    // [entries, grid.gradients()] of the tile: mean, conic, opacity, colors
  T* dbackground;  // [channels], or null
};

template <class T>
int64_t splat_area_bytes(const SplatGrid& g) {  // light, last entry, colors
  return (2 + g.channels) * g.area() * static_cast<int64_t>(sizeof(T));
}
template <class T>
int64_t splat_backward_area_bytes(const SplatGrid& g) {  // light, last entry, rest, upstream colors
  return (3 + g.channels) * g.area() * static_cast<int64_t>(sizeof(T));
}

void splat_tile(const SplatTile<float>& tile, const SplatOutputs<float>& to);
void splat_tile(const SplatTile<double>& tile, const SplatOutputs<double>& to);
void splat_tile_backward(const SplatTile<float>& tile, const SplatUpstream<float>& up);
void splat_tile_backward(const SplatTile<double>& tile, const SplatUpstream<double>& up);

sdk::Kernel make_splat_sh(const sdk::op::splat_sh& n, const sdk::Node& node);
sdk::Kernel make_splat_bin(const sdk::op::splat_bin& n, const sdk::Node& node);
sdk::Kernel make_splat_sort(const sdk::op::splat_sort& n, const sdk::Node& node);

}  // namespace tenon::cpu
