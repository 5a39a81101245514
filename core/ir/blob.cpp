// SPDX-License-Identifier: Apache-2.0
// Writes a graph, or a region of it, as a blob.
#include "ir/blob.hpp"

#include <bit>
#include <cstring>
#include <deque>
#include <unordered_map>

#include "ops/record.hpp"

namespace tenon::core {
namespace {

// The version of the format that expresses all graphs. Once a newer one can say more, the writer
// chooses the lowest that expresses the graph at hand, so that older plugins read it.
constexpr uint32_t kLowestVersion = 2;

// A function to write: some nodes of a graph.
struct Piece {
  const Graph& graph;
  std::vector<NodeId> nodes;
  std::vector<Value> inputs, outputs;
};

// A whole graph. Each value that leaves is listed once.
Piece whole(const Graph& g) {
  Piece piece{g, {}, g.inputs(), {}};
  piece.inputs.insert(piece.inputs.end(), g.weights().begin(), g.weights().end());
  piece.inputs.insert(piece.inputs.end(), g.states().begin(), g.states().end());
  std::vector<bool> seen(g.value_count());
  auto read = [&](Value v) {
    if (!v || g[v].space != Space::constant || seen[v.id]) return;
    seen[v.id] = true;
    piece.inputs.push_back(v);
  };
  for (NodeId n = 0; n < g.node_count(); ++n) {
    piece.nodes.push_back(n);
    for (Value v : g[n].operands) read(v);
  }
  std::vector<bool> leaves(g.value_count());
  auto leave = [&](Value v) {
    read(v);
    if (!leaves[v.id]) piece.outputs.push_back(v);
    leaves[v.id] = true;
  };
  for (const Output& o : g.outputs()) leave(o.value);
  for (const Update& u : g.updates())
    if (u.value != u.target) leave(u.value);
  return piece;
}

class Writer {
 public:
  Writer() { reserve(sizeof(tenon_blob_header)); }

  // Writes function 0 and all bodies that it needs. Fills the maps of function 0.
  Blob write(Piece piece, uint32_t hints, RegionBlob* out) {
    queue_.push_back(std::move(piece));
    std::vector<tenon_blob_function> functions;
    for (; !queue_.empty(); queue_.pop_front()) {
      RegionBlob ignored;
      functions.push_back(write_function(queue_.front(), functions.empty() ? *out : ignored));
    }
    tenon_blob_header header{};
    header.magic = TENON_BLOB_MAGIC;
    header.version = kLowestVersion;
    header.header_size = sizeof header;
    header.functions = array(std::span<const tenon_blob_function>(functions));
    header.name = functions[0].name;
    header.function_count = static_cast<uint32_t>(functions.size());
    header.function_stride = sizeof(tenon_blob_function);
    header.value_stride = sizeof(tenon_blob_value);
    header.node_stride = sizeof(tenon_blob_node);
    header.attr_stride = sizeof(tenon_blob_attr);
    header.hints = hints;
    header.size = words_.size() * 8;
    std::memcpy(words_.data(), &header, sizeof header);
    return Blob(std::move(words_));
  }

 private:
  uint64_t reserve(uint64_t bytes) {
    const uint64_t offset = words_.size() * 8;
    words_.resize(words_.size() + (bytes + 7) / 8);
    return offset;
  }
  void put(uint64_t offset, const void* bytes, size_t size) {
    if (size) std::memcpy(reinterpret_cast<std::byte*>(words_.data()) + offset, bytes, size);
  }
  template <class T>
  uint64_t array(std::span<const T> items) {
    const uint64_t offset = reserve(items.size_bytes());
    put(offset, items.data(), items.size_bytes());
    return offset;
  }
  uint64_t string(std::string_view text) {
    if (text.empty()) return 0;
    const auto [at, fresh] = strings_.try_emplace(std::string(text), 0);
    if (!fresh) return at->second;
    const auto size = static_cast<uint32_t>(text.size());
    const uint64_t offset = reserve(4 + text.size());
    put(offset, &size, 4);
    put(offset + 4, text.data(), text.size());
    return at->second = offset;
  }

  uint32_t function(const FunctionAttr& body) {
    check(body != nullptr, "blob: a function attribute is empty");
    if (++function_count_ > 65535)
      fail(Code::unsupported, "graph: more than 65535 function bodies");
    queue_.push_back(whole(*body));
    return function_count_;
  }

  tenon_blob_attr attr(const Attr& a) {
    tenon_blob_attr out{};
    out.name = string(a.name);
    out.type = static_cast<uint32_t>(a.value.index()) +
               1;  // alternatives are in the order of TENON_ATTR_*
    std::visit(
        [&]<class T>(const T& v) {
          if constexpr (std::is_same_v<T, int64_t>)
            out.bits = static_cast<uint64_t>(v);
          else if constexpr (std::is_same_v<T, double>)
            out.bits = std::bit_cast<uint64_t>(v);
          else if constexpr (std::is_same_v<T, bool>)
            out.bits = v;
          else if constexpr (std::is_same_v<T, std::string>)
            out.bits = string(v);
          else if constexpr (std::is_same_v<T, DTypeAttr>)
            out.bits = v.dtype;
          else if constexpr (std::is_same_v<T, FunctionAttr>)
            out.bits = function(v);
          else
            out.bits = array(std::span(v)), out.count = static_cast<uint32_t>(v.size());
        },
        a.value);
    return out;
  }

