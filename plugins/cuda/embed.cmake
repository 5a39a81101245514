# SPDX-License-Identifier: Apache-2.0
# cmake -DOUT=<folder> -DFILES=<file>|<file>... -P embed.cmake: writes from the files of device/
#   texts.cpp            their texts as C++
#   family_entries.def   ENTRY(...) for each line "//entry: <name> = <entry>(<types>)" of a text
#   family_args.hpp      includes of all <family>.args.cuh
string(REPLACE "|" ";" FILES "${FILES}")

# A file that stays as it is keeps its time, so nothing is compiled again.
function(write name text)
  if(EXISTS ${OUT}/${name})
    file(READ ${OUT}/${name} old)
    if(old STREQUAL text)
      return()
    endif()
  endif()
  file(WRITE ${OUT}/${name} "${text}")
endfunction()

set(texts "// Made by embed.cmake.\n#include \"texts.hpp\"\n\nnamespace tenon::cuda {\nnamespace {\nconstexpr Text kTexts[] = {\n")
set(entries "// Made by embed.cmake.\n")
set(args "// Made by embed.cmake.\n#pragma once\n")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  string(APPEND texts "{\"${name}\", R\"_tenon_(${text})_tenon_\"},\n")
  if(name MATCHES "[.]args[.]cuh$")
    string(APPEND args "#include \"device/${name}\"\n")
  endif()
  file(STRINGS ${file} lines REGEX "^//entry:")
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "^//entry: ([a-z0-9_]+) = ([a-z0-9_]+)[(](.+)[)]$")
      message(FATAL_ERROR "${name}: expected '//entry: <name> = <entry>(<types>)', got '${line}'")
    endif()
    string(APPEND entries "ENTRY(${CMAKE_MATCH_1}, \"${name}\", \"${CMAKE_MATCH_2}\", ${CMAKE_MATCH_3})\n")
  endforeach()
endforeach()
string(APPEND texts "};\n}  // namespace\n\nstd::span<const Text> texts() { return kTexts; }\n\n}  // namespace tenon::cuda\n")
write(texts.cpp "${texts}")
write(family_entries.def "${entries}")
write(family_args.hpp "${args}")
