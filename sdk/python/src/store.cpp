// SPDX-License-Identifier: Apache-2.0
// The class Store: named weights and state.
#include "tensor.hpp"

namespace tenon::python {
namespace {

using PyStore = Kept<Store>;

uint32_t space_of(std::string_view name) {
  if (name == "weight") return TENON_SPACE_WEIGHT;
  if (name == "state") return TENON_SPACE_STATE;
  fail(TENON_INVALID_ARGUMENT,
       "store: space '" + std::string(name) + "'; expected \"weight\" or \"state\"");
}

void set(const PyStore& store, std::string_view name, nb::handle value, std::string_view space) {
  View view;
  const std::string what = std::string(space) + " '" + std::string(name) + "'";
  const Loan loan = Loan::of(value, view, what);
  if (!on_host(view.device))
    fail(TENON_UNSUPPORTED, what + ": it is in memory of a device; expected host memory");
  tenon_tensor t = view.c_tensor();
  std::vector<std::byte> dense;
  tenon_store* handle = store->handle();
  const uint32_t number = space_of(space);
  const Unlocked unlocked;
  if (!view.dense()) {
    dense.resize(view.bytes());
    copy_dense(view, dense.data());
    t.data = dense.data();
  }
  detail::check(tenon_store_set(handle, number, detail::str(name), &t));
}

PyTensor get(const PyStore& store, std::string_view name, std::string_view space) {
  const uint32_t number = space_of(space);
  const TensorType type = store->type(number, name);
  PyTensor out = new_tensor(type.dtype, type.dims);
  const uint64_t size = out.view.bytes();
  Store& s = *store;
  const Unlocked unlocked;
  s.get(number, name, out.view.data, size);
  return out;
}

}  // namespace

void add_store(nb::module_& m) {
  nb::class_<PyStore>(
      m, "Store", nb::is_weak_referenceable(),
      "Named weights and state, which models share. space is \"weight\" or \"state\".")
      .def(
          "__init__",
          [](PyStore* self, const Kept<Runtime>& runtime) { new (self) PyStore(*runtime); },
          nb::arg("runtime"), "An empty store.")
      .def("set", set, nb::arg("name"), nb::arg("value"), nb::arg("space") = "weight",
           "Sets or replaces an entry. The value is copied; runs in flight keep the former one.")
      .def("get", get, nb::arg("name"), nb::arg("space") = "weight",
           "A copy of an entry, after all runs that write it.")
      .def(
          "_type",
          [](const PyStore& s, std::string_view name, std::string_view space) {
            const TensorType t = s->type(space_of(space), name);
            return std::pair(dtype_object(t.dtype), t.dims);
          },
          nb::arg("name"), nb::arg("space") = "weight", "Dtype and dims of an entry.")
      .def(
          "names",
          [](const PyStore& s, std::string_view space) { return s->names(space_of(space)); },
          nb::arg("space") = "weight", "The names in a space, sorted.")
      .def(
          "remove",
          [](const PyStore& s, std::string_view name, std::string_view space) {
            s->remove(space_of(space), name);
          },
          nb::arg("name"), nb::arg("space") = "weight", "Removes an entry.")
      .def(
          "add_missing",
          [](const PyStore& s, const Graph& graph) {
            Store& store = *s;
            const Unlocked unlocked;
            store.add_missing(graph);
          },
          nb::arg("graph"),
          "Creates the state of a graph that the store lacks: masters of half-precision weights "
          "from the weights, all else as zeros.")
      .def(
          "_load",
          [](const PyStore& s, std::string_view path, std::string_view space) {
            Store& store = *s;
            const uint32_t number = space_of(space);
            const Unlocked unlocked;
            store.load(number, path);
          },
          nb::arg("path"), nb::arg("space") = "weight", "Sets every tensor of a safetensors file.")
      .def(
          "_save",
          [](const PyStore& s, std::string_view path, std::string_view space,
             const std::vector<std::pair<std::string, std::string>>& metadata) {
            const Store& store = *s;
            const uint32_t number = space_of(space);
            const Unlocked unlocked;
            store.save(number, path, metadata);
          },
          nb::arg("path"), nb::arg("space") = "weight",
          nb::arg("metadata") = std::vector<std::pair<std::string, std::string>>(),
          "Writes a space to a safetensors file.");
}

}  // namespace tenon::python
