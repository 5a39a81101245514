# SPDX-License-Identifier: Apache-2.0
# The op families of ops.def as lists: which there are, and which files each has in a room. A room that takes its
# sources from here cannot forget a family. Only for this tree; not installed.

set(TENON_OPS_DEF ${CMAKE_CURRENT_LIST_DIR}/../include/tenon/ops.def)

# tenon_families(<out> [META]) returns the families in the order of ops.def. Families whose ops no plugin ever sees
# (level meta) are left out unless META is given.
function(tenon_families out)
  cmake_parse_arguments(PARSE_ARGV 1 arg "META" "" "")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${TENON_OPS_DEF})
  file(STRINGS ${TENON_OPS_DEF} entries ENCODING UTF-8 REGEX "^TENON_OP\\(")
  set(families)
  foreach(entry IN LISTS entries)
    if(NOT entry MATCHES "^TENON_OP\\([a-z0-9_]+, [0-9]+, ([a-z0-9_]+), (primitive|core|meta|control)\\)")
      message(FATAL_ERROR "ops.def: expected TENON_OP(name, version, family, primitive|core|meta|control), got: ${entry}")
    endif()
    if(arg_META OR NOT CMAKE_MATCH_2 STREQUAL "meta")
      list(APPEND families ${CMAKE_MATCH_1})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES families)
  set(${out} ${families} PARENT_SCOPE)
endfunction()

# tenon_family_sources(<out> FOLDER <folder> [SUFFIX <suffix>] [OPTIONAL <out_families>] [META] [SHARED <stem>...])
# returns the sources of a room: <folder>/<family><suffix> for each family, its parts <folder>/<family>_*<suffix>, and
# the SHARED files, which belong to no family. The suffix is .cpp unless given.
# - A family without a file is an error. With OPTIONAL it is allowed, and <out_families> lists those that have one.
# - A file in the folder that is neither a family's nor SHARED is an error, so no file is left out of the build.
function(tenon_family_sources out)
  cmake_parse_arguments(PARSE_ARGV 1 arg "META" "FOLDER;SUFFIX;OPTIONAL" "SHARED")
  set(meta)
  if(arg_META)
    set(meta META)
  endif()
  tenon_families(families ${meta})
  if(NOT arg_SUFFIX)
    set(arg_SUFFIX .cpp)
  endif()
  file(GLOB present CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${arg_FOLDER}/*${arg_SUFFIX})

  set(sources)
  set(with_file)
  foreach(family IN LISTS families)
    set(main ${arg_FOLDER}/${family}${arg_SUFFIX})
    if(main IN_LIST present)
      list(APPEND with_file ${family})
    elseif(NOT arg_OPTIONAL)
      message(FATAL_ERROR "${CMAKE_CURRENT_SOURCE_DIR}: family ${family} of ops.def has no file here; expected ${main}")
    endif()
    set(parts ${present})
    list(FILTER parts INCLUDE REGEX "^${arg_FOLDER}/${family}(_[a-z0-9_]+)?\\${arg_SUFFIX}$")
    list(APPEND sources ${parts})
  endforeach()
  foreach(stem IN LISTS arg_SHARED)
    list(APPEND sources ${arg_FOLDER}/${stem}${arg_SUFFIX})
  endforeach()
  list(REMOVE_DUPLICATES sources)

  list(REMOVE_ITEM present ${sources})
  if(present)
    message(FATAL_ERROR "${CMAKE_CURRENT_SOURCE_DIR}: ${present}: not in the build; "
      "expected a name that starts with a family of ops.def, or an entry in SHARED")
  endif()
  set(${out} ${sources} PARENT_SCOPE)
  if(arg_OPTIONAL)
    set(${arg_OPTIONAL} ${with_file} PARENT_SCOPE)
  endif()
endfunction()

# tenon_kernel_sources(<out> [SHARED <stem>...]) returns a plugin's kernels/*.cpp, where a family may be missing (the
# planner decomposes its ops), and writes families.inl into the binary folder: TENON_FAMILY(<family>) for each family
# that has a file. kernels.hpp makes the plugin's table from it.
function(tenon_kernel_sources out)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SHARED")
  tenon_family_sources(sources FOLDER kernels OPTIONAL native SHARED ${arg_SHARED})
  list(TRANSFORM native REPLACE "(.+)" "TENON_FAMILY(\\1)\n")
  list(JOIN native "" lines)
  file(CONFIGURE OUTPUT families.inl CONTENT
    "// Made by CMake: the op families that have a file in kernels/.\n${lines}#undef TENON_FAMILY\n")
  set(${out} ${sources} PARENT_SCOPE)
endfunction()
