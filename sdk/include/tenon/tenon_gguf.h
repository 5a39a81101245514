// SPDX-License-Identifier: Apache-2.0
//
// GGUF files: metadata and tensors of language models, many of them in block formats. Read, write,
// decode, encode. Objects, errors and threads: tenon.h. An open file may be used by many threads at
// the same time, a writer by one thread at a time. C++: tenon.hpp.

// The layout is made by hand:
// clang-format off
#ifndef TENON_TENON_GGUF_H
#define TENON_TENON_GGUF_H

#include "tenon.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tenon_gguf tenon_gguf;
typedef struct tenon_gguf_writer tenon_gguf_writer;


// ---- Formats ------------------------------------------------------------------------------------
//
// A tensor is a sequence of blocks along its last axis, which never cross a row. Blocks of plain
// types have one element.

typedef struct tenon_gguf_format {
  uint64_t struct_size;
  tenon_str name;             // "Q4_K"
  uint32_t type;              // as files number it
  uint32_t elements;          // per block
  uint32_t bytes;             // per block
  tenon_dtype dtype;          // of a plain type, else TENON_DTYPE_NONE
  uint16_t reserved0;
  uint32_t decodes;           // 1: tenon_gguf_decode() takes it; 0: a codebook format
  uint32_t encodes;           // 1: tenon_gguf_encode() takes it
} tenon_gguf_format;

TENON_API uint32_t tenon_gguf_format_count(void);
TENON_API tenon_status* tenon_gguf_format_at(uint32_t index, tenon_gguf_format* out_format);

// Finds a format by its name, in any case, or by its number if the name is empty. Fails with
// TENON_NOT_FOUND for unknown ones.
TENON_API tenon_status* tenon_gguf_find_format(tenon_str name, uint32_t type,
                                               tenon_gguf_format* out_format);

// Decodes `size` bytes of whole blocks. to: f32, f16, bf16 or f64. Values are computed in f32, in the
// order of the format's formula and without fused multiply-add, then rounded; overflow of f16 gives
// infinity. target_size: exactly the bytes of the result. The memory of source and target does not
// overlap.
TENON_API tenon_status* tenon_gguf_decode(uint32_t type, const void* blocks, uint64_t size,
                                          tenon_dtype to, void* target, uint64_t target_size);

// Encodes `count` numbers, whole blocks. importance: NULL, or a number of at least 0 for each
// element; Q2_K to Q6_K, IQ4_NL and MXFP4 search for the scales that minimize the squared error
// weighted by it. target_size: exactly the bytes of the result. Fails with TENON_NUMERIC_ERROR if a
// number is not finite, for all but plain types.
TENON_API tenon_status* tenon_gguf_encode(uint32_t type, const float* numbers,
                                          const float* importance, uint64_t count, void* target,
                                          uint64_t target_size);


// ---- Reading ------------------------------------------------------------------------------------

// Opens a model of version 1, 2 or 3: a file, or any of its shards NAME-00001-of-00003.gguf, whose
// others are beside it. All descriptions are checked; contents are mapped and not read. The files
// must not become shorter while they are open.
TENON_API tenon_status* tenon_gguf_open(tenon_str path, tenon_gguf** out_gguf);

// What tenon_gguf_load() has put into a store without a copy keeps the files mapped.
TENON_API void tenon_gguf_destroy(tenon_gguf* gguf);

TENON_API uint32_t tenon_gguf_version(const tenon_gguf* gguf);
TENON_API uint32_t tenon_gguf_shard_count(const tenon_gguf* gguf);

// Types of metadata, as files number them.
#define TENON_GGUF_U8     UINT32_C(0)
#define TENON_GGUF_I8     UINT32_C(1)
#define TENON_GGUF_U16    UINT32_C(2)
#define TENON_GGUF_I16    UINT32_C(3)
#define TENON_GGUF_U32    UINT32_C(4)
#define TENON_GGUF_I32    UINT32_C(5)
#define TENON_GGUF_F32    UINT32_C(6)
#define TENON_GGUF_BOOL   UINT32_C(7)   // one byte, 0 or 1
#define TENON_GGUF_STRING UINT32_C(8)
#define TENON_GGUF_ARRAY  UINT32_C(9)
#define TENON_GGUF_U64    UINT32_C(10)
#define TENON_GGUF_I64    UINT32_C(11)
#define TENON_GGUF_F64    UINT32_C(12)

// A key of the metadata. Its name lives as long as the file is open.
typedef struct tenon_gguf_key {
  uint64_t struct_size;
  tenon_str name;             // "llama.block_count"
  uint32_t type;              // TENON_GGUF_*
  uint32_t element_type;      // of an array, else the same as type
  uint64_t count;             // elements of an array, else 1
  uint64_t size;              // bytes of its numbers or bools, 0 for strings and arrays of arrays
} tenon_gguf_key;

// Keys are in the order of the file.
TENON_API uint32_t tenon_gguf_key_count(const tenon_gguf* gguf);
TENON_API tenon_status* tenon_gguf_key_at(const tenon_gguf* gguf, uint32_t index,
                                          tenon_gguf_key* out_key);

