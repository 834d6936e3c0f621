# Finds our dependencies. Headers and libraries are looked up as files, so that a Debian machine and a folder in
# CMAKE_PREFIX_PATH (<folder>/include, <folder>/lib) work alike. Nothing is downloaded.
#   moecomm_fmt   fmt, compiled into its users, so that libmoecomm.so does not need libfmt.so
#   moecomm_sodium libsodium, for proofs and keys of the handshake, linked statically for the same reason
#   moecomm_hwloc the header of hwloc (machine topology); its library is loaded at run time
#   moecomm_cli   CLI11 and nlohmann/json, for the tools and for moe_perf
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# Adds an interface target for a header, and for a library if LIBRARY, its file's name, is given.
function(moecomm_find target)
  cmake_parse_arguments(arg "" "LIBRARY;PACKAGE;ADVICE" "HEADERS" ${ARGN})
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
    string(MAKE_C_IDENTIFIER MOECOMM_LIBRARY_${arg_LIBRARY} variable)
    find_library(${variable} ${arg_LIBRARY})
    mark_as_advanced(${variable})
    if(NOT ${variable})
      message(FATAL_ERROR "${arg_LIBRARY} was not found: install ${arg_PACKAGE} (scripts/install_deps.sh does it) or add "
                          "its folder to CMAKE_PREFIX_PATH${arg_ADVICE}")
    endif()
    target_link_libraries(${target} INTERFACE ${${variable}})
  endif()
endfunction()

moecomm_find(moecomm_fmt HEADERS fmt/format.h PACKAGE libfmt-dev)
# One file of ours compiles fmt's code. As headers only, every file that formats something takes 2 s longer.
set(fmt_code ${PROJECT_SOURCE_DIR}/src/base/fmt_code.cc)
try_compile(MOECOMM_FMT_IN_ONE_FILE ${PROJECT_BINARY_DIR}/fmt_check
  SOURCES ${fmt_code} ${PROJECT_SOURCE_DIR}/cmake/checks/uses_fmt.cc
  CMAKE_FLAGS -DINCLUDE_DIRECTORIES=${MOECOMM_INCLUDE_fmt_format_h}
  CXX_STANDARD 20)
if(MOECOMM_FMT_IN_ONE_FILE)
  add_library(moecomm_fmt_code STATIC ${fmt_code})
  target_include_directories(moecomm_fmt_code SYSTEM PRIVATE ${MOECOMM_INCLUDE_fmt_format_h})
  target_compile_features(moecomm_fmt_code PRIVATE cxx_std_20)
  set_target_properties(moecomm_fmt_code PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)
  target_link_libraries(moecomm_fmt INTERFACE moecomm_fmt_code)
else() # another version of fmt, whose code is divided differently
  target_compile_definitions(moecomm_fmt INTERFACE FMT_HEADER_ONLY=1)
endif()
# Some package managers have no archive. Then the library needs libsodium.so at run time.
option(MOECOMM_SHARED_SODIUM "Link libsodium.so instead of libsodium.a" OFF)
set(sodium_file libsodium.a)
set(advice ". Where there is only libsodium.so, MOECOMM_SHARED_SODIUM=ON links that")
if(MOECOMM_SHARED_SODIUM)
  set(sodium_file libsodium.so)
  set(advice)
endif()
moecomm_find(moecomm_sodium HEADERS sodium/crypto_generichash_blake2b.h LIBRARY ${sodium_file} PACKAGE libsodium-dev
  ADVICE "${advice}")
string(MAKE_C_IDENTIFIER MOECOMM_LIBRARY_${sodium_file} MOECOMM_SODIUM)
set(MOECOMM_SODIUM ${${MOECOMM_SODIUM}})
moecomm_find(moecomm_hwloc HEADERS hwloc.h PACKAGE libhwloc-dev)
if(MOECOMM_TOOLS)
  moecomm_find(moecomm_cli HEADERS CLI/CLI.hpp nlohmann/json.hpp PACKAGE "libcli11-dev and nlohmann-json3-dev")
endif()

# For files that parse a program's arguments and do nothing that takes time. Optimising CLI11's templates takes as long
# as parsing them, 4 to 9 s for each file, so these files are not optimised. They go without the hardening checks of
# distributions, which need optimisation.
function(moecomm_read_arguments)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "-O0;-U_FORTIFY_SOURCE")
endfunction()

if(MOECOMM_TESTS)
  find_package(GTest REQUIRED)
endif()
if(MOECOMM_PERF)
  find_package(benchmark QUIET) # without it host_bench is not built
endif()
