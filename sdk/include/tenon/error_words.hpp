// SPDX-License-Identifier: Apache-2.0
//
// How a kernel on a device with streams reports bad data, and the same for the texts of kernels.
// Part of stream_plugin.hpp. There are two forms of Call::error:
//
//   ErrorScheme   Call::error is                      the kernel needs
//   word          8 bytes for the run                 an atomic minimum of 64 bits
//   records       kErrorRecordBytes for this step     an atomic minimum of 32 bits, or none
//
//   ErrorScheme   atomics   step that is reported   position that is reported   value in the text
//   word          64 bits   the first that failed   the first bad one           no
//   records       32 bits   the first that failed   the first bad one           nearly always
//   records       none      the first that failed   a bad one                   nearly always
//
// Steps after the first that failed run on what that one left, and may fail too. A value is missing
// if several threads reported at the same time and their records mixed; the layer notices that.
//
// Nothing is reported while all bits of the word or record are set. The layer sees to that before
// each run, and reads it after the run, outside of captures.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "kernel.hpp"

namespace tenon::sdk {

enum class ErrorScheme { word, records };

// ---- ErrorScheme::word: a kernel replaces the word by the smaller of the word and
// error_value(step, code, index), atomically.

inline constexpr uint64_t kNoError = ~uint64_t{0};
inline constexpr int kErrorCodeShift = 40, kErrorStepShift = 44;

// The value of an error word: 20 bits step, 4 bits code, 40 bits index, from high to low.
constexpr uint64_t error_value(uint64_t step, tenon_code code, uint64_t index) {
  return step << kErrorStepShift | uint64_t{code} << kErrorCodeShift | index;
}

// The same for the text of a kernel, in a language like C: put it in front of the text. word_t is a
// type of 64 bits without sign, such as ulong in OpenCL C.
inline constexpr std::string_view kErrorWordText =
    "#define TENON_NO_ERROR(word_t) (~(word_t)0)\n"
    "#define TENON_ERROR_VALUE(word_t, step, code, index) \\\n"
    "  ((word_t)(step) << 44 | (word_t)(code) << 40 | (word_t)(index))\n"
    "#define TENON_INDEX_OUT_OF_RANGE 5\n"
    "#define TENON_NUMERIC_ERROR 6\n";
static_assert(kErrorStepShift == 44 && kErrorCodeShift == 40 && TENON_INDEX_OUT_OF_RANGE == 5 &&
              TENON_NUMERIC_ERROR == 6);

// ---- ErrorScheme::records: words of 32 bits, in this order.

struct ErrorRecord {
  uint32_t position;     // of the bad element; kMostPosition = that or more
  uint32_t code;         // tenon_code
  uint32_t low, high;    // the bad element as an i64, if `check` is right
  uint32_t check;        // of position and value: it tells mixed records
  uint32_t reserved[3];  // stays as it is

  static constexpr uint32_t kNone = ~uint32_t{0}, kMostPosition = kNone - 1;

  // A report about an element: what the kernel text TENON_REPORT... stores.
  static constexpr ErrorRecord of(tenon_code code, uint64_t position, int64_t value) {
    const auto bits = static_cast<uint64_t>(value);
    const auto at = static_cast<uint32_t>(std::min<uint64_t>(position, kMostPosition));
    const auto low = static_cast<uint32_t>(bits), high = static_cast<uint32_t>(bits >> 32);
    return {at, code, low, high, check_of(at, low, high), {kNone, kNone, kNone}};
  }
  static constexpr ErrorRecord none() {
    return {kNone, kNone, kNone, kNone, kNone, {kNone, kNone, kNone}};
  }
  // The report, or nothing if no thread reported.
  constexpr std::optional<BadData> read() const {
    if (position == kNone) return std::nullopt;
    BadData bad{
        .code = code == TENON_NUMERIC_ERROR ? TENON_NUMERIC_ERROR : TENON_INDEX_OUT_OF_RANGE,
        .position = position};
    if (check == check_of(position, low, high))
      bad.value = static_cast<int64_t>(uint64_t{high} << 32 | low);
    return bad;
  }
  static constexpr uint32_t check_of(uint32_t position, uint32_t low, uint32_t high) {
    return ~(position * 2654435761u ^ low * 2246822519u ^ high * 3266489917u);
  }
};
inline constexpr uint64_t kErrorRecordBytes = 32;
static_assert(sizeof(ErrorRecord) == kErrorRecordBytes);

// The same for the text of a kernel, in a language like C: put it in front of the text.
//   word_t    a type of 32 bits without sign, such as uint in OpenCL C
//   record    a pointer to the words of Call::error: word_t* in the memory space of buffers
//   minimum   a function or macro minimum(pointer, word) that stores the smaller word atomically
//             and returns the old one: atomic_min in OpenCL C
//   position  of the bad element, an integer without sign
//   low, high words of the bad element as an i64; without them in the ..._POSITION forms
// TENON_REPORT needs no atomics: if several threads report, the position of one of them remains.
inline constexpr std::string_view kErrorRecordText = R"(
#define TENON_INDEX_OUT_OF_RANGE 5
#define TENON_NUMERIC_ERROR 6
#define TENON_POSITION(word_t, position) \
  ((position) < 4294967294u ? (word_t)(position) : (word_t)4294967294u)
#define TENON_RECORD_VALUE(word_t, record, code, at, low, high) \
  ((record)[1] = (word_t)(code), (record)[2] = (word_t)(low), (record)[3] = (word_t)(high), \
   (record)[4] = ~((at) * (word_t)2654435761u ^ (word_t)(low) * (word_t)2246822519u ^ \
                   (word_t)(high) * (word_t)3266489917u))
#define TENON_REPORT(word_t, record, code, position, low, high) \
  do { \
    const word_t tenon_at = TENON_POSITION(word_t, position); \
    (record)[0] = tenon_at; \
    TENON_RECORD_VALUE(word_t, record, code, tenon_at, low, high); \
  } while (0)
#define TENON_REPORT_POSITION(word_t, record, code, position) \
  ((record)[0] = TENON_POSITION(word_t, position), (record)[1] = (word_t)(code))
#define TENON_REPORT_MIN(word_t, minimum, record, code, position, low, high) \
  do { \
    const word_t tenon_at = TENON_POSITION(word_t, position); \
    if (minimum(&(record)[0], tenon_at) > tenon_at) \
      TENON_RECORD_VALUE(word_t, record, code, tenon_at, low, high); \
  } while (0)
#define TENON_REPORT_MIN_POSITION(word_t, minimum, record, code, position) \
  do { \
    const word_t tenon_at = TENON_POSITION(word_t, position); \
    if (minimum(&(record)[0], tenon_at) > tenon_at) (record)[1] = (word_t)(code); \
  } while (0)
)";

}  // namespace tenon::sdk
