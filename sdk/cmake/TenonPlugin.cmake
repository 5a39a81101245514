# SPDX-License-Identifier: Apache-2.0
# tenon_add_plugin(<name> SOURCES <file>... [LIBRARIES <target>...] [OUTPUT_DIRECTORY <folder>]
#                  [MIN_HOST_MINOR <n>])
# makes the module tenon_plugin_<name>.so, which exports exactly one symbol, tenon_backend_entry.
# MIN_HOST_MINOR: the oldest host that the plugin runs in, as a minor version of the ABI (version.h).
# Used alike by the plugins in this tree and by strangers after find_package(tenon).
# With OUTPUT_DIRECTORY a plugin of this tree stays out of the plugin folder and of the package.

set(TENON_PLUGIN_INSTALL_DIR_RELATIVE tenon/plugins)  # below <libdir>

function(tenon_add_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OUTPUT_DIRECTORY;MIN_HOST_MINOR"
    "SOURCES;LIBRARIES")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tenon_add_plugin(${name}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  elseif(NOT arg_SOURCES)
    message(FATAL_ERROR "tenon_add_plugin(${name}): SOURCES is missing")
  endif()

  set(target tenon_plugin_${name})
  set(map ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/plugin.map)
  add_library(${target} MODULE ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE tenon::sdk ${arg_LIBRARIES})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})  # lists of ops: TENON_OPS
  set_target_properties(${target} PROPERTIES
    PREFIX "" SUFFIX ".so"
    C_STANDARD 11 C_STANDARD_REQUIRED ON
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LINK_DEPENDS ${map})
  if(DEFINED arg_MIN_HOST_MINOR)
    target_compile_definitions(${target} PRIVATE TENON_MIN_HOST_MINOR=${arg_MIN_HOST_MINOR})
  endif()
  # Unique symbols would be shared between plugins in spite of RTLD_LOCAL.
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
  # The image is never unmapped: threads of a library may outlive the plugin's last object.
  target_link_options(${target} PRIVATE -Wl,--version-script=${map} -Wl,-z,nodelete)
  # A sanitizer's runtime lives in the host's executable, so its symbols stay undefined here.
  get_directory_property(directory_options COMPILE_OPTIONS)
  if(NOT "${CMAKE_C_FLAGS} ${CMAKE_CXX_FLAGS} ${directory_options}" MATCHES "-fsanitize=")
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()

  if(arg_OUTPUT_DIRECTORY)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${arg_OUTPUT_DIRECTORY})
  elseif(TENON_PLUGIN_OUTPUT_DIRECTORY)
    set_target_properties(${target} PROPERTIES
      LIBRARY_OUTPUT_DIRECTORY ${TENON_PLUGIN_OUTPUT_DIRECTORY})
    set_property(GLOBAL APPEND PROPERTY TENON_PLUGINS ${target})
  endif()
endfunction()
