# Finds what we build on. Headers and libraries are looked for by file, so that a Debian machine and a folder given in
# CMAKE_PREFIX_PATH (<folder>/include, <folder>/lib) work alike. Nothing is downloaded.
#   moecomm_fmt   fmt; as headers alone where something is installed: libmoecomm.so does not need libfmt.so
#   moecomm_hwloc hwloc (machine topology)
#   moecomm_cli   CLI11 and nlohmann/json, for the tools and for moe_perf
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# Adds an interface target for a header, and for a library if LIBRARY is given.
function(moecomm_find target)
  cmake_parse_arguments(arg "" "LIBRARY;PACKAGE" "HEADERS" ${ARGN})
  add_library(${target} INTERFACE)
  foreach(header IN LISTS arg_HEADERS)
    string(MAKE_C_IDENTIFIER MOECOMM_INCLUDE_${header} variable)
    find_path(${variable} ${header})
    mark_as_advanced(${variable})
    if(NOT ${variable})
      message(FATAL_ERROR "<${header}> was not found: install ${arg_PACKAGE} (scripts/install_deps.sh does it) or add "
                          "its folder to CMAKE_PREFIX_PATH")
    endif()
    target_include_directories(${target} SYSTEM INTERFACE ${${variable}})
  endforeach()
  if(arg_LIBRARY)
    find_library(MOECOMM_LIBRARY_${arg_LIBRARY} ${arg_LIBRARY})
    mark_as_advanced(MOECOMM_LIBRARY_${arg_LIBRARY})
    if(NOT MOECOMM_LIBRARY_${arg_LIBRARY})
      message(FATAL_ERROR "lib${arg_LIBRARY} was not found: install ${arg_PACKAGE}")
    endif()
    target_link_libraries(${target} INTERFACE ${MOECOMM_LIBRARY_${arg_LIBRARY}})
  endif()
endfunction()

moecomm_find(moecomm_fmt HEADERS fmt/format.h PACKAGE libfmt-dev)
# With the library, files that format something compile up to five times faster.
find_library(MOECOMM_LIBRARY_fmt fmt)
mark_as_advanced(MOECOMM_LIBRARY_fmt)
if(MOECOMM_INSTALL OR NOT MOECOMM_LIBRARY_fmt)
  target_compile_definitions(moecomm_fmt INTERFACE FMT_HEADER_ONLY=1)
else()
  target_link_libraries(moecomm_fmt INTERFACE ${MOECOMM_LIBRARY_fmt})
endif()
moecomm_find(moecomm_hwloc HEADERS hwloc.h LIBRARY hwloc PACKAGE libhwloc-dev)
moecomm_find(moecomm_cli HEADERS CLI/CLI.hpp nlohmann/json.hpp PACKAGE "libcli11-dev and nlohmann-json3-dev")

if(MOECOMM_TESTS)
  find_package(GTest REQUIRED)
endif()
if(MOECOMM_PERF)
  find_package(benchmark QUIET) # without it there is no host_bench
endif()
