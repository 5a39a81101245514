// SPDX-License-Identifier: Apache-2.0
// Embeds texts: short ones together, each in a sequence of its own.
#include <algorithm>
#include <numeric>

#include "llm/embedding.hpp"
#include "llm/engine_parts.hpp"

namespace tenon::llm {
namespace {

// Lengths of texts that are read together; shorter ones are padded. Longer texts are large enough
// alone.
constexpr int64_t kLengths[] = {4, 8, 12, 16, 24, 32};
// Texts of a run: as many as there are, but no padding.
constexpr size_t kBatches[] = {32, 16, 8, 4};

// 0: the text is read alone.
int64_t length_of(int64_t size) {
  const auto* const at = std::ranges::lower_bound(kLengths, size);
  return at == std::end(kLengths) ? 0 : *at;
}

void check(std::span<const std::vector<int64_t>> texts, int64_t context, int64_t vocab) {
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto size = static_cast<int64_t>(texts[i].size());
    const std::string where = "embed: text " + std::to_string(i) + ": ";
    if (size < 1 || size > context)
      throw Error(TENON_INVALID_ARGUMENT, where + "expected 1 to " + std::to_string(context) +
                                              " tokens, the context, got " + std::to_string(size));
    for (const int64_t token : texts[i])
      if (token < 0 || token >= vocab)
        throw Error(TENON_INVALID_ARGUMENT, where + "expected token ids from 0 to " +
                                                std::to_string(vocab - 1) + ", got " +
                                                std::to_string(token));
  }
}

}  // namespace

// The state of one call of Engine::embed().
struct Engine::Embedding {
  Embedding(Engine& e, std::span<const std::vector<int64_t>> t, const EmbedOptions& o)
      : engine(e),
        p(*e.parts_),
        texts(t),
        options(o),
        pooling(o.pooling ? *o.pooling : own_pooling(p.config)),
        dim(static_cast<size_t>(p.config.dim)),
        out(t.size() * dim) {
    for (const auto& text : texts) all += size_of(text);
    // Sequences for the texts of a run: the cache may have some beside the slots.
    const int64_t slots = p.options.slots;
    if (p.cache->shape().block > 0) {
      for (int64_t i = 0; i < kTextSequences; ++i) sequences.push_back(slots + i);
    } else if (!p.config.recurrent()) {  // which read no padding
      for (int64_t i = 0; i < slots; ++i)
        if (i == o.slot || p.cache->length(i) == 0) sequences.push_back(i);
    }
  }

  static int64_t size_of(const std::vector<int64_t>& text) {
    return static_cast<int64_t>(text.size());
  }

  void run() {
    // Long ones first, so that those of a run have about the same length.
    std::vector<size_t> order(texts.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return texts[i].size(); });
    for (std::span<const size_t> left(order); !left.empty();) {
      const size_t count = together(left);
      if (count > 1)
        read_together(left.first(count));
      else
        read_one(left[0]);
      left = left.subspan(count);
    }
  }

  // How many of the texts the next run reads: those of one length, as far as there is room.
  size_t together(std::span<const size_t> left) const {
    const CacheShape& shape = p.cache->shape();
    const int64_t length = length_of(size_of(texts[left[0]]));
    // Texts that are read together take free memory only, so that prefixes of chats stay. If nothing is
    // free, one has to go in any case; then a few go, which gives the next texts room, too.
    const int64_t free = p.cache->free();
    const int64_t room =
        free > 0 ? free
                 : std::min<int64_t>(p.cache->available(), kBatches[std::size(kBatches) - 1]);
    size_t count = 0;
    int64_t blocks = 0;
    while (length > 0 && count < std::min(left.size(), sequences.size())) {
      const int64_t size = size_of(texts[left[count]]);
      if (length_of(size) != length) break;
      if (shape.block > 0 && (blocks += shape.blocks_of(size)) > room) break;
      ++count;
    }
    for (const size_t batch : kBatches)
      // A graph for some of the slots takes their numbers, one for all of them does not.
      if (batch <= count && (shape.block > 0 || static_cast<int64_t>(batch) < p.options.slots))
        return batch;
    return 1;
  }

  void ask(int64_t read) const {
    if (options.progress && !options.progress(done + read, all))
      throw Error(TENON_CANCELLED, "engine: reading was cancelled");
  }

  void put(size_t text, Pool& pool) {
    try {
      const std::vector<float> vector = pool.take(options.normalize);
      std::ranges::copy(vector, out.begin() + static_cast<ptrdiff_t>(text * dim));
    } catch (const Error& e) {
      throw Error(e.code(), "embed: text " + std::to_string(text) + ": " + e.what());
    }
    done += size_of(texts[text]);
  }

  void read_one(size_t text) {
    Pool pool(pooling, p.config.dim);
    engine.hidden(
        {options.slot, texts[text]}, [&](auto rows) { pool.add(rows); },
        [&](int64_t read, int64_t) { return ask(read), true; });
    put(text, pool);
    engine.clear(options.slot);
  }

  void read_together(std::span<const size_t> group) {
    ask(0);
    const int64_t time = length_of(size_of(texts[group[0]]));
    const auto batch = static_cast<int64_t>(group.size());
    std::vector<Parts::Part> parts;
    for (size_t i = 0; i < group.size(); ++i) parts.push_back({sequences[i], texts[group[i]]});
    const std::vector<float> rows = p.run(parts, {batch, time, false, true}).get<float>("hidden");
    for (size_t i = 0; i < group.size(); ++i) {
      Pool pool(pooling, p.config.dim);
      pool.add(std::span(rows).subspan(i * static_cast<size_t>(time) * dim,
                                       texts[group[i]].size() * dim));
      put(group[i], pool);
    }
    clear();
  }

  void clear() {
    for (const int64_t s : sequences) p.cache->truncate(s, 0);
    engine.clear(options.slot);
  }

  Engine& engine;
  Parts& p;
  const std::span<const std::vector<int64_t>> texts;
  const EmbedOptions& options;
  const Pooling pooling;
  const size_t dim;
  std::vector<float> out;
  std::vector<int64_t> sequences;  // for texts that are read together
  int64_t done = 0, all = 0;       // tokens
};

std::vector<float> Engine::embed(std::span<const std::vector<int64_t>> texts,
                                 const EmbedOptions& options) {
  clear(options.slot);
  Embedding state(*this, texts, options);
  check(texts, context(), config().vocab);  // all, before any is read
  try {
    state.run();
  } catch (...) {
    state.clear();
    throw;
  }
  return std::move(state.out);
}

}  // namespace tenon::llm
