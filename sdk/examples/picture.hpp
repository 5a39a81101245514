// SPDX-License-Identifier: Apache-2.0
// Pictures of the examples, written as PNG files with libpng.
#pragma once

#include <png.h>

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

// Pixels are white at first. x counts from the left, y from the top; colours are 0 to 1.
class Picture {
 public:
  Picture(int width, int height)
      : width_(width),
        height_(height),
        pixels_(3 * static_cast<size_t>(width) * static_cast<size_t>(height), 255) {}

  int width() const { return width_; }
  int height() const { return height_; }

  // Pixels outside of the picture are left out. NaN counts as 0.
  void set(int x, int y, float red, float green, float blue) {
    if (x < 0 || y < 0 || x >= width_ || y >= height_) return;
    png_byte* const at =
        pixels_.data() +
        3 * (static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x));
    at[0] = byte_of(red), at[1] = byte_of(green), at[2] = byte_of(blue);
  }
  void disc(int x, int y, int radius, float red, float green, float blue) {
    for (int dy = -radius; dy <= radius; ++dy)
      for (int dx = -radius; dx <= radius; ++dx)
        if (dx * dx + dy * dy <= radius * radius) set(x + dx, y + dy, red, green, blue);
  }

  // The file is replaced at once: a reader sees the old one or the whole new one.
  void write(const std::string& file) const {
    const std::string part = file + ".part";
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = static_cast<png_uint_32>(width_);
    image.height = static_cast<png_uint_32>(height_);
    image.format = PNG_FORMAT_RGB;
    if (!png_image_write_to_file(&image, part.c_str(), 0, pixels_.data(), 0, nullptr)) {
      std::remove(part.c_str());
      throw std::runtime_error(file + ": write: " + image.message);
    }
    std::error_code error;
    std::filesystem::rename(part, file, error);
    if (!error) return;
    std::remove(part.c_str());
    throw std::runtime_error(file + ": replace: " + error.message());
  }

 private:
  static png_byte byte_of(float v) {
    return static_cast<png_byte>(v > 0 ? (v < 1 ? v * 255 + 0.5f : 255) : 0);
  }

  int width_, height_;
  std::vector<png_byte> pixels_;
};

// Throws unless Picture::write can write the file later. Call it before long work.
inline void check_writable(const std::string& file) {
  if (std::filesystem::is_directory(file))
    throw std::runtime_error(file + ": is a directory, expected a file");
  // Picture::write would put a file in the place of a device or a pipe.
  if (std::filesystem::exists(file) && !std::filesystem::is_regular_file(file))
    throw std::runtime_error(file + ": is a device or a pipe, expected a file");
  const std::string part = file + ".part";
  if (std::filesystem::exists(part))
    throw std::runtime_error(part + ": exists, expected no file of this name; remove it");
  std::FILE* const out = std::fopen(part.c_str(), "wb");
  if (!out) throw std::runtime_error(file + ": cannot be written");
  std::fclose(out);
  std::remove(part.c_str());
}
