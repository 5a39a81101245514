// SPDX-License-Identifier: Apache-2.0
// The module tenon._tenon: tenon's objects in Python. The package around it gives them docstrings,
// types and short ways.
#include "common.hpp"

NB_MODULE(_tenon, m) {
  using namespace tenon::python;
  nb::set_leak_warnings(false);  // objects of a script may live until the process ends
  nb::register_exception_translator([](const std::exception_ptr& e, void*) {
    try {
      std::rethrow_exception(e);
    } catch (const tenon::Error&) {
      set_python_error();
    } catch (const nb::cast_error&) {
      set_python_error();
    } catch (const std::bad_alloc&) {
      set_python_error();
    }
  });
  add_log(m);
  add_runtime(m);
  add_tensor(m);
  add_store(m);
  add_graph(m);
  add_executable(m);
  add_tree(m);
  add_rules(m);
  add_llm(m);
}
