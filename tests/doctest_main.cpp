// SPDX-License-Identifier: Apache-2.0
// doctest's implementation and main(), compiled once for all tests.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
