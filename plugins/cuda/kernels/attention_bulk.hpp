// SPDX-License-Identifier: Apache-2.0
// Attention forward by attention_bulk.cu: on sm_90, where only causality and windows hide keys.
#pragma once

#include "attention.hpp"

namespace tenon::cuda {

class AttentionBulk {
 public:
  // p.wgmma, and no split of the keys is wanted. room: bytes of shared memory for a block.
  static bool takes(const AttentionProblem& p, int64_t room);
  AttentionBulk(CudaDevice& device, const AttentionProblem& p);

  const Code& code() const { return code_; }
  void run(const sdk::Call& call, const AttentionArguments& a) const;

 private:
  // How a block lies over rows and keys (the text's defines).
  struct Form {
    int64_t groups, keys, stages, blocks, apart;
    int64_t rows() const { return groups * 64; }
    int64_t shared(const AttentionProblem& p) const;  // bytes of a block
  };
  static const Form& form_of(const AttentionProblem& p);

  Form form_;
  tenon_dtype dtype_;
  CodeFor<entries::attention_bulk> code_;
  Grid grid_;
  int32_t heads_at_once_ = 1, first_ = 0, last_ = 0;  // of AttentionWork
};

}  // namespace tenon::cuda
