// SPDX-License-Identifier: Apache-2.0
// cuBLASLt counts columns first, so it is asked for yᵀ = bᵀ·aᵀ: its left operand is our b.
#include "blas_product.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>

namespace tenon::cuda {
namespace {

namespace value = blas_value;
constexpr int64_t kMostCalls = 64;
constexpr uint64_t kMostWorkspace = 32 << 20, kLeastWorkspace = 1 << 20;

int type_of(tenon_dtype t) {
  switch (t) {
    case TENON_DTYPE_F16:
      return value::f16;
    case TENON_DTYPE_BF16:
      return value::bf16;
    case TENON_DTYPE_F64:
      return value::f64;
    default:
      return value::f32;
  }
}

// What the library does with a product; nothing where it cannot.
std::optional<int> epilogue_of(const ProductProblem& p) {
  const bool bias = p.bias != TENON_DTYPE_NONE;
  if (p.act.empty()) return bias ? value::epilogue_bias : value::epilogue_none;
  // Its gelu is the form with tanh, good to a half's digits. Its relu makes NaN zero, and a
  // residual would be added before the activation.
  if (p.act_kind != "gelu_tanh" || !is_half(p.y) || p.residual != TENON_DTYPE_NONE) return {};
  return bias ? value::epilogue_gelu_bias : value::epilogue_gelu;
}

// The smallest alignment of all matrices of a batch, as the library is told it.
uint32_t alignment_of(uint64_t base, tenon_dtype t, const std::vector<int64_t>& steps) {
  const auto size = static_cast<uint64_t>(type_bytes(t));
  uint64_t bits = 256 | (base ? base : size);
  for (const int64_t s : steps) bits |= static_cast<uint64_t>(s) * size;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

// What the library makes and takes back.
template <class T, int (*Blas::*kDestroy)(T)>
class Owned {
 public:
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { reset(); }
  T* slot() {  // of a new one; there may be one of an attempt that failed
    reset();
    return &object_;
  }
  operator T() const { return object_; }

 private:
  void reset() {
    if (object_) (blas().*kDestroy)(object_);
    object_ = nullptr;
  }
  T object_ = nullptr;
};
using OwnedProduct = Owned<ProductDesc, &Blas::product_destroy>;
using OwnedLayout = Owned<MatrixLayout, &Blas::layout_destroy>;
using OwnedPreference = Owned<Preference, &Blas::preference_destroy>;

template <class T>
void set(ProductDesc d, int which, T v) {
  blas().check("product_set", blas().product_set(d, which, &v, sizeof v));
}
template <class T>
void set(MatrixLayout d, int which, T v) {
  blas().check("layout_set", blas().layout_set(d, which, &v, sizeof v));
}
template <class T>
void set(Preference d, int which, T v) {
  blas().check("preference_set", blas().preference_set(d, which, &v, sizeof v));
}

}  // namespace

struct BlasProduct::State {
  State(CudaDevice& d, const ProductProblem& p) : device(d), problem(p) {}
  CudaDevice& device;
  ProductProblem problem;
  std::mutex mutex{};
  bool tried = false;
  OwnedProduct product{};
  OwnedLayout a{}, b{}, y{};
  std::optional<Heuristic> choice{};

  int compute() const {
    if (problem.sum == TENON_DTYPE_F64) return value::compute_f64;
    return problem.a == TENON_DTYPE_F32 && problem.tf32 ? value::compute_tf32 : value::compute_f32;
  }
  // The innermost batch axis is the library's; those outside of it are calls of their own.
  int64_t inner() const { return problem.batch.empty() ? 1 : problem.batch.back(); }

  void describe(OwnedProduct& to, const void* bias) const {
    blas().check("product_create",
                 blas().product_create(to.slot(), compute(), type_of(problem.sum)));
    set(to, value::trans_a, problem.trans_b ? 1 : 0);
    set(to, value::trans_b, problem.trans_a ? 1 : 0);
    set(to, value::epilogue, *epilogue_of(problem));
    if (problem.bias == TENON_DTYPE_NONE) return;
    set(to, value::bias_type, type_of(problem.bias));
    set(to, value::bias_pointer, bias);
  }
  void lay_out(OwnedLayout& to, tenon_dtype t, int64_t rows, int64_t cols, int64_t ld,
               int64_t step) const {
    blas().check("layout_create",
                 blas().layout_create(to.slot(), type_of(t), static_cast<uint64_t>(rows),
                                      static_cast<uint64_t>(cols), ld));
    if (inner() == 1) return;
    set(to, value::batch_count, static_cast<int32_t>(inner()));
    set(to, value::batch_stride, step);
  }
  uint64_t workspace() const {
    const double bytes = 16.0 * static_cast<double>(problem.m) * static_cast<double>(problem.n) *
                         static_cast<double>(problem.batches());
    return bytes > static_cast<double>(kMostWorkspace)
               ? kMostWorkspace
               : std::max(kLeastWorkspace, static_cast<uint64_t>(bytes));
  }

