// SPDX-License-Identifier: Apache-2.0
// Turns the pixels of a picture into the elements of an input.
#include "cli/picture.hpp"

#include <charconv>
#include <cmath>

#include "cli/tensor_text.hpp"

namespace tenon::cli {
namespace {

// Where an input has height, width and channels; -1: it has no such axis.
struct Axes {
  int batch = -1, height = 0, width = 1, channels = -1;
};

bool may_be_channels(int64_t dim) { return dim == 1 || dim == 3 || dim == 4; }

Axes axes_of(const TensorType& input, const PictureOptions& o) {
  const int rank = static_cast<int>(input.dims.size());
  if (rank == 2) return {};
  if (rank != 3 && rank != 4)
    throw Error(TENON_SHAPE_MISMATCH,
                "a picture fits an input of 2 to 4 dims, got " + std::to_string(rank));
  const int first = rank == 4 ? 1 : 0;
  const auto front = static_cast<size_t>(first), back = input.dims.size() - 1;
  const bool last =
      o.layout == "nhwc" || (o.layout == "auto" && !may_be_channels(input.dims[front]) &&
                             may_be_channels(input.dims[back]));
  const int batch = rank == 4 ? 0 : -1;
  return last ? Axes{batch, first, first + 1, first + 2} : Axes{batch, first + 1, first + 2, first};
}

int64_t dim_at(const TensorType& t, int axis) { return t.dims[static_cast<size_t>(axis)]; }

std::vector<double> numbers_of(const Args& args, const std::string& option) {
  std::vector<double> out;
  if (!args.has(option)) return out;
  for (const std::string& part : list_of(args.text(option))) {
    double v = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), v);
    if (error != std::errc() || end != part.data() + part.size() || !std::isfinite(v))
      throw UsageError(option + " " + args.text(option) +
                       ": expected numbers, such as 0.485,0.456,0.406");
    out.push_back(v);
  }
  return out;
}

double of_channel(const std::vector<double>& list, int64_t channel, double otherwise) {
  if (list.empty()) return otherwise;
  return list.size() == 1 ? list[0] : list[static_cast<size_t>(channel)];
}

// One value of a pixel, for an input with that many channels.
double pixel(const Picture& p, const float* at, int64_t channels, int64_t channel, bool bgr) {
  const bool grey = p.channels < 3;
  if (channel == 3) return p.channels % 2 == 0 ? at[p.channels - 1] : 255;  // alpha
  if (channels == 1) return grey ? at[0] : 0.299 * at[0] + 0.587 * at[1] + 0.114 * at[2];
  return at[grey ? 0 : bgr ? 2 - channel : channel];
}

}  // namespace

std::vector<Option> picture_options() {
  return {{.name = "--scale",
           .value = "X",
           .help = "pictures: multiply pixel values, which are 0 to 255",
           .otherwise = "1/255 for floats, 1 for integers"},
          {.name = "--mean",
           .value = "X,...",
           .help = "pictures: subtract this after scaling, one number for all channels or one for "
                   "each",
           .otherwise = "0"},
          {.name = "--std",
           .value = "X,...",
           .help = "pictures: divide by this then",
           .otherwise = "1"},
          {.name = "--layout",
           .value = "LAYOUT",
           .help = "pictures: where the input has its channels",
           .otherwise = "auto: by the size of the dims",
           .choices = {"auto", "nchw", "nhwc"}},
          {.name = "--channels",
           .value = "ORDER",
           .help = "pictures: order of the channels",
           .otherwise = "rgb",
           .choices = {"rgb", "bgr"}}};
}

PictureOptions picture_options_from(const Args& args) {
  PictureOptions o;
  o.mean = numbers_of(args, "--mean");
  o.deviation = numbers_of(args, "--std");
  for (const double v : o.deviation)
    if (v == 0) throw UsageError("--std " + args.text("--std") + ": expected numbers other than 0");
  o.scale = args.number("--scale", 0, -1e30, 1e30);
  o.layout = args.text("--layout", "auto");
  o.bgr = args.text("--channels", "rgb") == "bgr";
  return o;
}

TensorType picture_type(const Picture& picture, const TensorType& input, const PictureOptions& o) {
  const Axes axes = axes_of(input, o);
  TensorType type = input;
  const auto set = [&](int axis, int64_t size, const char* what) {
    if (axis < 0) return;
    int64_t& dim = type.dims[static_cast<size_t>(axis)];
    if (dim >= 0 && dim != size)
      throw Error(TENON_SHAPE_MISMATCH, std::string("the picture has ") + what + " " +
                                            std::to_string(size) + ", the input expects " +
                                            std::to_string(dim));
    dim = size;
  };
  set(axes.height, picture.height, "height");
  set(axes.width, picture.width, "width");
  set(axes.batch, 1, "batch");
  if (axes.channels >= 0) {
    int64_t& channels = type.dims[static_cast<size_t>(axes.channels)];
    if (channels < 0) channels = 3;
    if (!may_be_channels(channels))
      throw Error(TENON_SHAPE_MISMATCH, "the input has " + std::to_string(channels) +
                                            " channels; a picture gives 1, 3 or 4");
  }
  return type;
}

Tensor picture_tensor(const Picture& picture, const TensorType& input, const PictureOptions& o) {
  const TensorType type = picture_type(picture, input, o);
  const Axes axes = axes_of(input, o);
  const int64_t channels = axes.channels < 0 ? 1 : dim_at(type, axes.channels);
  for (const auto* list : {&o.mean, &o.deviation})
    if (list->size() > 1 && list->size() != static_cast<size_t>(channels))
      throw Error(TENON_INVALID_ARGUMENT, "--mean and --std: expected 1 number or " +
                                              std::to_string(channels) + ", got " +
                                              std::to_string(list->size()));
  const double scale = o.scale != 0 ? o.scale : sdk::is_float(type.dtype) ? 1.0 / 255 : 1;
  const bool last = axes.channels > axes.height;
  Tensor out(TensorType(f32, type.dims));
  const std::span<float> to = out.values<float>();
  const int64_t pixels = picture.height * picture.width;
  for (int64_t c = 0; c < channels; ++c) {
    const double mean = of_channel(o.mean, c, 0), deviation = of_channel(o.deviation, c, 1);
    for (int64_t i = 0; i < pixels; ++i) {
      const double v =
          pixel(picture, picture.values.data() + i * picture.channels, channels, c, o.bgr);
      const int64_t at = last ? i * channels + c : c * pixels + i;
      to[static_cast<size_t>(at)] = static_cast<float>((v * scale - mean) / deviation);
    }
  }
  if (sdk::is_float(type.dtype)) return out.to(type.dtype);
  for (float& v : to) v = std::nearbyint(v);
  return out.to(type.dtype);
}

}  // namespace tenon::cli
