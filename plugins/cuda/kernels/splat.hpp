// SPDX-License-Identifier: Apache-2.0
// The splat family: projections and colors (splat_project.cpp), entries of tiles (splat_bin.cpp), images
// (splat.cpp).
#pragma once

#include <bit>

#include "../device.hpp"
#include "../kernels.hpp"
#include "args.hpp"
#include "entries.hpp"
#include "lines.hpp"

namespace tenon::cuda {

// f32 or f64, as the define TYPE.
inline std::string splat_type(std::string_view operand, tenon_dtype t) {
  if (t != TENON_DTYPE_F32 && t != TENON_DTYPE_F64) throw sdk::Refusal::dtype(operand, t);
  return "TYPE=" + type_name(operand, t);
}

// The radix sort of splat_sort.cu, in an area of scratch. Numbers are those of tiles or pairs.
class SplatOrder {
 public:
  // by_key: entries of splat_sort, by depth and tile; else ids, by pair.
  SplatOrder(CudaDevice& device, int64_t entries, int64_t numbers, bool by_key, uint64_t& scratch);

  std::vector<Code> codes() const;
  // Enqueues the sort. The result is `from`.
  args::SplatSort run(const sdk::Call& c, const int64_t* keys, const int32_t* ids) const;

 private:
  int64_t entries_, end_, parts_;
  bool by_key_;
  uint32_t bits_;  // of the number of a tile or a pair
  uint64_t first_at_, second_at_, counts_at_, totals_at_, used_at_;
  CodeFor<entries::splat_sort_clear> clear_;
  CodeFor<entries::splat_sort_find> find_;
  CodeFor<entries::splat_sort_sum> sum_;
  CodeFor<entries::splat_sort_count> count_first_, count_;
  CodeFor<entries::splat_sort_move> move_first_, move_, move_to_tiles_;
};

sdk::Kernel make_splat_project(const sdk::op::splat_project& n, const sdk::Node& node);
sdk::Kernel make_splat_sh(const sdk::op::splat_sh& n, const sdk::Node& node);
sdk::Kernel make_splat_bin(const sdk::op::splat_bin& n, const sdk::Node& node);
sdk::Kernel make_splat_sort(const sdk::op::splat_sort& n, const sdk::Node& node);

}  // namespace tenon::cuda
