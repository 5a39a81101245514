// SPDX-License-Identifier: Apache-2.0
// Reads complete files. No path makes the command hang, except a pipe that its writer keeps open.
#pragma once

#include <string>

namespace tenon::cli {

// Reads a regular file, for example of a model folder. Throws Error with the path.
std::string read_file(const std::string& path);

// Reads a file named on the command line; also a pipe, such as <(...), or standard input as "-" or
// /dev/stdin. Throws Error with the path.
std::string read_input(const std::string& path);

// True if read_input returns the same bytes twice.
bool can_be_read_again(const std::string& path);

}  // namespace tenon::cli
