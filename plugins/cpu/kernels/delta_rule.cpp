// SPDX-License-Identifier: Apache-2.0
// gated_delta_rule gated_delta_rule_backward. Tokens follow each other; sequences, heads and columns
// of the state are independent, and threads share them. Heads with one decay take chunks of tokens,
// whose products with the state run at the rate of matrix products; others take token by token.
#include "delta_rule.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "blocks.hpp"
#include "convert.hpp"
#include "index_policy.hpp"
#include "slots.hpp"

namespace tenon::cpu {
namespace {

constexpr float kLeastSquare = 1e-6f;  // added to the squared length of a unit key

struct Delta {
  tenon_dtype dtype, index;
  int64_t batch, tokens, heads, each, keys, values, sequences;
  bool by_key, unit;
  float scale;
  int q, k, v, g, beta, state, ends;  // positions

  template <class Op>
  explicit Delta(const Op& n) {
    const sdk::Type &type = n.q.type(), &value = n.v.type();
    dtype = type.dtype;
    if (!is_float(dtype) || dtype == TENON_DTYPE_F64) throw sdk::Refusal::dtype("q", dtype);
    batch = type.dims[0], tokens = type.dims[1], heads = type.dims[2], keys = type.dims[3];
    each = heads ? value.dims[2] / heads : 0, values = value.dims[3];
    by_key = n.g.type().rank == 4, unit = n.qk_l2norm;
    scale = static_cast<float>(std::isnan(n.scale) ? 1 / std::sqrt(static_cast<double>(keys))
                                                   : n.scale);
    q = n.q.position(), k = n.k.position(), v = n.v.position(), g = n.g.position();
    beta = n.beta.position(), state = n.state.position(), ends = n.cu_seqlens.position();
    index = n.cu_seqlens ? n.cu_seqlens.type().dtype : TENON_DTYPE_NONE;
    sequences = n.cu_seqlens ? n.cu_seqlens.type().dims[0] - 1 : batch;
  }

  // Decays of keys would differ within a product. Short runs, such as decoding, have no chunk.
  bool in_chunks() const { return !by_key && tokens >= 8 && values > 0; }
  int64_t rows() const { return heads * each; }  // value heads
  int64_t tiles() const { return divide_up(values, delta_columns()); }
  int64_t decays() const { return by_key ? keys : 1; }
  int64_t key_floats() const { return batch * tokens * heads * keys; }
  int64_t tile_cost() const {
    return divide_up(std::max<int64_t>(batch * tokens, 1), std::max<int64_t>(sequences, 1)) * keys *
           delta_columns() / 2;
  }

  // Scratch: q and k as floats of unit length.
  bool keys_as_given() const { return dtype == TENON_DTYPE_F32 && !unit; }
  uint64_t scratch() const { return keys_as_given() ? 0 : 2 * aligned(key_floats() * 4); }
  const float* key_rows(const sdk::Call& c, int operand, float* to) const {
    if (keys_as_given()) return c.in<float>(operand);
    with_f32_or_half(dtype, [&]<class T>(T) {
      const T* const from = c.in<T>(operand);
      parallel_for(batch * tokens * heads, grain_for(8 * keys), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          float* const row = to + r * keys;
          for (int64_t i = 0; i < keys; ++i) row[i] = to_float(from[r * keys + i]);
          if (!unit) continue;
          const float factor = inverse_length(row);
          for (int64_t i = 0; i < keys; ++i) row[i] *= factor;
        }
      });
    });
    return to;
  }
  template <class T>
  float inverse_length(const T* row) const {
    float sum = kLeastSquare;
    for (int64_t i = 0; i < keys; ++i) sum += to_float(row[i]) * to_float(row[i]);
    return 1 / std::sqrt(sum);
  }

  void check_ends(const sdk::Call& c) const {
    if (ends < 0) return;
    with_indices(index, c.inputs[ends], [&](const auto* at) {
      const auto fail = [&](int64_t i, const std::string& expected) {
        throw sdk::Failure(TENON_INDEX_OUT_OF_RANGE,
                           "operand cu_seqlens: expected " + expected + " at position " +
                               std::to_string(i) + ", got " + std::to_string(at[i]),
                           i);
      };
      if (at[0] != 0) fail(0, "0");
      for (int64_t i = 1; i <= sequences; ++i)
        if (at[i] < at[i - 1]) fail(i, "at least " + std::to_string(at[i - 1]));
      if (at[sequences] != tokens)
        fail(sequences, "the number of tokens " + std::to_string(tokens));
    });
  }

