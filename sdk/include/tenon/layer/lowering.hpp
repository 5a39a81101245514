// SPDX-License-Identifier: Apache-2.0
// Converts a blob to steps, node by node. query and compile both use it, so every claim compiles.
//
// Guarantees for kernels:
//   - Operands and outputs that the op requires are present.
//   - Outputs are dense. Without kStrided, operands are dense too.
//   - With kStrided, make() sees the actual strides. If it refuses them, it is called again with
//     dense copies.
//   - A step whose outputs have no elements does not run.
//
// Views cost nothing and are declared as such. An output of the region is dense and has its own
// storage, so a view that is an output is copied.
#pragma once

#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "../body.hpp"
#include "bad_data.hpp"
#include "copy.hpp"
#include "program.hpp"
#include "withdrawn.hpp"

namespace tenon::sdk {

namespace layer {

// The range of bytes that a strided tensor covers, relative to its element 0.
inline std::pair<int64_t, int64_t> span_of(const Type& t) {
  if (t.elements() == 0) return {0, 0};
  if (t.dense()) return {0, static_cast<int64_t>(t.bytes())};
  const int64_t each = tenon_dtype_bits(t.dtype) / 8;
  int64_t low = 0, high = each;
  for (int i = 0; i < t.rank; ++i) {
    const int64_t reach = (t.dims[i] - 1) * t.strides[i] * each;
    (reach < 0 ? low : high) += reach;
  }
  return {low, high};
}

// The plugin's side. make() sees `device` and `abi_minor`. `alignment` applies to all slots. Without host_memory,
// the layer cannot copy, and strided operands need the plugin's own strided `copy` row.
struct Target {
  Device* device = nullptr;
  uint64_t alignment = 64;
  bool host_memory = true;
  uint32_t abi_minor = TENON_ABI_MINOR;
  // Makes a Kernel of what another plugin's maker gives; null: there are no such rows.
  Kernel (*adopt)(const void* kernel, const Node& node) = nullptr;
  // Claims that the device has withdrawn; null: it withdraws none.
  const Withdrawn* withdrawn = nullptr;
};

inline bool is_frozen(const tenon_blob_value& v) {
  return v.space == TENON_SPACE_WEIGHT && !(v.flags & TENON_VALUE_UPDATED);
}

// Every value is at least aligned to its elements.
inline uint64_t aligned_to_element(uint64_t alignment, const Type& type) {
  return std::max<uint64_t>(alignment, tenon_dtype_bits(type.dtype) / 8);
}

// A decoded node. type_at and alignment_at tell how it sees an operand. types: its Values point into
// it.
template <class TypeAt, class AlignmentAt>
Node read_node(const tenon_blob& blob, const tenon_node_view& view, std::string_view domain,
               std::string_view op, const Target& target, std::deque<Type>& types, TypeAt type_at,
               AlignmentAt alignment_at) {
  const tenon_blob_node& n = *view.node;
  Node node = NodeReader::make(domain, op, n.version, target.device, target.abi_minor,
                               tenon_blob_hints(&blob));
  const auto value = [&](uint32_t v) -> const tenon_blob_value& {
    return *tenon_blob_value_at(&blob, view.function, v);
  };
  const auto list = [&](uint64_t offset, uint32_t count) {
    return std::span(tenon_blob_indices(&blob, offset), static_cast<size_t>(count));
  };
  for (const uint32_t v : list(n.operands, n.operand_count)) {
    if (v == TENON_NONE) {
      NodeReader::add_input(node, nullptr, nullptr);
      continue;
    }
    types.push_back(type_at(v));
    const uint64_t data = value(v).data;
    NodeReader::add_input(node, &types.back(), data ? tenon_blob_at(&blob, data) : nullptr,
                          is_frozen(value(v)), aligned_to_element(alignment_at(v), types.back()));
  }
  for (const uint32_t v : list(n.outputs, n.output_count)) {
    if (v != TENON_NONE) types.push_back(type_of(blob, value(v)));
    if (v == TENON_NONE)
      NodeReader::add_output(node, nullptr);
    else
      NodeReader::add_output(node, &types.back(),
                             aligned_to_element(target.alignment, types.back()));
  }
  return node;
}

// Asks the maker of another plugin.
inline Kernel guest_kernel(const tenon_kernel_row& row, const tenon_blob& blob, uint32_t index,
                           const Node& node, const Target& target) {
  struct Answer {
    const Node& node;
    const Target& target;
    std::optional<Kernel> kernel{};
    std::exception_ptr refusal{};
  } answer{node, target};
  tenon_kernel_request request{};
  request.struct_size = sizeof request;
  request.owner = &answer;
  request.blob = blob.bytes;
  request.blob_size = blob.size;
  request.node = index;
  request.abi_minor = target.abi_minor;
  request.alignment = std::numeric_limits<uint64_t>::max();
  for (size_t k = 0; k < node.input_count(); ++k)
    if (const Value v = node.in(k)) request.alignment = std::min(request.alignment, v.alignment());
  for (size_t k = 0; k < node.output_count(); ++k)
    if (const Value v = node.out(k)) request.alignment = std::min(request.alignment, v.alignment());
  request.refuse = [](const tenon_kernel_request* r, uint32_t reason, tenon_str why) {
    auto& a = *static_cast<Answer*>(r->owner);
    try {
      a.refusal = std::make_exception_ptr(Refusal(reason, std::string(text(why))));
    } catch (...) {
      a.refusal = std::current_exception();
    }
  };
  request.give = [](const tenon_kernel_request* r, const void* kernel) {
    auto& a = *static_cast<Answer*>(r->owner);
    try {
      a.kernel = a.target.adopt(kernel, a.node);
    } catch (...) {
      a.refusal = std::current_exception();
    }
  };
  row.make(row.user, &request);
  if (answer.refusal) std::rethrow_exception(answer.refusal);
  if (!answer.kernel)
    throw Refusal(TENON_REASON_OTHER, "the maker of another plugin gave neither kernel nor reason");
  return std::move(*answer.kernel);
}

class Lowering {
 public:
  Lowering(std::span<const Row> rows, const tenon_blob& blob, Target target = {})
      : rows_(rows),
        blob_(blob),
        target_(target),
        function_(*tenon_blob_function_at(&blob, 0)),
        places_(function_.value_count) {
    const uint32_t* outputs = tenon_blob_indices(&blob_, function_.outputs);
    leaves_.insert(outputs, outputs + function_.output_count);
    for (uint32_t v = 0; v < function_.value_count; ++v) {
      if (value(v).space != TENON_SPACE_NODE) store(v);
    }
  }

