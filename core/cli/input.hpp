// SPDX-License-Identifier: Apache-2.0
// Reading whole files. Nothing that a path can name makes the command hang, except a pipe whose
// writer keeps it open.
#pragma once

#include <string>

namespace tenon::cli {

// A regular file, as those of a model folder are. Throws Error with the path.
std::string read_file(const std::string& path);

// What a command line names: also a pipe, as of <(...), and standard input as "-" or /dev/stdin.
// Throws Error with the path.
std::string read_input(const std::string& path);

// Whether read_input gives the same bytes twice.
bool can_be_read_again(const std::string& path);

}  // namespace tenon::cli
