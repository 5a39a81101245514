// SPDX-License-Identifier: Apache-2.0
// cuBLASLt counts columns first, so it is asked for yᵀ = bᵀ·aᵀ: its left operand is our b.
#include "blas_product.hpp"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <optional>
#include <sstream>

#include "chain_check.hpp"

namespace tenon::cuda {
namespace {

namespace value = blas_value;
constexpr int64_t kMostCalls = 64;
constexpr int kMostProposals = 16;

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
  if (p.act.empty()) {
    if (p.pre_act) return {};
    return bias ? value::epilogue_bias : value::epilogue_none;
  }
  // Its gelu is the form with tanh, good to a half's digits, and not to the bits of ours. Its relu makes
  // NaN zero, and a residual would be added before the activation.
  if (p.act_kind != "gelu_tanh" || is_chain(p) || !is_half(p.y) || p.residual != TENON_DTYPE_NONE)
    return {};
  constexpr int64_t kAuxColumns = 8;  // of which a row must be a multiple
  if (p.pre_act && (p.n % kAuxColumns != 0 || p.batches() != 1)) return {};
  return (bias ? value::epilogue_gelu_bias : value::epilogue_gelu) |
         (p.pre_act ? value::epilogue_aux : 0);
}

// The smallest alignment of all matrices of a batch, as the library is told it.
uint32_t alignment_of(uint64_t base, tenon_dtype t, const std::vector<int64_t>& steps) {
  const auto size = static_cast<uint64_t>(element_bytes(t));
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

// A choice as text, for the disk.
std::string text_of(const Heuristic& h) {
  std::string text = std::to_string(h.workspace);
  for (const uint64_t word : h.algorithm.data) text += " " + std::to_string(word);
  return text;
}
std::optional<Heuristic> choice_of(const std::string& text) {
  std::istringstream words(text);
  Heuristic h{};
  words >> h.workspace;
  for (uint64_t& word : h.algorithm.data) words >> word;
  return words && words.peek() == EOF ? std::optional(h) : std::nullopt;
}

}  // namespace

struct BlasProduct::State {
  State(CudaDevice& d, const ProductProblem& p) : device(d), problem(p) {
    if (!is_chain(problem)) return;
    try {
      check.emplace(d, p);
    } catch (const sdk::Refusal&) {  // no compiler: then nothing can be compared
    }
  }
  CudaDevice& device;
  ProductProblem problem;
  std::optional<ChainCheck> check{};
  std::mutex mutex{};
  bool described = false, tuned = false;
  OwnedProduct product{};
  OwnedLayout a{}, b{}, y{};
  std::optional<Heuristic> choice{};

  int compute() const {
    if (problem.sum == TENON_DTYPE_F64) return value::compute_f64;
    return problem.a == TENON_DTYPE_F32 && problem.tf32 ? value::compute_tf32 : value::compute_f32;
  }
  // The innermost batch axis is the library's; those outside of it are calls of their own.
  int64_t inner() const { return problem.batch.empty() ? 1 : problem.batch.back(); }
  int64_t step_of_a() const { return problem.batch.empty() ? 0 : problem.a_steps.back(); }
  int64_t step_of_b() const { return problem.batch.empty() ? 0 : problem.b_steps.back(); }
  int64_t step_of_y() const { return problem.batch.empty() ? 0 : problem.m * problem.n; }
  uint32_t alignment_of_a() const {
    return alignment_of(problem.a_alignment, problem.a, problem.a_steps);
  }
  uint32_t alignment_of_b() const {
    return alignment_of(problem.b_alignment, problem.b, problem.b_steps);
  }
  uint32_t alignment_of_y() const { return alignment_of(16, problem.y, {step_of_y()}); }

