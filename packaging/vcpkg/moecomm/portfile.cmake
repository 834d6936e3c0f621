# An overlay port that builds the checkout in which it lies:
#   vcpkg install moecomm --overlay-ports=CHECKOUT/packaging/vcpkg
# A port of a registry would download a release instead.
vcpkg_check_linkage(ONLY_DYNAMIC_LIBRARY)
cmake_path(ABSOLUTE_PATH CURRENT_PORT_DIR NORMALIZE OUTPUT_VARIABLE port)
cmake_path(SET SOURCE_PATH NORMALIZE "${port}/../../..")

vcpkg_check_features(OUT_FEATURE_OPTIONS features FEATURES
  cuda MOECOMM_CUDA
  tools MOECOMM_TOOLS
  tools MOECOMM_PERF)
set(shared_sodium ON) # triplets of shared libraries have no archive
if(EXISTS "${CURRENT_INSTALLED_DIR}/lib/libsodium.a")
  set(shared_sodium OFF)
endif()
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS ${features}
  -DMOECOMM_TESTS=OFF -DMOECOMM_WERROR=OFF -DMOECOMM_SHARED_SODIUM=${shared_sodium})
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/moecomm)
vcpkg_fixup_pkgconfig()
if("tools" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES moerun moe_info moe_perf moe_top moe_trace AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE" "${SOURCE_PATH}/packaging/third_party.txt")