  uint32_t node_count() const { return function_.node_count; }

  // Adds the steps of a node and returns its cost. Throws Refusal and adds nothing if the node is
  // refused. Call it for all nodes in order.
  double lower(uint32_t index) {
    const tenon_node_view view = tenon_node_at(&blob_, 0, index);
    const tenon_blob_node& n = *view.node;
    check_type(unknown_type(view), " of an operand, an output or an attribute");
    const std::string_view domain = text(tenon_blob_str(&blob_, n.domain)),
                           op = text(tenon_blob_str(&blob_, n.op));
    std::optional<Refusal> refusal;
    bool withdrawn = false;
    for (const Row& row : rows_) {
      if (row.op != op || row.domain != domain || row.version < n.version) continue;
      try {
        check_blocks(view, domain, op, row.flags);
        return lower_by(row, view, index);
      } catch (const Refusal& e) {  // the next row may be another plugin's
        withdrawn |= dynamic_cast<const WithdrawnBefore*>(&e) != nullptr;
        refusal = refusal
                      ? Refusal(refusal->reason(), std::string(refusal->what()) + "; " + e.what())
                      : e;
      }
    }
    if (refusal && withdrawn) throw WithdrawnBefore(*refusal);
    if (refusal) throw Refusal(*refusal);
    refuse_op(domain, op, n.version);
  }

  // Replaces lower() for a refused node: its outputs are computed elsewhere.
  void leave_out(uint32_t index) {
    const tenon_blob_node& n = *tenon_blob_node_at(&blob_, &function_, index);
    for (uint32_t v : indices(n.outputs, n.output_count)) {
      if (v != TENON_NONE) store(v);
    }
  }

  // Returns the program. Call it after the last node.
  Program finish() {
    for (uint32_t v : indices(function_.outputs, function_.output_count)) {
      const bool first = leaves_.erase(v) != 0;
      if (!first || value(v).space == TENON_SPACE_NODE) continue;
      check_type(tenon_blob_unknown(&value(v)), " of an output");
      Kernel copy = make_copy(places_[v], places_[v].type);
      const Place target =
          storage(v, places_[v].type);  // the output: a second value with this source
      copy_step(std::move(copy), places_[v], target, TENON_NONE);
    }
    return std::move(program_);
  }

 private:
  // The location of a blob value.
  struct Place {
    Location at;
    Type type;                   // with the strides that readers see
    uint32_t root = TENON_NONE;  // the program value that owns the storage
    int64_t origin = 0;          // in bytes, from the start of that storage to element 0
  };