  void choose() {
    const ProductProblem& p = problem;
    const Current current(device.context());
    const void* somewhere = reinterpret_cast<const void*>(uintptr_t{256});  // only looked at
    describe(product, somewhere);
    const int64_t step = p.m * p.n;
    lay_out(b, p.b, p.trans_b ? p.k : p.n, p.trans_b ? p.n : p.k, p.ldb,
            p.batch.empty() ? 0 : p.b_steps.back());
    lay_out(a, p.a, p.trans_a ? p.m : p.k, p.trans_a ? p.k : p.m, p.lda,
            p.batch.empty() ? 0 : p.a_steps.back());
    lay_out(y, p.y, p.n, p.m, p.n, step);
    OwnedPreference wish;
    blas().check("preference_create", blas().preference_create(wish.slot()));
    set(wish, value::most_workspace, static_cast<size_t>(workspace()));
    set(wish, value::reduction_mask, static_cast<uint32_t>(value::reduce_in_compute_type));
    set(wish, value::alignment_a, alignment_of(p.b_alignment, p.b, p.b_steps));
    set(wish, value::alignment_b, alignment_of(p.a_alignment, p.a, p.a_steps));
    const uint32_t of_y = alignment_of(16, p.y, {p.batch.empty() ? 0 : step});
    set(wish, value::alignment_c, of_y);
    set(wish, value::alignment_d, of_y);
    std::array<Heuristic, 4> found{};
    int count = 0;
    const int status = blas().heuristic(device.blas_handle(), product, b, a, y, y, wish,
                                        static_cast<int>(found.size()), found.data(), &count);
    if (status != 0) return;  // it knows none
    for (int i = 0; i < count && !choice; ++i)
      if (found[i].state == 0 && found[i].workspace <= workspace()) choice = found[i];
  }
};

bool BlasProduct::takes(const ProductProblem& p) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (!blas() || !is_float(p.a) || p.a != p.b) return false;
  if (p.m == 0 || p.n == 0 || p.k == 0 || p.batches() == 0) return false;
  if (p.m >= kMost || p.n >= kMost || p.k >= kMost) return false;
  if (!p.batch.empty() && p.batches() / p.batch.back() > kMostCalls) return false;
  // The library rounds between a bias and a residual.
  if (is_half(p.y) && p.bias != TENON_DTYPE_NONE && p.residual != TENON_DTYPE_NONE) return false;
  return !p.pre_act && epilogue_of(p) && (p.bias == TENON_DTYPE_NONE || p.bias == p.y);
}

BlasProduct::BlasProduct(CudaDevice& device, const ProductProblem& problem)
    : state_(std::make_shared<State>(device, problem)) {}

bool BlasProduct::prepare() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->tried) state_->choose();
  state_->tried = true;
  return state_->choice.has_value();
}

uint64_t BlasProduct::workspace() const { return state_->workspace(); }

void BlasProduct::run(const sdk::Call& call, const ProductPointers& p, void* workspace) const {
  State& s = *state_;
  const ProductProblem& t = s.problem;
  OwnedProduct own;  // where it holds an address, that of this call
  if (p.bias) s.describe(own, p.bias);
  const float one = 1, zero = 0, alpha = static_cast<float>(t.alpha);
  const double one_wide = 1, zero_wide = 0;
  const bool wide = t.sum == TENON_DTYPE_F64;
  const void* factor = wide ? static_cast<const void*>(&t.alpha) : &alpha;
  const void* beta = p.residual ? (wide ? static_cast<const void*>(&one_wide) : &one)
                                : (wide ? static_cast<const void*>(&zero_wide) : &zero);
  const auto offset = [](const void* base, tenon_dtype type, int64_t elements) {
    return static_cast<const char*>(base) + elements * type_bytes(type);
  };
  for (int64_t i = 0; i < t.batches(); i += s.inner()) {
    int64_t rest = i / s.inner(), at_a = 0, at_b = 0;
    for (size_t d = t.batch.size(); d-- > 1;) {
      const int64_t index = rest % t.batch[d - 1];
      rest /= t.batch[d - 1];
      at_a += index * t.a_steps[d - 1], at_b += index * t.b_steps[d - 1];
    }
    char* y = static_cast<char*>(p.y) + i * t.m * t.n * type_bytes(t.y);
    const void* c = p.residual ? offset(p.residual, t.y, i * t.m * t.n) : y;
    blas().check("multiply",
                 blas().multiply(s.device.blas_handle(), p.bias ? own : s.product, factor,
                                 offset(p.b, t.b, at_b), s.b, offset(p.a, t.a, at_a), s.a, beta, c,
                                 s.y, y, s.y, &s.choice->algorithm, workspace, s.workspace(),
                                 static_cast<Stream>(call.stream)));
  }
}

}  // namespace tenon::cuda
