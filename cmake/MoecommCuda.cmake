# Decides whether the GPU backend is built, and enables the CUDA language if so. Sets MOECOMM_WITH_CUDA.
# The runtime is linked statically and the driver library never, so that the library loads on a machine without a GPU
# driver.
set(MOECOMM_WITH_CUDA OFF)
if(MOECOMM_CUDA STREQUAL "OFF")
  return()
endif()

if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(MOECOMM_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(MOECOMM_NVCC)
  if(MOECOMM_NVCC)
    set(CMAKE_CUDA_COMPILER ${MOECOMM_NVCC} CACHE FILEPATH "CUDA compiler")
  endif()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real 100-virtual CACHE STRING "GPU architectures")
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)

include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  set(MOECOMM_WITH_CUDA ON)
elseif(MOECOMM_CUDA STREQUAL "ON")
  message(FATAL_ERROR "MOECOMM_CUDA is ON but no CUDA compiler was found; set CMAKE_CUDA_COMPILER or CUDACXX")
endif()
