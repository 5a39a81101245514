// SPDX-License-Identifier: Apache-2.0
// Progress lines on standard output. A reader that goes away does not end the training.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

#include "tenon/tenon.hpp"

namespace tenon::cli {

class Lines {
 public:
  [[gnu::format(printf, 2, 3)]] void print(const char* format, ...) {
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    const int size = std::vsnprintf(nullptr, 0, format, list);
    std::string text(static_cast<size_t>(size > 0 ? size : 0) + 1, '\0');
    std::vsnprintf(text.data(), text.size(), format, again);
    va_end(again);
    va_end(list);
    text.back() = '\n';
    write_all(text);
  }
  // Throws if lines could not be written for any other reason than a closed reader.
  void check() const {
    if (error_ != 0)
      throw Error(TENON_IO_ERROR, std::string("standard output: write: ") + std::strerror(error_));
  }

 private:
  void write_all(const std::string& text) {
    for (size_t at = 0; at < text.size();) {
      const ssize_t n = ::write(STDOUT_FILENO, text.data() + at, text.size() - at);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        const bool gone = errno == EPIPE || errno == EIO;  // a pipe, a terminal
        if (!gone) error_ = errno;
        return;
      }
      at += static_cast<size_t>(n);
    }
  }

  int error_ = 0;
};

}  // namespace tenon::cli
