// SPDX-License-Identifier: Apache-2.0
//
// The vocabulary that both C interfaces share (tenon.h and backend.h): strings, dtypes, status
// codes, spaces, execution modes. C11, no dependency.
//
// Codes are fixed-width integers whose values never change. New codes are appended, so a reader
// must expect values that it does not know.

// The layout is made by hand:
// clang-format off
#ifndef TENON_TYPES_H
#define TENON_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A UTF-8 string, not terminated by zero. Borrowed for the call unless the function states
// otherwise. data may be NULL if size is 0.
typedef struct tenon_str {
  const char* data;
  uint64_t size;              // bytes
} tenon_str;

// "No value" or "no node", wherever an index is expected.
#define TENON_NONE UINT32_C(0xFFFFFFFF)

// The highest rank of a tensor.
#define TENON_MAX_RANK 8

// The highest number of lanes of a program.
#define TENON_MAX_LANES 32


// ---- dtypes -------------------------------------------------------------------------------------

typedef uint16_t tenon_dtype;
#define TENON_DTYPE_NONE   ((tenon_dtype)0)
#define TENON_DTYPE_F32    ((tenon_dtype)1)
#define TENON_DTYPE_F16    ((tenon_dtype)2)
#define TENON_DTYPE_BF16   ((tenon_dtype)3)
#define TENON_DTYPE_F64    ((tenon_dtype)4)
#define TENON_DTYPE_I8     ((tenon_dtype)5)
#define TENON_DTYPE_I16    ((tenon_dtype)6)
#define TENON_DTYPE_I32    ((tenon_dtype)7)
#define TENON_DTYPE_I64    ((tenon_dtype)8)
#define TENON_DTYPE_U8     ((tenon_dtype)9)
#define TENON_DTYPE_U16    ((tenon_dtype)10)
#define TENON_DTYPE_U32    ((tenon_dtype)11)
#define TENON_DTYPE_U64    ((tenon_dtype)12)
#define TENON_DTYPE_I4     ((tenon_dtype)13)  // two per byte, the first in the low four bits
#define TENON_DTYPE_U4     ((tenon_dtype)14)  // two per byte, the first in the low four bits
#define TENON_DTYPE_BOOL   ((tenon_dtype)15)  // one byte, 0 or 1
#define TENON_DTYPE_C64    ((tenon_dtype)16)  // two f32: real part, imaginary part
#define TENON_DTYPE_F8E4M3 ((tenon_dtype)17)
#define TENON_DTYPE_F8E5M2 ((tenon_dtype)18)
#define TENON_DTYPE_C128   ((tenon_dtype)19)  // two f64: real part, imaginary part
#define TENON_DTYPE_COUNT  20  // of the dtypes above

// Dtypes of blocks: elements that follow one another along the last axis share the bytes of a block,
// so this axis is a multiple of a block. The formats up to 0x17F are those of quantized weights in
// GGUF files; the number is 0x100 and the number of the format there. Those from 0x180 on are no
// formats of GGUF files: GGUF appends numbers to its own. tenon_dtype_block() tells the elements and
// bytes of a block. Inputs, weights, constants and state may have such a dtype; outputs may not. The
// ops of the family dequant read it. Of the others, attention reads it, gather, scatter and reshape
// move blocks, and cast makes q8_0.
#define TENON_DTYPE_BLOCKS     0x100
#define TENON_DTYPE_Q4_0    ((tenon_dtype)0x102)
#define TENON_DTYPE_Q4_1    ((tenon_dtype)0x103)
#define TENON_DTYPE_Q5_0    ((tenon_dtype)0x106)
#define TENON_DTYPE_Q5_1    ((tenon_dtype)0x107)
#define TENON_DTYPE_Q8_0    ((tenon_dtype)0x108)
#define TENON_DTYPE_Q8_1    ((tenon_dtype)0x109)
#define TENON_DTYPE_Q2_K    ((tenon_dtype)0x10A)
#define TENON_DTYPE_Q3_K    ((tenon_dtype)0x10B)
#define TENON_DTYPE_Q4_K    ((tenon_dtype)0x10C)
#define TENON_DTYPE_Q5_K    ((tenon_dtype)0x10D)
#define TENON_DTYPE_Q6_K    ((tenon_dtype)0x10E)
#define TENON_DTYPE_Q8_K    ((tenon_dtype)0x10F)
#define TENON_DTYPE_IQ2_XXS ((tenon_dtype)0x110)  // its size is known; no op decodes it
#define TENON_DTYPE_IQ2_XS  ((tenon_dtype)0x111)  // its size is known; no op decodes it
#define TENON_DTYPE_IQ3_XXS ((tenon_dtype)0x112)  // its size is known; no op decodes it
#define TENON_DTYPE_IQ1_S   ((tenon_dtype)0x113)  // its size is known; no op decodes it
#define TENON_DTYPE_IQ4_NL  ((tenon_dtype)0x114)
#define TENON_DTYPE_IQ3_S   ((tenon_dtype)0x115)  // its size is known; no op decodes it
#define TENON_DTYPE_IQ2_S   ((tenon_dtype)0x116)  // its size is known; no op decodes it
#define TENON_DTYPE_IQ4_XS  ((tenon_dtype)0x117)
#define TENON_DTYPE_IQ1_M   ((tenon_dtype)0x11D)  // its size is known; no op decodes it
#define TENON_DTYPE_TQ1_0   ((tenon_dtype)0x122)
#define TENON_DTYPE_TQ2_0   ((tenon_dtype)0x123)
#define TENON_DTYPE_MXFP4   ((tenon_dtype)0x127)
#define TENON_DTYPE_NVFP4   ((tenon_dtype)0x128)
#define TENON_DTYPE_Q1_0    ((tenon_dtype)0x129)
#define TENON_DTYPE_Q2_0    ((tenon_dtype)0x12A)
// 128 numbers of f8e4m3 behind their scale, an f32: the weights of Hugging Face folders with fp8.
#define TENON_DTYPE_F8E4M3_128 ((tenon_dtype)0x180)
#define TENON_DTYPE_BLOCKS_END 0x181  // the first number behind them


