# SPDX-License-Identifier: Apache-2.0
"""Prepared changes of the headers, for the test of the gate (gate_selftest.py). A pattern is replaced once: in a file,
or in the struct or op that the colon names. Without a pattern, the file is removed or created."""

# A header beside the real ones, with what these do not have: enums, bit-fields, unions, unused padding.
GIVEN = """
#ifndef TENON_GIVEN_H
#define TENON_GIVEN_H
#include "types.h"
enum tenon_given_level { TENON_GIVEN_LOW, TENON_GIVEN_HIGH = 4, TENON_GIVEN_TOP };
#define TENON_GIVEN_FLAGS UINT32_C(3)
#define TENON_GIVEN_LIST_SIZE_V1 32u
#define TENON_GIVEN_RATIO 0.5
typedef struct tenon_given_handle tenon_given_handle;
typedef struct tenon_given_pair { uint32_t first; uint32_t second; } tenon_given_pair;
typedef struct tenon_given_item { uint64_t key; double value; } tenon_given_item;
typedef struct tenon_given_list {
  uint64_t struct_size;
  const tenon_given_pair* pairs;
  const tenon_given_item* items;
  uint32_t item_stride;
  uint32_t count;
} tenon_given_list;
typedef struct tenon_given_loose { uint64_t struct_size; uint32_t count; } tenon_given_loose;
typedef struct tenon_given_inner { uint64_t struct_size; uint64_t a; } tenon_given_inner;
typedef struct tenon_given_outer { uint64_t struct_size; tenon_given_inner inner; uint64_t last; } tenon_given_outer;
typedef struct tenon_given_tail { uint64_t key; tenon_given_inner inner; } tenon_given_tail;
typedef struct { uint64_t key; double value; } tenon_given_plain;
typedef struct tenon_given_text { tenon_str text; uint64_t line; } tenon_given_text;
typedef struct tenon_given_texts { tenon_given_text first; tenon_given_text second; } tenon_given_texts;
typedef struct tenon_given_bits { uint32_t low : 3; uint32_t high : 5; char name[16]; } tenon_given_bits;
typedef union tenon_given_word { uint64_t u; double f; } tenon_given_word;
typedef struct tenon_given_any { uint64_t type; union { int64_t i; double f; }; } tenon_given_any;
extern const uint32_t tenon_given_number;
static inline uint32_t tenon_given_twice(uint32_t x) { return 2 * x; }
#endif
"""

