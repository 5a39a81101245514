// SPDX-License-Identifier: Apache-2.0
#include "onednn.hpp"

#include <dnnl.h>

#include "tenon/kernel.hpp"

// Debian's oneDNN spreads its work by OpenMP. The setting is the calling thread's own: TBB spreads the work here, and a
// team of one starts no thread.
extern "C" void omp_set_num_threads(int threads);

namespace tenon::cpu {

void library_product(int64_t m, int64_t n, int64_t k, const LibraryOperand& a, const LibraryOperand& b, float* c,
                     int64_t ldc) {
  thread_local const bool alone = (omp_set_num_threads(1), true);
  (void)alone;
  const dnnl_status_t status = dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1.0f, a.data,
                                          a.ld, b.data, b.ld, 0.0f, c, ldc);
  if (status == dnnl_out_of_memory) throw sdk::Failure(TENON_OUT_OF_MEMORY, "oneDNN: no memory for a matrix product");
  if (status != dnnl_success)
    throw sdk::Failure(TENON_INTERNAL, "oneDNN: dnnl_sgemm returned status " + std::to_string(status));
}

}  // namespace tenon::cpu
