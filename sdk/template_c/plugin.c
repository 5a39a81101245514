/* SPDX-License-Identifier: Apache-2.0
 * A whole backend in one file of plain C11, over the ABI's headers alone: f32 add, mul and neg of
 * equal shapes, and matmul of two matrices, in host memory and on the calling thread. All else is
 * refused with a reason and runs elsewhere. C++ authors have it easier: see the template. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/backend.h>
#include <tenon/blob.h>
#include <tenon/manifest.h>

#define NAME "template_c"
#define VERSION "0.1.0"
#define VENDOR "tenon"
#define ALIGNMENT 64

TENON_MANIFEST(NAME, VERSION, VENDOR, NAME, TENON_ISA_BASELINE);

#define STR(literal) ((tenon_str){literal, sizeof(literal) - 1})

struct tenon_plugin {
  const tenon_host* host;
  tenon_device_info info;
  const tenon_device_info* infos[1];
  tenon_device_list list;
};
struct tenon_device {
  tenon_plugin* plugin;
};
struct tenon_buffer {
  tenon_plugin* plugin;
  unsigned char* bytes;
  uint64_t size;
};

static tenon_status* fail(const tenon_plugin* plugin, tenon_code code, const char* text) {
  tenon_status_desc d = {0};
  d.struct_size = sizeof(d);
  d.code = code;
  d.flags = code == TENON_OUT_OF_MEMORY ? TENON_STATUS_RETRYABLE : 0;
  d.text.data = text;
  d.text.size = strlen(text);
  d.origin = STR(NAME);
  d.step = TENON_NONE;
  d.index = -1;
  return plugin->host->make_status(&d);
}
static tenon_status* out_of_memory(const tenon_plugin* plugin) {
  return fail(plugin, TENON_OUT_OF_MEMORY, "out of host memory");
}

/* ---- Plugin, device, buffers
 * -------------------------------------------------------------------------------- */

static tenon_status* create(const tenon_host* host, const tenon_create_options* options,
                            tenon_plugin** out_plugin) {
  tenon_plugin bare = {0};
  tenon_plugin* p = calloc(1, sizeof(*p));
  (void)options; /* one thread, and nothing of a later minor version */
  bare.host = host;
  if (!p) return out_of_memory(&bare);
  p->host = host;
  p->info.struct_size = sizeof(p->info);
  p->info.kind = STR(NAME);
  p->info.name = STR("loops in C");
  p->info.alignment = ALIGNMENT;
  p->info.flags = TENON_DEVICE_HOST_ADDRESSABLE | TENON_DEVICE_HOST_THREADS;
  p->infos[0] = &p->info;
  p->list.struct_size = sizeof(p->list);
  p->list.devices = p->infos;
  p->list.count = 1;
  *out_plugin = p;
  return NULL;
}
static void shutdown_plugin(tenon_plugin* plugin) { free(plugin); }
static tenon_status* enumerate(tenon_plugin* plugin, const tenon_device_list** out_devices) {
  *out_devices = &plugin->list;
  return NULL;
}

static tenon_status* device_open(tenon_plugin* plugin, uint32_t index,
                                 const tenon_device_options* options, tenon_device** out_device) {
  tenon_device* d;
  (void)options;
  if (index != 0) return fail(plugin, TENON_NOT_FOUND, "there is only device 0");
  d = malloc(sizeof(*d));
  if (!d) return out_of_memory(plugin);
  d->plugin = plugin;
  *out_device = d;
  return NULL;
}
static void device_close(tenon_device* device) { free(device); }