  // A value head of a sequence, and where its tokens begin.
  struct Place {
    int64_t batch, row, first;  // first: token
  };
  DeltaHead head_at(const sdk::Call& c, const float* queries, const float* all_keys,
                    int64_t unit_at, Place* place) const {
    const int64_t sequence = unit_at / rows(), row = unit_at % rows();
    int64_t begin = 0, end = tokens;
    if (ends >= 0)
      with_indices(index, c.inputs[ends],
                   [&](const auto* at) { begin = at[sequence], end = at[sequence + 1]; });
    *place = {ends >= 0 ? 0 : sequence, row, begin};
    const int64_t token = place->batch * tokens + begin;
    const int64_t key = (token * heads + row / each) * keys, value = token * rows() + row;
    const int64_t bytes = element_bytes(dtype);
    return {.dtype = dtype,
            .tokens = end - begin,
            .keys = keys,
            .values = values,
            .by_key = by_key,
            .scale = scale,
            .q = queries + key,
            .k = all_keys + key,
            .g = c.in<float>(g) + value * decays(),
            .v = c.in<char>(v) + value * values * bytes,
            .beta = c.in<char>(beta) + value * bytes,
            .key_step = heads * keys,
            .g_step = rows() * decays(),
            .value_step = rows() * values,
            .beta_step = rows(),
            .state = state < 0 ? nullptr : c.in<float>(state) + unit_at * keys * values};
  }
  int64_t value_offset(const Place& p) const {  // in bytes, of a tensor like v
    return ((p.batch * tokens + p.first) * rows() + p.row) * values * element_bytes(dtype);
  }
};

sdk::Kernel make_delta(const sdk::op::gated_delta_rule& n, const sdk::Node& node) {
  const Delta delta(n);
  const int64_t tiles = delta.tiles(), heads = delta.sequences * delta.rows();
  // A chunk's own numbers serve all tiles of a head. Few heads are divided, to occupy more threads.
  constexpr int64_t kUnits = 16;
  const int64_t most = delta.in_chunks() ? kUnits / std::max<int64_t>(heads, 1) : tiles;
  const int64_t each = divide_up(tiles, std::max<int64_t>(most, 1));
  const int64_t parts = each ? divide_up(tiles, each) : 0;
  const int64_t area =
      delta.in_chunks() ? delta_chunks_area(delta.keys, each) : delta_forward_area(delta.keys);
  const Slots slots = make_slots(heads * parts, area * 4, delta.tile_cost() * 4 * each);
  sdk::Kernel kernel{.scratch = delta.scratch() + slots.scratch()};
  kernel.cost = 7.0 * static_cast<double>(delta.batch * delta.tokens * delta.rows()) *
                static_cast<double>(delta.keys * delta.values) / 5e10;
  kernel.run = [=, o = node.out(0).position(), last = node.out(1).position()](const sdk::Call& c) {
    delta.check_ends(c);
    char* const scratch = static_cast<char*>(c.scratch);
    const float* const q = delta.key_rows(c, delta.q, reinterpret_cast<float*>(scratch));
    const float* const k =
        delta.key_rows(c, delta.k, reinterpret_cast<float*>(scratch + delta.scratch() / 2));
    slots.run(scratch + delta.scratch(), [&](int64_t begin, int64_t end, char* area) {
      for (int64_t unit = begin; unit < end; ++unit) {
        Delta::Place place;
        const int64_t at = unit / parts, first = unit % parts * each;
        const DeltaHead head = delta.head_at(c, q, k, at, &place);
        float* const own = reinterpret_cast<float*>(area);
        char* const to = c.out<char>(o) + delta.value_offset(place);
        float* const state =
            last < 0 ? nullptr : c.out<float>(last) + at * delta.keys * delta.values;
        if (delta.in_chunks())
          delta_chunks(head, first, std::min(each, tiles - first), own, to, state);
        else
          delta_forward(head, first * delta_columns(), own, to, state);
      }
    });
  };
  return kernel;
}

// A thread takes all columns of a head one after the other, so that their sums are added in order.
class BackwardDelta {
 public:
  BackwardDelta(const sdk::op::gated_delta_rule_backward& n, const sdk::Node& node)
      : p_(n), dout_(n.dout.position()), dstate_out_(n.dstate_out.position()) {
    for (int k = 0; k < kOutputs; ++k) out_[k] = node.out(k).position();
    int64_t area = delta_backward_area(p_.keys, p_.tokens);
    if (p_.in_chunks())
      area = std::max(area, delta_chunks_backward_area(p_.keys, p_.values, p_.tokens));
    slots_ = make_slots(p_.sequences * p_.rows(), area * 4, p_.tile_cost() * 16 * p_.tiles());
  }

  uint64_t scratch() const { return slots_at() + slots_.scratch(); }

