// SPDX-License-Identifier: Apache-2.0
// The transformer of torch_gpu.py as a graph's text, for `tenon bench FILE`: a step of training
// with AdamW in bf16 (f32 masters of the weights), or the forward pass as an encoder in f32.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "tenon/tenon.hpp"

namespace {

using tenon::Value;
namespace op = tenon::op;

struct Model {
  int64_t vocab, positions, dim, heads, layers;
  tenon_dtype dtype;
  bool train;  // and causal
};

// x is [batch, time, dim] throughout; norms come before what they feed.
class Builder {
 public:
  Builder(tenon::Graph& graph, const Model& model, int64_t batch, int64_t time)
      : g_(graph), m_(model), batch_(batch), time_(time) {
    words_ = weight("words", {m_.vocab, m_.dim});
  }

  Value body(Value tokens) {
    const Value positions = weight("positions", {m_.positions, m_.dim});
    const Value here = g_.add(op::narrow{.len = {time_, m_.dim}, .x = positions});
    Value x = g_.add(op::binary{
        .kind = "add", .a = g_.add(op::gather{.data = words_, .indices = tokens}), .b = here});
    for (int64_t i = 0; i < m_.layers; ++i) x = layer(x, "layer" + std::to_string(i) + ".");
    return norm(x, "norm");
  }
  Value loss(Value x, Value labels) {
    const Value logits = g_.add(op::matmul{.trans_b = true, .a = x, .b = words_}, "head");
    return g_.add(op::cross_entropy{.logits = logits, .labels = labels}, "loss");
  }

 private:
  Value weight(const std::string& name, std::vector<int64_t> dims) {
    return g_.weight(name, {m_.dtype, std::move(dims)}, m_.train);
  }
  Value norm(Value x, const std::string& name) {
    return g_.add(op::layer_norm{.x = x,
                                 .gamma = weight(name + ".gamma", {m_.dim}),
                                 .beta = weight(name + ".beta", {m_.dim})},
                  name);
  }
  Value linear(Value x, const std::string& name, int64_t from, int64_t to, const char* act = "none",
               Value residual = {}) {
    return g_.add(op::linear{.trans_b = true,
                             .f32_precision = "tf32",
                             .act = act,
                             .a = x,
                             .b = weight(name + ".weight", {to, from}),
                             .bias = weight(name + ".bias", {to}),
                             .residual = residual},
                  name);
  }
  Value layer(Value x, const std::string& name) {
    const int64_t d = m_.dim;
    const Value n = norm(x, name + "norm1");
    const auto heads = [&](const char* which) {
      const Value flat = linear(n, name + which, d, d);
      return g_.add(op::reshape{.shape = {batch_, time_, m_.heads, d / m_.heads}, .x = flat});
    };
    const Value q = heads("q"), k = heads("k"), v = heads("v");
    const Value mixed = g_.add(
        op::attention{.layout = "bshd", .causal = m_.train, .q = q, .k = k, .v = v}, name + "mix");
    const Value flat = g_.add(op::reshape{.shape = {batch_, time_, d}, .x = mixed});
    const Value y = linear(flat, name + "o", d, d, "none", x);
    const Value wide = linear(norm(y, name + "norm2"), name + "up", d, 4 * d, "gelu_tanh");
    return linear(wide, name + "down", 4 * d, d, "none", y);
  }

  tenon::Graph& g_;
  const Model& m_;
  int64_t batch_, time_;
  Value words_;
};

tenon::Graph graph_of(bool train, int64_t batch, int64_t time) {
  const Model gpt2 = {50304, 1024, 768, 12, 12, tenon::bf16, true};
  const Model minilm = {30522, 512, 384, 12, 6, tenon::f32, false};
  tenon::Graph g(train ? "gpt2.train" : "minilm.encode");
  Builder b(g, train ? gpt2 : minilm, batch, time);
  const Value x = b.body(g.input("tokens", {tenon::i64, {batch, time}}));
  if (!train) {
    g.output("x", x);
    return g;
  }
  const Value loss = b.loss(x, g.input("labels", {tenon::i64, {batch, time}}));
  g.output("loss", loss);
  g.minimize(loss, {.learning_rate = g.scalar(1e-4f), .weight_decay = 0.01});
  return g;
}

}  // namespace

int main(int argc, char** argv) {
  const bool train = argc == 4 && std::strcmp(argv[1], "train") == 0;
  const bool encode = argc == 4 && std::strcmp(argv[1], "encode") == 0;
  const int64_t batch = argc == 4 ? std::atoll(argv[2]) : 0,
                time = argc == 4 ? std::atoll(argv[3]) : 0;
  if (!(train || encode) || batch < 1 || time < 1 || time > (train ? 1024 : 512)) {
    std::fprintf(stderr, "usage: %s train|encode BATCH TIME\n", argv[0]);
    return 2;
  }
  try {
    std::printf("%s", graph_of(train, batch, time).print().c_str());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