  std::span<const uint32_t> indices(uint64_t offset, uint32_t count) const {
    return {tenon_blob_indices(&blob_, offset), count};
  }
  std::span<const uint32_t> operands(const tenon_blob_node& n) const {
    return indices(n.operands, n.operand_count);
  }
  std::span<const uint32_t> outputs(const tenon_blob_node& n) const {
    return indices(n.outputs, n.output_count);
  }
  const tenon_blob_value& value(uint32_t v) const {
    return *tenon_blob_value_at(&blob_, &function_, v);
  }
  Type declared_type(uint32_t v) const { return type_of(blob_, value(v)); }

  [[noreturn]] void refuse_op(std::string_view domain, std::string_view op,
                              uint32_t version) const {
    std::string other;
    for (const Row& row : rows_)
      if (row.op == op && row.domain == domain)
        other = " (this plugin has version " + std::to_string(row.version) + ")";
    std::string name(domain == "tenon" ? "" : domain);  // as graph text names it
    if (!name.empty()) name += ':';
    name += op;
    throw Refusal(TENON_REASON_OP,
                  "no kernel for op " + name + " version " + std::to_string(version) + other);
  }

  double lower_by(const Row& row, const tenon_node_view& view, uint32_t index) {
    const tenon_blob_node& n = *view.node;
    check_complete(view, row);
    bool dense = !(row.flags & kStrided);
    Kernel kernel;
    try {
      kernel = make(row, index, dense);
    } catch (const Refusal&) {
      if (dense || !reads_strided(n)) throw;
      dense = true;
      kernel = make(row, index, dense);
    }
    std::string form;
    if (target_.withdrawn) {
      form = form_of(row, n, dense);
      std::optional<std::string> why = target_.withdrawn->why(form);
      if (why && !dense && reads_strided(n)) {
        dense = true;
        kernel = make(row, index, dense);
        form = form_of(row, n, dense);
        why = target_.withdrawn->why(form);
      }
      if (why) throw WithdrawnBefore({TENON_REASON_OTHER, *why});
    }
    const double cost = kernel.cost;
    add(n, index, std::move(kernel), dense, std::move(form));
    return cost;
  }

  // dense: the kernel reads dense copies.
  std::string form_of(const Row& row, const tenon_blob_node& n, bool dense) const {
    FormWriter w(blob_);
    w.node(function_, n, false);
    w.number(static_cast<uint64_t>(&row - rows_.data()));
    w.number(dense);
    for (uint32_t v : operands(n)) {
      if (dense || v == TENON_NONE) continue;
      const Place& place = places_[v];
      for (int i = 0; i < place.type.rank; ++i)
        w.number(static_cast<uint64_t>(place.type.strides[static_cast<size_t>(i)]));
      w.number(alignment_of(place));
    }
    return w.take();
  }

  static void check_complete(const tenon_node_view& view, const Row& row) {
    const OpSchema* schema = row.schema;
    if (!schema && row.domain == "tenon") schema = find_op(row.op);
    if (schema && schema->version == row.version) layer::check_complete(*schema, view);
  }

  bool reads_strided(const tenon_blob_node& n) const {
    return std::ranges::any_of(
        operands(n), [&](uint32_t v) { return v != TENON_NONE && !places_[v].type.dense(); });
  }

  // A kernel with run(): the rest of the layer asks it whether there is work.
  static Kernel made(const Row& row, tenon_node_view& view, const Node& node) {
    Kernel kernel = row.make(view, node);
    if (kernel.bind && !kernel.run)
      kernel.run = [bind = kernel.bind](const Call& c) { bind(c)({c.stream, nullptr}); };
    return kernel;
  }

  Kernel make(const Row& row, uint32_t index, bool dense) const {
    tenon_node_view view = tenon_node_at(&blob_, 0, index);
    std::deque<Type> types;
    const Node node = read_node(
        blob_, view, row.domain, row.op, target_, types,
        [&](uint32_t v) { return dense ? declared_type(v) : places_[v].type; },
        [&](uint32_t v) {
          return dense && !places_[v].type.dense() ? target_.alignment : alignment_of(places_[v]);
        });
    if (row.guest) return guest_kernel(*row.guest, blob_, index, node, target_);
    Kernel kernel = made(row, view, node);
    check_known(view);
    if (!kernel.run && kernel.view.empty())
      throw Refusal(TENON_REASON_OTHER, "its kernel is empty");
    if (kernel.can_fail && !kernel.describe && !target_.host_memory)
      kernel.describe = describe(tenon_node_at(&blob_, 0, index), node);
    return kernel;
  }

