# What `cmake --install` puts where: the headers, the library, the tools, the files for users of CMake and pkg-config,
# the Python package, the examples and the documents. The components are Debian's packages (MoecommDebian.cmake).
include(CMakePackageConfigHelpers)

install(TARGETS moecomm EXPORT moecommTargets
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT dev
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(MOECOMM_STATIC)
  install(TARGETS moecomm_static EXPORT moecommStaticTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
install(FILES include/moecomm.h include/moecomm.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
install(DIRECTORY include/moecomm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
  FILES_MATCHING PATTERN "*.hpp")
set(tools)
foreach(tool IN ITEMS moerun moe_info moe_perf moe_top moe_trace)
  if(TARGET ${tool})
    list(APPEND tools ${tool})
    install(TARGETS ${tool} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  endif()
endforeach()

# Manual pages and completions are made from what the built tools print for --help.
find_program(MOECOMM_PYTHON3 python3)
mark_as_advanced(MOECOMM_PYTHON3)
if(tools AND MOECOMM_PYTHON3 AND NOT CMAKE_CROSSCOMPILING)
  set(pages ${PROJECT_BINARY_DIR}/tool_pages)
  set(page_maker ${PROJECT_SOURCE_DIR}/scripts/tool_pages.py)
  set(zsh_dir zsh/site-functions)
  set(compress)
  if(MOECOMM_DEBIAN)
    set(zsh_dir zsh/vendor-completions)
    set(compress --compress)
  endif()
  list(TRANSFORM tools REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE tool_files)
  add_custom_command(OUTPUT ${pages}/stamp
    COMMAND ${MOECOMM_PYTHON3} ${page_maker} ${compress} ${pages} ${PROJECT_VERSION} ${tool_files}
    COMMAND ${CMAKE_COMMAND} -E touch ${pages}/stamp
    DEPENDS ${tools} ${page_maker})
  add_custom_target(moecomm_tool_pages ALL DEPENDS ${pages}/stamp)
  install(DIRECTORY ${pages}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
  install(DIRECTORY ${pages}/bash/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT tools)
  install(DIRECTORY ${pages}/zsh/ DESTINATION ${CMAKE_INSTALL_DATADIR}/${zsh_dir} COMPONENT tools)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moecomm)
install(EXPORT moecommTargets NAMESPACE moecomm:: DESTINATION ${package_dir} COMPONENT dev)
if(MOECOMM_STATIC)
  install(EXPORT moecommStaticTargets NAMESPACE moecomm:: DESTINATION ${package_dir} COMPONENT dev)
endif()
configure_package_config_file(cmake/moecommConfig.cmake.in moecommConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(moecommConfigVersion.cmake COMPATIBILITY ${MOECOMM_COMPATIBILITY})
install(FILES ${PROJECT_BINARY_DIR}/moecommConfig.cmake ${PROJECT_BINARY_DIR}/moecommConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT dev)

# The .pc file derives its prefix from its own location, so that an installed tree may be moved.
cmake_path(SET pc_dir NORMALIZE "/${CMAKE_INSTALL_LIBDIR}/pkgconfig")
cmake_path(RELATIVE_PATH pc_dir BASE_DIRECTORY "/" OUTPUT_VARIABLE pc_dir)
file(RELATIVE_PATH MOECOMM_PC_UP "/${pc_dir}" "/")
# For `pkg-config --static`. Not Requires.private, which needs its packages even without --static.
set(MOECOMM_PC_PRIVATE)
if(MOECOMM_STATIC)
  set(libraries -l:libsodium.a)
  if(MOECOMM_SHARED_SODIUM)
    set(libraries -lsodium)
  endif()
  if(MOECOMM_WITH_CUDA)
    string(APPEND libraries " -lcudart_static")
  endif()
  set(MOECOMM_PC_PRIVATE "\nLibs.private: ${libraries} -lstdc++ -lm -pthread -ldl -lrt")
endif()
configure_file(cmake/moecomm.pc.in moecomm.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/moecomm.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

# Python and examples are side by side, as in the sources, because the examples look for the package there. The package
# looks for the library next to itself. The link is relative, so it survives a move of the installed tree.
# Debian has folders for both, where Python and the package find what they need.
set(share_dir ${CMAKE_INSTALL_DATADIR}/moecomm)
set(python_dir ${share_dir}/python)
if(MOECOMM_DEBIAN)
  set(python_dir lib/python3/dist-packages)
endif()
install(DIRECTORY python/moecomm DESTINATION ${python_dir} COMPONENT python
  FILES_MATCHING PATTERN "*.py" PATTERN py.typed PATTERN __pycache__ EXCLUDE
  PATTERN _tools.py EXCLUDE) # the wheel's
if(NOT MOECOMM_DEBIAN)
  cmake_path(SET link_dir NORMALIZE "/${python_dir}/moecomm")
  cmake_path(SET library_dir NORMALIZE "/${CMAKE_INSTALL_LIBDIR}")
  file(RELATIVE_PATH library_from_python ${link_dir} ${library_dir}/libmoecomm.so)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/python_link)
  file(CREATE_LINK ${library_from_python} ${PROJECT_BINARY_DIR}/python_link/libmoecomm.so SYMBOLIC)
  install(FILES ${PROJECT_BINARY_DIR}/python_link/libmoecomm.so DESTINATION ${python_dir}/moecomm)
endif()
install(DIRECTORY examples DESTINATION ${share_dir} COMPONENT dev
  FILES_MATCHING PATTERN "*.c" PATTERN "*.cc" PATTERN "*.cu" PATTERN "*.py" PATTERN "*.rs" PATTERN "*.toml"
  PATTERN "*.json" PATTERN Cargo.lock PATTERN __pycache__ EXCLUDE PATTERN target EXCLUDE)
if(NOT MOECOMM_DEBIAN) # whose packages have a file about all licences
  install(FILES LICENSE packaging/third_party.txt DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()
install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev)
if(tools AND NOT MOECOMM_DEBIAN)
  include(MoecommWheel)
endif()
