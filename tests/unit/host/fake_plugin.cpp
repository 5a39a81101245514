// SPDX-License-Identifier: Apache-2.0
// The table of the fake plugin and the recording of its runs.
#include "fake_plugin.hpp"

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "tenon/blob.h"

namespace fake {

Answers answers;
const tenon_host* host = nullptr;
tenon_backend table;

namespace {

struct Buffer {
  uint64_t size;
  alignas(64) unsigned char bytes[];
};
Buffer* behind(tenon_buffer* b) { return reinterpret_cast<Buffer*>(b); }

tenon_str str(std::string_view s) { return {s.data(), s.size()}; }

// Handles need only be told apart from null.
int thing;
template <class Handle>
Handle* any() {
  return reinterpret_cast<Handle*>(&thing);
}

tenon_status* create(const tenon_host*, const tenon_create_options* options, tenon_plugin** out) {
  ++answers.created;
  answers.create = *options;
  *out = any<tenon_plugin>();
  return nullptr;
}
void shut_down(tenon_plugin*) { ++answers.shut_down; }

tenon_status* enumerate(tenon_plugin*, const tenon_device_list** out) {
  static std::vector<const tenon_device_info*> pointers;
  static tenon_device_list list;
  pointers.clear();
  for (const tenon_device_info& i : answers.devices) pointers.push_back(&i);
  list = {sizeof list, pointers.data(), static_cast<uint32_t>(pointers.size()), 0,
          str(answers.note)};
  *out = &list;
  return nullptr;
}

tenon_status* device_open(tenon_plugin*, uint32_t, const tenon_device_options* options,
                          tenon_device** out) {
  if (answers.open_fails) return failure(TENON_DEVICE_LOST, "the card fell out");
  if (answers.opens_nothing) return nullptr;
  answers.threads = options->threads;
  ++answers.opened;
  *out = any<tenon_device>();
  return nullptr;
}
void device_close(tenon_device*) { --answers.opened; }

tenon_status* buffer_create(tenon_device*, const tenon_buffer_options* options,
                            tenon_buffer** out) {
  auto* b = static_cast<Buffer*>(std::aligned_alloc(64, 64 + (options->size + 63) / 64 * 64));
  b->size = options->size;
  answers.buffer_kind = options->kind;
  answers.buffer_name.assign(options->name.data, options->name.size);
  ++answers.buffers;
  *out = reinterpret_cast<tenon_buffer*>(b);
  return nullptr;
}
void buffer_destroy(tenon_buffer* b) {
  --answers.buffers;
  std::free(b);
}
tenon_status* buffer_write(tenon_buffer* b, uint64_t at, const void* from, uint64_t n,
                           tenon_stream*) {
  std::memcpy(behind(b)->bytes + at, from, n);
  return nullptr;
}
tenon_status* buffer_read(tenon_buffer* b, uint64_t at, void* to, uint64_t n, tenon_stream*) {
  std::memcpy(to, behind(b)->bytes + at, n);
  return nullptr;
}
void* buffer_address(tenon_buffer* b) {
  if (answers.no_address) return nullptr;
  return behind(b)->bytes + (answers.crooked_address ? 4 : 0);
}
tenon_status* buffer_copy(tenon_buffer* to, uint64_t to_at, tenon_buffer* from, uint64_t from_at,
                          uint64_t n, tenon_stream*) {
  ++answers.native_copies;
  std::memcpy(behind(to)->bytes + to_at, behind(from)->bytes + from_at, n);
  return nullptr;
}

tenon_status* query(tenon_device*, const void*, uint64_t, const tenon_query_result** out) {
  *out = answers.query.struct_size ? &answers.query : nullptr;
  return nullptr;
}
void query_release(tenon_device*, const tenon_query_result*) {}

tenon_status* compile(tenon_device*, const void*, uint64_t, const tenon_compile_options* options,
                      tenon_program** out) {
  answers.compiled = *options;
  if (answers.compile_fails) return failure(TENON_OUT_OF_MEMORY, "no memory for code");
  ++answers.programs;
  *out = any<tenon_program>();
  return nullptr;
}
const tenon_program_info* program_info(tenon_program*) {
  return answers.no_info ? nullptr : &answers.info;
}
void program_destroy(tenon_program*) { --answers.programs; }

void take(const tenon_binding* binding) {
  answers.bound.assign(binding->values, binding->values + binding->value_count);
  answers.lanes.clear();
  if (binding->lane_count > 1)
    answers.lanes.assign(binding->lanes, binding->lanes + binding->step_count);
  answers.waits.assign(binding->waits, binding->waits + binding->wait_count);
}
tenon_status* instantiate(tenon_program*, const tenon_binding* binding, tenon_instance** out) {
  ++answers.instances;
  take(binding);
  *out = any<tenon_instance>();
  return nullptr;
}
void instance_destroy(tenon_instance*) { --answers.instances; }
tenon_status* rebind(tenon_instance*, const tenon_binding* binding) {
  ++answers.rebinds;
  take(binding);
  return nullptr;
}
tenon_status* run(tenon_instance*, const tenon_run_args* args) {
  return answers.run ? answers.run(*args) : nullptr;
}

tenon_status* synchronize() { return std::exchange(answers.pending, nullptr); }

tenon_backend make_table() {
  tenon_backend t{};
  t.struct_size = sizeof t;
  t.abi_major = TENON_ABI_MAJOR;
  t.abi_minor_min = TENON_MIN_HOST_MINOR;
  t.abi_minor_max = TENON_ABI_MINOR;
  t.name = str("fake");
  t.version = str("1.0.0");
  t.vendor = str("tests");
  t.create = create;
  t.shutdown = shut_down;
  t.enumerate = enumerate;
  t.device_open = device_open;
  t.device_close = device_close;
  t.buffer_create = buffer_create;
  t.buffer_destroy = buffer_destroy;
  t.buffer_write = buffer_write;
  t.buffer_read = buffer_read;
  t.buffer_address = buffer_address;
  t.buffer_copy = buffer_copy;
  t.query = query;
  t.query_release = query_release;
  t.compile = compile;
  t.program_info = program_info;
  t.program_destroy = program_destroy;
  t.instantiate = instantiate;
  t.instance_destroy = instance_destroy;
  t.rebind = rebind;
  t.run = run;
  t.stream_create = [](tenon_device*, void*, tenon_stream** out) -> tenon_status* {
    *out = any<tenon_stream>();
    return nullptr;
  };
  t.stream_destroy = [](tenon_stream*) {};
  t.stream_synchronize = [](tenon_stream*) { return synchronize(); };
  t.event_create = [](tenon_device*, tenon_event** out) -> tenon_status* {
    *out = any<tenon_event>();
    return nullptr;
  };
  t.event_destroy = [](tenon_event*) {};
  t.event_record = [](tenon_event*, tenon_stream*) -> tenon_status* { return nullptr; };
  t.stream_wait_event = [](tenon_stream*, tenon_event*) -> tenon_status* { return nullptr; };
  t.event_query = [](tenon_event*, uint32_t* done) {
    *done = 1;
    return synchronize();
  };
  t.event_wait = [](tenon_event*) { return synchronize(); };
  t.event_on_done = [](tenon_event*, void (*callback)(void*), void* user) -> tenon_status* {
    callback(user);
    return nullptr;
  };
  return t;
}

}  // namespace

void reset() {
  answers = {};
  table = make_table();
  tenon_device_info info{};
  info.struct_size = sizeof info;
  info.kind = str("fake");
  info.name = str("a fake device");
  info.memory_size = 1 << 20;
  info.flags = TENON_DEVICE_HOST_ADDRESSABLE | TENON_DEVICE_HOST_THREADS;
  answers.devices = {info};
  answers.verdicts = {
      {TENON_VERDICT_NATIVE, 0, {}, 1e-6, TENON_NONE, 0},
      {TENON_VERDICT_REFUSED, TENON_REASON_DTYPE, str("not f32"), 0, TENON_NONE, 0}};
  answers.query = {sizeof(tenon_query_result), answers.verdicts.data(), sizeof(tenon_verdict), 2,
                   0};
  declare_honest_program();
}

tenon_status* failure(tenon_code code, const char* text, tenon_status* cause) {
  tenon_status_desc d{};
  d.struct_size = sizeof d;
  d.code = code;
  d.text = str(text);
  d.origin = str("fake: test");
  d.cause = cause;
  d.step = TENON_NONE;
  d.index = -1;
  return host->make_status(&d);
}

const tenon_backend* entry(const tenon_host* given) {
  host = given;
  return &table;
}
const tenon_backend* other_entry(const tenon_host* given) {
  static tenon_backend other;
  host = given;
  other = table;
  other.name = str("other");
  return &other;
}

void Answers::publish() {
  raw_steps.clear();
  for (const StepPlan& s : steps) {
    tenon_step raw{};
    raw.node = s.node;
    raw.reads = s.reads.data();
    raw.read_count = static_cast<uint32_t>(s.reads.size());
    raw.writes = s.writes.data();
    raw.write_count = static_cast<uint32_t>(s.writes.size());
    raw.aliases = s.aliases.data();
    raw.alias_count = static_cast<uint32_t>(s.aliases.size());
    raw.scratch_size = s.scratch;
    raw.label = str(s.label);
    raw_steps.push_back(raw);
  }
  info = {sizeof info,
          values.data(),
          sizeof(tenon_program_value),
          raw_steps.data(),
          sizeof(tenon_step),
          sizeof(tenon_alias),
          static_cast<uint32_t>(values.size()),
          static_cast<uint32_t>(raw_steps.size())};
}

void declare_honest_program() {
  answers.values = {{0, 0, 16, 0, {}}, {1, 0, 16, 0, {}},         {2, 0, 16, 0, {}},
                    {3, 0, 16, 0, {}}, {TENON_NONE, 0, 8, 0, {}}, {0, 0, 16, 0, {}}};
  answers.steps = {{0, {0, 1}, {2}, {}, 32, "add"},
                   {1,
                    {2},
                    {3, 4},
                    {{TENON_ALIAS_IN_PLACE, 2, 3, 0, 0}, {TENON_ALIAS_VIEW, 2, 4, 0, 8}},
                    0,
                    "relu"},
                   {TENON_NONE, {0}, {5}, {}, 0, "copy"}};
  answers.publish();
}

namespace {

// Appends runs of bytes, each 8-aligned.
class Bytes {
 public:
  template <class T>
  uint64_t add(const T* items, size_t count) {
    const uint64_t at = words_.size() * 8;
    words_.resize(words_.size() + (count * sizeof(T) + 7) / 8);
    if (count) std::memcpy(reinterpret_cast<char*>(words_.data()) + at, items, count * sizeof(T));
    return at;
  }
  uint64_t text(std::string_view s) {
    std::string raw(4, '\0');
    const auto n = static_cast<uint32_t>(s.size());
    std::memcpy(raw.data(), &n, 4);
    raw += s;
    return add(raw.data(), raw.size());
  }
  std::vector<uint64_t> words_;
};

tenon_blob_value value(Bytes& to, uint8_t space, uint32_t node, const char* name) {
  const int64_t dims[] = {4};
  tenon_blob_value v{};
  v.dtype = TENON_DTYPE_F32;
  v.space = space;
  v.rank = 1;
  v.node = node;
  v.dims = to.add(dims, 1);
  v.name = to.text(name);
  return v;
}
tenon_blob_node node(Bytes& to, const char* op, const std::vector<uint32_t>& operands,
                     uint32_t output) {
  tenon_blob_node n{};
  n.domain = to.text("tenon");
  n.op = to.text(op);
  n.operands = to.add(operands.data(), operands.size());
  n.operand_count = static_cast<uint32_t>(operands.size());
  n.outputs = to.add(&output, 1);
  n.output_count = 1;
  n.version = 1;
  n.attrs = to.add<uint64_t>(nullptr, 0);
  return n;
}

}  // namespace

std::vector<uint64_t> graph() {
  Bytes to;
  tenon_blob_header head{};
  to.add(&head, 1);
  const tenon_blob_value values[] = {
      value(to, TENON_SPACE_INPUT, TENON_NONE, "a"), value(to, TENON_SPACE_WEIGHT, TENON_NONE, "b"),
      value(to, TENON_SPACE_NODE, 0, "c"), value(to, TENON_SPACE_NODE, 1, "d")};
  const tenon_blob_node nodes[] = {node(to, "add", {0, 1}, 2), node(to, "relu", {2}, 3)};
  const uint32_t inputs[] = {0, 1}, outputs[] = {3, 0};
  tenon_blob_function f{};
  f.values = to.add(values, 4);
  f.nodes = to.add(nodes, 2);
  f.inputs = to.add(inputs, 2);
  f.outputs = to.add(outputs, 2);
  f.value_count = 4;
  f.node_count = 2;
  f.input_count = 2;
  f.output_count = 2;
  head.magic = TENON_BLOB_MAGIC;
  head.version = TENON_BLOB_VERSION;
  head.header_size = sizeof head;
  head.function_stride = sizeof(tenon_blob_function);
  head.value_stride = sizeof(tenon_blob_value);
  head.node_stride = sizeof(tenon_blob_node);
  head.attr_stride = sizeof(tenon_blob_attr);
  head.function_count = 1;
  head.functions = to.add(&f, 1);
  head.size = to.words_.size() * 8;
  std::memcpy(to.words_.data(), &head, sizeof head);
  return to.words_;
}

}  // namespace fake