  uint64_t alignment_of(const Place& p) const {
    const auto origin = static_cast<uint64_t>(p.origin);
    return origin == 0 ? target_.alignment : std::min(target_.alignment, origin & (0 - origin));
  }

  uint32_t add_value(uint32_t source, uint64_t size) {
    program_.values.push_back({source, 0, size, 0, {}});
    return static_cast<uint32_t>(program_.values.size() - 1);
  }
  // Gives a value of the graph storage of its own. A value of a type that this plugin does not know
  // gets none, because nodes that touch it are refused.
  void store(uint32_t v) {
    if (!tenon_blob_unknown(&value(v))) places_[v] = storage(v, declared_type(v));
  }
  Place storage(uint32_t source, Type dense) {
    const uint32_t place = add_value(source, dense.bytes());
    return {{place, 0}, dense, place};
  }

  // The operand as a dense tensor. The copy is made once, for all readers. form: of the node, whose
  // claim is withdrawn if the copy does not build.
  const Place& densified(uint32_t v, uint32_t node, const std::string& form) {
    if (places_[v].type.dense()) return places_[v];
    if (const auto made = dense_.find(v); made != dense_.end()) return made->second;
    const Type type = declared_type(v);
    Kernel copy = make_copy(places_[v], type);
    const Place& target = dense_.emplace(v, storage(TENON_NONE, type)).first->second;
    copy_step(std::move(copy), places_[v], target, node, form);
    return target;
  }

  // The plugin's own copy kernel if it accepts these strides, otherwise the layer's.
  Kernel make_copy(const Place& source, const Type& to) const {
    const Type& from = source.type;
    for (const Row& row : rows_) {
      if (row.op != op::copy::kName || row.domain != op::copy::kDomain || !(row.flags & kStrided))
        continue;
      const tenon_blob_node bare{};
      tenon_node_view view{&blob_, &function_, &bare, 0, 0, 0, 0, 0};
      Node node = NodeReader::make("tenon", row.op, row.version, target_.device, target_.abi_minor,
                                   tenon_blob_hints(&blob_));
      NodeReader::add_input(node, &from, nullptr, false, alignment_of(source));
      NodeReader::add_output(node, &to, target_.alignment);
      try {
        Kernel kernel = made(row, view, node);
        if (kernel.run) return kernel;
      } catch (const Refusal&) {
        if (!target_.host_memory) throw;
        break;
      }
    }
    if (!target_.host_memory) throw Refusal(TENON_REASON_OTHER, "this plugin has no strided copy");
    return copy_kernel(from);
  }

  void copy_step(Kernel copy, const Place& from, const Place& to, uint32_t node,
                 const std::string& form = {}) {
    StepBody& step = program_.bodies.emplace_back();
    step.form = form;
    step.kernel = std::move(copy);
    step.label = "copy";
    step.node = node;
    step.inputs = {from.at};
    step.outputs = {to.at};
    seal(step, to.type.elements() != 0);
  }

  // Lists the values that the step touches. Without `work`, the step is only declared.
  void seal(StepBody& step, bool work) {
    const auto list = [](const std::vector<Location>& from, std::vector<uint32_t>& to) {
      for (const Location& l : from) {
        if (l.value != TENON_NONE && std::ranges::find(to, l.value) == to.end())
          to.push_back(l.value);
      }
    };
    list(step.inputs, step.reads);
    list(step.outputs, step.writes);
    if (!work) step.kernel.run = nullptr;
  }

  void add(const tenon_blob_node& n, uint32_t index, Kernel kernel, bool dense, std::string form) {
    std::vector<const Place*> from;
    for (uint32_t v : operands(n)) {
      from.push_back(v == TENON_NONE ? nullptr : dense ? &densified(v, index, form) : &places_[v]);
    }
    if (!kernel.view.empty()) return add_view(n, index, *from[0], kernel.view[0]);
    StepBody step{.kernel = std::move(kernel), .form = std::move(form)};
    bool work = false;
    for (const Place* p : from) step.inputs.push_back(p ? p->at : Location{});
    for (uint32_t v : outputs(n)) {
      if (v != TENON_NONE) places_[v] = storage(v, declared_type(v));
      step.outputs.push_back(v == TENON_NONE ? Location{} : places_[v].at);
      work |= v != TENON_NONE && places_[v].type.elements() != 0;
    }
    for (const Derived& wanted : step.kernel.derived) use_derived(n, wanted, step);
    for (const InPlace& pair : step.kernel.in_place) alias_in_place(n, from, pair, step);
    step.label = step.kernel.label.empty() ? std::string(text(tenon_blob_str(&blob_, n.op)))
                                           : step.kernel.label;
    step.node = index;
    seal(program_.bodies.emplace_back(std::move(step)), work);
  }

