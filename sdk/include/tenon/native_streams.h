// SPDX-License-Identifier: Apache-2.0
//
// Plugin extension "tenon.native_streams/1", for apps that use the device themselves. It returns
// the driver's handle of a stream, and orders work by events of the app. A plugin that has it also
// takes the driver's streams in stream_create() (backend.h).

// The layout is made by hand:
// clang-format off
#ifndef TENON_NATIVE_STREAMS_H
#define TENON_NATIVE_STREAMS_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_NATIVE_STREAMS_ID "tenon.native_streams/1"

typedef struct tenon_native_streams {
  uint64_t struct_size;

  // Returns the driver's handle of a stream: that given to stream_create(), else the plugin's own.
  // It is valid until stream_destroy() and stays the property of whoever made it.
  // (required) [any-thread]
  void* (*handle)(tenon_stream* stream);

  // Makes later work on the stream wait for the work that native_event marks now. Does not block
  // the calling thread. The event may belong to any device of the plugin. The caller keeps it and
  // may record or destroy it after the call.
  // (required) [any-thread]
  tenon_status* (*wait)(tenon_stream* stream, void* native_event);

  // Records an event of the driver, of the stream's device, after the work enqueued so far. It
  // stays the caller's.
  // (required) [any-thread]
  tenon_status* (*record)(tenon_stream* stream, void* native_event);
} tenon_native_streams;
#define TENON_NATIVE_STREAMS_SIZE_V1 32u

TENON_STATIC_ASSERT(sizeof(tenon_native_streams) >= TENON_NATIVE_STREAMS_SIZE_V1, "it shrank");

#ifdef __cplusplus
}
#endif
#endif
