// SPDX-License-Identifier: Apache-2.0
// The API fuzzer's calls of tenon_extend.h, as a library above libtenon makes them.
#pragma once

#include "api_world.hpp"
#include "tenon/tenon_extend.h"

namespace tenon::fuzz {

inline void status_create(World& w) {
  tenon_status_place place{};
  place.struct_size = w.size_of<tenon_status_place>();
  place.node = w.name(), place.op = w.name(), place.device = w.device();
  place.run_id = w.number(), place.index = w.dim(), place.step = w.number();
  tenon_status* made = tenon_status_create(static_cast<tenon_code>(w.number()), w.name(),
                                           w.in.one_in(3) ? nullptr : &place);
  must(tenon_status_code(made) != TENON_OK, "a status that was made is none");
  w.keep(w.statuses, made, tenon_status_release);
}
inline void text_create(World& w) {
  Out<tenon_text*> out(w.in);
  w.good(tenon_text_create(w.name(), out.arg()), out);
}
inline void runtime_share(World& w) {
  Out<tenon_runtime*> out(w.in);
  if (out.filled(w.good(tenon_runtime_share(w.runtime(), out.arg()))))
    w.keep(w.runtimes, out.value, tenon_runtime_destroy);
}

}  // namespace tenon::fuzz
