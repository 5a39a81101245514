# SPDX-License-Identifier: Apache-2.0
# cmake -DOUT=<file> -DFILES=<file>|<file>... -P embed.cmake: writes the texts of files as C++.
string(REPLACE "|" ";" FILES "${FILES}")
set(out "// Made by embed.cmake.\n#include \"texts.hpp\"\n\nnamespace tenon::cuda {\nnamespace {\nconstexpr Text kTexts[] = {\n")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  string(APPEND out "{\"${name}\", R\"_tenon_(${text})_tenon_\"},\n")
endforeach()
string(APPEND out "};\n}  // namespace\n\nstd::span<const Text> texts() { return kTexts; }\n\n}  // namespace tenon::cuda\n")
file(WRITE ${OUT} "${out}")
