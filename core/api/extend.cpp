// SPDX-License-Identifier: Apache-2.0
// C functions for libraries above libtenon: statuses, texts, shared runtimes.
#include "api/door.hpp"
#include "tenon/tenon_extend.h"

using namespace tenon::core;

tenon_status* tenon_status_create(tenon_code code, tenon_str text,
                                  const tenon_status_place* place) {
  tenon_status* made = nullptr;
  tenon_status* failed = door("tenon_status_create", [&] {
    FailedNode at;
    tenon_status_desc desc{};
    desc.struct_size = sizeof desc;
    desc.code = code > TENON_OK && code <= TENON_INTERNAL ? code : tenon_code{TENON_INTERNAL};
    desc.text = text;
    desc.step = TENON_NONE;
    desc.index = -1;
    if (place) {
      const tenon_status_place p = taken(place, "place");
      at = {std::string(view(p.node)), std::string(view(p.op)), std::string(view(p.device)),
            p.step};
      desc.run_id = p.run_id;
      desc.index = p.index;
      desc.flags = p.retryable ? TENON_STATUS_RETRYABLE : 0;
    }
    made = make_status(&desc, place ? &at : nullptr);
  });
  return failed ? failed : made;
}

tenon_status* tenon_text_create(tenon_str text, tenon_text** out_text) {
  return door("tenon_text_create", [&] {
    need(out_text, "out_text");
    *out_text = new tenon_text{std::string(view(text))};
  });
}

tenon_status* tenon_runtime_share(const tenon_runtime* runtime, tenon_runtime** out_runtime) {
  return door("tenon_runtime_share", [&] {
    need(runtime, "runtime"), need(out_runtime, "out_runtime");
    *out_runtime = new tenon_runtime(*runtime);
  });
}