static tenon_status* buffer_create(tenon_device* device, const tenon_buffer_options* options,
                                   tenon_buffer** out_buffer) {
  const uint64_t size = options->size;
  tenon_buffer* b;
  if (options->kind > TENON_MEMORY_UNIFIED) /* in host memory the known kinds are the same */
    return fail(device->plugin, TENON_UNSUPPORTED, "an unknown kind of memory");
  b = malloc(sizeof(*b));
  if (!b) return out_of_memory(device->plugin);
  b->plugin = device->plugin;
  b->size = size;
  b->bytes = size > SIZE_MAX - ALIGNMENT
                 ? NULL
                 : aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  if (!b->bytes) {
    free(b);
    return out_of_memory(device->plugin);
  }
  *out_buffer = b;
  return NULL;
}
static void buffer_destroy(tenon_buffer* buffer) {
  free(buffer->bytes);
  free(buffer);
}
static int inside(const tenon_buffer* b, uint64_t offset, uint64_t size) {
  return offset <= b->size && size <= b->size - offset;
}
static tenon_status* beyond(const tenon_buffer* b) {
  return fail(b->plugin, TENON_INVALID_ARGUMENT, "a range beyond the end of its buffer");
}
static tenon_status* buffer_write(tenon_buffer* buffer, uint64_t offset, const void* source,
                                  uint64_t size, tenon_stream* stream) {
  (void)stream;
  if (!inside(buffer, offset, size)) return beyond(buffer);
  if (size) memcpy(buffer->bytes + offset, source, size);
  return NULL;
}
static tenon_status* buffer_read(tenon_buffer* buffer, uint64_t offset, void* target, uint64_t size,
                                 tenon_stream* stream) {
  (void)stream;
  if (!inside(buffer, offset, size)) return beyond(buffer);
  if (size) memcpy(target, buffer->bytes + offset, size);
  return NULL;
}
static void* buffer_address(tenon_buffer* buffer) { return buffer->bytes; }

/* ---- What is claimed
 * ---------------------------------------------------------------------------------------- */

typedef enum { OP_ADD, OP_MUL, OP_NEG, OP_MATMUL, OP_COPY } op_kind;

/* One step: y = op(a, b), with indices of program values. */
typedef struct op_step {
  op_kind kind;
  uint32_t a, b, y;           /* b is TENON_NONE where there is none */
  uint64_t count;             /* elements (bytes for OP_COPY) */
  int64_t m, n, k;            /* matmul */
  int64_t a_m, a_k, b_k, b_n; /* its strides in elements */
  double alpha;
} op_step;

/* Why a node is refused. */
typedef struct refusal {
  uint32_t reason;
  char text[96];
} refusal;

static int refuse(refusal* r, uint32_t reason, const char* text, tenon_str detail) {
  r->reason = reason;
  snprintf(r->text, sizeof(r->text), "%s%.*s", text, detail.size > 40 ? 40 : (int)detail.size,
           detail.data);
  return 0;
}
static int same_shape(const tenon_blob* blob, const tenon_blob_value* a,
                      const tenon_blob_value* b) {
  return a->rank == b->rank &&
         memcmp(tenon_blob_dims(blob, a), tenon_blob_dims(blob, b), a->rank * sizeof(int64_t)) == 0;
}

/* Fills step and returns 1, or fills r and returns 0. Operands a and b (b NULL where unary) and y
 * are f32. */
static int decode_elementwise(tenon_node_view* v, const char* const names[2],
                              const op_kind kinds[2], int binary, op_step* step, refusal* r) {
  const tenon_blob_value *a = tenon_node_operand(v, 0), *b = binary ? tenon_node_operand(v, 1) : a;
  const tenon_blob_value* y = tenon_node_output(v, 0);
  const tenon_str kind = tenon_node_str(v, "kind", "");
  for (int i = 0; i < 2 && names[i]; ++i) {
    if (!tenon_str_is(kind, names[i])) continue;
    if (!a || !b || !y) return refuse(r, TENON_REASON_SHAPE, "an operand is missing", STR(""));
    if (!same_shape(v->blob, a, y) || !same_shape(v->blob, b, y))
      return refuse(r, TENON_REASON_SHAPE, "operands of different shapes are not taken", STR(""));
    step->kind = kinds[i];
    step->count = (uint64_t)tenon_blob_elements(v->blob, y);
    return 1;
  }
  return refuse(r, TENON_REASON_ATTRIBUTE, "not taken: kind=", kind);
}

