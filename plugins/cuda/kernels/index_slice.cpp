// SPDX-License-Identifier: Apache-2.0
// dynamic_slice and dynamic_update_slice: a block that starts where the data says.
#include <array>

#include "index.hpp"
#include "strided_copy.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

// The block of `size` within `whole`, whose strides are its own.
struct Window {
  args::CopyStart start;
  std::vector<int64_t> moving;  // byte strides along which the block has room
};

Window make_window(const sdk::Type& whole, std::span<const int64_t> size, std::string_view oob,
                   const sdk::Type& start) {
  if (oob != "error" && oob != "clamp") throw Refusal::attribute("oob", oob);
  if (!start.dense()) throw Refusal::shape("start must be dense");
  want_bytes("x", whole.dtype);
  Window w;
  w.start.wide = start.dtype == TENON_DTYPE_I64;
  w.start.rank = whole.rank, w.start.clamp = oob == "clamp";
  for (int i = 0; i < whole.rank; ++i) {
    const int64_t n = size[static_cast<size_t>(i)];
    w.start.most[i] = whole.dims[i] - n;
    w.start.strides[i] = whole.strides[i] * element_bytes(whole.dtype);
    if (w.start.most[i] > 0) w.moving.push_back(w.start.strides[i]);
  }
  return w;
}

sdk::Type dense(tenon_dtype dtype, std::span<const int64_t> dims) {
  sdk::Type t{.dtype = dtype, .rank = static_cast<int>(dims.size())};
  std::copy(dims.begin(), dims.end(), t.dims.begin());
  t.set_dense_strides();
  return t;
}
StridedCopy::Side side(const sdk::Type& t, const sdk::Value& v) {
  return {{t.strides.data(), static_cast<size_t>(t.rank)}, v.alignment()};
}
args::CopyStart at(const args::CopyStart& start, const Call& c, int input) {
  args::CopyStart s = start;
  s.words = c.inputs[input];
  s.sink = error_sink(c);
  return s;
}

}  // namespace

Kernel make_dynamic_slice(const sdk::op::dynamic_slice& n, const Node& node) {
  const sdk::Type &x = n.x.type(), y = dense(x.dtype, n.size);
  const Window w = make_window(x, n.size, n.oob, n.start.type());
  const StridedCopy copy(device_of(node), n.size, side(x, n.x), side(y, node.out(0)),
                         element_bytes(x.dtype), w.moving, true);
  Kernel kernel =
      kernel_of(copy.codes(), [=, start = w.start, input = n.start.position()](const Call& c) {
        copy.launch(c, c.inputs[0], c.outputs[0], at(start, c, input));
      });
  kernel.can_fail = true;
  return kernel;
}

Kernel make_dynamic_update_slice(const sdk::op::dynamic_update_slice& n, const Node& node) {
  const sdk::Type &base = n.base.type(), &update = n.update.type();
  if (!base.dense()) throw Refusal::shape("base must be dense");
  const sdk::Type whole = dense(base.dtype, base.shape());
  Window w = make_window(whole, update.shape(), n.oob, n.start.type());
  w.start.moves_target = 1;
  const StridedCopy copy(device_of(node), update.shape(), side(update, n.update),
                         side(whole, node.out(0)), element_bytes(base.dtype), w.moving, true);
  Kernel kernel = kernel_of(copy.codes(), [=, start = w.start, bytes = base.bytes(),
                                           input = n.start.position()](const Call& c) {
    if (c.outputs[0] != c.inputs[0] && bytes > 0)
      TENON_CUDA(copy_on_device, reinterpret_cast<Address>(c.outputs[0]),
                 reinterpret_cast<Address>(c.inputs[0]), bytes, static_cast<Stream>(c.stream));
    copy.launch(c, c.inputs[1], c.outputs[0], at(start, c, input));
  });
  kernel.can_fail = true;
  kernel.in_place = {{0, 0}};
  return kernel;
}

}  // namespace tenon::cuda
