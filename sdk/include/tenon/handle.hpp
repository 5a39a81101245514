// SPDX-License-Identifier: Apache-2.0
// Statuses, texts and handles of tenon.h in C++, for the headers over it.
#pragma once

#include <memory>
#include <string>

#include "node.hpp"
#include "tenon.h"

namespace tenon::detail {

inline void check(tenon_status* status) {
  if (!status) return;
  tenon_status_place at{};
  at.struct_size = sizeof at;
  at.index = -1;
  at.step = TENON_NONE;
  tenon_status_release(tenon_status_where(status, &at));
  const Error error(tenon_status_code(status), string(tenon_status_text(status)),
                    {string(at.node), string(at.op), string(at.device), at.run_id, at.index,
                     at.step, at.retryable != 0});
  tenon_status_release(status);
  throw error;
}
inline std::string take(tenon_text* text) {
  std::string s = string(tenon_text_str(text));
  tenon_text_destroy(text);
  return s;
}
template <auto destroy>
struct Deleter {
  template <class T>
  void operator()(T* p) const {
    destroy(p);
  }
};
template <class T, auto destroy>
using Handle = std::unique_ptr<T, Deleter<destroy>>;

}  // namespace tenon::detail
