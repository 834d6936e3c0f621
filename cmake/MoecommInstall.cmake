# What `cmake --install` puts where: the header, the library, the tools, the files for users of CMake and pkg-config,
# the Python package, the examples and the documents.
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

# The .pc file derives its prefix from its own location, so that an installed tree may be moved.
cmake_path(SET pc_dir NORMALIZE "/${CMAKE_INSTALL_LIBDIR}/pkgconfig")
cmake_path(RELATIVE_PATH pc_dir BASE_DIRECTORY "/" OUTPUT_VARIABLE pc_dir)
file(RELATIVE_PATH MOECOMM_PC_UP "/${pc_dir}" "/")
configure_file(cmake/moecomm.pc.in moecomm.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/moecomm.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Python and examples are side by side, as in the sources, because the examples look for the package there. The package
# looks for the library next to itself. The link is relative, so it survives a move of the installed tree.
set(share_dir ${CMAKE_INSTALL_DATADIR}/moecomm)
install(DIRECTORY python/moecomm DESTINATION ${share_dir}/python
  FILES_MATCHING PATTERN "*.py" PATTERN py.typed PATTERN __pycache__ EXCLUDE
  PATTERN _tools.py EXCLUDE) # the wheel's
cmake_path(SET python_dir NORMALIZE "/${share_dir}/python/moecomm")
cmake_path(SET library_dir NORMALIZE "/${CMAKE_INSTALL_LIBDIR}")
file(RELATIVE_PATH library_from_python ${python_dir} ${library_dir}/libmoecomm.so)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/python_link)
file(CREATE_LINK ${library_from_python} ${PROJECT_BINARY_DIR}/python_link/libmoecomm.so SYMBOLIC)
install(FILES ${PROJECT_BINARY_DIR}/python_link/libmoecomm.so DESTINATION ${share_dir}/python/moecomm)
install(DIRECTORY examples DESTINATION ${share_dir}
  FILES_MATCHING PATTERN "*.c" PATTERN "*.cu" PATTERN "*.py" PATTERN __pycache__ EXCLUDE)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
