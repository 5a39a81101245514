// SPDX-License-Identifier: Apache-2.0
// Makes the contents of inputs, and builds a case in the layout that a proof asks for.
#include "kit.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <set>

namespace tenon::conform {
namespace {

// splitmix64: small, and the same everywhere.
class Random {
 public:
  explicit Random(std::string_view seed) {
    for (const char c : seed) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  uint64_t bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double normal() {
    const double u = 1 - unit();
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * unit());
  }

 private:
  uint64_t state_ = 0xcbf29ce484222325u;
};

}  // namespace

HostTensor Fill::make(const TensorType& type, std::string_view seed, double scale) const {
  Random random(seed);
  HostTensor out(type);
  if (kind_ == Kind::blocks && hi_ == 2) {
    set_f8_specials(out);
    return out;
  }
  if (kind_ == Kind::blocks) {
    for (std::byte& byte : out.bytes) byte = static_cast<std::byte>(random.bits());
    if (hi_ == 0) set_block_scales(out, [&] { return 0.01 + 0.02 * random.unit(); });
    return out;
  }
  const size_t n = out.size();
  const double factor = fixed_ ? 1 : scale;
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  if (kind_ == Kind::distinct)
    for (size_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.bits() % i]);
  for (size_t i = 0; i < n; ++i) {
    switch (kind_) {
      case Kind::uniform:
        out.set_real(i, factor * (lo_ + (hi_ - lo_) * random.unit()));
        break;
      case Kind::normal:
        out.set_real(i, factor * hi_ * random.normal());
        break;
      case Kind::distinct:
        out.set_real(i, factor * (lo_ + (hi_ - lo_) * (static_cast<double>(order[i]) + 0.5) /
                                            static_cast<double>(n)));
        break;
      case Kind::integers:
        out.set_real(i, factor * std::floor(lo_ + (hi_ - lo_ + 1) * random.unit()));
        break;
      case Kind::list:
        out.set_real(i, factor * values_[i % values_.size()]);
        break;
      case Kind::exact:
        out.set_integer(i, exact_[i % exact_.size()]);
        break;
      case Kind::blocks:  // above
        break;
    }
  }
  for (size_t k = 0; k < specials_.size() && k < n; ++k)
    out.set_real((k * n / specials_.size() + k) % n, specials_[k]);
  return out;
}

Tolerance sum_of(int64_t terms) {
  return scaled(2 * std::log2(std::max<double>(1, static_cast<double>(terms))) + 16);
}
Tolerance product_of(int64_t terms) {
  return scaled(2 * std::sqrt(static_cast<double>(terms)) + 16);
}

