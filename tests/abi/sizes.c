/* SPDX-License-Identifier: Apache-2.0
 * Each TENON_..._SIZE_V1 is where the first version of its struct ends: behind the field named here,
 * which stays the last of that version when the struct grows. */
#include <tenon/blob.h>
#include <tenon/choices.h>
#include <tenon/cuda_kernel.h>
#include <tenon/derived_weights.h>
#include <tenon/import_memory.h>
#include <tenon/kernels.h>
#include <tenon/native_streams.h>
#include <tenon/op.h>
#include <tenon/prepare.h>
#include <tenon/profiler.h>
#include <tenon/tenon.h>

#define ENDS(type, field, size)                                               \
  _Static_assert(offsetof(type, field) + sizeof(((type*)0)->field) == (size), \
                 #size " is not the end of " #type "." #field)

ENDS(tenon_status_desc, index, TENON_STATUS_DESC_SIZE_V1);
ENDS(tenon_host, get_extension, TENON_HOST_SIZE_V1);
ENDS(tenon_create_options, threads, TENON_CREATE_OPTIONS_SIZE_V1);
ENDS(tenon_device_info, reserved0, TENON_DEVICE_INFO_SIZE_V1);
ENDS(tenon_device_list, note, TENON_DEVICE_LIST_SIZE_V1);
ENDS(tenon_device_options, reserved0, TENON_DEVICE_OPTIONS_SIZE_V1);
ENDS(tenon_buffer_options, reserved0, TENON_BUFFER_OPTIONS_SIZE_V1);
ENDS(tenon_verdict, reserved0, TENON_VERDICT_SIZE_V1);
ENDS(tenon_query_result, reserved0, TENON_QUERY_RESULT_SIZE_V1);
ENDS(tenon_program_value, layout, TENON_PROGRAM_VALUE_SIZE_V1);
ENDS(tenon_alias, offset, TENON_ALIAS_SIZE_V1);
ENDS(tenon_step, label, TENON_STEP_SIZE_V1);
ENDS(tenon_program_info, step_count, TENON_PROGRAM_INFO_SIZE_V1);
ENDS(tenon_compile_options, scratch_limit, TENON_COMPILE_OPTIONS_SIZE_V1);
ENDS(tenon_slot, offset, TENON_SLOT_SIZE_V1);
ENDS(tenon_lane_wait, after, TENON_LANE_WAIT_SIZE_V1);
ENDS(tenon_binding, wait_count, TENON_BINDING_SIZE_V1);
ENDS(tenon_run_args, done, TENON_RUN_ARGS_SIZE_V1);
ENDS(tenon_backend, get_extension, TENON_BACKEND_SIZE_V1);
ENDS(tenon_blob_header, reserved0, TENON_BLOB_HEADER_SIZE_V1);
ENDS(tenon_blob_function, output_count, TENON_BLOB_FUNCTION_SIZE_V1);
ENDS(tenon_blob_value, data_size, TENON_BLOB_VALUE_SIZE_V1);
ENDS(tenon_blob_node, reserved0, TENON_BLOB_NODE_SIZE_V1);
ENDS(tenon_blob_attr, count, TENON_BLOB_ATTR_SIZE_V1);
ENDS(tenon_step_time, reserved0, TENON_STEP_TIME_SIZE_V1);
ENDS(tenon_profiler, times, TENON_PROFILER_SIZE_V1);
ENDS(tenon_derive_args, reserved0, TENON_DERIVE_ARGS_SIZE_V1);
ENDS(tenon_derived_weights, derive, TENON_DERIVED_WEIGHTS_SIZE_V1);
ENDS(tenon_import_info, dlpack_id, TENON_IMPORT_INFO_SIZE_V1);
ENDS(tenon_import_options, name, TENON_IMPORT_OPTIONS_SIZE_V1);
ENDS(tenon_import_memory, address, TENON_IMPORT_MEMORY_SIZE_V1);
ENDS(tenon_native_streams, record, TENON_NATIVE_STREAMS_SIZE_V1);
ENDS(tenon_prepare, part, TENON_PREPARE_SIZE_V1);
ENDS(tenon_choices, take, TENON_CHOICES_SIZE_V1);
ENDS(tenon_arg, function, TENON_ARG_SIZE_V1);
ENDS(tenon_op_part, values, TENON_OP_PART_SIZE_V1);
ENDS(tenon_op_desc, bytes, TENON_OP_DESC_SIZE_V1);
ENDS(tenon_ops, reserved0, TENON_OPS_SIZE_V1);
ENDS(tenon_kernel_row, make, TENON_KERNEL_ROW_SIZE_V1);
ENDS(tenon_kernels, reserved0, TENON_KERNELS_SIZE_V1);
ENDS(tenon_kernel_list, each, TENON_KERNEL_LIST_SIZE_V1);
ENDS(tenon_host_kernel, reserved0, TENON_HOST_KERNEL_SIZE_V1);
ENDS(tenon_cuda_kernel, scratch, TENON_CUDA_KERNEL_SIZE_V1);