// ---- Status codes -------------------------------------------------------------------------------

typedef uint16_t tenon_code;
#define TENON_OK                 ((tenon_code)0)
#define TENON_INVALID_ARGUMENT   ((tenon_code)1)   // an attribute, a name or a call is wrong
#define TENON_SHAPE_MISMATCH     ((tenon_code)2)   // ranks or dims do not match
#define TENON_DTYPE_MISMATCH     ((tenon_code)3)   // dtypes do not match
#define TENON_UNSUPPORTED        ((tenon_code)4)   // valid, but not implemented
#define TENON_INDEX_OUT_OF_RANGE ((tenon_code)5)   // an index in the data exceeds its axis
#define TENON_NUMERIC_ERROR      ((tenon_code)6)   // the data has no result (NaN logits)
#define TENON_OUT_OF_MEMORY      ((tenon_code)7)
#define TENON_NOT_FOUND          ((tenon_code)8)   // no such name, file or device
#define TENON_IO_ERROR           ((tenon_code)9)   // the system failed to read or write
#define TENON_CORRUPT            ((tenon_code)10)  // the bytes do not have the format they claim
#define TENON_INCOMPATIBLE       ((tenon_code)11)  // no common version
#define TENON_UNDEFINED_STATE    ((tenon_code)12)  // state that a failed run has left undefined
#define TENON_DEVICE_LOST        ((tenon_code)13)
#define TENON_CANCELLED          ((tenon_code)14)
#define TENON_INTERNAL           ((tenon_code)15)  // a bug in tenon or in a plugin


// ---- Spaces: where a value comes from -----------------------------------------------------------

#define TENON_SPACE_NODE     0  // the output of a node
#define TENON_SPACE_INPUT    1  // passed to each run
#define TENON_SPACE_WEIGHT   2  // named content of a store
#define TENON_SPACE_CONSTANT 3  // immutable content of the graph
#define TENON_SPACE_STATE    4  // named content of a store that runs update (caches, moments)


// ---- Execution modes ----------------------------------------------------------------------------

// How the steps of a program are run. A device runs modes that it does not offer as STREAM. Results
// are bit-identical in all modes.
#define TENON_EXEC_DEFAULT      UINT32_C(0)  // the fastest: GRAPH for programs that run often
#define TENON_EXEC_STREAM       UINT32_C(1)  // one step after the other, in the run's stream
#define TENON_EXEC_GRAPH        UINT32_C(2)  // captured once per instance, then replayed
#define TENON_EXEC_EAGER        UINT32_C(3)  // waits after each step: a failure names the step that
                                             // caused it, and no later step runs
#define TENON_EXEC_MULTI_STREAM UINT32_C(4)  // independent steps overlap, in lanes; may be captured

#ifdef __cplusplus
}
#endif
#endif
