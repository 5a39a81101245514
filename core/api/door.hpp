// SPDX-License-Identifier: Apache-2.0
// Shared by all C functions: the objects behind the handles, and the conversion of exceptions to
// statuses.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "exec/context.hpp"
#include "host/status.hpp"
#include "ir/graph.hpp"
#include "tenon/tenon.h"

struct tenon_text {
  std::string text;
};
struct tenon_graph {
  tenon::core::Graph graph;
};
struct tenon_runtime {
  std::shared_ptr<tenon::core::Runtime> runtime;
  std::vector<tenon::core::DeviceInfo> devices;  // as at load time; entries point into them
};
struct tenon_store {
  std::shared_ptr<tenon::core::Runtime> runtime;
  std::shared_ptr<tenon::core::Store> store;
  // Of a space, sorted. Kept until an entry comes or goes: callers ask for one name at a time.
  std::shared_ptr<const std::vector<std::string>> names(tenon::core::Space space);

 private:
  struct Names {
    uint64_t version = 0;  // of the store; 0: not listed yet
    std::shared_ptr<const std::vector<std::string>> list;
  };
  std::mutex names_mutex_;
  std::map<tenon::core::Space, Names> names_;
};
struct tenon_executable {
  std::shared_ptr<tenon::core::Executable> executable;
};
struct tenon_context {
  explicit tenon_context(std::shared_ptr<tenon::core::Executable> executable)
      : context(std::move(executable)) {}
  tenon::core::Context context;
};

namespace tenon::core {

inline tenon_str c_str(std::string_view s) { return {s.data(), s.size()}; }
inline std::string_view view(tenon_str s) {
  if (!s.data && s.size) fail(Code::invalid_argument, "a text of ", s.size, " bytes is at NULL");
  return {s.data ? s.data : "", s.size};
}

tenon_status* status_of_current_exception(const char* door) noexcept;

// Runs the body of a C function and converts exceptions to a status.
template <class Body>
tenon_status* door(const char* name, Body&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (...) {
    return status_of_current_exception(name);
  }
}

template <class T>
T& need(T* pointer, std::string_view what) {
  if (!pointer) fail(Code::invalid_argument, what, " is NULL");
  return *pointer;
}

// Makes a shape from the caller's rank and dims. Negative dims are symbols of a graph, or an error.
Shape shape_from(uint32_t rank, const int64_t* dims);
tenon_tensor_type to_c(const Type& type);

// The dense bytes of a caller's tensor: checked, with strides resolved.
struct HostTensor {
  Type type;
  Bytes gathered;  // used if it was strided
  std::span<const std::byte> content;
};
HostTensor host_tensor(const tenon_tensor* tensor, std::string_view what);

// Checks the size of any version of a struct. All sizes are multiples of 8, so no pointer is cut.
inline void check_struct_size(uint64_t size, std::string_view what) {
  if (size == 0 || size % 8 != 0)
    fail(Code::invalid_argument, what, ": struct_size is ", size,
         ", expected the sizeof of a version of the struct");
}
// Fills the fields that the caller's version of a struct has.
template <class T>
void give(T& out, T filled, std::string_view what) {
  static_assert(sizeof(T) % 8 == 0);
  check_struct_size(out.struct_size, what);
  const uint64_t size = std::min<uint64_t>(out.struct_size, sizeof(T));
  filled.struct_size = out.struct_size;
  std::memcpy(&out, &filled, size);
}
// Reads the fields that the caller's version of a struct has; the others are zero.
template <class T>
T taken(const T* given, std::string_view what) {
  static_assert(sizeof(T) % 8 == 0);
  T all{};
  if (!given) return all;
  check_struct_size(given->struct_size, what);
  std::memcpy(&all, given, std::min<uint64_t>(given->struct_size, sizeof(T)));
  return all;
}

}  // namespace tenon::core