# (what, file[:struct or op], pattern, replacement, parts of the lines of the refusal in their order)
BAD = [
    # Structs
    ("two fields change places", "backend.h:tenon_verdict",
     r"(  uint32_t verdict;.*\n)(  uint32_t reason;.*\n)", r"\2\1",
     ["backend.h: tenon_verdict.reason: the field moved; expected byte 4, got byte 0"]),
    ("a field gets narrower, and padding hides it", "backend.h:tenon_step",
     r"uint64_t scratch_size;", "uint32_t scratch_size;",
     ["backend.h: tenon_step.scratch_size: the field has another type; expected uint64_t, got uint32_t"]),
    ("a field loses its sign", "backend.h:tenon_status_desc", r"\bint64_t index;", "uint64_t index;",
     ["backend.h: tenon_status_desc.index: the field has another type; expected int64_t, got uint64_t"]),
    ("a pointer loses a const", "backend.h:tenon_step", r"const uint32_t\* reads;", "uint32_t* reads;",
     ["backend.h: tenon_step.reads: the field has another type; expected const uint32_t*, got uint32_t*"]),
    ("the last field goes", "backend.h:tenon_run_args", r"  tenon_event\* done;.*\n", "",
     ["backend.h: tenon_run_args.done: the field was removed; "
      "expected tenon_event* done at byte 24, got no such field"]),
    ("a field in the middle goes", "backend.h:tenon_device_info", r"  uint64_t memory_size;.*\n", "",
     ["backend.h: tenon_device_info.memory_size: the field was removed"]),
    ("a field comes between others", "backend.h:tenon_device_list", r"(?=  tenon_str note;)", "  uint64_t fresh;\n",
     ["backend.h: tenon_device_list.fresh: the field is not behind the others; "
      "expected tenon_str note at byte 24, got uint64_t fresh at byte 24"]),
    ("a field is renamed", "tenon.h:tenon_tensor", r"void\* data;", "void* bytes;",
     ["tenon.h: tenon_tensor.data: the field was renamed; "
      "expected void* data at byte 24, got void* bytes at byte 24"]),
    ("a reserved field is used", "backend.h:tenon_status_desc", r"uint16_t reserved0;", "uint16_t priority;",
     ["backend.h: tenon_status_desc.reserved0: the reserved field is used; "
      "expected uint16_t reserved0 at byte 10, got uint16_t priority at byte 10"]),
    ("a reserved field is used in part", "backend.h:tenon_status_desc",
     r"uint16_t reserved0;", "uint8_t priority, reserved0;",
     ["backend.h: tenon_status_desc.priority: the field is not behind the others",
      "backend.h: tenon_status_desc.reserved0: the field has another type; expected uint16_t, got uint8_t"]),
    ("a reserved field becomes a union", "backend.h:tenon_status_desc",
     r"uint32_t reserved1;", "union { uint32_t reserved1; float weight; };",
     ["backend.h: tenon_status_desc.weight: the field is not behind the others"]),
    ("a struct without size grows", "types.h:tenon_str", r"(  uint64_t size;.*\n)", r"\1  uint64_t hash;\n",
     ["types.h: tenon_str.hash: the struct states neither size nor stride, so it may not grow; "
      "expected no field behind size, got uint64_t hash at byte 16"]),
    ("the element of an array without stride grows", "given.h",
     r"uint32_t second;", "uint32_t second; uint32_t third;",
     ["given.h: tenon_given_pair.third: the struct states neither size nor stride, so it may not grow; "
      "expected no field behind second, got uint32_t third at byte 8"]),
    ("a new field lies in old padding", "given.h:tenon_given_loose",
     r"uint32_t count;", "uint32_t count; uint32_t fresh;",
     ["given.h: tenon_given_loose.fresh: the past version's size covers the new field; "
      "expected byte 16 or later, got byte 12"]),
    ("a struct grows inside of others", "given.h:tenon_given_inner", r"uint64_t a;", "uint64_t a, fresh;",
     ["given.h: tenon_given_outer.last: the field moved; expected byte 24, got byte 32",
      "given.h: tenon_given_tail: the size changed; expected 24 bytes, got 32 bytes"]),
    ("a struct is packed", "given.h",
     r"struct tenon_given_loose \{", "struct __attribute__((packed)) tenon_given_loose {",
     ["given.h: tenon_given_loose: the size changed; expected 16 bytes, got 12 bytes"]),
    ("a struct gets bytes without a name", "given.h:tenon_given_loose",
     r"uint32_t count;", "uint32_t count; uint64_t : 64;",
     ["given.h: tenon_given_loose: the size changed; expected 16 bytes, got 24 bytes"]),
    ("a struct is aligned", "given.h",
     r"struct tenon_given_item \{", "struct __attribute__((aligned(16))) tenon_given_item {",
     ["given.h: tenon_given_item: the alignment changed; expected the natural one, got 16 bytes"]),
    ("an array gets shorter", "given.h", r"name\[16\]", "name[12]",
     ["given.h: tenon_given_bits.name: the field has another type; expected char[16], got char[12]"]),
    ("a bit-field gets wider", "given.h", r"low : 3; uint32_t high : 5;", "low : 4; uint32_t high : 4;",
     ["given.h: tenon_given_bits.low: the field has another type; expected uint32_t : 3",
      "given.h: tenon_given_bits.high: "]),
    ("a union gets an alternative", "given.h", r"double f; \}; \}", "double f; void* p; }; }",
     ["given.h: tenon_given_any.p: the struct states neither size nor stride, so it may not grow; "
      "expected no field behind f, got void* p at byte 8"]),
    ("a union loses an alternative", "given.h", r" double f; \} tenon_given_word", " } tenon_given_word",
     ["given.h: tenon_given_word.f: the field was removed; expected double f at byte 0, got no such field"]),
    ("a struct becomes a union", "given.h",
     r"struct tenon_given_item \{ uint64_t key; double value; \} tenon_given_item",
     "union tenon_given_item { uint64_t key; double value; } tenon_given_item",
     ["given.h: tenon_given_item: another type; expected struct tenon_given_item, got union tenon_given_item"]),
    ("a struct without a tag becomes a union", "given.h", r"typedef struct \{", "typedef union {",
     ["given.h: tenon_given_plain: another kind of type; expected struct, got union"]),
    ("a struct goes", "given.h", r"typedef struct tenon_given_loose .*\n", "",
     ["given.h: tenon_given_loose: the type was removed"]),
    ("a struct becomes a handle", "given.h", r"struct tenon_given_loose \{.*\}", "struct tenon_given_loose",
     ["given.h: tenon_given_loose: the struct was removed; expected 16 bytes, got none"]),
    # Types, slots, functions
    ("a type gets wider", "types.h", r"typedef uint16_t tenon_code;", "typedef uint32_t tenon_code;",
     ["types.h: tenon_code: another type; expected uint16_t, got uint32_t"]),
    ("a handle goes", "given.h", r"typedef struct tenon_given_handle .*\n", "",
     ["given.h: tenon_given_handle: the type was removed"]),
    ("a slot comes between others", "backend.h:tenon_backend",
     r"(?=  void \(\*buffer_destroy\))", "  void (*fresh)(tenon_device* device);\n",
     ["backend.h: tenon_backend.fresh: the field is not behind the others; "
      "expected void (*)(tenon_buffer*) buffer_destroy at byte"]),
    ("a slot changes its signature", "backend.h:tenon_backend",
     r"(\*buffer_read\)\(tenon_buffer\* buffer, )uint64_t", r"\1uint32_t",
     ["backend.h: tenon_backend.buffer_read: the field has another type; "
      "expected tenon_status* (*)(tenon_buffer*, uint64_t,"]),
    ("a slot loses a const", "backend.h:tenon_backend", r"const tenon_run_args\* args\);", "tenon_run_args* args);",
     ["backend.h: tenon_backend.run: the field has another type; "
      "expected tenon_status* (*)(tenon_instance*, const tenon_run_args*)"]),
    ("a slot's callback changes", "choices.h:tenon_choices", r"void \(\*put\)", "int (*put)",
     ["choices.h: tenon_choices.list: the field has another type"]),
    ("a slot goes", "backend.h:tenon_backend", r"  void \(\*event_destroy\).*\n", "",
     ["backend.h: tenon_backend.event_destroy: the field was removed"]),
    ("a function changes its signature", "tenon.h",
     r"(tenon_store_remove\(tenon_store\* store, )uint32_t", r"\1uint64_t",
     ["tenon.h: tenon_store_remove: another signature; "
      "expected tenon_status* (tenon_store*, uint32_t, tenon_str), got tenon_status* "
      "(tenon_store*, uint64_t, tenon_str)"]),
    ("a function returns something else", "tenon.h",
     r"TENON_API uint32_t tenon_op_count", "TENON_API uint64_t tenon_op_count",
     ["tenon.h: tenon_op_count: another signature; expected uint32_t (void), got uint64_t (void)"]),
    ("a function goes", "tenon.h", r"TENON_API void tenon_status_release\(.*\n", "",
     ["tenon.h: tenon_status_release: the function was removed"]),
    ("a function is no longer exported", "tenon.h", r"TENON_API (?=uint32_t tenon_op_count)", "",
     ["tenon.h: tenon_op_count: another linkage; expected exported, got extern"]),
    ("a function becomes inline", "tenon.h",
     r"TENON_API (uint32_t tenon_op_count\(void\));", r"static inline \1 { return 7; }",
     ["tenon.h: tenon_op_count: another linkage; expected exported, got inline"]),
    ("an inline function changes its signature", "blob.h",
     r"tenon_dtype_bits\(tenon_dtype t\)", "tenon_dtype_bits(uint32_t t)",
     ["blob.h: tenon_dtype_bits: another signature; expected uint32_t (tenon_dtype), got uint32_t (uint32_t)"]),
    ("a variable changes its type", "given.h", r"extern const uint32_t", "extern const uint64_t",
     ["given.h: tenon_given_number: another signature; expected const uint32_t*, got const uint64_t*"]),
    # Constants
    ("a constant changes", "backend.h", r"TENON_REASON_DTYPE UINT32_C\(2\)", "TENON_REASON_DTYPE UINT32_C(7)",
     ["backend.h: TENON_REASON_DTYPE: another value; expected 2, got 7"]),
    ("a dtype changes its number", "types.h", r"(TENON_DTYPE_BF16 +\(\(tenon_dtype\))3", r"\g<1>99",
     ["types.h: TENON_DTYPE_BF16: another value; expected 3, got 99"]),
    ("a constant changes its type", "given.h", r"TENON_GIVEN_LIST_SIZE_V1 32u", "TENON_GIVEN_LIST_SIZE_V1 32",
     ["given.h: TENON_GIVEN_LIST_SIZE_V1: another type of constant; expected unsigned, got int"]),
    ("the size of a first version rises", "given.h", r"TENON_GIVEN_LIST_SIZE_V1 32u", "TENON_GIVEN_LIST_SIZE_V1 40u",
     ["given.h: TENON_GIVEN_LIST_SIZE_V1: another value; expected 32, got 40"]),
    ("a real constant changes", "given.h", r"TENON_GIVEN_RATIO 0.5", "TENON_GIVEN_RATIO 0.25",
     ["given.h: TENON_GIVEN_RATIO: another value; expected 0.5, got 0.25"]),
    ("a constant goes", "types.h", r"#define TENON_EXEC_EAGER .*\n", "",
     ["types.h: TENON_EXEC_EAGER: the constant was removed; expected 3, got none"]),
    ("an enum gets a value in between", "given.h", r"TENON_GIVEN_LOW, ", "TENON_GIVEN_FRESH, TENON_GIVEN_LOW, ",
     ["given.h: TENON_GIVEN_LOW: another value; expected 0, got 1"]),
    ("an enum loses a value", "given.h", r", TENON_GIVEN_TOP", "",
     ["given.h: TENON_GIVEN_TOP: the constant was removed; expected 5, got none"]),
    ("a limit falls", "types.h", r"#define TENON_MAX_LANES \d+", "#define TENON_MAX_LANES 8",
     ["types.h: TENON_MAX_LANES: another value"]),
    ("a count falls", "types.h", r"#define TENON_DTYPE_COUNT +\d+", "#define TENON_DTYPE_COUNT 3",
     ["types.h: TENON_DTYPE_COUNT: the constant fell"]),
    ("a mask loses a bit", "given.h", r"TENON_GIVEN_FLAGS UINT32_C\(3\)", "TENON_GIVEN_FLAGS UINT32_C(6)",
     ["given.h: TENON_GIVEN_FLAGS: another value; expected 3, got 6"]),
    ("the release falls", "version.h",
     r"(TENON_VERSION_MAJOR) \d+\n(#define TENON_VERSION_MINOR) \d+", r"\1 -1\n\2 99",
     ["version.h: TENON_VERSION_MAJOR, TENON_VERSION_MINOR, TENON_VERSION_PATCH: the version fell"]),
    ("the ABI gets another major version", "version.h", r"TENON_ABI_MAJOR \d+", "TENON_ABI_MAJOR 99",
     ["version.h: TENON_ABI_MAJOR: another value"]),
    ("an extension gets another id", "profiler.h", r'_ID "tenon.profiler/1"', '_ID "tenon.profiler/2"',
     ['profiler.h: TENON_PROFILER_ID: another value; expected "tenon.profiler/1", got "tenon.profiler/2"']),
    ("a macro gets a parameter", "backend.h", r"TENON_HAS\(type, p, field\)", "TENON_HAS(type, p, field, more)",
     ["backend.h: TENON_HAS: another value; expected 3 parameters, got 4 parameters"]),
    ("a header goes", "prepare.h", None, None, ["prepare.h: the header was removed; expected prepare.h, got none"]),
    # Ops
    ("a default changes", "ops.def:adamw", r"TENON_F64\(beta2, 0\.999\)", "TENON_F64(beta2, 0.99)",
     ["ops.def: op adamw, attribute beta2: another default or type; expected f64 0.999, got f64 0.99"]),
    ("an attribute changes its type", "ops.def:cumsum", r"TENON_I64\(axis", "TENON_F64(axis",
     ["ops.def: op cumsum, attribute axis: another default or type; expected i64 -1, got f64 -1.0"]),
    ("an attribute goes", "ops.def:reshape", r" TENON_BOOL\(allow_zero, false\)", "",
     ["ops.def: op reshape, attribute allow_zero: the attribute was removed; "
      "expected bool false, got none"]),
    ("an attribute is renamed", "ops.def:transpose", r"\(perm\)", "(order)",
     ["ops.def: op transpose, attribute perm: the attribute was removed"]),
    ("attributes change places", "ops.def:adamw", r"(TENON_F64\(beta1, \S+\)) (TENON_F64\(beta2, \S+\))", r"\2 \1",
     ["ops.def: op adamw: the attributes have another order; expected beta1, beta2, eps"]),
    ("an attribute comes between others", "ops.def:adamw", r"(?=TENON_F64\(beta2)", "TENON_BOOL(fresh, false) ",
     ["ops.def: op adamw, attribute fresh: the new attribute is not behind the others"]),
    ("a new attribute is required", "ops.def:transpose", r"(TENON_INTS\(perm\))", r"\1 TENON_FN(body)",
     ["ops.def: op transpose, attribute body: a new attribute is required; "
      "expected one that may be absent, got function"]),
    ("a new kind is required", "ops.def:transpose", r"(TENON_INTS\(perm\))", r'\1 TENON_STR(kind, "")',
     ["ops.def: op transpose, attribute kind: a new attribute is required"]),
    ("operands change places", "ops.def:gather",
     r"TENON_IN\(data\) TENON_IN\(indices\)", "TENON_IN(indices) TENON_IN(data)",
     ["ops.def: op gather: the operands have another order; expected data, indices, got indices, data"]),
    ("a new operand is required", "ops.def:transpose", r"(TENON_IN\(x\))", r"\1 TENON_IN(z)",
     ["ops.def: op transpose, operand z: a new operand is required; "
      "expected one that may be absent, got required"]),
    ("an optional operand comes between others", "ops.def:gather", r"(?=TENON_IN\(indices\))", "TENON_IN_OPT(z) ",
     ["ops.def: op gather, operand z: the new operand is not behind the others; "
      "expected it behind indices"]),
    ("an optional operand becomes required", "ops.def:scatter_add", r"TENON_IN_OPT\(base\)", "TENON_IN(base)",
     ["ops.def: op scatter_add, operand base: another kind; expected optional, got required"]),
    ("an operand becomes a list", "ops.def:transpose", r"TENON_IN\(x\)", "TENON_IN_LIST(x)",
     ["ops.def: op transpose, operand x: another kind; expected required, got required list"]),
    ("a new list of operands is required", "ops.def:transpose", r"(TENON_IN\(x\))", r"\1 TENON_IN_LIST(zs)",
     ["ops.def: op transpose, operand zs: a new operand is required; expected one that may be absent, "
      "got required list"]),
    ("an operand goes", "ops.def:scatter_add", r" TENON_IN_OPT\(base\)", "",
     ["ops.def: op scatter_add, operand base: the operand was removed; expected optional, got none"]),
    ("a new output is required", "ops.def:transpose", r"(TENON_OUT\(y\))", r"\1 TENON_OUT(z)",
     ["ops.def: op transpose, output z: a new output is required"]),
    ("a new list of outputs is required", "ops.def:transpose", r"(TENON_OUT\(y\))", r"\1 TENON_OUT_LIST(zs)",
     ["ops.def: op transpose, output zs: a new output is required; "
      "expected one that may be absent, got list"]),
    ("an output goes", "ops.def:adamw", r" TENON_OUT\(v_out\)", "",
     ["ops.def: op adamw, output v_out: the output was removed"]),
    ("the version of an op falls", "ops.def:pad", r"TENON_OP\(pad, 1,", "TENON_OP(pad, 0,",
     ["ops.def: op pad: the version fell; expected 1, got 0"]),
    ("an op goes", "ops.def:gather", r"TENON_OP\(gather(?:.*\n)*", "",
     ["ops.def: op gather: the op was removed"]),
    ("an op loses its decomposition", "ops.def:adamw", r", core\)", ", primitive)",
     ["ops.def: op adamw: the op lost its decomposition; expected level core, got level primitive"]),
]

