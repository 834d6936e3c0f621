# The presets asan and tsan compile several files as one (CMAKE_UNITY_BUILD), because nobody uses their builds and
# headers take most of a file's time. The presets optimised and cuda do the same with tests and tools
# (MOECOMM_UNITY_TESTS). The names in files that are compiled together may collide, even those local to a file. What
# users install is compiled file by file.

# Files whose names must not collide with others. Most of them define short names (kRanks, Machine) for themselves.
function(moecomm_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Combines files whose names start with the same word, so that a new file changes the compilation of its neighbours
# only.
function(moecomm_compile_by_first_word target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM word)
    string(REGEX REPLACE "_.*" "" word ${word})
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${word})
  endforeach()
endfunction()