  tenon_blob_value value(const Graph& g, Value v, uint32_t node, uint32_t output) {
    const ValueInfo& info = g[v];
    check(info.type.dtype != TENON_DTYPE_NONE && info.type.shape.numeric(), "blob: value '",
          info.name, "' has no numeric type");
    tenon_blob_value out{};
    out.dtype = info.type.dtype;
    const bool outside = info.space == Space::node && node == kNone;
    out.space = static_cast<uint8_t>(outside ? Space::input : info.space);
    out.rank = static_cast<uint8_t>(info.type.shape.rank());
    out.flags = g.update_of(v) ? TENON_VALUE_UPDATED : 0;
    out.node = node;
    out.output = output;
    out.dims = array(info.type.shape.dims());
    out.name = string(info.name);
    if (info.space == Space::constant && info.data->size() <= kBlobConstantLimit) {
      out.data = array(std::span<const std::byte>(*info.data));
      out.data_size = info.data->size();
    }
    return out;
  }

  tenon_blob_function write_function(const Piece& p, RegionBlob& maps) {
    std::unordered_map<uint32_t, uint32_t> index;  // of graph values
    std::vector<tenon_blob_value> values;
    auto add = [&](Value v, uint32_t node, uint32_t output) {
      check(index.emplace(v.id, values.size()).second, "blob: a value stands twice");
      values.push_back(value(p.graph, v, node, output));
      maps.values.push_back(v);
      return static_cast<uint32_t>(values.size() - 1);
    };
    auto find = [&](Value v, std::string_view who) {
      if (!v) return kNone;
      const auto found = index.find(v.id);
      check(found != index.end(), "blob: ", who, " reads a value from outside that is no input");
      return found->second;
    };

    std::vector<uint32_t> inputs, outputs;
    for (Value v : p.inputs) inputs.push_back(add(v, kNone, 0));
    std::vector<tenon_blob_node> nodes;
    for (NodeId id : p.nodes) {
      const NodeInfo& n = p.graph[id];
      check(!n.op->meta(), "blob: ", n.op->name(), " was not expanded");
      std::vector<uint32_t> operands, results;
      std::vector<tenon_blob_attr> attrs;
      for (Value v : n.operands) operands.push_back(find(v, n.op->name()));
      for (uint32_t k = 0; k < n.outputs.size(); ++k)
        results.push_back(n.outputs[k] ? add(n.outputs[k], static_cast<uint32_t>(nodes.size()), k)
                                       : kNone);
      // A node of a registered op is complete: its kernels may be older than its description, and
      // may be written without the SDK.
      const bool complete = n.op->is_registered();
      for (const Attr& a : complete ? complete_attrs(n) : n.attrs) attrs.push_back(attr(a));
      if (complete) {
        operands.resize(std::max(operands.size(), operand_count(*n.op, n.lists)), kNone);
        results.resize(std::max(results.size(), output_count(*n.op)), kNone);
      }
      // A list of outputs is the last of an op's outputs.
      std::vector<uint32_t> result_lists;
      if (has_output_list(*n.op)) {
        const size_t before = std::min(output_count(*n.op), results.size());
        result_lists.push_back(static_cast<uint32_t>(results.size() - before));
      }
      nodes.push_back({.domain = string(n.op->domain),
                       .op = string(n.op->schema->name),
                       .operands = array(std::span<const uint32_t>(operands)),
                       .outputs = array(std::span<const uint32_t>(results)),
                       .attrs = array(std::span<const tenon_blob_attr>(attrs)),
                       .operand_lists = array(std::span<const uint32_t>(n.lists)),
                       .output_lists = array(std::span<const uint32_t>(result_lists)),
                       .provenance = string(n.provenance),
                       .version = n.op->lowest_version(n),
                       .operand_count = static_cast<uint32_t>(operands.size()),
                       .output_count = static_cast<uint32_t>(results.size()),
                       .attr_count = static_cast<uint32_t>(attrs.size()),
                       .operand_list_count = static_cast<uint32_t>(n.lists.size()),
                       .output_list_count = static_cast<uint32_t>(result_lists.size()),
                       .flags = 0,
                       .reserved0 = 0});
      maps.nodes.push_back(id);
    }
    for (Value v : p.outputs) outputs.push_back(find(v, "an output"));
    return {.name = string(p.graph.name),
            .values = array(std::span<const tenon_blob_value>(values)),
            .nodes = array(std::span<const tenon_blob_node>(nodes)),
            .inputs = array(std::span<const uint32_t>(inputs)),
            .outputs = array(std::span<const uint32_t>(outputs)),
            .value_count = static_cast<uint32_t>(values.size()),
            .node_count = static_cast<uint32_t>(nodes.size()),
            .input_count = static_cast<uint32_t>(inputs.size()),
            .output_count = static_cast<uint32_t>(outputs.size())};
  }

  std::vector<uint64_t> words_;
  std::unordered_map<std::string, uint64_t> strings_;
  std::deque<Piece> queue_;
  uint32_t function_count_ = 0;  // bodies so far, without function 0
};

RegionBlob write(Piece piece, uint32_t hints) {
  RegionBlob out;
  out.blob = Writer().write(std::move(piece), hints, &out);
  return out;
}

}  // namespace

RegionBlob write_blob(const Graph& graph, uint32_t hints) { return write(whole(graph), hints); }

RegionBlob write_region(const Graph& graph, std::span<const NodeId> nodes,
                        std::span<const Value> inputs, std::span<const Value> outputs,
                        uint32_t hints) {
  return write({graph,
                {nodes.begin(), nodes.end()},
                {inputs.begin(), inputs.end()},
                {outputs.begin(), outputs.end()}},
               hints);
}

}  // namespace tenon::core
