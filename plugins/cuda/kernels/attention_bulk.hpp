// SPDX-License-Identifier: Apache-2.0
// Attention forward of halves on sm_90 by attention_bulk.cu.
#pragma once

#include "attention.hpp"

namespace tenon::cuda {

class AttentionBulk {
 public:
  static bool takes(const AttentionProblem& p, const Properties& device);
  AttentionBulk(CudaDevice& device, const AttentionProblem& p);

  const Code& code() const { return code_; }
  void run(const sdk::Call& call, const AttentionArguments& a) const;

 private:
  // The shape of a block: the text's defines.
  struct Form {
    int64_t groups, keys, stages, blocks, producer;
    // Query rows of a block: as many whole groups as fit.
    int64_t rows(const AttentionProblem& p) const {
      return groups * 64 / p.arguments.group * p.arguments.group;
    }
    int64_t shared(const AttentionProblem& p) const;  // bytes of a block
    // Keys of a copy: those of a tile, or as many as are in one block of a pool.
    int64_t piece(const AttentionProblem& p) const;
  };
  static const Form& form_of(const AttentionProblem& p, int64_t processors);

  Form form_;
  tenon_dtype dtype_;
  CodeFor<entries::attention_bulk> code_;
  Grid grid_;
  int64_t piece_ = 0;
  int32_t rows_ = 0, heads_at_once_ = 1, first_ = 0, last_ = 0;  // of AttentionWork
};

}  // namespace tenon::cuda
