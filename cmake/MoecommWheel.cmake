# The install component `wheel`: what is in the Python package besides its modules. scikit-build-core (pyproject.toml) and
# packaging/wheel install it, `cmake --install` alone does not. A wheel has no links, so the library has the file name
# that programs ask for, and for the linker a text does what a link does elsewhere.
set(wheel COMPONENT wheel EXCLUDE_FROM_ALL)
set(soname libmoecomm.so.${MOECOMM_ABI_VERSION})
install(TARGETS moecomm LIBRARY DESTINATION moecomm/lib NAMELINK_SKIP ${wheel})
install(CODE "
  set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/moecomm/lib\")
  file(RENAME \"\${folder}/libmoecomm.so.${PROJECT_VERSION}\" \"\${folder}/${soname}\")
  file(WRITE \"\${folder}/libmoecomm.so\" \"INPUT(${soname})\\n\")" ${wheel})
install(TARGETS ${tools} RUNTIME DESTINATION moecomm/bin ${wheel})
install(FILES include/moecomm.h include/moecomm.hpp DESTINATION moecomm/include ${wheel})
install(DIRECTORY include/moecomm DESTINATION moecomm/include ${wheel} FILES_MATCHING PATTERN "*.hpp")
install(FILES ${PROJECT_BINARY_DIR}/moecomm.pc DESTINATION moecomm/lib/pkgconfig ${wheel})
