// SPDX-License-Identifier: Apache-2.0
// Trees of Python: nested dicts, lists, tuples and others. tenon/tree.py describes structures.
#pragma once

#include "common.hpp"

namespace tenon::python {

// The tree of this structure with these leaves, a list.
nb::object tree_of(nb::handle structure, nb::handle leaves);

}  // namespace tenon::python
