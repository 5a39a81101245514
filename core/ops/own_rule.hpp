// SPDX-License-Identifier: Apache-2.0
// The record of a registered op: its rules are the C functions of op.h.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "ops/record.hpp"
#include "tenon/op.h"

namespace tenon::core {

// Never destroyed: graphs point to it.
struct RegisteredOp : OpRecord {
  std::string origin;             // who registered it, for messages
  std::deque<std::string> texts;  // what domain, schema and words point into
  std::vector<OpPart> parts;
  OpSchema own_schema;
  std::vector<Words> own_words;
  tenon_op_desc rules{};  // only its functions, flags and `user`
};

// Fills the functions of the record.
void use_rules(RegisteredOp& op);

}  // namespace tenon::core
