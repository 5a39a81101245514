// SPDX-License-Identifier: Apache-2.0
// Shared by all C functions: the objects behind the handles, and the conversion of exceptions to
// statuses.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/c_struct.hpp"
#include "exec/context.hpp"
#include "host/status.hpp"
#include "ir/graph.hpp"
#include "ops/node_desc.hpp"
#include "tenon/tenon.h"

struct tenon_text {
  std::string text;
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

// The numbers of symbols, from two arrays. Throws invalid_argument if a name comes twice.
SymbolNumbers numbers_of(const tenon_str* symbols, const int64_t* numbers, uint32_t count);

// TENON_SPACE_WEIGHT or TENON_SPACE_STATE; throws invalid_argument for others.
Space space_from(uint32_t space);

}  // namespace tenon::core
