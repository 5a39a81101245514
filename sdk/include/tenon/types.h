/* SPDX-License-Identifier: Apache-2.0
 * The words that both C interfaces share: strings, dtypes, status codes. C11, no dependency.
 * Every code is a fixed-width integer with its value written out; lists are append-only and a
 * reader tolerates values that it does not know. */
#ifndef TENON_TYPES_H
#define TENON_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* UTF-8, not terminated, borrowed for the call unless the function says otherwise. data may be NULL
 * when size is 0. */
typedef struct tenon_str {
  const char* data;
  uint64_t size;
} tenon_str;

/* "No value / no node" wherever an index is expected. */
#define TENON_NONE UINT32_C(0xFFFFFFFF)

/* Highest rank of a tensor. */
#define TENON_MAX_RANK 8

/* dtypes. bool is one byte holding 0 or 1; i4 and u4 are two per byte, low nibble first; c64 is (re
 * f32, im f32). */
typedef uint16_t tenon_dtype;
#define TENON_DTYPE_NONE ((tenon_dtype)0)
#define TENON_DTYPE_F32 ((tenon_dtype)1)
#define TENON_DTYPE_F16 ((tenon_dtype)2)
#define TENON_DTYPE_BF16 ((tenon_dtype)3)
#define TENON_DTYPE_F64 ((tenon_dtype)4)
#define TENON_DTYPE_I8 ((tenon_dtype)5)
#define TENON_DTYPE_I16 ((tenon_dtype)6)
#define TENON_DTYPE_I32 ((tenon_dtype)7)
#define TENON_DTYPE_I64 ((tenon_dtype)8)
#define TENON_DTYPE_U8 ((tenon_dtype)9)
#define TENON_DTYPE_U16 ((tenon_dtype)10)
#define TENON_DTYPE_U32 ((tenon_dtype)11)
#define TENON_DTYPE_U64 ((tenon_dtype)12)
#define TENON_DTYPE_I4 ((tenon_dtype)13)
#define TENON_DTYPE_U4 ((tenon_dtype)14)
#define TENON_DTYPE_BOOL ((tenon_dtype)15)
#define TENON_DTYPE_C64 ((tenon_dtype)16)
#define TENON_DTYPE_F8E4M3 ((tenon_dtype)17)
#define TENON_DTYPE_F8E5M2 ((tenon_dtype)18)
#define TENON_DTYPE_COUNT 19

/* Status codes. */
typedef uint16_t tenon_code;
#define TENON_OK ((tenon_code)0)
#define TENON_INVALID_ARGUMENT ((tenon_code)1)   /* an attribute, a name or a call is wrong */
#define TENON_SHAPE_MISMATCH ((tenon_code)2)     /* rank or dims disagree */
#define TENON_DTYPE_MISMATCH ((tenon_code)3)     /* dtype disagrees */
#define TENON_UNSUPPORTED ((tenon_code)4)        /* valid, not offered */
#define TENON_INDEX_OUT_OF_RANGE ((tenon_code)5) /* an index in the data is outside its axis */
#define TENON_NUMERIC_ERROR \
  ((tenon_code)6) /* the data has no answer: NaN logits, singular matrix */
#define TENON_OUT_OF_MEMORY ((tenon_code)7)
#define TENON_NOT_FOUND ((tenon_code)8)        /* no such name, file, device */
#define TENON_IO_ERROR ((tenon_code)9)         /* the system refused a read or a write */
#define TENON_CORRUPT ((tenon_code)10)         /* bytes that are not what they claim to be */
#define TENON_INCOMPATIBLE ((tenon_code)11)    /* versions do not meet */
#define TENON_UNDEFINED_STATE ((tenon_code)12) /* state that a failed run left undefined */
#define TENON_DEVICE_LOST ((tenon_code)13)
#define TENON_CANCELLED ((tenon_code)14)
#define TENON_INTERNAL ((tenon_code)15) /* a bug of ours or of a plugin */

/* Where a value comes from. */
#define TENON_SPACE_NODE 0     /* output of a node */
#define TENON_SPACE_INPUT 1    /* given to each run */
#define TENON_SPACE_WEIGHT 2   /* named content of the store */
#define TENON_SPACE_CONSTANT 3 /* immutable content of the graph */
#define TENON_SPACE_STATE 4    /* named content of the store that runs advance */

/* How a program runs. What a device does not offer runs as STREAM; results are the same, bit by
 * bit. */
#define TENON_EXEC_DEFAULT UINT32_C(0) /* what is fastest: GRAPH for a program that runs often */
#define TENON_EXEC_STREAM UINT32_C(1)  /* step after step on the run's stream */
#define TENON_EXEC_GRAPH UINT32_C(2)   /* recorded once per instance, replayed as a whole */
#define TENON_EXEC_EAGER                                                                       \
  UINT32_C(3) /* waits after every step: a failure is of the step that it names, and none runs \
                 behind it */
#define TENON_EXEC_MULTI_STREAM \
  UINT32_C(4) /* steps in lanes that run beside each other; may be recorded as DEFAULT may */

/* Most lanes of a program. */
#define TENON_MAX_LANES 32

#ifdef __cplusplus
}
#endif
#endif