  // The operand in the layout that the kernel asked for. There is one program value per weight and
  // layout.
  void use_derived(const tenon_blob_node& n, const Derived& wanted, StepBody& step) {
    const auto input = static_cast<size_t>(wanted.input);
    const uint32_t source = input < operands(n).size() ? operands(n)[input] : TENON_NONE;
    if (source == TENON_NONE || wanted.size == 0 || wanted.layout.empty() ||
        !is_frozen(value(source)))
      throw Refusal(TENON_REASON_OTHER,
                    "operand " + std::to_string(wanted.input) + " cannot be a derived weight");
    if (target_.host_memory ? !wanted.make : !wanted.enqueue)
      throw Refusal(TENON_REASON_OTHER, "derived weight " + wanted.layout +
                                            ": nothing makes it; expected Derived::" +
                                            (target_.host_memory ? "make" : "enqueue"));
    const auto [at, fresh] = derived_.try_emplace({source, wanted.layout}, TENON_NONE);
    if (fresh) {
      at->second = add_value(source, wanted.size);
      program_.derived.push_back(
          {at->second, places_[source].type.bytes(), wanted.layout, wanted.make, wanted.enqueue});
    }
    step.inputs[input] = {at->second, 0};
  }

  // Declares an in-place pair, unless another operand shares the storage and would be overwritten
  // while it is read.
  void alias_in_place(const tenon_blob_node& n, const std::vector<const Place*>& from, InPlace pair,
                      StepBody& step) {
    const auto in = static_cast<size_t>(pair.input), out = static_cast<size_t>(pair.output);
    if (in >= from.size() || !from[in] || out >= outputs(n).size() || outputs(n)[out] == TENON_NONE)
      return;
    const Place &source = *from[in], &target = places_[outputs(n)[out]];
    const auto sharing =
        std::ranges::count_if(from, [&](const Place* p) { return p && p->root == source.root; });
    if (sharing != 1 || !source.type.dense() || source.type.bytes() != target.type.bytes()) return;
    step.aliases.push_back({TENON_ALIAS_IN_PLACE, source.at.value, target.at.value, 0, 0});
  }

  void add_view(const tenon_blob_node& n, uint32_t index, const Place& from, const View& view) {
    const uint32_t v = outputs(n)[0];
    Type type = declared_type(v);
    if (type.elements() != 0) type.strides = view.strides;
    const int64_t each =
        tenon_dtype_bits(type.dtype) / 8;  // 0 for types below one byte, whose views start at 0
    const int64_t first = from.at.displacement + view.offset * each;
    if (leaves_.contains(v)) {
      const Place seen{{from.at.value, first}, type, from.root, from.origin + view.offset * each};
      Kernel copy = make_copy(seen, declared_type(v));
      places_[v] = storage(v, declared_type(v));
      return copy_step(std::move(copy), seen, places_[v], index);
    }
    const auto [low, high] = span_of(type);
    StepBody step;
    step.label = "view";
    step.node = index;
    step.inputs = {from.at};
    const uint32_t seen = add_value(v, static_cast<uint64_t>(high - low));
    step.outputs = {{seen, 0}};
    const int64_t offset = high == low ? 0 : first + low;
    step.aliases = {{TENON_ALIAS_VIEW, from.at.value, seen, 0, static_cast<uint64_t>(offset)}};
    const uint32_t root = from.root;
    const int64_t origin = from.origin + view.offset * each;
    places_[v] = {{seen, -low}, type, root, origin};
    seal(program_.bodies.emplace_back(std::move(step)), false);
    program_.bodies.back().writes.clear();  // a view is not computed
  }

  std::span<const Row> rows_;
  tenon_blob blob_;
  Target target_;
  const tenon_blob_function& function_;
  std::vector<Place> places_;                                     // per value of the blob
  std::unordered_map<uint32_t, Place> dense_;                     // dense copies of strided values
  std::map<std::pair<uint32_t, std::string>, uint32_t> derived_;  // program values
  std::unordered_set<uint32_t> leaves_;                           // outputs of the region
  Program program_;
};

}  // namespace layer
}  // namespace tenon::sdk
