// SPDX-License-Identifier: Apache-2.0
// The layers of the recurrent models as nodes of a graph.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/lm/model.hpp"

namespace tenon::lm {

// Shared by all graphs of a model. x is [batch, time, dim].
class Builder {
 public:
  Builder(Graph& graph, const Config& config, bool trainable);
  bool checkpoint = false;  // each layer of decoder()

  Value embed(Value tokens);
  // One layer of a recurrent model (recurrent.cpp). keeps_state: it begins with the state
  // "cache.<i>" of the graph and updates it, for one sequence; else it begins with zeros.
  Value recurrent_layer(int64_t i, Value x, int64_t batch, int64_t time, bool keeps_state);

  Value logits(Value x);
  // Logits of complete sequences, without a cache.
  Value decoder(Value tokens, int64_t batch, int64_t time);
  Value reshape(Value x, std::vector<int64_t> shape);

 private:
  // A layer of a recurrent model, where it is in the graph.
  struct Place {
    std::string name, cache;
    int64_t batch, time;
    bool keeps_state;
  };
  Value mamba(const Place& at, Value normed, Value residual);
  Value delta(const Place& at, Value normed, Value residual);
  Value convolved(const Place& at, const std::string& name, Value x, int64_t channels);

  static std::string layer_name(int64_t i) { return "model.layers." + std::to_string(i); }
  Value mlp(const std::string& name, Value x);
  Value weight(const std::string& name) const;
  Value norm(Value x, const std::string& name);
  // x times the transposed weight, plus bias and residual, in one op.
  Value project(Value x, const std::string& name, Value residual = {});
  Value activated(Value gate, Value up, const std::string& name);
  Value unary(const char* kind, Value x);
  Value binary(const char* kind, Value a, Value b);
  // `length` elements of the last axis of x [batch, time, ..] from `start` on.
  Value part(const Place& at, Value x, int64_t start, int64_t length);

  Graph& g_;
  const Config& c_;
  std::map<std::string, Value, std::less<>> weights_;
};

}  // namespace tenon::lm
