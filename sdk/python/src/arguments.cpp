// SPDX-License-Identifier: Apache-2.0
// The arguments of a call: checked, and bound without a copy.
#include <cstring>

#include "runner.hpp"

namespace tenon::python {
namespace {

// Python writes no integers of more than 4300 digits.
std::string number_text(nb::handle number) {
  PyObject* text = PyObject_Str(number.ptr());
  if (text) return nb::cast<std::string>(nb::steal(text));
  PyErr_Clear();
  return "an integer of many digits";
}

}  // namespace

size_t Runner::input_named(nb::handle key) const {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].key.is(key) || inputs_[i].key.equal(key)) return i;
  std::string names;
  for (const Input& i : inputs_) names += (names.empty() ? "" : ", ") + i.name;
  fail(TENON_NOT_FOUND, "call: the model has no input '" + nb::cast<std::string>(nb::str(key)) +
                            "'; expected " + (names.empty() ? "no inputs" : names));
}

void Runner::check_numbers(size_t input, const View& view) const {
  const std::vector<int64_t>& dims = bound_dims_[input];
  bool fits = view.rank == dims.size();
  for (size_t i = 0; fits && i < dims.size(); ++i) fits = dims[i] < 0 || dims[i] == view.dims[i];
  if (fits) return;
  fail(TENON_SHAPE_MISMATCH, "input '" + inputs_[input].name + "': expected " +
                                 type_text(inputs_[input].type.dtype, dims.data(), dims.size()) +
                                 ", because the model is bound to " + numbers_text_ + "; got " +
                                 view.text());
}

// The stream of the lane on a device, null if it has none. Fails if the model does not use the device.
void* Runner::stream_on(Lane& lane, const std::string& device, const std::string& what) {
  void* stream = nullptr;
  tenon_status* status = tenon_context_stream(lane.context, detail::str(device), &stream);
  if (tenon_status_code(status) == TENON_UNSUPPORTED) {
    tenon_status_release(status);
    return nullptr;
  }
  try {
    detail::check(status);
  } catch (const Error& e) {
    fail(e.code(), what + ": it is on " + device + ", which the model does not use: " + e.what() +
                       ". hint: to(\"" + device + "\") of the model, or to(\"cpu\") of the tensor");
  }
  return stream;
}

// A producer on a device makes this stream wait for its work. None for host memory.
nb::object Runner::stream_for(Lane& lane, nb::handle object, const std::string& what) {
  if (!nb::hasattr(object, "__dlpack_device__")) return nb::none();
  const auto [type, id] = nb::cast<std::pair<int32_t, int32_t>>(object.attr("__dlpack_device__")());
  if (type != kDlCuda) return nb::none();
  void* stream = stream_on(lane, "cuda:" + std::to_string(id), what);
  return stream ? nb::cast(reinterpret_cast<uintptr_t>(stream)) : nb::none();
}

// A number of Python for an input without dims.
void Runner::bind_number(Lane& lane, size_t input, nb::handle number) {
  const Input& in = inputs_[input];
  const std::string what = "input '" + in.name + "'";
  if (!in.type.dims.empty())
    fail(TENON_SHAPE_MISMATCH, what + ": expected " + std::to_string(in.type.dims.size()) +
                                   " dims, got a number. hint: numpy.asarray()");
  alignas(8) std::byte bytes[8] = {};
  const auto refuse = [&] {
    fail(TENON_INVALID_ARGUMENT, what + ": " + number_text(number) + " is no " +
                                     std::string(sdk::dtype_name(in.type.dtype)));
  };
  const bool is_float = PyFloat_Check(number.ptr());
  const bool to_integer = sdk::is_integer(in.type.dtype) || in.type.dtype == TENON_DTYPE_BOOL;
  if (is_float && to_integer)
    fail(TENON_DTYPE_MISMATCH,
         what + ": expected " + std::string(sdk::dtype_name(in.type.dtype)) + ", got a float");
  if (is_float) {
    const double value = PyFloat_AsDouble(number.ptr());
    detail::check(tenon_convert(TENON_DTYPE_F64, &value, in.type.dtype, bytes, 1));
  } else if (to_integer) {
    int64_t value = 0, back = 0;
    if (uint64_t large = 0; in.type.dtype == TENON_DTYPE_U64 && nb::try_cast(number, large)) {
      std::memcpy(bytes, &large, sizeof large);
    } else {
      if (!nb::try_cast(number, value)) refuse();
      detail::check(tenon_convert(TENON_DTYPE_I64, &value, in.type.dtype, bytes, 1));
      detail::check(tenon_convert(in.type.dtype, bytes, TENON_DTYPE_I64, &back, 1));
      if (back != value || in.type.dtype == TENON_DTYPE_U64) refuse();
    }
  } else {
    const double value = PyLong_AsDouble(number.ptr());
    if (PyErr_Occurred()) {
      PyErr_Clear();
      refuse();
    }
    detail::check(tenon_convert(TENON_DTYPE_F64, &value, in.type.dtype, bytes, 1));
  }
  View view;
  view.data = bytes;
  view.dtype = in.type.dtype;
  const tenon_tensor t = view.c_tensor();
  detail::check(tenon_context_set(lane.context, detail::str(in.name), &t));
  lane.loans[input].end();
  lane.views[input] = view;
}

