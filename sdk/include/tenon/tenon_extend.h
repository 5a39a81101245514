// SPDX-License-Identifier: Apache-2.0
//
// For libraries above libtenon whose C functions look like those of tenon.h: they return statuses
// and texts of libtenon, and share the caller's runtime. tenon_llm.h is such a library. Apps do not
// need this header. Objects, errors and threads: tenon.h. All functions: [any-thread].

// The layout is made by hand:
// clang-format off
#ifndef TENON_TENON_EXTEND_H
#define TENON_TENON_EXTEND_H

#include "tenon.h"

#ifdef __cplusplus
extern "C" {
#endif

// Makes a failure. Never returns NULL: without memory, it returns a status that says so, and a code
// that no failure has becomes TENON_INTERNAL. place: (optional) where a run failed, as
// tenon_status_where() tells it; all is copied. The caller of the library releases it with
// tenon_status_release().
TENON_API tenon_status* tenon_status_create(tenon_code code, tenon_str text,
                                            const tenon_status_place* place);

// Copies a text. The caller of the library frees it with tenon_text_destroy().
TENON_API tenon_status* tenon_text_create(tenon_str text, tenon_text** out_text);

// Returns another handle of a runtime. Each handle is destroyed; the runtime lives as long as one of
// them, or an object that uses it.
TENON_API tenon_status* tenon_runtime_share(const tenon_runtime* runtime,
                                            tenon_runtime** out_runtime);

#ifdef __cplusplus
}
#endif
#endif
