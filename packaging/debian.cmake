# SPDX-License-Identifier: Apache-2.0
# The Debian packages, one a component: `packaging/deb.sh`, or cpack in any build folder.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tenon)
set(CPACK_PACKAGE_VENDOR "the tenon authors")
set(CPACK_PACKAGE_CONTACT "the tenon authors <tenon@users.noreply.github.com>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "tensor runtime for inference and training")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS ${CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(same_version "(= ${PROJECT_VERSION}-1)")

# tenon_package(<component> <package> DESCRIPTION <text> [SECTION <s>] [DEPENDS <d>] [RECOMMENDS <r>] ...)
set(CPACK_COMPONENTS_ALL "")
function(tenon_package component package)
  string(TOUPPER ${component} upper)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_FILE_NAME DEB-DEFAULT PARENT_SCOPE)
  set(fields DESCRIPTION SECTION DEPENDS RECOMMENDS ENHANCES)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "${fields}" "")
  foreach(field IN LISTS fields)
    if(arg_${field})
      set(CPACK_DEBIAN_${upper}_PACKAGE_${field} "${arg_${field}}" PARENT_SCOPE)
    endif()
  endforeach()
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${arg_DESCRIPTION}" PARENT_SCOPE)
endfunction()

tenon_package(library libtenon SECTION libs
  RECOMMENDS "tenon-plugin-cpu ${same_version}"
  DESCRIPTION "The library for host applications: graphs, gradients, planner, plugins.")
tenon_package(llm libtenon-llm SECTION libs
  DEPENDS "libtenon ${same_version}"
  RECOMMENDS "tenon-plugin-cpu ${same_version}"
  DESCRIPTION "The library for applications with language models: GGUF files and Hugging Face
folders, tokenizers, chat templates, generation.")
# CPack's own GENERATE_SHLIBS wants a soname of each shared object, and plugins have none.
foreach(entry IN ITEMS LIBRARY=tenon_core=libtenon LLM=tenon_llm_shared=libtenon-llm)
  string(REGEX MATCH "(.*)=(.*)=(.*)" _ ${entry})
  set(component ${CMAKE_MATCH_1})
  set(package ${CMAKE_MATCH_3})
  get_target_property(soversion ${CMAKE_MATCH_2} SOVERSION)
  set(control ${CMAKE_CURRENT_BINARY_DIR}/${package})
  file(WRITE ${control}/shlibs "${package} ${soversion} ${package} ${same_version}\n")
  file(WRITE ${control}/triggers "activate-noawait ldconfig\n")
  set(CPACK_DEBIAN_${component}_PACKAGE_CONTROL_EXTRA ${control}/shlibs ${control}/triggers)
endforeach()
tenon_package(command tenon
  DEPENDS "libtenon ${same_version}, tenon-plugin-cpu ${same_version}"
  DESCRIPTION "The command: train and sample language models, inspect plans, measure devices.")
if(TARGET tenon_plugin_cpu)
  tenon_package(plugin_cpu tenon-plugin-cpu DEPENDS "libtenon ${same_version}"
    DESCRIPTION "The backend for processors (SSE4, AVX2, AVX-512, AMX).")
endif()
if(TARGET tenon_plugin_cuda)
  tenon_package(plugin_cuda tenon-plugin-cuda DEPENDS "libtenon ${same_version}"
    DESCRIPTION "The backend for NVIDIA GPUs. It finds the driver, NVRTC and cuBLAS at run time;
none of them is in this package.")
endif()
tenon_package(development libtenon-dev SECTION libdevel
  DEPENDS "libtenon ${same_version}, libtenon-llm ${same_version}"
  RECOMMENDS "tenon ${same_version}, g++, cmake, pkg-config"
  DESCRIPTION "Headers, CMake and pkg-config files for host applications and for plugins,
examples, three template plugins, and the conformance kit (tenon_conform).")

# What Debian wants beyond `cmake --install`.
configure_file(debian_files.cmake.in debian_files.cmake @ONLY)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_BINARY_DIR}/debian_files.cmake)
include(CPack)
