// SPDX-License-Identifier: Apache-2.0
// Loads the very file that was checked, whatever its path refers to by then.
#pragma once

#include <boost/dll/shared_library.hpp>

#include "host/plugin_path.hpp"

namespace tenon::core {

// The image stays loaded until the process ends: threads of a library may outlive the plugin's last
// object. in_place: load it by a path in its own folder, because it names libraries relative to it.
boost::dll::shared_library& load_image(const TrustedFile& file, bool in_place);

}  // namespace tenon::core