GOOD = [
    ("a field at the end of a struct with a size", "backend.h:tenon_device_options", r"\Z", "  uint64_t fresh;\n"),
    ("a field at the end of an element with a stride", "backend.h:tenon_verdict", r"\Z", "  uint64_t fresh;\n"),
    ("a field at the end of a strided element of its own", "given.h",
     r"double value;", "double value; uint64_t fresh;"),
    ("a field at the end of the manifest", "manifest.h:tenon_manifest", r"\Z", "  char fresh[32];\n"),
    ("a field at the end of a struct that stays on one side", "blob.h:tenon_blob", r"\Z", "  uint64_t fresh;\n"),
    ("a slot at the end of the table", "backend.h:tenon_backend", r"\Z", "  void (*fresh)(tenon_device* device);\n"),
    ("a slot at the end of the host's table", "backend.h:tenon_host", r"\Z", "  void (*fresh)(void);\n"),
    ("a handle gets its struct", "given.h",
     r"(?=typedef struct tenon_given_pair)", "struct tenon_given_handle { int x; };\n"),
    ("a new struct and a new type", "given.h",
     r"(?=#endif)", "typedef struct tenon_fresh { int x; } tenon_fresh; typedef int tenon_more;\n"),
    ("a new constant", "backend.h",
     r"(#define TENON_REASON_OTHER .*\n)", r"\1#define TENON_REASON_FRESH UINT32_C(99)\n"),
    ("a new value at the end of an enum", "given.h", r"TENON_GIVEN_TOP", "TENON_GIVEN_TOP, TENON_GIVEN_FRESH"),
    ("a mask gets a bit", "given.h", r"TENON_GIVEN_FLAGS UINT32_C\(3\)", "TENON_GIVEN_FLAGS UINT32_C(7)"),
    ("a count rises", "types.h", r"#define TENON_DTYPE_COUNT +\d+", "#define TENON_DTYPE_COUNT 99"),
    ("the next minor version", "version.h",
     r"(TENON_VERSION_MINOR|TENON_ABI_MINOR|TENON_API_MINOR) (\d+)", r"\1 1\2"),
    ("the next major version of the API", "version.h", r"TENON_API_MAJOR \d+\n#define TENON_API_MINOR \d+",
     "TENON_API_MAJOR 9\n#define TENON_API_MINOR 0"),
    ("a function of a plugin is exported by its declaration", "backend.h",
     r"(?=const tenon_backend\* tenon_backend_entry\()", '__attribute__((visibility("default"))) '),
    ("a new function", "tenon.h",
     r"(?=TENON_API uint32_t tenon_op_count)", "TENON_API uint32_t tenon_fresh(void);\n"),
    ("an inline function with another body", "given.h", r"return 2 \* x;", "return x + x;"),
    ("other names of parameters, other comments", "tenon.h",
     r"tenon_store_remove\(tenon_store\* store", "tenon_store_remove(/*it*/ tenon_store* s"),
    ("a new header", "fresh.h", None, None),
    ("a new op", "ops.def",
     r"\Z", "TENON_OP(fresh, 1, shape, core)\n  TENON_IN(x)\n  TENON_OUT(y)\nTENON_END(fresh)\n"),
    ("a new version of an op", "ops.def:pad", r"TENON_OP\(pad, 1,", "TENON_OP(pad, 2,"),
    ("a new attribute with a default", "ops.def:transpose", r"(TENON_INTS\(perm\))", r"\1 TENON_BOOL(fresh, false)"),
    ("a new kind with a default", "ops.def:transpose", r"(TENON_INTS\(perm\))", r'\1 TENON_STR(kind, "usual")'),
    ("a new text, empty by default", "ops.def:transpose", r"(TENON_INTS\(perm\))", r'\1 TENON_STR(note, "")'),
    ("the same default in other digits", "ops.def:adamw", r"TENON_F64\(beta2, 0\.999\)", "TENON_F64(beta2, 999e-3)"),
    ("a new optional operand", "ops.def:transpose", r"(TENON_IN\(x\))", r"\1 TENON_IN_OPT(z)"),
    ("a new list of operands", "ops.def:transpose", r"(TENON_IN\(x\))", r"\1 TENON_IN_LIST_OPT(zs)"),
    ("a new list behind a list", "ops.def:concat", r"(TENON_IN_LIST\(xs\))", r"\1 TENON_IN_LIST_OPT(zs)"),
    ("a new optional output", "ops.def:transpose", r"(TENON_OUT\(y\))", r"\1 TENON_OUT_OPT(z)"),
    ("a primitive gets a decomposition", "ops.def:pad", r", primitive\)", ", core)"),
]