static int decode_matmul(tenon_node_view* v, op_step* step, refusal* r) {
  const tenon_blob_value *a = tenon_node_operand(v, 0), *b = tenon_node_operand(v, 1),
                         *y = tenon_node_output(v, 0);
  const int ta = tenon_node_bool(v, "trans_a", 0), tb = tenon_node_bool(v, "trans_b", 0);
  const int64_t *da, *db, *dy;
  step->kind = OP_MATMUL;
  step->alpha = tenon_node_f64(v, "alpha", 1);
  tenon_node_dtype(v, "out_dtype", TENON_DTYPE_NONE); /* y tells */
  tenon_node_str(v, "f32_precision", "ieee");         /* ieee is good enough for tf32, too */
  if (!a || !b || !y) return refuse(r, TENON_REASON_SHAPE, "an operand is missing", STR(""));
  if (a->rank != 2 || b->rank != 2 || y->rank != 2)
    return refuse(r, TENON_REASON_SHAPE, "only a product of two matrices is taken", STR(""));
  da = tenon_blob_dims(v->blob, a);
  db = tenon_blob_dims(v->blob, b);
  dy = tenon_blob_dims(v->blob, y);
  step->m = da[ta], step->k = da[!ta], step->n = db[!tb];
  step->a_m = ta ? 1 : da[1], step->a_k = ta ? da[1] : 1;
  step->b_k = tb ? 1 : db[1], step->b_n = tb ? db[1] : 1;
  if (db[tb] != step->k || dy[0] != step->m || dy[1] != step->n)
    return refuse(r, TENON_REASON_SHAPE, "the matrices do not fit", STR(""));
  step->count = (uint64_t)(step->m * step->n);
  return 1;
}

static int claim(const tenon_blob* blob, uint32_t index, op_step* step, refusal* r) {
  static const char *const binary[2] = {"add", "mul"}, *const unary[2] = {"neg", NULL};
  static const op_kind binary_kinds[2] = {OP_ADD, OP_MUL}, unary_kinds[2] = {OP_NEG, OP_NEG};
  tenon_node_view v = tenon_node_at(blob, 0, index);
  const tenon_str op = tenon_blob_str(blob, v.node->op);
  tenon_str name;
  const char* unknown = tenon_node_unknown_type(&v);
  int ok;
  memset(step, 0, sizeof(*step));
  if (!tenon_str_is(tenon_blob_str(blob, v.node->domain), "tenon") || v.node->version > 1)
    return refuse(r, TENON_REASON_OP, "no kernel for this domain or version of ", op);
  if (unknown) {
    name.data = unknown;
    name.size = strlen(unknown);
    return refuse(r, strcmp(unknown, "dtype") ? TENON_REASON_UNKNOWN : TENON_REASON_DTYPE,
                  "what it touches is not known: its ", name);
  }
  for (uint32_t i = 0; i < v.node->operand_count + v.node->output_count; ++i) {
    const uint32_t in = v.node->operand_count;
    const uint32_t value = i < in ? tenon_blob_indices(blob, v.node->operands)[i]
                                  : tenon_blob_indices(blob, v.node->outputs)[i - in];
    if (value != TENON_NONE &&
        tenon_blob_value_at(blob, v.function, value)->dtype != TENON_DTYPE_F32)
      return refuse(r, TENON_REASON_DTYPE, "only f32 is taken by ", op);
  }
  if (tenon_str_is(op, "binary"))
    ok = decode_elementwise(&v, binary, binary_kinds, 1, step, r);
  else if (tenon_str_is(op, "unary"))
    ok = decode_elementwise(&v, unary, unary_kinds, 0, step, r);
  else if (tenon_str_is(op, "matmul"))
    ok = decode_matmul(&v, step, r);
  else
    return refuse(r, TENON_REASON_OP, "no kernel for op ", op);
  if (!ok) return 0;
  unknown = tenon_node_unknown(&v, &name);
  if (unknown) {
    char text[32];
    snprintf(text, sizeof(text), "%s not known: ", unknown);
    return refuse(r, TENON_REASON_UNKNOWN, text, name);
  }
  step->a = tenon_blob_indices(blob, v.node->operands)[0];
  step->b = step->kind == OP_NEG ? TENON_NONE : tenon_blob_indices(blob, v.node->operands)[1];
  step->y = tenon_blob_indices(blob, v.node->outputs)[0];
  return 1;
}

