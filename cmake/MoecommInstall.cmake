# What `cmake --install` puts where: header, library, tools, and the files by which CMake and pkg-config users find them.
include(CMakePackageConfigHelpers)

install(TARGETS moecomm EXPORT moecommTargets
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES include/moecomm.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(tool IN ITEMS moerun moe_info moe_perf)
  if(TARGET ${tool})
    install(TARGETS ${tool} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moecomm)
install(EXPORT moecommTargets NAMESPACE moecomm:: DESTINATION ${package_dir})
configure_package_config_file(cmake/moecommConfig.cmake.in moecommConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(moecommConfigVersion.cmake COMPATIBILITY ${MOECOMM_COMPATIBILITY})
install(FILES ${PROJECT_BINARY_DIR}/moecommConfig.cmake ${PROJECT_BINARY_DIR}/moecommConfigVersion.cmake
  DESTINATION ${package_dir})

# The .pc file finds its prefix from its own place, so that an installed tree may be moved.
cmake_path(SET pc_dir NORMALIZE "/${CMAKE_INSTALL_LIBDIR}/pkgconfig")
cmake_path(RELATIVE_PATH pc_dir BASE_DIRECTORY "/" OUTPUT_VARIABLE pc_dir)
file(RELATIVE_PATH MOECOMM_PC_UP "/${pc_dir}" "/")
configure_file(cmake/moecomm.pc.in moecomm.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/moecomm.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
