// SPDX-License-Identifier: Apache-2.0
// elementwise_region and batch_elementwise_region: a kernel for a body, its text made from the
// steps. Sets of a batch whose texts are the same share launches.
#include "fused.hpp"

#include <algorithm>
#include <bit>

#include "../kernels.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

// NumPy's broadcasting of all operands, of at least the rank that constants have.
std::vector<int64_t> common_shape(const std::vector<sdk::Value>& in, int rank) {
  for (const sdk::Value& v : in) rank = std::max(rank, v.type().rank);
  std::vector<int64_t> shape(static_cast<size_t>(rank), 1);
  for (const sdk::Value& v : in) {
    const sdk::Type& t = v.type();
    for (int i = 0; i < t.rank; ++i)
      if (int64_t& d = shape[static_cast<size_t>(i + rank - t.rank)]; d == 1) d = t.dims[i];
  }
  return shape;
}

// Operands and outputs of a node under the body, from the given positions on.
class Set {
 public:
  Set(const FusedText& body, const Node& node, size_t first, size_t first_out, bool batch)
      : first_out_(first_out) {
    std::vector<sdk::Value> in;
    for (size_t k = 0; k < body.text.inputs().size(); ++k) {
      in.push_back(node.in(first + k));
      inputs_.push_back(first + k);
      const tenon_dtype t = in.back().type().dtype;
      if (t != body.text.inputs()[k]) throw Refusal::dtype("xs", t);
    }
    const std::vector<int64_t> shape = common_shape(in, body.least_rank);
    const FrameOptions options{.batch = batch,
                               .fold = body.fold_over(shape),
                               .multiprocessors = device_of(node).properties().multiprocessors};
    for (size_t k = 0; k < body.outputs.size(); ++k) add_output(body, k, node, in, shape);
    frame_.emplace(body.text, in, shape, options);
    arguments_ = frame_->arguments(body.outputs.size());
  }

  const Frame& frame() const { return *frame_; }
  const std::vector<sdk::InPlace>& in_place() const { return in_place_; }
  size_t words() const { return arguments_.size(); }
  // With the pointers of a run; `partial` takes the place of the result that is reduced.
  FrameArguments arguments(const Call& c, void* partial = nullptr, int64_t first_block = 0) const {
    FrameArguments a = arguments_;
    const auto word = [](const void* p) { return reinterpret_cast<uint64_t>(p); };
    for (size_t k = 0; k < inputs_.size(); ++k) a[k] = word(c.inputs[inputs_[k]]);
    for (size_t k = 0; k < outputs_; ++k) a[inputs_.size() + k] = word(c.outputs[first_out_ + k]);
    if (partial) a[inputs_.size() + frame_->fold()->output] = word(partial);
    if (first_block) frame_->set_first_block(a, static_cast<uint32_t>(first_block));
    return a;
  }

 private:
  void add_output(const FusedText& body, size_t k, const Node& node,
                  const std::vector<sdk::Value>& in, std::span<const int64_t> shape) {
    const sdk::Value out = node.out(first_out_ + k);
    if (!out) throw Refusal::shape("an output of the fused body is left out");
    if (out.type().dtype != body.outputs[k]) throw Refusal::dtype("ys", out.type().dtype);
    ++outputs_;
    if (body.fold && body.fold->output == k) return;
    if (!std::ranges::equal(out.type().shape(), shape))
      throw Refusal::shape("an output of the fused body has not its shape");
    // A thread reads what belongs to its elements before it writes them.
    for (const sdk::Value& v : in)
      if (Frame::replaceable(v.type(), shape, out.type().dtype))
        in_place_.push_back({v.position(), out.position()});
  }

  std::vector<size_t> inputs_{};  // positions
  size_t first_out_, outputs_ = 0;
  std::vector<sdk::InPlace> in_place_{};
  std::optional<Frame> frame_{};
  FrameArguments arguments_{};
};

Grid grid_of(const Frame& f, const Node& node) {
  return {.blocks = f.blocks(),
          .threads = f.threads(),
          .early = device_of(node).properties().early_starts};
}

constexpr const char* kEntry = "elementwise";

