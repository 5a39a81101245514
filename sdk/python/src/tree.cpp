// SPDX-License-Identifier: Apache-2.0
// Trees of Python: the arguments of a traced function become leaves and a key, results a tree. The
// usual types are handled here, the others by the package (tenon/_function.py).
#include "tree.hpp"

#include "tensor.hpp"

namespace tenon::python {
namespace {

// What the package knows of leaves. Set once, when it is imported, and never freed.
struct TreeHooks {
  nb::handle array;          // numpy.ndarray
  nb::handle dtypes;         // dict: the DType of each dtype of NumPy that was seen
  nb::handle dtype_of;       // (array): its DType
  nb::handle real, integer;  // in keys, for numbers of Python
  nb::handle other;          // (node, leaves, key): describes all other types
};
TreeHooks& tree_hooks() {
  static TreeHooks set;
  return set;
}

void append(nb::handle list, nb::handle item) {
  if (PyList_Append(list.ptr(), item.ptr()) != 0) throw nb::python_error();
}

nb::object shape_tuple(const View& v) {
  nb::object shape = nb::steal(PyTuple_New(v.rank));
  for (uint32_t i = 0; i < v.rank; ++i)
    PyTuple_SetItem(shape.ptr(), i, PyLong_FromLongLong(v.dims[i]));
  return shape;
}

// Sorted, if they have an order.
nb::object keys_of(nb::handle dict) {
  const nb::object keys = nb::steal(PyDict_Keys(dict.ptr()));
  if (!keys.is_valid()) throw nb::python_error();
  if (PyList_Size(keys.ptr()) > 1 && PyList_Sort(keys.ptr()) != 0) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
    PyErr_Clear();
    return nb::steal(PySequence_Tuple(dict.ptr()));
  }
  return nb::steal(PyList_AsTuple(keys.ptr()));
}

void describe_array(nb::handle array, nb::handle leaves, nb::handle key) {
  const nb::object numpy_dtype = array.attr("dtype");
  const nb::handle known = PyDict_GetItemWithError(tree_hooks().dtypes.ptr(), numpy_dtype.ptr());
  append(key, known.is_valid() ? nb::borrow(known) : tree_hooks().dtype_of(array));
  append(key, array.attr("shape"));
  append(leaves, array);
}

struct Depth {
  Depth() {
    if (Py_EnterRecursiveCall(" in a tree of arguments") != 0) throw nb::python_error();
  }
  ~Depth() { Py_LeaveRecursiveCall(); }
};

void describe(nb::handle node, nb::handle leaves, nb::handle key) {
  PyTypeObject* const type = Py_TYPE(node.ptr());
  const TreeHooks& known = tree_hooks();
  if (type == &PyFloat_Type || type == &PyLong_Type) {
    append(key, type == &PyFloat_Type ? known.real : known.integer);
    append(leaves, node);
  } else if (reinterpret_cast<PyObject*>(type) == known.array.ptr()) {
    describe_array(node, leaves, key);
  } else if (type == &PyDict_Type) {
    const Depth depth;
    const nb::object keys = keys_of(node);
    append(key, reinterpret_cast<PyObject*>(type));
    append(key, keys);
    for (nb::handle k : keys) {
      const nb::object child = nb::borrow(PyDict_GetItemWithError(node.ptr(), k.ptr()));
      if (!child.is_valid()) throw nb::python_error();
      describe(child, leaves, key);
    }
  } else if (type == &PyList_Type || type == &PyTuple_Type) {
    const Depth depth;
    append(key, reinterpret_cast<PyObject*>(type));
    const nb::object children = nb::steal(PySequence_Tuple(node.ptr()));
    append(key, nb::int_(nb::len(children)));
    for (nb::handle child : children) describe(child, leaves, key);
  } else if (const PyTensor* tensor = tensor_of(node)) {
    const View& view = tensor->view;
    append(key, dtype_object(view.dtype));
    append(key, shape_tuple(view));
    append(leaves, node);
  } else {
    const Depth depth;
    known.other(node, leaves, key);
  }
}

// Takes leaves from `at` on.
nb::object build(nb::handle structure, nb::handle leaves, Py_ssize_t& at) {
  if (structure.is_none()) {
    const nb::handle leaf = PyList_GetItem(leaves.ptr(), at++);
    if (!leaf.is_valid()) throw nb::python_error();
    return nb::borrow(leaf);
  }
  const nb::handle kind = structure[0].ptr();
  const nb::object keys = structure[1], below = structure[2];
  const auto count = static_cast<Py_ssize_t>(nb::len(below));
  if (kind.is(reinterpret_cast<PyObject*>(&PyTuple_Type))) {
    nb::object out = nb::steal(PyTuple_New(count));
    for (Py_ssize_t i = 0; i < count; ++i)
      PyTuple_SetItem(out.ptr(), i, build(below[i], leaves, at).release().ptr());
    return out;
  }
  if (kind.is(reinterpret_cast<PyObject*>(&PyList_Type))) {
    nb::list out;
    for (Py_ssize_t i = 0; i < count; ++i) out.append(build(below[i], leaves, at));
    return out;
  }
  if (kind.is(reinterpret_cast<PyObject*>(Py_TYPE(Py_None)))) return nb::none();
  nb::dict parts;
  for (Py_ssize_t i = 0; i < count; ++i) parts[keys[i]] = build(below[i], leaves, at);
  if (kind.is(reinterpret_cast<PyObject*>(&PyDict_Type))) return parts;
  return kind(**parts);
}

}  // namespace

nb::object tree_of(nb::handle structure, nb::handle leaves) {
  Py_ssize_t at = 0;
  return build(structure, leaves, at);
}

void add_tree(nb::module_& m) {
  m.def(
      "_set_tree_hooks",
      [](nb::object array, nb::object dtypes, nb::object dtype_of, nb::object real,
         nb::object integer, nb::object other) {
        tree_hooks() = {array.release(), dtypes.release(),  dtype_of.release(),
                        real.release(),  integer.release(), other.release()};
      },
      nb::arg("array"), nb::arg("dtypes"), nb::arg("dtype_of"), nb::arg("real"), nb::arg("integer"),
      nb::arg("other"), "Sets what _describe() needs to know.");
  m.def(
      "_describe",
      [](nb::handle node, nb::list leaves, nb::list key) { describe(node, leaves, key); },
      nb::arg("node").none(), nb::arg("leaves"), nb::arg("key"),
      "Adds arrays and numbers of a tree to the leaves, and all that a trace depends on to the "
      "key.");
  m.def(
      "_unflatten",
      [](nb::handle structure, nb::list leaves) { return tree_of(structure, leaves); },
      nb::arg("structure").none(), nb::arg("leaves"), "The tree of a structure with these leaves.");
}

}  // namespace tenon::python
