// SPDX-License-Identifier: Apache-2.0
// PNG pictures as inputs of models.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cli/command.hpp"

namespace tenon::cli {

struct Picture {
  int64_t height = 0, width = 0, channels = 0;  // channels: 1 grey, 2 with alpha, 3 RGB, 4 RGBA
  std::vector<float> values{};                  // [height, width, channels], 0 to 255
};

// Grey, RGB and palettes, with and without alpha, 1 to 16 bits. Throws Error with the path for a
// damaged file, and for one of more than 64 million pixels.
Picture read_png(const std::string& path);

// How a picture becomes an input: (value * scale - mean) / deviation, by channel.
struct PictureOptions {
  std::vector<double> mean{}, deviation{};  // one number, or one for each channel
  double scale = 0;                         // 0: 1/255 for floats, 1 for integers
  std::string layout{"auto"};               // nchw, nhwc
  bool bgr = false;
};
std::vector<Option> picture_options();
PictureOptions picture_options_from(const Args& args);

// The type that an input has for the picture: [N,C,H,W], [N,H,W,C], the same without N, or [H,W];
// symbols become numbers, N is 1. Throws if the picture has another size than the input.
TensorType picture_type(const Picture& picture, const TensorType& input, const PictureOptions& o);
// Grey becomes colour and colour grey where the input has other channels; alpha is dropped unless
// the input has four channels.
Tensor picture_tensor(const Picture& picture, const TensorType& input, const PictureOptions& o);

}  // namespace tenon::cli