Kernel make_elementwise_region(const sdk::op::elementwise_region& n, const Node& node) {
  const FusedText body{sdk::Body(n.body)};
  if (node.input_count() != body.text.inputs().size() || node.output_count() != body.outputs.size())
    throw Refusal::shape("the body's operands or outputs are not the node's");
  CudaDevice& device = device_of(node);
  const Set set(body, node, 0, 0, false);
  const Frame& frame = set.frame();
  const char* name = !body.fold        ? "elementwise_region"
                     : frame.is_rows() ? "elementwise_region over rows"
                                       : "elementwise_region over columns";
  const Code code = device.generated(name, frame.text(body.text), kEntry);
  Kernel kernel;
  if (!body.fold || frame.stage().pieces == 1) {
    kernel = kernel_of({code}, [=, grid = grid_of(frame, node)](const Call& c) {
      code.launch_words(c, grid, set.arguments(c).data());
    });
  } else {
    const ReduceStage& s = frame.stage();
    const ReduceLaunch last = reduce_launch(
        device,
        {.outer = s.outer, .n = s.pieces, .inner = s.inner, .piece = s.pieces, .count = s.n},
        body.fold->how, body.fold->result, 256, false, true);
    kernel = kernel_of({code, last.code()},
                       [=, grid = grid_of(frame, node), out = body.fold->output](const Call& c) {
                         code.launch_words(c, grid, set.arguments(c, c.scratch).data());
                         last.run(c, c.scratch, c.outputs[out]);
                       });
    kernel.scratch =
        static_cast<uint64_t>(s.outer * s.pieces * s.inner * body.fold->how.partial_bytes);
  }
  kernel.in_place = set.in_place();
  return kernel;
}

// Sets that one launch takes.
struct Share {
  std::string text{};  // of a launch of one
  std::vector<Set> sets{};
  size_t most = 0;  // sets of a launch
  Grid grid{};      // but for the blocks
  Code code{};

  void run(const Call& c) const {
    for (size_t first = 0; first < sets.size(); first += most) {
      const size_t count = std::min(most, sets.size() - first);
      int64_t blocks = 0;
      std::vector<uint64_t> words;  // Sets of elementwise.cuh
      words.reserve(most * sets[0].words() + 1);
      for (size_t k = first; k < first + count; ++k) {
        const FrameArguments a = sets[k].arguments(c, nullptr, blocks);
        words.insert(words.end(), a.begin(), a.end());
        blocks += sets[k].frame().blocks();
      }
      words.resize(most * sets[0].words());
      words.push_back(count);
      Grid now = grid;
      now.blocks = blocks;
      code.launch_words(c, now, words.data());
    }
  }
};

std::vector<Share> shares_of(const FusedText& body, const Node& node, size_t sets) {
  std::vector<Share> shares;
  const size_t inputs = body.text.inputs().size(), outputs = body.outputs.size();
  for (size_t s = 0; s < sets; ++s) {
    Set set(body, node, s * inputs, s * outputs, true);
    if (set.frame().blocks() == 0) continue;
    if (set.frame().blocks() >= kNarrowIndex / static_cast<int64_t>(sets))
      throw Refusal::shape("a set of the batch is too large for one launch");
    std::string text = set.frame().text(body.text, 1);
    auto share = std::ranges::find(shares, text, &Share::text);
    if (share == shares.end()) share = shares.insert(share, Share{.text = std::move(text)});
    share->sets.push_back(std::move(set));
  }
  return shares;
}

Kernel make_batch_elementwise_region(const sdk::op::batch_elementwise_region& n, const Node& node) {
  const FusedText body{sdk::Body(n.body)};
  if (n.sets < 1) throw Refusal::attribute("sets", std::to_string(n.sets));
  const auto sets = static_cast<size_t>(n.sets);
  if (node.input_count() != sets * body.text.inputs().size() ||
      node.output_count() != sets * body.outputs.size())
    throw Refusal::shape("the body's operands or outputs are not the node's");
  std::vector<Share> shares = shares_of(body, node, sets);
  std::vector<Code> codes;
  std::vector<sdk::InPlace> in_place;
  for (Share& share : shares) {
    constexpr size_t kMostWords = 4096 / sizeof(uint64_t) - 1;  // of a kernel's arguments
    share.most = std::min(kMostWords / share.sets[0].words(), std::bit_ceil(share.sets.size()));
    share.grid = grid_of(share.sets[0].frame(), node);
    share.code = device_of(node).generated(
        "batch_elementwise_region",
        share.sets[0].frame().text(body.text, static_cast<int64_t>(share.most)), kEntry);
    codes.push_back(share.code);
    for (const Set& set : share.sets)
      in_place.insert(in_place.end(), set.in_place().begin(), set.in_place().end());
  }
  Kernel kernel = kernel_of(codes, [shares = std::move(shares)](const Call& c) {
    for (const Share& share : shares) share.run(c);
  });
  kernel.in_place = std::move(in_place);
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::elementwise_region, make_elementwise_region>(sdk::kStrided),
    sdk::row<sdk::op::batch_elementwise_region, make_batch_elementwise_region>(sdk::kStrided),
};

}  // namespace

std::span<const sdk::Row> fused_rows() { return kRows; }

}  // namespace tenon::cuda
