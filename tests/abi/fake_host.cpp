// SPDX-License-Identifier: Apache-2.0
// The fake host.
#include "fake_host.hpp"
#ifdef TENON_PAST_MINOR
static_assert(TENON_ABI_MINOR == TENON_PAST_MINOR, "these are not the headers of the past version");
#endif

#include <dlfcn.h>

#include <atomic>
#include <stdexcept>

namespace tenon::test {

namespace {

std::atomic<int> statuses{0};
std::string refusal;

std::string text(tenon_str s) { return {s.data, s.size}; }

tenon_status* make_status(const tenon_status_desc* d) {
  ++statuses;
  return new tenon_status{d->code,   d->flags, text(d->text), text(d->origin),
                          d->run_id, d->step,  d->index};
}
void release_status(tenon_status* s) {
  statuses -= s != nullptr;
  delete s;
}

}  // namespace

tenon_host host_table() {
  tenon_host h{};
  h.struct_size = sizeof(h);
  h.abi_major = TENON_ABI_MAJOR;
  h.abi_minor_min = TENON_ABI_MINOR_OLDEST;
  h.abi_minor_max = TENON_ABI_MINOR;
  h.version = {"9.8.7", 5};
  h.make_status = make_status;
  h.release_status = release_status;
  h.status_code = [](const tenon_status* s) { return s ? s->code : TENON_OK; };
  h.status_text = [](const tenon_status* s) { return tenon_str{s->text.data(), s->text.size()}; };
  h.refuse = [](tenon_str reason) { refusal = text(reason); };
  h.log = [](uint32_t, tenon_str) {};
  h.get_extension = [](tenon_str) -> const void* { return nullptr; };
  return h;
}
int live_statuses() { return statuses; }
const std::string& last_refusal() { return refusal; }

Problem Plugin::problem(tenon_status* s) {
  if (!s) return {};
  Problem p{s->code, s->flags, s->text, s->origin, s->run_id, s->step, s->index};
  release_status(s);
  return p;
}

static void require(tenon_status* s) {
  const Problem p = Plugin::problem(s);
  if (p.code != TENON_OK) throw std::runtime_error(p.origin + ": " + p.text);
}

static tenon_backend_entry_fn entry_of(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  void* entry = dlsym(library, TENON_BACKEND_ENTRY_NAME);
  if (!entry) throw std::runtime_error(path + " has no entry");
  return reinterpret_cast<tenon_backend_entry_fn>(entry);
}

Plugin::Plugin(const std::string& path) : Plugin(entry_of(path)) {}

Plugin::Plugin(tenon_backend_entry_fn entry) : host_(host_table()), table_(entry(&host_)) {
  if (!table_) throw std::runtime_error(refusal);
  const tenon_create_options creation{sizeof creation, TENON_ABI_MINOR, 1};
  require(table_->create(&host_, &creation, &plugin_));
  const tenon_device_list* devices = nullptr;
  require(table_->enumerate(plugin_, &devices));
  tenon_device_options options{sizeof(options), 1, 0};
  require(table_->device_open(plugin_, 0, &options, &device_));
}

Plugin::~Plugin() {
  table_->device_close(device_);
  table_->shutdown(plugin_);
}

std::vector<Verdict> Plugin::query(const BlobBuilder& graph) const {
  const std::vector<uint64_t> blob = graph.bytes();
  const tenon_query_result* result = nullptr;
  require(table_->query(device_, blob.data(), blob.size() * 8, &result));
  std::vector<Verdict> verdicts;
  for (uint32_t i = 0; i < result->count; ++i) {
    const auto* v = reinterpret_cast<const tenon_verdict*>(
        reinterpret_cast<const char*>(result->verdicts) + i * result->verdict_stride);
    verdicts.push_back({v->verdict == TENON_VERDICT_NATIVE, v->reason, text(v->text)});
  }
  table_->query_release(device_, result);
  return verdicts;
}

std::vector<Bytes> Plugin::run(const BlobBuilder& graph, const std::vector<Bytes>& inputs,
                               Problem* problem) const {
  Bound bound(*this, graph);
  Problem p = bound.compile_problem();
  if (p.code == TENON_OK) {
    for (size_t k = 0; k < inputs.size(); ++k) bound.set_input(k, inputs[k]);
    p = bound.instantiate();
  }
  if (p.code == TENON_OK) p = bound.run();
  if (problem) *problem = p;
  if (p.code != TENON_OK) {
    if (!problem) throw std::runtime_error(p.origin + ": " + p.text);
    return {};
  }
  std::vector<Bytes> outputs;
  for (size_t k = 0; k < graph.outputs().size(); ++k) outputs.push_back(bound.output(k));
  return outputs;
}

Bound::Bound(const Plugin& plugin, const BlobBuilder& graph) : plugin_(plugin), graph_(graph) {
  const std::vector<uint64_t> blob = graph.bytes();
  tenon_compile_options options{sizeof(options), 0, 0, 0};
  compile_problem_ = Plugin::problem(
      table().compile(plugin.device(), blob.data(), blob.size() * 8, &options, &program_));
  if (compile_problem_.code == TENON_OK) make_buffers();
}

Bound::~Bound() {
  if (instance_) table().instance_destroy(instance_);
  if (program_) table().program_destroy(program_);
  for (tenon_buffer* b : buffers_) table().buffer_destroy(b);
}

const tenon_program_value& Bound::value(uint32_t v) const {
  return *reinterpret_cast<const tenon_program_value*>(
      reinterpret_cast<const char*>(info().values) + v * info().value_stride);
}
const tenon_step& Bound::step(uint32_t s) const {
  return *reinterpret_cast<const tenon_step*>(reinterpret_cast<const char*>(info().steps) +
                                              s * info().step_stride);
}

void Bound::make_buffers() {
  const auto make = [&](uint64_t size) -> tenon_slot {
    if (size == 0) return {nullptr, 0};
    tenon_buffer* b = nullptr;
    const tenon_buffer_options options = buffer_options(size);
    require(table().buffer_create(plugin_.device(), &options, &b));
    buffers_.push_back(b);
    const Bytes poison(size, 0xCD);
    require(table().buffer_write(b, 0, poison.data(), size, nullptr));
    return {b, 0};
  };
  std::vector<bool> view(info().value_count);
  for (uint32_t s = 0; s < info().step_count; ++s)
    for (uint32_t a = 0; a < step(s).alias_count; ++a)
      if (step(s).aliases[a].kind == TENON_ALIAS_VIEW) view[step(s).aliases[a].to] = true;
  for (uint32_t v = 0; v < info().value_count; ++v)
    slots_.push_back(view[v] ? tenon_slot{} : make(value(v).size));
  for (uint32_t s = 0; s < info().step_count; ++s) {
    for (uint32_t a = 0; a < step(s).alias_count; ++a) {
      const tenon_alias& alias = step(s).aliases[a];
      if (alias.kind != TENON_ALIAS_VIEW) continue;
      slots_[alias.to] = slots_[alias.from];
      slots_[alias.to].offset += alias.offset;
      if (alias.offset + value(alias.to).size > value(alias.from).size)
        throw std::runtime_error("a view is too long");
    }
    scratch_.push_back(make(step(s).scratch_size));
  }
}

uint32_t Bound::find(uint32_t source, bool written) const {
  for (uint32_t v = 0; v < info().value_count; ++v) {
    if (value(v).source != source) continue;
    bool is_written = false;
    for (uint32_t s = 0; s < info().step_count; ++s)
      for (uint32_t w = 0; w < step(s).write_count; ++w) is_written |= step(s).writes[w] == v;
    if (is_written == written) return v;
  }
  throw std::runtime_error("value " + std::to_string(source) + " is not listed");
}

tenon_binding Bound::binding() const {
  tenon_binding b{};
  b.struct_size = sizeof(b);
  b.values = slots_.data();
  b.scratch = scratch_.data();
  b.slot_stride = sizeof(tenon_slot);
  b.wait_stride = sizeof(tenon_lane_wait);
  b.value_count = info().value_count;
  b.step_count = info().step_count;
  return b;
}

void Bound::set_input(size_t k, const Bytes& content) {
  const uint32_t v = find(graph_.inputs()[k], false);
  if (content.size() != value(v).size)
    throw std::runtime_error("input " + std::to_string(k) + " has the wrong size");
  if (!content.empty()) {
    require(table().buffer_write(slots_[v].buffer, slots_[v].offset, content.data(), content.size(),
                                 nullptr));
  }
}

Bytes Bound::output(size_t k) const {
  const uint32_t v = find(graph_.outputs()[k], true);
  Bytes content(value(v).size);
  if (!content.empty()) {
    require(table().buffer_read(slots_[v].buffer, slots_[v].offset, content.data(), content.size(),
                                nullptr));
  }
  return content;
}

Problem Bound::instantiate() {
  const tenon_binding b = binding();
  return Plugin::problem(table().instantiate(program_, &b, &instance_));
}

Problem Bound::rebind() {
  const tenon_binding b = binding();
  return Plugin::problem(table().rebind(instance_, &b));
}

Problem Bound::run(uint64_t run_id) {
  tenon_run_args args{};
  args.struct_size = sizeof args;
  args.run_id = run_id;
  return run(args);
}

Problem Bound::run(const tenon_run_args& args) {
  return Plugin::problem(table().run(instance_, &args));
}

}  // namespace tenon::test
