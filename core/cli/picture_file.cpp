// SPDX-License-Identifier: Apache-2.0
// Decodes PNG files with libpng.
#include <png.h>

#include <bit>
#include <csetjmp>
#include <cstring>

#include "cli/input.hpp"
#include "cli/picture.hpp"

namespace tenon::cli {
namespace {

constexpr int64_t kMostPixels = int64_t{1} << 26;
constexpr uint64_t kMostRatio = 1032;  // of deflate: more cannot come from the bytes of a file

// libpng reports errors by a long jump, which must not leave out destructors: the functions that it
// may jump to have no objects of C++.
struct Decoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const char* at = nullptr;
  size_t left = 0;
  char message[160] = "";

  ~Decoder() { png_destroy_read_struct(&png, &info, nullptr); }
};

extern "C" void on_error(png_structp png, png_const_charp text) {
  auto* d = static_cast<Decoder*>(png_get_error_ptr(png));
  std::strncpy(d->message, text, sizeof d->message - 1);
  png_longjmp(png, 1);
}
extern "C" void on_warning(png_structp, png_const_charp) {}
extern "C" void on_read(png_structp png, png_bytep out, size_t size) {
  auto* d = static_cast<Decoder*>(png_get_io_ptr(png));
  if (size > d->left) png_error(png, "the file ends too early");
  std::memcpy(out, d->at, size);
  d->at += size;
  d->left -= size;
}

bool read_header(Decoder& d) {
  if (setjmp(png_jmpbuf(d.png))) return false;
  png_set_read_fn(d.png, &d, on_read);
  png_set_user_limits(d.png, 1 << 20, 1 << 20);
  png_read_info(d.png, d.info);
  png_set_palette_to_rgb(d.png);
  png_set_expand_gray_1_2_4_to_8(d.png);
  if (png_get_valid(d.png, d.info, PNG_INFO_tRNS)) png_set_tRNS_to_alpha(d.png);
  if (std::endian::native == std::endian::little) png_set_swap(d.png);  // parts of 16 bits
  png_set_interlace_handling(d.png);
  png_read_update_info(d.png, d.info);
  return true;
}

bool read_rows(Decoder& d, png_bytepp rows) {
  if (setjmp(png_jmpbuf(d.png))) return false;
  png_read_image(d.png, rows);
  png_read_end(d.png, nullptr);
  return true;
}

}  // namespace

Picture read_png(const std::string& path) {
  const auto fail = [&](const std::string& what, tenon_code code = TENON_CORRUPT) {
    throw Error(code, path + ": " + what);
  };
  const std::string bytes = read_input(path);
  if (bytes.size() < 8 || png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, 8) != 0)
    fail("is no PNG picture");
  Decoder d;
  d.at = bytes.data();
  d.left = bytes.size();
  d.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &d, on_error, on_warning);
  if (d.png) d.info = png_create_info_struct(d.png);
  if (!d.info) throw std::bad_alloc();
  if (!read_header(d)) fail(std::string("is damaged: ") + d.message);
  Picture p{.height = png_get_image_height(d.png, d.info),
            .width = png_get_image_width(d.png, d.info),
            .channels = png_get_channels(d.png, d.info)};
  const bool deep = png_get_bit_depth(d.png, d.info) == 16;
  const size_t row = png_get_rowbytes(d.png, d.info);
  if (p.width * p.height > kMostPixels)
    fail("has " + std::to_string(p.width) + " x " + std::to_string(p.height) +
             " pixels; expected at most " + std::to_string(kMostPixels),
         TENON_UNSUPPORTED);
  const auto count = static_cast<size_t>(p.width * p.height * p.channels);
  // The file may pack eight pixels in a byte, where a row has up to four bytes for each.
  if (row * static_cast<size_t>(p.height) / (kMostRatio * 32) > bytes.size())
    fail("is damaged: " + std::to_string(bytes.size()) + " bytes cannot give " +
         std::to_string(p.width) + " x " + std::to_string(p.height) + " pixels");
  std::vector<unsigned char> pixels(row * static_cast<size_t>(p.height));
  std::vector<png_bytep> rows(static_cast<size_t>(p.height));
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = pixels.data() + y * row;
  if (!read_rows(d, rows.data())) fail(std::string("is damaged: ") + d.message);
  p.values.resize(count);
  for (size_t i = 0; i < count; ++i) {
    if (deep) {
      uint16_t v;
      std::memcpy(&v, pixels.data() + 2 * i, 2);
      p.values[i] = static_cast<float>(v) / 257;
    } else {
      p.values[i] = pixels[i];
    }
  }
  return p;
}

}  // namespace tenon::cli