typedef struct query_answer {
  tenon_query_result result; /* first: the host gives this back */
  refusal* refusals;
  tenon_verdict* verdicts;
} query_answer;

static void query_release(tenon_device* device, const tenon_query_result* result) {
  query_answer* q = (query_answer*)result;
  (void)device;
  if (!q) return;
  free(q->refusals);
  free(q->verdicts);
  free(q);
}

static tenon_status* query(tenon_device* device, const void* bytes, uint64_t size,
                           const tenon_query_result** out_result) {
  tenon_blob blob;
  query_answer* q;
  const char* bad = tenon_blob_open(bytes, size, &blob);
  if (bad) return fail(device->plugin, TENON_CORRUPT, bad);
  const uint32_t count = tenon_blob_function_at(&blob, 0)->node_count;
  q = calloc(1, sizeof(*q));
  if (q) {
    q->refusals = calloc(count + 1u, sizeof(refusal));
    q->verdicts = calloc(count + 1u, sizeof(tenon_verdict));
  }
  if (!q || !q->refusals || !q->verdicts) {
    query_release(device, (tenon_query_result*)q);
    return out_of_memory(device->plugin);
  }
  for (uint32_t i = 0; i < count; ++i) {
    op_step step;
    tenon_verdict* v = &q->verdicts[i];
    v->group = TENON_NONE;
    v->verdict =
        claim(&blob, i, &step, &q->refusals[i]) ? TENON_VERDICT_NATIVE : TENON_VERDICT_REFUSED;
    if (v->verdict == TENON_VERDICT_NATIVE) continue;
    v->reason = q->refusals[i].reason;
    v->text.data = q->refusals[i].text;
    v->text.size = strlen(q->refusals[i].text);
  }
  q->result.struct_size = sizeof(q->result);
  q->result.verdicts = q->verdicts;
  q->result.verdict_stride = sizeof(tenon_verdict);
  q->result.count = count;
  *out_result = &q->result;
  return NULL;
}

/* ---- Programs
 * -----------------------------------------------------------------------------------------------
 */

/* What a step declares; tenon_step points into it. */
typedef struct step_lists {
  uint32_t reads[2];
  tenon_alias alias;
} step_lists;

struct tenon_program {
  tenon_plugin* plugin;
  tenon_program_value*
      values; /* value i of the blob is program value i; copies that leave come behind */
  op_step* ops;
  step_lists* lists;
  tenon_step* steps;
  tenon_program_info info;
};

static void program_destroy(tenon_program* program) {
  if (!program) return;
  free(program->values);
  free(program->ops);
  free(program->lists);
  free(program->steps);
  free(program);
}

static tenon_program* program_alloc(tenon_plugin* plugin, const tenon_blob_function* f) {
  const size_t values = (size_t)f->value_count + f->output_count + 1,
               steps = (size_t)f->node_count + f->output_count + 1;
  tenon_program* p = calloc(1, sizeof(*p));
  if (!p) return NULL;
  p->plugin = plugin;
  p->values = calloc(values, sizeof(*p->values));
  p->ops = calloc(steps, sizeof(*p->ops));
  p->lists = calloc(steps, sizeof(*p->lists));
  p->steps = calloc(steps, sizeof(*p->steps));
  if (p->values && p->ops && p->lists && p->steps) return p;
  program_destroy(p);
  return NULL;
}

static void declare(tenon_program* p, const op_step* op, uint32_t node) {
  const uint32_t i = p->info.step_count++;
  step_lists* l = &p->lists[i];
  tenon_step* s = &p->steps[i];
  p->ops[i] = *op;
  s->node = node;
  l->reads[s->read_count++] = op->a;
  if (op->b != TENON_NONE && op->b != op->a) l->reads[s->read_count++] = op->b;
  s->reads = l->reads;
  s->writes = &p->ops[i].y;
  s->write_count = 1;
  s->aliases = &l->alias;
  if (op->kind <= OP_NEG) { /* elementwise: y may be a */
    l->alias = (tenon_alias){TENON_ALIAS_IN_PLACE, op->a, op->y, 0, 0};
    s->alias_count = 1;
  }
  s->label = STR("loop");
}

