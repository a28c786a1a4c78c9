# An overlay port: it builds the checkout that it lies in, so there is nothing to download and no hash to keep.
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../.." ABSOLUTE)

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    -DEXATTN_BUILD_PROGRAM=OFF
    -DEXATTN_BUILD_MINT=OFF
    -DEXATTN_BUILD_TESTS=OFF
    -DEXATTN_BUILD_PYTHON=OFF
    -DEXATTN_INSTALL=ON
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/exattn)
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
