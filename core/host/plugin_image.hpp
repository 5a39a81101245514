// SPDX-License-Identifier: Apache-2.0
// Loads the file that was checked, even if its path refers to another file by then.
#pragma once

#include <boost/dll/shared_library.hpp>

#include "host/plugin_path.hpp"

namespace tenon::core {

// The image stays loaded until the process ends, because threads of a library may outlive the last
// object of the plugin. in_place: loads it by a path in its own folder, because it names libraries
// relative to it.
boost::dll::shared_library& load_image(const TrustedFile& file, bool in_place);

}  // namespace tenon::core