void Runner::bind(Lane& lane, size_t input, nb::handle object) {
  const Input& in = inputs_[input];
  lane.given[input] = true;
  if (PyFloat_Check(object.ptr()) || PyLong_Check(object.ptr())) {
    bind_number(lane, input, object);
    return;
  }
  View view;
  const std::string what = "input '" + in.name + "'";
  Loan loan = Loan::simple(object, view, what);
  if (!loan) loan = Loan::of(object, view, what, stream_for(lane, object, what));
  if (!view.dense())
    fail(TENON_UNSUPPORTED,
         what +
             ": its strides are not those of contiguous memory. hint: numpy.ascontiguousarray(), "
             "torch.Tensor.contiguous() or tenon.tensor() make a copy");
  if (!numbers_text_.empty()) check_numbers(input, view);
  const bool host = on_host(view.device);
  const std::string device = host ? std::string() : device_id(runtime_handle_, view);
  if (!host) stream_on(lane, device, what);
  const tenon_tensor t = view.c_tensor(device);
  const bool copied = copies_inputs_ || (host && t.size <= kCopied);
  detail::check(
      (copied ? tenon_context_set : tenon_context_bind)(lane.context, detail::str(in.name), &t));
  if (has_symbols_ && lane.quick) {
    const View& before = lane.views[input];
    lane.quick = before.rank == view.rank && before.dims == view.dims;
  }
  lane.views[input] = view;
  lane.loans[input] = copied ? Loan() : std::move(loan);
  if (!copied && host) lane.lent.push_back(input);
}

void Runner::bind_outputs(Lane& lane, nb::handle out) {
  nb::list memory;
  if (nb::isinstance<nb::list>(out) || nb::isinstance<nb::tuple>(out))
    for (nb::handle o : out) memory.append(o);
  else
    memory.append(out);
  if (nb::len(memory) != outputs_.size())
    fail(TENON_INVALID_ARGUMENT, "call: out has " + std::to_string(nb::len(memory)) +
                                     " entries; expected one for each of the " +
                                     std::to_string(outputs_.size()) + " outputs");
  for (size_t k = 0; k < outputs_.size(); ++k) {
    const std::string what = "output '" + outputs_[k] + "'";
    View view;
    const nb::object object = memory[k];
    lane.loans.push_back(Loan::of(object, view, what, stream_for(lane, object, what)));
    if (!view.dense())
      fail(TENON_UNSUPPORTED,
           what + ": the strides of its memory are not those of contiguous memory");
    const bool host = on_host(view.device);
    const std::string device = host ? "" : device_id(runtime_handle_, view);
    if (!host) stream_on(lane, device, what);
    const tenon_tensor t = view.c_tensor(device);
    detail::check(tenon_context_bind(lane.context, detail::str(outputs_[k]), &t));
    lane.bound.push_back(outputs_[k]);
  }
}

void Runner::bind_all(std::shared_ptr<Lane>& lane, nb::handle args, nb::handle kwargs,
                      nb::object& out) {
  const auto count = static_cast<size_t>(PyTuple_Size(args.ptr()));
  if (count == 1 && PyDict_Check(PyTuple_GetItem(args.ptr(), 0))) {
    if (kwargs.is_valid() && PyDict_Size(kwargs.ptr()) > 0)
      fail(TENON_INVALID_ARGUMENT, "call: got a dict and keywords; expected one of them");
    const nb::tuple none;
    // A copy, because reading an argument may run code that changes the dict.
    const nb::object named = nb::steal(PyDict_Copy(PyTuple_GetItem(args.ptr(), 0)));
    if (!named.is_valid()) throw nb::python_error();
    bind_all(lane, none, named, out);
    return;
  }
  if (count > inputs_.size())
    fail(TENON_INVALID_ARGUMENT, "call: the model has " + std::to_string(inputs_.size()) +
                                     " inputs, got " + std::to_string(count));
  // What the call leaves out must not come from an earlier one.
  std::vector<bool> before(inputs_.size());
  before.swap(lane->given);
  for (size_t i = 0; i < count; ++i)
    bind(*lane, i, nb::handle(PyTuple_GetItem(args.ptr(), static_cast<Py_ssize_t>(i))));
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (kwargs.is_valid() && PyDict_Next(kwargs.ptr(), &at, &key, &value)) {
    if (takes_out_ && PyUnicode_CompareWithASCIIString(key, "out") == 0) {
      out = nb::borrow(value);
      continue;
    }
    const size_t input = input_named(key);
    if (lane->given[input])
      fail(TENON_INVALID_ARGUMENT, "call: input '" + inputs_[input].name + "' is given twice");
    bind(*lane, input, value);
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!before[i] || lane->given[i]) continue;
    lane = std::make_shared<Lane>(handle_, inputs_.size());
    bind_all(lane, args, kwargs, out);
    return;
  }
}

}  // namespace tenon::python
