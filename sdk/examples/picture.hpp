// SPDX-License-Identifier: Apache-2.0
// A picture that becomes a PNG file, for the examples that draw. Needs libpng.
#pragma once

#include <png.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

struct Color {  // each part from 0 to 1; others are clamped, NaN is 0
  float red = 0, green = 0, blue = 0;
};

class Picture {
 public:
  Picture(int width, int height, Color fill = {1, 1, 1})
      : width_(width), height_(height), pixels_(3 * static_cast<size_t>(width) * static_cast<size_t>(height)) {
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x) set(x, y, fill);
  }
  int width() const { return width_; }
  int height() const { return height_; }

  // (0, 0) is the upper left pixel. Pixels outside of the picture are dropped.
  void set(int x, int y, Color c) {
    if (x < 0 || y < 0 || x >= width_ || y >= height_) return;
    const auto byte = [](float v) { return static_cast<uint8_t>(v > 0 ? std::min(v, 1.0f) * 255 + 0.5f : 0); };
    uint8_t* const to = pixels_.data() + 3 * (static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x));
    to[0] = byte(c.red), to[1] = byte(c.green), to[2] = byte(c.blue);
  }

  // Writes the file beside its place first, so that a picture that was there stays whole if this fails.
  void write(const std::string& file) const {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = static_cast<png_uint_32>(width_);
    image.height = static_cast<png_uint_32>(height_);
    image.format = PNG_FORMAT_RGB;
    const std::string part = file + ".part";
    if (!png_image_write_to_file(&image, part.c_str(), 0, pixels_.data(), 0, nullptr)) {
      std::error_code ignored;
      std::filesystem::remove(part, ignored);
      throw std::runtime_error(file + ": the picture cannot be written: " + image.message);
    }
    std::filesystem::rename(part, file);
  }

 private:
  int width_, height_;
  std::vector<uint8_t> pixels_;
};
