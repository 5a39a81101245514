// SPDX-License-Identifier: Apache-2.0
// C functions for the rates of devices.
#include <cmath>
#include <nlohmann/json.hpp>

#include "api/door.hpp"
#include "exec/calibrate.hpp"
#include "host/rates_check.hpp"
#include "tenon/tenon_tune.h"

using namespace tenon::core;

namespace {

tenon_text* known_text(const Host& host, const std::string& id) {
  const RatesKey key = host.rates_key(id);
  const KnownRates known = host.rates(id);
  const std::string directory = rates_directory();
  const nlohmann::json j = {
      {"device", id},
      {"measured", known.measured},
      {"remark", known.remark},
      {"file", directory.empty() ? "" : rates_file(directory, key)},
      {"rates", nlohmann::json::parse(rates_text(key, known.rates))["rates"]}};
  return new tenon_text{j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

}  // namespace

tenon_status* tenon_runtime_calibrate(tenon_runtime* runtime, tenon_str device,
                                      const tenon_calibrate_options* given, tenon_text** out_json) {
  return door("tenon_runtime_calibrate", [&] {
    const auto o = taken(given, "tenon_calibrate_options");
    if (!std::isfinite(o.seconds) || o.seconds < 0)
      fail(Code::invalid_argument, "seconds is ", o.seconds);
    const std::shared_ptr<Runtime>& r = need(runtime, "runtime").runtime;
    const std::string id = r->host.open(view(device))->info().id;
    check_rates_can_be_kept(r->host.rates_key(id));
    CalibrateOptions how;
    if (o.seconds > 0) how.seconds = o.seconds;
    if (o.progress)
      how.progress = [&](std::string_view what, uint32_t done, uint32_t total) {
        return o.progress(o.user, c_str(what), done, total) == 0;
      };
    keep_rates(r->host.rates_key(id), measure_rates(r, id, how));
    if (out_json) *out_json = known_text(r->host, id);
  });
}

tenon_status* tenon_runtime_rates(tenon_runtime* runtime, tenon_str device, tenon_text** out_json) {
  return door("tenon_runtime_rates", [&] {
    need(out_json, "out_json");
    *out_json = known_text(need(runtime, "runtime").runtime->host, std::string(view(device)));
  });
}