/* An output that no node makes gets a copy: what leaves has storage of its own. */
static void declare_copies(tenon_program* p, const tenon_blob* blob) {
  const tenon_blob_function* f = tenon_blob_function_at(blob, 0);
  const uint32_t* outputs = tenon_blob_indices(blob, f->outputs);
  for (uint32_t i = 0; i < f->output_count; ++i) {
    op_step copy = {0};
    int again = 0;
    for (uint32_t k = 0; k < i; ++k) again |= outputs[k] == outputs[i];
    if (again || tenon_blob_value_at(blob, f, outputs[i])->space == TENON_SPACE_NODE) continue;
    copy.kind = OP_COPY;
    copy.a = outputs[i];
    copy.b = TENON_NONE;
    copy.y = p->info.value_count++;
    p->values[copy.y] = p->values[copy.a];
    copy.count = p->values[copy.a].size;
    declare(p, &copy, TENON_NONE);
  }
}

static tenon_status* compile(tenon_device* device, const void* bytes, uint64_t size,
                             const tenon_compile_options* options, tenon_program** out_program) {
  tenon_blob blob;
  tenon_program* p;
  const char* bad = tenon_blob_open(bytes, size, &blob);
  (void)options;
  if (bad) return fail(device->plugin, TENON_CORRUPT, bad);
  const tenon_blob_function* f = tenon_blob_function_at(&blob, 0);
  p = program_alloc(device->plugin, f);
  if (!p) return out_of_memory(device->plugin);
  for (uint32_t i = 0; i < f->value_count; ++i) {
    const tenon_blob_value* v = tenon_blob_value_at(&blob, f, i);
    p->values[i].source = i;
    p->values[i].size = tenon_dense_bytes(v->dtype, tenon_blob_elements(&blob, v));
  }
  p->info.value_count = f->value_count;
  for (uint32_t i = 0; i < f->node_count; ++i) {
    op_step op;
    refusal r;
    if (!claim(&blob, i, &op, &r)) {
      program_destroy(p);
      return fail(device->plugin, TENON_UNSUPPORTED, r.text);
    }
    declare(p, &op, i);
  }
  declare_copies(p, &blob);
  p->info.struct_size = sizeof(p->info);
  p->info.values = p->values;
  p->info.value_stride = sizeof(tenon_program_value);
  p->info.steps = p->steps;
  p->info.step_stride = sizeof(tenon_step);
  p->info.alias_stride = sizeof(tenon_alias);
  *out_program = p;
  return NULL;
}
static const tenon_program_info* program_info(tenon_program* program) { return &program->info; }

/* ---- Instances
 * ---------------------------------------------------------------------------------------------- */

struct tenon_instance {
  const tenon_program* program;
  unsigned char** addresses; /* one per program value */
};

static void instance_destroy(tenon_instance* instance) {
  if (!instance) return;
  free(instance->addresses);
  free(instance);
}

static tenon_status* instantiate(tenon_program* program, const tenon_binding* binding,
                                 tenon_instance** out_instance) {
  const uint32_t count = program->info.value_count;
  tenon_instance* i;
  if (binding->value_count != count || binding->step_count != program->info.step_count)
    return fail(program->plugin, TENON_INVALID_ARGUMENT, "the binding is not this program's");
  i = calloc(1, sizeof(*i));
  if (i) i->addresses = calloc(count + 1u, sizeof(*i->addresses));
  if (!i || !i->addresses) {
    instance_destroy(i);
    return out_of_memory(program->plugin);
  }
  i->program = program;
  for (uint32_t v = 0; v < count; ++v) {
    const tenon_slot* s = tenon_binding_value(binding, v);
    if (!s->buffer) continue; /* empty, or a value that nobody touches */
    if (!inside(s->buffer, s->offset, program->values[v].size)) {
      instance_destroy(i);
      return beyond(s->buffer);
    }
    i->addresses[v] = s->buffer->bytes + s->offset;
  }
  for (uint32_t s = 0; s < program->info.step_count; ++s) {
    const op_step* op = &program->ops[s];
    const uint32_t touched[3] = {op->a, op->b == TENON_NONE ? op->a : op->b, op->y};
    for (int k = 0; k < 3; ++k) {
      if (i->addresses[touched[k]] || program->values[touched[k]].size == 0) continue;
      instance_destroy(i);
      return fail(program->plugin, TENON_INVALID_ARGUMENT,
                  "a value that a step touches has no buffer");
    }
  }
  *out_instance = i;
  return NULL;
}