DTypes operator+(const DTypes& a, const DTypes& b) {
  DTypes all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

Value CaseBuilder::number(double x) {
  HostTensor t({dtype(), {}});
  t.set_real(0, x);
  return graph_.constant(t.type, t.bytes.data(), t.bytes.size());
}

namespace {
std::mutex remembering;
std::set<std::string_view>& remembered() {
  static std::set<std::string_view> ops;
  return ops;
}
}  // namespace

void CaseBuilder::remember(std::string_view op) {
  const std::lock_guard lock(remembering);
  remembered().insert(op);
}
bool CaseBuilder::remembers(std::string_view op) {
  const std::lock_guard lock(remembering);
  return remembered().contains(op);
}

void CaseBuilder::expect(std::string_view name, std::vector<double> values) {
  for (Output& o : outputs_)
    if (o.name == name) {
      o.expected = std::move(values);
      o.has_expected = true;
    }
}

HostTensor CaseBuilder::content_of(const Fill& fill, const TensorType& type, std::string_view name,
                                   double scale) const {
  return mode_.blank ? HostTensor(type)
                     : fill.make(type, mode_.seed + "/" + std::string(name), scale);
}

Value CaseBuilder::neighbour(std::string_view name, const TensorType& type, const Fill& fill) {
  HostTensor content = content_of(fill, type, name, 1);
  const Value v = graph_.input(name, content.type);
  inputs_.push_back({std::string(name), std::move(content), false, v, v, v});
  return v;
}

// x * 1 + (-0), or x + 0 of integers: every number as it was, and nothing for a compiler to see.
Value CaseBuilder::made(Value x, const std::string& name) {
  const TensorType type = graph_.type(x);
  if (is_float(type.dtype)) {
    const Value one = neighbour("one for " + name, {type.dtype, {}}, Fill::list({1}));
    const Value zero = neighbour("zero for " + name, type, Fill::list({-0.0}));
    return binary("add", binary("mul", x, one), zero);
  }
  if (!is_integer(type.dtype)) return x;
  return binary("add", x, neighbour("zero for " + name, type, Fill::exact({0})));
}

Value CaseBuilder::input(std::string_view name, tenon_dtype dtype, const Dims& given,
                         const Fill& fill) {
  Dims dims = given;
  std::ranges::replace(dims, mode_.zero, 0);
  if (twin_) {
    const auto at = std::find_if(inputs_.begin(), inputs_.end(),
                                 [&](const Input& in) { return in.name == name; });
    const auto made = std::count_if(inputs_.begin(), inputs_.end(),
                                    [](const Input& in) { return in.read != in.restored; });
    return at == inputs_.begin() && made > 1 ? at->read : at->restored;
  }
  HostTensor content = content_of(fill, {dtype, dims}, name, mode_.scale);
  if (as(dtype) != dtype) {
    HostTensor wide({as(dtype), dims});
    for (size_t i = 0; i < wide.size(); ++i) wide.set_real(i, content.real(i));
    content = std::move(wide);
  }
  const size_t at = inputs_.size();
  const Value v = restored(name, std::move(content), is_float(dtype) && !fill.is_fixed());
  const Value read = mode_.made ? made(v, std::string(name)) : v;
  inputs_[at].restored = v;
  inputs_[at].read = read;
  return read;
}

Value CaseBuilder::restored(std::string_view name, HostTensor content, bool differentiable) {
  const Dims dims = content.type.dims;
  const tenon_dtype dtype = content.type.dtype;
  const size_t n = content.size();
  if (!mode_.strided || dims.empty() || n == 0 || sdk::is_blocks(dtype)) {
    const Value v = graph_.input(name, content.type);
    inputs_.push_back({std::string(name), std::move(content), differentiable, v});
    return v;
  }
  if (dims.size() == 1) {  // every second element, the others are never to be read into a result
    HostTensor gaps({content.type.dtype, {2 * dims[0]}});
    if (!mode_.blank) {
      std::vector<int64_t> from(2 * n);
      for (size_t i = 0; i < 2 * n; ++i) from[i] = static_cast<int64_t>((i / 2 + i % 2) % n);
      gaps = picked(content, gaps.type.dims, from);
      for (size_t i = 1; i < 2 * n; i += 2)
        if (is_float(dtype)) gaps.set_real(i, std::nan(""));
    }
    const Value v = graph_.input(name, gaps.type);
    inputs_.push_back({std::string(name), std::move(gaps), differentiable, v});
    return graph_.add(op::narrow{.start = {0}, .len = dims, .step = {2}, .x = v});
  }
  const Dims reversed(dims.rbegin(), dims.rend());
  std::vector<int64_t> from(n), index(dims.size(), 0);
  for (size_t k = 0; k < n && !mode_.blank; ++k) {
    int64_t flat = 0;
    for (size_t a = 0; a < dims.size(); ++a) flat = flat * dims[a] + index[dims.size() - 1 - a];
    from[k] = flat;
    for (size_t a = dims.size(); a-- > 0;) {
      if (++index[a] < reversed[a]) break;
      index[a] = 0;
    }
  }
  HostTensor turned = mode_.blank ? HostTensor({dtype, reversed}) : picked(content, reversed, from);
  const Value v = graph_.input(name, turned.type);
  inputs_.push_back({std::string(name), std::move(turned), differentiable, v});
  return graph_.add(op::transpose{.x = v});
}

}  // namespace tenon::conform
