# README, the packages and the wheel in a clean Debian 12 and a clean Ubuntu 24.04, one after the other, because most
# compile on all processors. tests/CMakeLists.txt includes this file.
foreach(distribution Debian Ubuntu)
  set(option)
  if(distribution STREQUAL Ubuntu)
    set(option --ubuntu)
  endif()
  set(tests Readme.WorksWordByWordInAClean${distribution} Package.Of${distribution}InstallsAndLeavesNothing)
  add_test(NAME Readme.WorksWordByWordInAClean${distribution}
    COMMAND ${CMAKE_CURRENT_LIST_DIR}/clean_root_test.sh ${option})
  add_test(NAME Package.Of${distribution}InstallsAndLeavesNothing
    COMMAND ${CMAKE_CURRENT_LIST_DIR}/debian_test.sh ${option})
  if(MOECOMM_INSTALL AND NOT MOECOMM_SANITIZE)
    list(APPEND tests Package.WheelWorksInAClean${distribution})
    add_test(NAME Package.WheelWorksInAClean${distribution}
      COMMAND ${CMAKE_CURRENT_LIST_DIR}/clean_wheel_test.sh ${PROJECT_BINARY_DIR} ${option})
  endif()
  set_tests_properties(${tests} PROPERTIES
    LABELS "package;slow" TIMEOUT 5400 SKIP_RETURN_CODE 77 RESOURCE_LOCK clean_root)
endforeach()
