# moecomm_options: the language level, warnings and flags of everything that we compile. Not exported to users.
add_library(moecomm_options INTERFACE)
target_compile_features(moecomm_options INTERFACE cxx_std_20)
set(CMAKE_CXX_EXTENSIONS OFF)
target_include_directories(moecomm_options INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(moecomm_options INTERFACE MOECOMM_WITH_CUDA=$<BOOL:${MOECOMM_WITH_CUDA}>)

# -ffp-contract=off: a compiler that fuses a product and a sum rounds once where the GPU code rounds twice, and CPU and
# GPU results must have the same bits. -fno-strict-aliasing: rows are bytes that we access as numbers of the row type.
set(host_flags -Wall -Wextra -Wconversion -Wshadow -ffp-contract=off -fno-strict-aliasing -fvisibility=hidden)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # With optimisation, GCC 12 and 13 report these inside their own std::string and std::vector.
  list(APPEND host_flags -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow)
  if(CMAKE_UNITY_BUILD OR MOECOMM_UNITY_TESTS) # files that are compiled together look like headers to GCC
    target_compile_options(moecomm_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endif()
# CMake 3.25 does not know that nvcc supports C++20, so the option is given by hand. The kernels are compressed. By
# default nvcc compresses only large files.
set(cuda_flags -std=c++20 -lineinfo -Xfatbin=-compress-all -Xcompiler=-Wall,-Wextra,-ffp-contract=off,-fvisibility=hidden)
if(MOECOMM_WERROR)
  list(APPEND host_flags -Werror)
  list(APPEND cuda_flags -Werror=all-warnings)
endif()
target_compile_options(
  moecomm_options INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:${host_flags}>" "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_flags}>")

if(MOECOMM_SANITIZE)
  list(JOIN MOECOMM_SANITIZE "," sanitizers)
  set(sanitize_flags -fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Their run-time support is for C++ programs only, and C programs load the library too.
    list(APPEND sanitize_flags -fno-sanitize=vptr,function)
  endif()
  target_compile_options(moecomm_options INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:${sanitize_flags}>")
  target_link_options(moecomm_options INTERFACE -fsanitize=${sanitizers})
endif()
