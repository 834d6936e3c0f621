# The presets asan and tsan compile several files as one (CMAKE_UNITY_BUILD), because their builds are read by nobody and
# headers take most of a file's time; the presets optimised and cuda do so with tests and tools (MOECOMM_UNITY_TESTS).
# Names of files that are compiled together meet, also those that a file hides. What users install is compiled file by
# file.

# Files whose names must not meet others: most give short names (kRanks, Machine) to a world of their own.
function(moecomm_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Puts files together whose names begin with one word, so that a new file changes the compilation of its neighbours alone.
function(moecomm_compile_by_first_word target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM word)
    string(REGEX REPLACE "_.*" "" word ${word})
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${word})
  endforeach()
endfunction()
