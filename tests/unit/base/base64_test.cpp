// SPDX-License-Identifier: Apache-2.0
// Base 64: the vectors of RFC 4648, every byte, and text that is refused.
#include "base/base64.hpp"

#include <doctest/doctest.h>

#include <utility>

namespace tenon::core {
namespace {

TEST_SUITE("base/base64") {
  TEST_CASE("the vectors of RFC 4648") {
    const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                           {"f", "Zg=="},
                                                           {"fo", "Zm8="},
                                                           {"foo", "Zm9v"},
                                                           {"foob", "Zm9vYg=="},
                                                           {"fooba", "Zm9vYmE="},
                                                           {"foobar", "Zm9vYmFy"}};
    for (const auto& [bytes, text] : vectors) {
      CHECK(to_base64(bytes) == text);
      CHECK(from_base64(text) == bytes);
    }
  }
  TEST_CASE("every byte comes back, at every place of a group") {
    std::string bytes;
    for (int shift = 0; shift < 3; ++shift, bytes += 'x')
      for (int c = 0; c < 256; ++c) bytes += static_cast<char>(c);
    CHECK(to_base64(bytes).substr(0, 8) == "AAECAwQF");
    CHECK(from_base64(to_base64(bytes)) == bytes);
  }
  TEST_CASE("wrong characters, wrong sizes, filler inside") {
    for (const char* text :
         {"abc", "abcde", "a*==", "ab=c", "a===", "====", "ab==abcd", "ab-_", "ab\xff="})
      CHECK(!from_base64(text));
  }
}

}  // namespace
}  // namespace tenon::core
