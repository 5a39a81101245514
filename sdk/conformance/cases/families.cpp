// SPDX-License-Identifier: Apache-2.0
#include "cases/families.hpp"

namespace tenon::conform {

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"elementwise", elementwise_cases},
      {"activation", activation_cases},
      {"matmul", matmul_cases},
      {"grouped_matmul", grouped_matmul_cases},
      {"reduce", reduce_cases},
      {"region", region_cases},
      {"softmax", softmax_cases},
      {"order", order_cases},
      {"scan", scan_cases},
      {"random", random_cases},
      {"norm", norm_cases},
      {"channel_norm", channel_norm_cases},
      {"rope", rope_cases},
      {"attention", attention_cases},
      {"index", index_cases},
      {"index_elements", index_elements_cases},
      {"shape", shape_cases},
      {"pool", pool_cases},
      {"optimizer", optimizer_cases},
  };
  return all;
}

}  // namespace tenon::conform
