// SPDX-License-Identifier: Apache-2.0
// Programs: copies and checks what a plugin declares about a compiled region, so that the memory
// planner can rely on it.
#include "host/program.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "host/call.hpp"
#include "tenon/blob.h"

namespace tenon::core {
namespace {

constexpr uint32_t kMostValues = 1u << 26;
constexpr const char* kSlot = "program_info";

bool is_power_of_two(uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

class Declaration {
 public:
  Declaration(const Device& device, const tenon_blob& blob, const tenon_program_info* info)
      : plugin_(device.plugin()),
        least_alignment_(device.info().alignment),
        blob_(blob),
        graph_(*tenon_blob_function_at(&blob, 0)),
        info_(info) {}

  void read() {
    check_header();
    read_values();
    read_steps();
    check_sources();
    for (uint32_t i = 0; i < steps_.size(); ++i) replay(i);
    check_sizes();
    check_outputs();
  }

  std::vector<ProgramValue> take_values() { return std::move(values_); }
  std::vector<Step> take_steps() { return std::move(steps_); }

 private:
  // How a value gets its content. entered: passed to the program.
  enum class Origin : uint8_t { none, entered, made, view };

  template <class... Parts>
  [[noreturn]] void lied(const Parts&... parts) const {
    plugin_.lied(kSlot, parts...);
  }

  // ---- Names, for messages

  std::string value_name(uint32_t v) const {
    const uint32_t source = values_[v].source;
    if (source == TENON_NONE) return cat("value ", v);
    const std::string name = copy_text(tenon_blob_str(&blob_, graph_value(source).name));
    return cat("value ", v, " (of the graph: ", source, name.empty() ? "" : " ", name, ")");
  }
  std::string step_name(uint32_t s) const {
    return cat("step ", s, steps_[s].label.empty() ? "" : " ", steps_[s].label);
  }

  const tenon_blob_value& graph_value(uint32_t source) const {
    return *tenon_blob_value_at(&blob_, &graph_, source);
  }
  bool is_given(uint32_t source) const { return graph_value(source).space != TENON_SPACE_NODE; }

  // ---- Copying

  void check_header() const {
    if (!info_) lied("gave nothing");
    if (info_->struct_size < TENON_PROGRAM_INFO_SIZE_V1) {
      lied("the description is too small: ", info_->struct_size, " bytes, needed are ",
           TENON_PROGRAM_INFO_SIZE_V1);
    }
    check_array("values", info_->value_count, info_->values, info_->value_stride,
                TENON_PROGRAM_VALUE_SIZE_V1);
    check_array("steps", info_->step_count, info_->steps, info_->step_stride, TENON_STEP_SIZE_V1);
  }
  void check_array(const char* what, uint32_t count, const void* data, uint64_t stride,
                   size_t least) const {
    if (count == 0) return;
    if (count > kMostValues) lied("says ", count, " ", what);
    if (!data) lied("says ", count, " ", what, ", but gives none");
    check_stride(what, stride, least);
  }
  void check_stride(const char* what, uint64_t stride, size_t least) const {
    if (stride < least || stride % 8 != 0 || stride > (1u << 20)) {
      lied(what, " are ", stride, " bytes apart, expected a multiple of 8 from ", least);
    }
  }
  template <class Raw>
  static const Raw& at(const Raw* first, uint64_t stride, uint64_t index) {
    return *reinterpret_cast<const Raw*>(reinterpret_cast<const std::byte*>(first) +
                                         index * stride);
  }

  void read_values() {
    values_.resize(info_->value_count);
    for (uint32_t i = 0; i < values_.size(); ++i) {
      const tenon_program_value& raw = at(info_->values, info_->value_stride, i);
      if (raw.source != TENON_NONE && raw.source >= graph_.value_count) {
        lied("value ", i, " stands for value ", raw.source, " of a graph of ", graph_.value_count);
      }
      if (raw.size > std::numeric_limits<int64_t>::max()) {
        lied("value ", i, " has ", raw.size, " bytes");
      }
      if (raw.alignment != 0 && (!is_power_of_two(raw.alignment) || raw.alignment > (1u << 30))) {
        lied("value ", i, " has alignment ", raw.alignment, ", expected a power of two up to 2^30");
      }
      values_[i] = {raw.source, raw.size, std::max(raw.alignment, least_alignment_), {}};
      if (raw.layout.size != 0) read_layout(i, raw);
    }
  }
  void read_layout(uint32_t i, const tenon_program_value& raw) {
    values_[i].layout = copy_text(raw.layout);
    if (!plugin_.derived_weights().derive) {
      lied("value ", i, " is a derived weight, but the plugin has no " TENON_DERIVED_WEIGHTS_ID);
    }
    if (raw.source == TENON_NONE || graph_value(raw.source).space != TENON_SPACE_WEIGHT ||
        (graph_value(raw.source).flags & TENON_VALUE_UPDATED) != 0) {
      lied("value ", i, " is a derived weight, but its source is not a weight, or is updated");
    }
    if (raw.size == 0 || tenon_blob_elements(&blob_, &graph_value(raw.source)) == 0) {
      lied("value ", i, " is a derived weight without bytes");
    }
  }
  bool is_derived(uint32_t v) const { return !values_[v].layout.empty(); }

  void read_steps() {
    steps_.resize(info_->step_count);
    for (uint32_t i = 0; i < steps_.size(); ++i) {
      const tenon_step& raw = at(info_->steps, info_->step_stride, i);
      Step& step = steps_[i];
      step.label = copy_text(raw.label);
      step.node = raw.node;
      step.scratch = raw.scratch_size;
      if (raw.node != TENON_NONE && raw.node >= graph_.node_count) {
        lied(step_name(i), " stands for node ", raw.node, " of a graph of ", graph_.node_count);
      }
      if (raw.scratch_size > std::numeric_limits<int64_t>::max()) {
        lied(step_name(i), " wants ", raw.scratch_size, " bytes of scratch");
      }
      step.reads = copy_ids(i, "reads", raw.reads, raw.read_count);
      step.writes = copy_ids(i, "writes", raw.writes, raw.write_count);
      copy_aliases(i, raw);
    }
  }

  void check_id(uint32_t s, const char* what, uint32_t id) const {
    if (id >= values_.size()) {
      lied(step_name(s), " ", what, " value ", id, " of ", values_.size());
    }
  }
  std::vector<uint32_t> copy_ids(uint32_t s, const char* what, const uint32_t* ids,
                                 uint32_t count) const {
    if (count == 0) return {};
    if (count > kMostValues) lied(step_name(s), " ", what, " ", count, " values");
    if (!ids) lied(step_name(s), " ", what, " ", count, " values, but names none");
    std::vector<uint32_t> copy(ids, ids + count);
    for (uint32_t id : copy) check_id(s, what, id);
    std::ranges::sort(copy);
    copy.erase(std::unique(copy.begin(), copy.end()), copy.end());
    return copy;
  }
  void copy_aliases(uint32_t s, const tenon_step& raw) {
    if (raw.alias_count == 0) return;
    if (raw.alias_count > kMostValues) lied(step_name(s), " says ", raw.alias_count, " aliases");
    if (!raw.aliases) lied(step_name(s), " says ", raw.alias_count, " aliases, but gives none");
    check_stride("aliases", info_->alias_stride, TENON_ALIAS_SIZE_V1);
    Step& step = steps_[s];
    for (uint32_t i = 0; i < raw.alias_count; ++i) {
      const tenon_alias& a = at(raw.aliases, info_->alias_stride, i);
      check_id(s, "aliases", a.from);
      check_id(s, "aliases", a.to);
      if (a.kind != TENON_ALIAS_VIEW && a.kind != TENON_ALIAS_IN_PLACE) {
        lied(step_name(s), ": alias kind ", a.kind, " is not known");
      }
      if (a.from == a.to) lied(step_name(s), ": ", value_name(a.to), " is an alias of itself");
      const bool view = a.kind == TENON_ALIAS_VIEW;
      step.aliases.push_back({view, a.from, a.to, view ? a.offset : 0});
      if (view) std::erase(step.writes, a.to);
    }
  }

  // ---- Meaning

  // Marks the values that enter the program. Every value that the region reads from outside must be
  // among them.
  void check_sources() {
    std::vector<bool> written(values_.size());
    for (const Step& step : steps_) {
      for (uint32_t v : step.writes) written[v] = true;
      for (const Alias& a : step.aliases) {
        if (a.view) written[a.to] = true;
      }
    }
    const std::vector<bool> leaves = output_sources();
    std::vector<uint32_t> listed(graph_.value_count, TENON_NONE);
    std::vector<bool> twice(graph_.value_count);
    origins_.assign(values_.size(), Origin::none);
    for (uint32_t v = 0; v < values_.size(); ++v) {
      const uint32_t source = values_[v].source;
      if (source == TENON_NONE) continue;
      const bool given = is_given(source);
      if (given && !written[v]) origins_[v] = Origin::entered;
      if (is_derived(v)) {
        if (written[v]) lied(value_name(v), " is a derived weight, and written");
        continue;
      }
      const uint32_t first = std::exchange(listed[source], v);
      if (first == TENON_NONE) continue;
      // The one allowed pair: an input, and its copy that is an output.
      if (!given || !leaves[source] || written[first] == written[v] || twice[source]) {
        lied(value_name(v), " is listed twice, as value ", first, " too");
      }
      twice[source] = true;
    }
    check_given(listed);
  }
  std::vector<bool> output_sources() const {
    std::vector<bool> leaves(graph_.value_count);
    for (uint32_t i = 0; i < graph_.output_count; ++i) {
      leaves[tenon_blob_indices(&blob_, graph_.outputs)[i]] = true;
    }
    return leaves;
  }
  void check_given(const std::vector<uint32_t>& listed) const {
    std::vector<bool> entered(graph_.value_count);
    for (uint32_t v = 0; v < values_.size(); ++v) {
      if (origins_[v] == Origin::entered) entered[values_[v].source] = true;
    }
    const auto need = [&](uint32_t source, const char* what) {
      if (source == TENON_NONE || !is_given(source) || entered[source]) return;
      const std::string name = copy_text(tenon_blob_str(&blob_, graph_value(source).name));
      lied(what, " ", source, name.empty() ? "" : " ", name, " of the graph ",
           listed[source] == TENON_NONE ? "is not listed" : "is written, never read");
    };
    for (uint32_t i = 0; i < graph_.input_count; ++i) {
      need(tenon_blob_indices(&blob_, graph_.inputs)[i], "input");
    }
    for (uint32_t i = 0; i < graph_.output_count; ++i) {
      need(tenon_blob_indices(&blob_, graph_.outputs)[i], "output");
    }
    for (uint32_t n = 0; n < graph_.node_count; ++n) {
      const tenon_blob_node& node = *tenon_blob_node_at(&blob_, &graph_, n);
      for (uint32_t k = 0; k < node.operand_count; ++k) {
        need(tenon_blob_indices(&blob_, node.operands)[k], "operand");
      }
    }
  }

  // Replays one step: it reads existing values and creates new ones.
  void replay(uint32_t s) {
    const Step& step = steps_[s];
    for (uint32_t v : step.reads) {
      if (origins_[v] == Origin::none) {
        lied(step_name(s), " reads ", value_name(v), " before a step makes it");
      }
    }
    for (uint32_t v : step.writes) make(s, v, Origin::made);
    for (const Alias& a : step.aliases) {
      if (a.view) {
        check_view(s, a);
      } else {
        check_in_place(s, a);
      }
    }
  }
  void make(uint32_t s, uint32_t v, Origin origin) {
    if (origins_[v] == Origin::entered) {
      lied(step_name(s), " writes ", value_name(v), ", which is given to the program");
    }
    if (origins_[v] != Origin::none) {
      lied(step_name(s), " makes ", value_name(v), ", which is made already");
    }
    origins_[v] = origin;
  }
  void check_view(uint32_t s, const Alias& a) {
    if (origins_[a.from] == Origin::none) {
      lied(step_name(s), " views ", value_name(a.from), " before a step makes it");
    }
    make(s, a.to, Origin::view);
    const uint64_t whole = values_[a.from].size, part = values_[a.to].size;
    if (a.offset > whole || part > whole - a.offset) {
      lied(step_name(s), ": ", value_name(a.to), " is a view of ", part, " bytes at ", a.offset,
           " of ", value_name(a.from), ", which has ", whole);
    }
  }
  void check_in_place(uint32_t s, const Alias& a) const {
    const Step& step = steps_[s];
    if (!std::ranges::binary_search(step.reads, a.from)) {
      lied(step_name(s), ": ", value_name(a.from), " is in place, but the step does not read it");
    }
    if (!std::ranges::binary_search(step.writes, a.to)) {
      lied(step_name(s), ": ", value_name(a.to), " is in place, but the step does not write it");
    }
    if (values_[a.to].size > values_[a.from].size) {
      lied(step_name(s), ": ", value_name(a.to), " of ", values_[a.to].size,
           " bytes cannot be in place of ", value_name(a.from), " of ", values_[a.from].size);
    }
  }

  // The plugin decides about the bytes of a view. All other values of the graph are dense.
  void check_sizes() const {
    for (uint32_t v = 0; v < values_.size(); ++v) {
      if (values_[v].source == TENON_NONE || origins_[v] == Origin::view || is_derived(v)) continue;
      const tenon_blob_value& graph = graph_value(values_[v].source);
      const uint64_t wanted = tenon_dense_bytes(graph.dtype, tenon_blob_elements(&blob_, &graph));
      if (values_[v].size != wanted) {
        lied(value_name(v), " has ", values_[v].size, " bytes, its type has ", wanted);
      }
    }
    // Larger than any memory, and small enough that sums of sizes cannot overflow.
    constexpr uint64_t kMost = uint64_t{1} << 60;
    uint64_t sum = 0;
    const auto too_much = [&](uint64_t size) { return size >= kMost || (sum += size) >= kMost; };
    for (uint32_t v = 0; v < values_.size(); ++v) {
      if (origins_[v] != Origin::view && too_much(values_[v].size)) {
        lied(value_name(v), " takes ", values_[v].size, " bytes, which makes 2^60 or more in all");
      }
    }
    for (uint32_t s = 0; s < steps_.size(); ++s) {
      if (too_much(steps_[s].scratch)) {
        lied(step_name(s), " wants ", steps_[s].scratch,
             " bytes of scratch, which makes 2^60 bytes or more in all");
      }
    }
  }

  void check_outputs() const {
    const std::vector<bool> leaves = output_sources();
    std::vector<bool> made(graph_.value_count);
    for (uint32_t v = 0; v < values_.size(); ++v) {
      const uint32_t source = values_[v].source;
      if (source == TENON_NONE || !leaves[source] || is_derived(v)) continue;
      if (origins_[v] == Origin::view) {
        lied("output ", value_name(v), " is a view, expected storage of its own");
      }
      made[source] = made[source] || origins_[v] != Origin::none;
    }
    for (uint32_t source = 0; source < graph_.value_count; ++source) {
      if (leaves[source] && !made[source]) {
        lied("output ", source, " of the graph is not listed, or no step makes it");
      }
    }
  }

  const Plugin& plugin_;
  uint64_t least_alignment_;
  const tenon_blob blob_;
  const tenon_blob_function& graph_;
  const tenon_program_info* info_;
  std::vector<ProgramValue> values_;
  std::vector<Step> steps_;
  std::vector<Origin> origins_;  // per value, after the steps replayed so far
};

}  // namespace

Program::Program(std::shared_ptr<Device> device, tenon_program* handle, const void* blob,
                 size_t size)
    : device_(std::move(device)), handle_(handle) {
  const Plugin& plugin = device_->plugin();
  try {
    tenon_blob graph;
    if (const char* bad = tenon_blob_open(blob, size, &graph)) {
      fail(Code::corrupt, "compile: ", bad);
    }
    const tenon_program_info* info =
        guarded(plugin, "program_info", [&] { return plugin.table().program_info(handle_); });
    Declaration declared(*device_, graph, info);
    declared.read();
    values_ = declared.take_values();
    steps_ = declared.take_steps();
  } catch (...) {
    destroy();
    throw;
  }
}
Program::Program(std::shared_ptr<Device> device, std::vector<ProgramValue> values,
                 std::vector<Step> steps)
    : device_(std::move(device)),
      handle_(nullptr),
      values_(std::move(values)),
      steps_(std::move(steps)) {}

void Program::derive(uint32_t value, Buffer& dense, Buffer& derived) const {
  const tenon_slot source{dense.handle(), 0}, target{derived.handle(), 0};
  const tenon_derive_args args = {sizeof args, &source, &target, sizeof(tenon_slot), value, 0};
  call_again(*device_, kFaultRun, "derive",
             [&] { return device_->plugin().derived_weights().derive(handle_, &args); });
}

uint32_t Program::part_count() const {
  constexpr uint32_t kMostParts = 1u << 26;
  const Plugin& plugin = device_->plugin();
  if (!handle_ || !plugin.prepare().count) return 0;
  const uint32_t count =
      guarded(plugin, "prepare.count", [&] { return plugin.prepare().count(handle_); });
  if (count > kMostParts) plugin.lied("prepare.count", "says ", count, " parts");
  return count;
}

void Program::prepare(uint32_t part) const {
  call_again(*device_, kFaultCompile, "prepare.part",
             [&] { return device_->plugin().prepare().part(handle_, part); });
}

Program::~Program() { destroy(); }

void Program::destroy() noexcept {
  if (!handle_) return;
  const Plugin& plugin = device_->plugin();
  give_back(plugin, "program_destroy", [&] { plugin.table().program_destroy(handle_); });
}

}  // namespace tenon::core
