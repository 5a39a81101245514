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
  d.library = open_library("NVIDIA driver", Origin::driver, {"libcuda.so.1"},
                           [&](const Library& library) { return fill(d, library); });
  d.reason = d.library ? start(d) : d.library.reason;
  return d;
}

}  // namespace

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

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
    case 801:  // the device or the system cannot do it
      return TENON_UNSUPPORTED;
    // Sticky: every later call of the context fails likewise.
    case 4:    // the driver shuts down
    case 46:   // device unavailable
    case 214:  // uncorrectable ECC error
    case 220:  // uncorrectable NVLink error
    case 226:  // error contained to this process
    case 700:  // illegal address
    case 702:  // launch timeout
    case 709:  // the context is destroyed
    case 710:  // assert
    case 714:  // hardware stack error
    case 715:  // illegal instruction
    case 716:  // misaligned address
    case 717:  // invalid address space
    case 718:  // invalid program counter
    case 719:  // launch failure
    case 721:  // tensor memory leak
    case 810:  // the MPS server ended this client
    case 911:  // error of an external device
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
