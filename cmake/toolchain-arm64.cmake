set(EXATTN_DEBIAN_ARCH arm64)
set(EXATTN_TRIPLET aarch64-linux-gnu)
set(EXATTN_QEMU qemu-aarch64)
include(${CMAKE_CURRENT_LIST_DIR}/toolchain-debian.cmake)