// Returns the index of a key, or TENON_NONE.
TENON_API uint32_t tenon_gguf_find_key(const tenon_gguf* gguf, tenon_str name);

// Copies the number or bool of a key, or those of its array, dense and in the type of the file.
// size: exactly tenon_gguf_key::size.
TENON_API tenon_status* tenon_gguf_numbers(const tenon_gguf* gguf, uint32_t key, void* target,
                                           uint64_t size);

// Returns the string of a key, or one of its array; element is 0 for a single one. It lives as long
// as the file is open.
TENON_API tenon_status* tenon_gguf_text(const tenon_gguf* gguf, uint32_t key, uint64_t element,
                                        tenon_str* out_text);

// Returns a value of any type as JSON: arrays of arrays, too. most: of longer arrays only that many
// elements are written, and "..." behind them, which is no JSON; UINT64_MAX writes all. Numbers that
// are not finite become null, bytes that are no UTF-8 are replaced.
TENON_API tenon_status* tenon_gguf_json(const tenon_gguf* gguf, uint32_t key, uint64_t most,
                                        tenon_text** out_json);

// A tensor of a file. All pointers live as long as the file is open.
typedef struct tenon_gguf_tensor {
  uint64_t struct_size;
  tenon_str name;             // "blk.0.attn_q.weight"
  tenon_str format;           // "Q4_K"; empty: a type that tenon does not know
  const int64_t* dims;        // row-major: the last one is contiguous
  const void* data;           // the blocks, read-only; NULL if the type is not known
  uint64_t size;              // bytes at data
  uint32_t rank;              // 0 to 4
  uint32_t type;              // as files number it
  uint32_t shard;             // the file that has it, from 0
  tenon_dtype dtype;          // of a plain type, else TENON_DTYPE_NONE
  uint16_t reserved0;
} tenon_gguf_tensor;

// Tensors are in the order of the file, shard by shard.
TENON_API uint32_t tenon_gguf_tensor_count(const tenon_gguf* gguf);
TENON_API tenon_status* tenon_gguf_tensor_at(const tenon_gguf* gguf, uint32_t index,
                                             tenon_gguf_tensor* out_tensor);

// Returns the index of a tensor, or TENON_NONE.
TENON_API uint32_t tenon_gguf_find_tensor(const tenon_gguf* gguf, tenon_str name);

// Sets a tensor as an entry of a store. to: TENON_DTYPE_NONE keeps the tensor as it is, without a
// copy (tenon_store_borrow()); block formats become their dtype of blocks, for weights only; f32,
// f16, bf16 or f64: the tensor is decoded to it, or kept without a copy if it has this dtype.
TENON_API tenon_status* tenon_gguf_load(const tenon_gguf* gguf, uint32_t tensor,
                                        tenon_store* store, uint32_t space, tenon_str name,
                                        tenon_dtype to);


// ---- Writing ------------------------------------------------------------------------------------

// Creates a file of version 3 with an alignment of 32: keys are set, then tensors are added, then
// their contents follow in the same order. Writes a temporary file; tenon_gguf_writer_commit()
// renames it, so an existing file survives a failure. Keys and tensors are in the order of calls.
TENON_API tenon_status* tenon_gguf_writer_create(tenon_str path, tenon_gguf_writer** out_writer);

// Removes the temporary file if it was not committed.
TENON_API void tenon_gguf_writer_destroy(tenon_gguf_writer* writer);

// Sets numbers or bools: one, or an array of `count`. type: any TENON_GGUF_* but STRING and ARRAY.
// Each key is set once; general.alignment is set by the writer.
TENON_API tenon_status* tenon_gguf_writer_number(tenon_gguf_writer* writer, tenon_str key,
                                                 uint32_t type, const void* number);
TENON_API tenon_status* tenon_gguf_writer_numbers(tenon_gguf_writer* writer, tenon_str key,
                                                  uint32_t type, const void* numbers,
                                                  uint64_t count);
TENON_API tenon_status* tenon_gguf_writer_text(tenon_gguf_writer* writer, tenon_str key,
                                               tenon_str text);
TENON_API tenon_status* tenon_gguf_writer_texts(tenon_gguf_writer* writer, tenon_str key,
                                                const tenon_str* texts, uint64_t count);

// Adds a tensor of a format; dims are row-major, the last one a multiple of the block. rank: 0 to 4.
TENON_API tenon_status* tenon_gguf_writer_tensor(tenon_gguf_writer* writer, tenon_str name,
                                                 uint32_t type, const int64_t* dims,
                                                 uint32_t rank);

// Writes the next bytes of the tensors' contents: all of a tensor or a part of it. No key is set and
// no tensor added after the first call.
TENON_API tenon_status* tenon_gguf_writer_content(tenon_gguf_writer* writer, const void* data,
                                                  uint64_t size);

// Completes the file. Fails with TENON_INVALID_ARGUMENT if content is missing.
TENON_API tenon_status* tenon_gguf_writer_commit(tenon_gguf_writer* writer);

#ifdef __cplusplus
}
#endif
#endif
