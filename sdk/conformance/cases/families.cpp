// SPDX-License-Identifier: Apache-2.0
#include "cases/families.hpp"

namespace tenon::conform {

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"elementwise", elementwise_cases},
  };
  return all;
}

}  // namespace tenon::conform
