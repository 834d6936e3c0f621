# Packages for Debian and its relatives, one per component of MoecommInstall.cmake, made by `cpack -G DEB`. Needs a build
# for the prefix /usr (preset debian).
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  message(FATAL_ERROR "MOECOMM_DEBIAN is for CMAKE_INSTALL_PREFIX=/usr, and this is ${CMAKE_INSTALL_PREFIX}")
endif()
# Without these cpack makes packages that depend on nothing, or none.
foreach(tool dpkg-shlibdeps file)
  find_program(MOECOMM_PROGRAM_${tool} ${tool})
  mark_as_advanced(MOECOMM_PROGRAM_${tool})
  if(NOT MOECOMM_PROGRAM_${tool})
    message(FATAL_ERROR "Debian's packages need ${tool}, which is not installed: scripts/install_deps.sh deb")
  endif()
endforeach()
set(MOECOMM_MAINTAINER "maintainers of moecomm <moecomm@localhost.localdomain>" CACHE STRING "Maintainer of the packages")

# Debian names a library's package after the SONAME.
set(package_library libmoecomm${MOECOMM_ABI_VERSION})
set(package_dev libmoecomm-dev)
set(package_tools moecomm-tools)
set(package_python python3-moecomm)
set(CPACK_COMPONENTS_ALL library dev tools python)

# Debian's policy wants two files in every package: a changelog in its own form, and one about licences.
set(debian_dir ${PROJECT_BINARY_DIR}/debian)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # of SOURCE_DATE_EPOCH, if that is set
file(CONFIGURE OUTPUT ${debian_dir}/changelog @ONLY CONTENT [[
moecomm (@PROJECT_VERSION@) unstable; urgency=medium

  * The changes are in CHANGELOG.md, in the package libmoecomm-dev.

 -- @MOECOMM_MAINTAINER@  @date@
]])
file(READ packaging/third_party.txt third_party)
string(STRIP "${third_party}" third_party)
string(REGEX REPLACE "\n\n" "\n.\n" third_party "${third_party}")
string(REGEX REPLACE "\n" "\n " third_party " ${third_party}")
configure_file(packaging/copyright.in ${debian_dir}/copyright @ONLY)
execute_process(COMMAND gzip -9nf ${debian_dir}/changelog COMMAND_ERROR_IS_FATAL ANY)
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  install(FILES ${debian_dir}/changelog.gz ${debian_dir}/copyright
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package_${component}} COMPONENT ${component})
endforeach()

# cpack would find these out only for all packages alike, and knows nothing of triggers.
file(WRITE ${debian_dir}/shlibs "libmoecomm ${MOECOMM_ABI_VERSION} ${package_library} (>= ${PROJECT_VERSION})\n")
file(WRITE ${debian_dir}/triggers "activate-noawait ldconfig\n")

# Python compiles the modules when they are installed, and forgets the results when they are removed.
file(CONFIGURE OUTPUT ${debian_dir}/postinst @ONLY CONTENT [[
#!/bin/sh
set -e
if [ "$1" = configure ] && command -v py3compile >/dev/null; then
  py3compile -p @package_python@
fi
]])
file(CONFIGURE OUTPUT ${debian_dir}/prerm @ONLY CONTENT [[
#!/bin/sh
set -e
if command -v py3clean >/dev/null; then
  py3clean -p @package_python@
fi
]])
file(CHMOD ${debian_dir}/postinst ${debian_dir}/prerm
  PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGE_NAME moecomm)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${MOECOMM_MAINTAINER})
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/src) # moe_info needs libmoecomm.so
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(same_library "${package_library} (= ${PROJECT_VERSION})")

# The first line is the summary.
set(about "\nmoecomm moves the tokens of a Mixture-of-Experts model to the ranks that hold\n\
their experts, and brings the weighted sums back: between GPUs of a host over\n\
NVLink, in shared memory, and between hosts.\n.\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${package_library})
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "expert-parallel communication for MoE models${about}This is the library.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${debian_dir}/shlibs ${debian_dir}/triggers)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS "libhwloc15, libibverbs1, ibverbs-providers")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME ${package_dev})
set(CPACK_DEBIAN_DEV_DESCRIPTION "expert-parallel communication for MoE models (development)${about}\
This is what programs in C and C++ are built with, and the documents.")
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${same_library}")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "${package_tools}, ${package_python}, pkgconf")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME ${package_tools})
set(CPACK_DEBIAN_TOOLS_DESCRIPTION "expert-parallel communication for MoE models (tools)${about}\
This is moerun, which starts the ranks of a program, moe_perf, which measures,\nmoe_info, which shows what a machine has, and moe_top and moe_trace, which\nshow what jobs do.")
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${same_library}")

set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME ${package_python})
set(CPACK_DEBIAN_PYTHON_DESCRIPTION "expert-parallel communication for MoE models (Python 3)${about}\
This is the Python package, for numpy, torch and DLPack.")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "python3:any (>= 3.9), ${package_library} (>= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS "python3-numpy, ${package_tools}")
set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA ${debian_dir}/postinst ${debian_dir}/prerm)
set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
