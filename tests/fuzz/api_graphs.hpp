// SPDX-License-Identifier: Apache-2.0
// Sound graphs for the API fuzzer, so that its calls come as far as runs.
#pragma once

#include <string_view>

namespace tenon::fuzz {

inline constexpr std::string_view kGraphs[] = {
    R"(graph "line" {
  input x: f32[2,3]
  weight w: f32[3,2] trainable
  y = matmul(x, w)
  z = unary(y) {kind="relu"}
  output "y" = z
})",
    R"(graph "symbol" {
  symbols N
  input x: f32[N,3]
  weight w: f32[3,2] trainable
  state s: f32[2]
  y = matmul(x, w)
  loss = reduce(y) {kind="sum", axes=[0, 1]}
  sum = reduce(y) {kind="sum", axes=[0]}
  more = binary(s, sum) {kind="add"}
  output "y" = y
  output "loss" = loss
  update s = more
})",
    R"(graph "train" {
  input x: f32[2,3]
  input t: i64[2]
  input lr: f32[]
  weight w: f32[4,3] trainable
  y = matmul(x, w) {trans_b=true}
  loss = cross_entropy(y, t)
  dw = grad(loss, w)
  step = binary(dw, lr) {kind="mul"}
  better = binary(w, step) {kind="sub"}
  output "loss" = loss
  update w = better
})",
    R"(graph "plain" {
  input x: f32[4,3]
  input lr: f32[]
  weight w: f32[3,2] trainable
  y = matmul(x, w)
  loss = reduce(y) {kind="mean", axes=[0, 1]}
  output "y" = y
  output "loss" = loss
})",
    R"(graph "back and forth" {
  input x: f32[4]
  a = unary(x) {kind="asin"}
  b = unary(a) {kind="exp"}
  c = sort(b)
  (v, i) = topk(c) {k=2}
  output "y" = c
  output "loss" = v
  output "i" = i
})",
    R"(graph "lookup" {
  input x: f32[5,3]
  input t: i64[2]
  g = gather(x, t)
  output "y" = g
})",
    R"(graph "nothing" {
  input x: f32[0,3]
  y = reduce(x) {kind="sum", axes=[0]}
  output "y" = y
  output "x" = x
})"};

// Of the graph "plain".
inline constexpr unsigned kPlainRate = 1, kPlainLoss = 4;

}  // namespace tenon::fuzz
