// SPDX-License-Identifier: Apache-2.0
// A backend in one file: a device of host memory, and kernels for add, relu and matmul in f32. tenon runs everything
// else on the cpu plugin and says so; sdk/template has all primitives, so that nothing falls back.
#include <cstdlib>
#include <new>

#include <tenon/plugin.hpp>

namespace mini {

namespace sdk = tenon::sdk;
namespace op = sdk::op;
using sdk::Call;
using sdk::Kernel;
using sdk::Refusal;

void want_f32(const char* operand, sdk::Value v) {
  if (v.type().dtype != TENON_DTYPE_F32) throw Refusal::dtype(operand, v.type().dtype);
}

// A maker inspects one node. It returns the kernel that runs it, or refuses with a reason.
Kernel make_add(const op::binary& n, const sdk::Node&) {
  if (n.kind != "add") throw Refusal::attribute("kind", n.kind);
  want_f32("a", n.a);
  if (!n.a.type().same_shape(n.b.type())) throw Refusal::shape("expected operands of the same shape");
  const int64_t count = n.a.type().elements();
  return {.run =
              [count](const Call& c) {
                const float *a = c.in<float>(0), *b = c.in<float>(1);
                float* y = c.out<float>(0);
                for (int64_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
              },
          .in_place = {{0, 0}, {1, 0}}};
}

Kernel make_relu(const op::unary& n, const sdk::Node&) {
  if (n.kind != "relu") throw Refusal::attribute("kind", n.kind);
  want_f32("x", n.x);
  const int64_t count = n.x.type().elements();
  return {.run =
              [count](const Call& c) {
                const float* x = c.in<float>(0);
                float* y = c.out<float>(0);
                for (int64_t i = 0; i < count; ++i) y[i] = x[i] <= 0 ? 0 : x[i];  // NaN stays
              },
          .in_place = {{0, 0}}};
}

Kernel make_matmul(const op::matmul& n, const sdk::Node& node) {
  want_f32("a", n.a);
  want_f32("b", n.b);
  if (node.out(0).type().dtype != TENON_DTYPE_F32) throw Refusal::attribute("out_dtype", "other than f32");
  const sdk::Type &a = n.a.type(), &b = n.b.type();
  if (a.rank != 2 || b.rank != 2 || n.trans_a || n.trans_b) throw Refusal::shape("expected two matrices that are not transposed");
  const int64_t rows = a.dims[0], depth = a.dims[1], cols = b.dims[1];
  return {.run = [=, alpha = n.alpha](const Call& c) {
    const float *a = c.in<float>(0), *b = c.in<float>(1);
    float* y = c.out<float>(0);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < depth; ++k) sum += double{a[i * depth + k]} * b[k * cols + j];
        y[i * cols + j] = static_cast<float>(alpha * sum);
      }
  }};
}

constexpr sdk::Row kRows[] = {
    sdk::row<op::binary, make_add>(),
    sdk::row<op::unary, make_relu>(),
    sdk::row<op::matmul, make_matmul>(),
};

class HostMemory final : public sdk::Device {
 public:
  void* allocate(uint64_t bytes, uint64_t alignment) override {
    void* const memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (!memory) throw std::bad_alloc();
    return memory;
  }
  void deallocate(void* memory, uint64_t) noexcept override { std::free(memory); }
};

std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&) {
  return {{.kind = "mini", .name = "plain loops"}};
}
std::unique_ptr<sdk::Device> open(const sdk::Runtime&, uint32_t, uint32_t) {
  return std::make_unique<HostMemory>();
}

constexpr sdk::PluginSpec kSpec{
    .name = "mini", .version = "1.0.0", .vendor = "me", .rows = kRows, .devices = devices, .open = open};

}  // namespace mini

TENON_PLUGIN(mini::kSpec, "mini", TENON_ISA_BASELINE)
