// SPDX-License-Identifier: Apache-2.0
// Shared by the case files of the family.
#pragma once

#include "cases/families.hpp"

namespace tenon::conform {

// Slices that start where a tensor says.
void index_slice_rows(Suite& s);

}  // namespace tenon::conform
