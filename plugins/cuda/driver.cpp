// SPDX-License-Identifier: Apache-2.0
// Finds libcuda, and turns its error codes into failures.
#include "driver.hpp"

#include "tenon/kernel.hpp"

namespace tenon::cuda {
namespace {

// Fills the table; what is missing is told by name.
std::string fill(Driver& d, const Library& library) {
  std::string missing;
  constexpr bool required = true, optional = false;
#define CALL(need, name, symbol_, arguments)                                \
  d.name = reinterpret_cast<Result(*) arguments>(library.symbol(#symbol_)); \
  if (need && !d.name) missing += (missing.empty() ? "" : ", ") + std::string(#symbol_);
#include "driver_calls.def"
  static_cast<void>(optional);
  return missing.empty() ? missing : "it lacks " + missing;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string start(Driver& d) {
  if (const Result r = d.driver_version(&d.version); r != result::success)
    return d.describe("driver_version", r);
  if (d.version < kOldestDriver)
    return "the NVIDIA driver serves CUDA " + version_text(d.version) + ", needed is " +
           version_text(kOldestDriver) + " or later";
  if (const Result r = d.init(0); r != result::success)
    return r == result::no_device ? "the NVIDIA driver sees no device" : d.describe("init", r);
  return {};
}

Driver load() {
  Driver d;
  d.library = open_library("NVIDIA driver", {"libcuda.so.1"},
                           [&](const Library& library) { return fill(d, library); });
  d.reason = d.library ? start(d) : d.library.reason;
  return d;
}

}  // namespace

bool Driver::has_graphs() const {
  return capture_begin && capture_end && graph_instantiate && graph_destroy && graph_exec_destroy &&
         graph_launch;
}

std::string Driver::describe(const char* call, Result r) const {
  const char *name = nullptr, *meaning = nullptr;
  get_error_name(r, &name);
  get_error_string(r, &meaning);
  std::string text = std::string(call) + ": " + (name ? name : "error " + std::to_string(r));
  if (meaning) text += std::string(" (") + meaning + ")";
  return text;
}

void Driver::check(const char* call, Result r) const {
  if (r != result::success) throw sdk::Failure(code_of(r), describe(call, r));
}

tenon_code code_of(Result r) {
  switch (r) {
    case result::success:
      return TENON_OK;
    case result::out_of_memory:
      return TENON_OUT_OF_MEMORY;
    // Sticky: the context is of no more use. ECC, illegal address, timeout, assert, hardware stack,
    // illegal instruction, misaligned address, address space, program counter, launch failure.
    case 214:
    case 700:
    case 702:
    case 710:
    case 714:
    case 715:
    case 716:
    case 717:
    case 718:
    case 719:
    case 46:  // device unavailable
    case 4:   // the driver shuts down
      return TENON_DEVICE_LOST;
    default:
      return TENON_INTERNAL;
  }
}

const Driver& driver() {
  static const Driver& d = *new Driver(load());  // never destroyed: no driver calls at exit
  return d;
}

}  // namespace tenon::cuda