static void matmul(const op_step* op, const float* a, const float* b, float* y) {
  for (int64_t m = 0; m < op->m; ++m) {
    for (int64_t n = 0; n < op->n; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < op->k; ++k)
        sum += (double)a[m * op->a_m + k * op->a_k] * (double)b[k * op->b_k + n * op->b_n];
      y[m * op->n + n] = (float)(op->alpha * sum);
    }
  }
}

static tenon_status* run(tenon_instance* instance, const tenon_run_args* args) {
  const tenon_program* p = instance->program;
  (void)args; /* nothing here fails: no data is out of range */
  for (uint32_t s = 0; s < p->info.step_count; ++s) {
    const op_step* op = &p->ops[s];
    const float* a = (const float*)(void*)instance->addresses[op->a];
    const float* b = op->b == TENON_NONE ? NULL : (const float*)(void*)instance->addresses[op->b];
    float* y = (float*)(void*)instance->addresses[op->y];
    if (op->count == 0) continue;
    switch (op->kind) {
      case OP_ADD:
        for (uint64_t i = 0; i < op->count; ++i) y[i] = a[i] + b[i];
        break;
      case OP_MUL:
        for (uint64_t i = 0; i < op->count; ++i) y[i] = a[i] * b[i];
        break;
      case OP_NEG:
        for (uint64_t i = 0; i < op->count; ++i) y[i] = -a[i];
        break;
      case OP_MATMUL:
        matmul(op, a, b, y);
        break;
      case OP_COPY:
        memcpy(y, a, op->count);
        break;
    }
  }
  return NULL;
}

/* ---- The entry
 * ---------------------------------------------------------------------------------------------- */

static const tenon_backend kTable = {
    .struct_size = sizeof(tenon_backend),
    .abi_major = TENON_ABI_MAJOR,
    .abi_minor_min = TENON_MIN_HOST_MINOR,
    .abi_minor_max = TENON_ABI_MINOR,
    .name = {NAME, sizeof(NAME) - 1},
    .version = {VERSION, sizeof(VERSION) - 1},
    .vendor = {VENDOR, sizeof(VENDOR) - 1},
    .create = create,
    .shutdown = shutdown_plugin,
    .enumerate = enumerate,
    .device_open = device_open,
    .device_close = device_close,
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .buffer_write = buffer_write,
    .buffer_read = buffer_read,
    .buffer_address = buffer_address,
    .query = query,
    .query_release = query_release,
    .compile = compile,
    .program_info = program_info,
    .program_destroy = program_destroy,
    .instantiate = instantiate,
    .instance_destroy = instance_destroy,
    .run = run,
};

__attribute__((visibility("default"))) const tenon_backend* tenon_backend_entry(
    const tenon_host* host) {
  char text[160];
  tenon_str reason;
  if (!host || !TENON_HAS(tenon_host, host, refuse)) return NULL;
  if (host->abi_major == TENON_ABI_MAJOR && host->abi_minor_min <= TENON_ABI_MINOR &&
      host->abi_minor_max >= TENON_MIN_HOST_MINOR && host->struct_size >= TENON_HOST_SIZE_V1)
    return &kTable;
  snprintf(text, sizeof(text),
           "plugin " NAME " " VERSION
           " wants ABI %u.%u to %u.%u, host tenon %.*s offers %u.%u to %u.%u",
           (unsigned)TENON_ABI_MAJOR, (unsigned)TENON_MIN_HOST_MINOR, (unsigned)TENON_ABI_MAJOR,
           (unsigned)TENON_ABI_MINOR, (int)(host->version.size > 40 ? 40 : host->version.size),
           host->version.data, host->abi_major, host->abi_minor_min, host->abi_major,
           host->abi_minor_max);
  reason.data = text;
  reason.size = strlen(text);
  host->refuse(reason);
  return NULL;
}