  void run(const sdk::Call& c) const {
    p_.check_ends(c);
    char* const scratch = static_cast<char*>(c.scratch);
    const float* const q = p_.key_rows(c, p_.q, reinterpret_cast<float*>(scratch));
    const float* const k =
        p_.key_rows(c, p_.k, reinterpret_cast<float*>(scratch + p_.scratch() / 2));
    float* const dq = reinterpret_cast<float*>(scratch + p_.scratch());
    float *const dk = dq + tokens_of_heads() * p_.keys, *const dg =
                                                            dk + tokens_of_heads() * p_.keys;
    float* const dbeta = dg + tokens_of_heads() * p_.decays();
    parallel_for(sums(), grain_for(4),
                 [&](int64_t begin, int64_t end) { std::fill(dq + begin, dq + end, 0.f); });
    slots_.run(scratch + slots_at(), [&](int64_t begin, int64_t end, char* area) {
      for (int64_t unit = begin; unit < end; ++unit) {
        Delta::Place place;
        const DeltaHead head = p_.head_at(c, q, k, unit, &place);
        const int64_t token = (place.batch * p_.rows() + place.row) * p_.tokens + place.first;
        const int64_t state = unit * p_.keys * p_.values;
        const DeltaGradients to{
            .dout = c.in<char>(dout_) + p_.value_offset(place),
            .dstate_out = dstate_out_ < 0 ? nullptr : c.in<float>(dstate_out_) + state,
            .dq = dq + token * p_.keys,
            .dk = dk + token * p_.keys,
            .dg = dg + token * p_.decays(),
            .dbeta = dbeta + token,
            .dstate = out_[kDstate] < 0 ? nullptr : c.out<float>(out_[kDstate]) + state,
            .dv = out_[kDv] < 0 ? nullptr : c.out<char>(out_[kDv]) + p_.value_offset(place)};
        float* const own = reinterpret_cast<float*>(area);
        if (p_.in_chunks() && delta_chunks_backward(head, p_.tokens, own, to)) continue;
        for (int64_t tile = 0; tile < p_.tiles(); ++tile)
          delta_backward(head, tile * delta_columns(), own, to);
      }
    });
    with_f32_or_half(p_.dtype, [&]<class T>(T) {
      give_keys<T>(c, dq, p_.q, q, out_[kDq]);
      give_keys<T>(c, dk, p_.k, k, out_[kDk]);
      give_rows(dbeta, 1, c.out<T>(out_[kDbeta]));
    });
    give_rows(dg, p_.decays(), c.out<float>(out_[kDg]));
  }

 private:
  enum Output { kDq, kDk, kDv, kDg, kDbeta, kDstate, kOutputs };

  int64_t tokens_of_heads() const { return p_.batch * p_.rows() * p_.tokens; }
  int64_t sums() const { return tokens_of_heads() * (2 * p_.keys + p_.decays() + 1); }
  uint64_t slots_at() const { return p_.scratch() + aligned(sums() * 4); }

  // From [B, HV, T, width] to [B, T, HV, width].
  template <class T>
  void give_rows(const float* from, int64_t width, T* to) const {
    if (!to) return;
    const int64_t rows = p_.rows();
    parallel_for(tokens_of_heads(), grain_for(8 * width), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t row = r % rows, t = r / rows % p_.tokens, b = r / rows / p_.tokens;
        const float* const own = from + ((b * rows + row) * p_.tokens + t) * width;
        for (int64_t i = 0; i < width; ++i) from_float(own[i], to + r * width + i);
      }
    });
  }
  // Adds the value heads of each key head, and goes back through the unit length.
  // unit: the rows of q or k as the heads read them.
  template <class T>
  void give_keys(const sdk::Call& c, const float* sums, int operand, const float* unit,
                 int output) const {
    T* const to = c.out<T>(output);
    if (!to) return;
    const T* const given = c.in<T>(operand);
    const int64_t keys = p_.keys, each = p_.each;
    parallel_for(
        p_.batch * p_.tokens * p_.heads, grain_for(4 * keys * (each + 2)),
        [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r) {
            const int64_t head = r % p_.heads, t = r / p_.heads % p_.tokens;
            const int64_t b = r / p_.heads / p_.tokens;
            const float* const own = sums + ((b * p_.rows() + head * each) * p_.tokens + t) * keys;
            const auto sum = [&](int64_t i) {
              float total = 0;
              for (int64_t e = 0; e < each; ++e) total += own[e * p_.tokens * keys + i];
              return total;
            };
            float factor = 1, along = 0;
            const float* const row = unit + r * keys;
            if (p_.unit) {
              factor = p_.inverse_length(given + r * keys);
              for (int64_t i = 0; i < keys; ++i) along += sum(i) * row[i];
            }
            for (int64_t i = 0; i < keys; ++i)
              from_float(p_.unit ? factor * (sum(i) - row[i] * along) : sum(i), to + r * keys + i);
          }
        });
  }

  Delta p_;
  int dout_, dstate_out_;
  int out_[kOutputs];
  Slots slots_{};
};

sdk::Kernel make_delta_backward(const sdk::op::gated_delta_rule_backward& n,
                                const sdk::Node& node) {
  const BackwardDelta delta(n, node);
  sdk::Kernel kernel{.scratch = delta.scratch()};
  kernel.run = [delta](const sdk::Call& c) { delta.run(c); };
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::gated_delta_rule, make_delta>(),
    sdk::row<sdk::op::gated_delta_rule_backward, make_delta_backward>(),
};

}  // namespace

std::span<const sdk::Row> delta_rule_rows() { return kRows; }

}  // namespace tenon::cpu