  void describe(OwnedProduct& to, const void* bias, void* pre_act) const {
    blas().check("product_create",
                 blas().product_create(to.slot(), compute(), type_of(problem.sum)));
    set(to, value::trans_a, problem.trans_b ? 1 : 0);
    set(to, value::trans_b, problem.trans_a ? 1 : 0);
    set(to, value::epilogue, *epilogue_of(problem));
    if (problem.pre_act) {
      set(to, value::aux_pointer, pre_act);
      set(to, value::aux_ld, problem.n);
    }
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
  void describe_all() {
    if (described) return;
    const ProductProblem& p = problem;
    void* const somewhere = reinterpret_cast<void*>(uintptr_t{256});  // only looked at
    describe(product, somewhere, somewhere);
    lay_out(b, p.b, p.trans_b ? p.k : p.n, p.trans_b ? p.n : p.k, p.ldb, step_of_b());
    lay_out(a, p.a, p.trans_a ? p.m : p.k, p.trans_a ? p.k : p.m, p.lda, step_of_a());
    lay_out(y, p.y, p.n, p.m, p.n, step_of_y());
    described = true;
  }

  // What the library proposes, its favourite first.
  std::vector<Heuristic> proposals(uint64_t workspace, int most) {
    OwnedPreference wish;
    blas().check("preference_create", blas().preference_create(wish.slot()));
    set(wish, value::most_workspace, static_cast<size_t>(workspace));
    set(wish, value::reduction_mask,
        static_cast<uint32_t>(is_chain(problem) ? value::reduce_never
                                                : value::reduce_in_compute_type));
    set(wish, value::alignment_a, alignment_of_b());
    set(wish, value::alignment_b, alignment_of_a());
    set(wish, value::alignment_c, alignment_of_y());
    set(wish, value::alignment_d, alignment_of_y());
    std::vector<Heuristic> found(static_cast<size_t>(most));
    int count = 0;
    const int status = blas().heuristic(device.blas_handle(), product, b, a, y, y, wish, most,
                                        found.data(), &count);
    found.resize(status == 0 ? static_cast<size_t>(count) : 0);  // else it knows none
    std::erase_if(found,
                  [&](const Heuristic& h) { return h.state != 0 || h.workspace > workspace; });
    return found;
  }

  // All that a choice depends on.
  std::string key(uint64_t workspace) const {
    const ProductProblem& p = problem;
    const Properties& d = device.properties();
    std::ostringstream text;
    text << "cuBLASLt " << blas().full_version() << ", tenon " TENON_CUDA_VERSION ", " << d.name
         << ", sm_" << d.major << d.minor << ", " << d.multiprocessors << " multiprocessors\n"
         << sdk::dtype_name(p.a) << " " << p.m << "x" << p.n << "x" << p.k << " ld " << p.lda << " "
         << p.ldb << " trans " << p.trans_a << p.trans_b << " to " << sdk::dtype_name(p.y)
         << " compute " << compute() << " epilogue " << *epilogue_of(p) << " bias "
         << sdk::dtype_name(p.bias) << " residual " << sdk::dtype_name(p.residual) << " batch "
         << inner() << " steps " << step_of_a() << " " << step_of_b() << " alignment "
         << alignment_of_a() << " " << alignment_of_b() << " workspace " << workspace
         << (is_chain(problem) ? " unsplit" : "") << (check ? " in the order of our own\n" : "\n");
    return text.str();
  }

  // One call of the library; pointers are those of the first matrices.
  void multiply(const ProductDesc desc, const Heuristic& h, const void* left, const void* right,
                const void* c, void* result, void* workspace, Stream stream) const {
    const float one = 1, zero = 0, alpha = static_cast<float>(problem.alpha);
    const double one_wide = 1, zero_wide = 0;
    const bool wide = problem.sum == TENON_DTYPE_F64;
    const void* factor = wide ? static_cast<const void*>(&problem.alpha) : &alpha;
    const void* beta = c ? (wide ? static_cast<const void*>(&one_wide) : &one)
                         : (wide ? static_cast<const void*>(&zero_wide) : &zero);
    blas().check("multiply", blas().multiply(device.blas_handle(), desc, factor, right, b, left, a,
                                             beta, c ? c : result, y, result, y, &h.algorithm,
                                             workspace, h.workspace, stream));
  }

  // The fastest, or the first if they are not timed. With a check: of those that pass it; there may be none.
  std::optional<size_t> best_of(const std::vector<Heuristic>& list, bool timed);

  // The choice as text, empty where our own tiles must do; nothing when it was to be timed and that was not
  // possible.
  std::optional<std::string> choose(uint64_t workspace, bool timed) {
    if (timed && !StreamTrial::possible()) return std::nullopt;
    const std::vector<Heuristic> list = proposals(workspace, timed || check ? kMostProposals : 4);
    if (list.empty()) return "";
    if (!check && (!timed || list.size() == 1)) return text_of(list[0]);
    try {
      const std::optional<size_t> best = best_of(list, timed);
      return best ? text_of(list[*best]) : "";
    } catch (const sdk::Failure& e) {
      if (e.code() != TENON_OUT_OF_MEMORY) throw;
      // Without room for a check, our own tiles have the right order. An empty choice is not kept.
      return timed ? std::nullopt : std::optional<std::string>("");
    }
  }
};

// Runs them in memory of their own. Contents matter: a device that multiplies zeros is faster.
std::optional<size_t> BlasProduct::State::best_of(const std::vector<Heuristic>& list, bool timed) {
  const ProductProblem& p = problem;
  const auto reach = [&](int64_t rows, int64_t cols, int64_t ld, int64_t step) {
    return (inner() - 1) * step + (rows - 1) * ld + cols;
  };
  uint64_t workspace = 0;
  for (const Heuristic& h : list) workspace = std::max(workspace, uint64_t{h.workspace});
  const auto of = [](tenon_dtype t, int64_t elements) {
    return static_cast<uint64_t>(element_bytes(t) * elements);
  };
  const int64_t results = p.m * p.n * inner();
  const TrialMemory left(
      device, p.a,
      of(p.a, reach(p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k, p.lda, step_of_a()))),
      right(device, p.b,
            of(p.b, reach(p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n, p.ldb, step_of_b()))),
      bias(device, p.bias, p.bias == TENON_DTYPE_NONE ? 0 : of(p.bias, p.n)),
      residual(device, p.y, p.residual == TENON_DTYPE_NONE ? 0 : of(p.y, results)),
      pre_act(device, TENON_DTYPE_NONE, p.pre_act ? of(p.y, results) : 0),
      result(device, TENON_DTYPE_NONE, of(p.y, results)),
      scratch(device, TENON_DTYPE_NONE, workspace);
  OwnedProduct own;  // where it holds an address, that of this memory
  const bool named = bias.at() || pre_act.at();
  if (named) describe(own, bias.at(), pre_act.at());
  std::vector<StreamTrial::Way> ways;
  for (const Heuristic& h : list)
    ways.push_back([&, this](Stream stream) {
      multiply(named ? own : product, h, left.at(), right.at(), residual.at(), result.at(),
               scratch.at(), stream);
    });
  std::vector<size_t> kept(list.size());
  std::iota(kept.begin(), kept.end(), size_t{0});
  if (check) {
    const std::vector<bool> same =
        check->same({left.at(), right.at(), bias.at(), residual.at(), result.at()}, ways);
    std::erase_if(kept, [&](size_t w) { return !same[w]; });
  }
  if (kept.empty()) return {};
  if (!timed || kept.size() == 1) return kept[0];
  std::vector<StreamTrial::Way> timed_ways;
  for (const size_t w : kept) timed_ways.push_back(ways[w]);
  StreamTrial trial(device, std::move(timed_ways));
  return kept[fastest(trial)];
}

bool BlasProduct::takes(CudaDevice& device, const ProductProblem& p) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (!blas() || !is_float(p.a) || p.a != p.b) return false;
  if (p.m == 0 || p.n == 0 || p.k == 0 || p.batches() == 0) return false;
  if (p.m >= kMost || p.n >= kMost || p.k >= kMost) return false;
  if (!p.batch.empty() && p.batches() / p.batch.back() > kMostCalls) return false;
  // Its epilogues read both by vectors, and are told of no other alignment.
  constexpr uint64_t kEpilogueAlignment = 16;
  if (p.bias != TENON_DTYPE_NONE && p.bias_alignment < kEpilogueAlignment) return false;
  if (p.residual != TENON_DTYPE_NONE && p.residual_alignment < kEpilogueAlignment) return false;
  // Where rows of y are no multiples of 16 bytes, the way it proposes first rounds before it adds a
  // bias.
  constexpr int64_t kWholeRow = 8;
  if (is_half(p.y) && p.bias != TENON_DTYPE_NONE && p.n % kWholeRow != 0) return false;
  // The library rounds between a bias and a residual.
  if (is_half(p.y) && p.bias != TENON_DTYPE_NONE && p.residual != TENON_DTYPE_NONE) return false;
  return epilogue_of(p) && (p.bias == TENON_DTYPE_NONE || p.bias == p.y) && device.multiplies();
}

BlasProduct::BlasProduct(CudaDevice& device, const ProductProblem& problem)
    : state_(std::make_shared<State>(device, problem)) {}

bool BlasProduct::is_certain() const {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  const Current current(s.device.context());
  s.describe_all();
  return !s.proposals(0, 1).empty();
}

bool BlasProduct::tune(uint64_t most_workspace) const {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (s.tuned) return s.choice.has_value();
  const Current current(s.device.context());
  const uint64_t workspace = std::min(most_workspace, kMostWorkspace);
  s.describe_all();
  s.choice = choice_of(s.device.choices().of(
      s.key(workspace), [&](bool timed) { return s.choose(workspace, timed); },
      [&](const std::string& text) {
        const std::vector<Heuristic> list = s.proposals(workspace, kMostProposals);
        return std::ranges::any_of(list, [&](const Heuristic& h) { return text_of(h) == text; });
      }));
  s.tuned = true;
  return s.choice.has_value();
}

uint64_t BlasProduct::workspace() const { return state_->choice ? state_->choice->workspace : 0; }

void BlasProduct::run(const sdk::Call& call, const ProductPointers& p, void* workspace) const {
  State& s = *state_;
  const ProductProblem& t = s.problem;
  OwnedProduct own;  // where it holds an address, that of this call
  const bool named = p.bias || p.pre_act;
  if (named) s.describe(own, p.bias, p.pre_act);
  const auto offset = [](const void* base, tenon_dtype type, int64_t elements) {
    return static_cast<const char*>(base) + elements * element_bytes(type);
  };
  for (int64_t i = 0; i < t.batches(); i += s.inner()) {
    int64_t rest = i / s.inner(), at_a = 0, at_b = 0;
    for (size_t d = t.batch.size(); d-- > 1;) {
      const int64_t index = rest % t.batch[d - 1];
      rest /= t.batch[d - 1];
      at_a += index * t.a_steps[d - 1], at_b += index * t.b_steps[d - 1];
    }
    s.multiply(named ? own : s.product, *s.choice, offset(p.a, t.a, at_a), offset(p.b, t.b, at_b),
               p.residual ? offset(p.residual, t.y, i * t.m * t.n) : nullptr,
               static_cast<char*>(p.y) + i * t.m * t.n * element_bytes(t.y), workspace,
               static_cast<Stream>(call.stream));
  }
}

}  // namespace tenon::cuda
