# Cross builds by Debian's cross compilers. A toolchain file sets EXATTN_DEBIAN_ARCH (arm64, s390x, ...),
# EXATTN_TRIPLET (aarch64-linux-gnu, ...) and EXATTN_QEMU (qemu-aarch64, ...), then includes this one.
# scripts/sysroot unpacks the target's libraries into build/sysroot-<arch> first; EXATTN_SYSROOT names another place.
set(CMAKE_SYSTEM_NAME Linux)
string(REGEX REPLACE "-.*" "" CMAKE_SYSTEM_PROCESSOR ${EXATTN_TRIPLET})

if(DEFINED ENV{EXATTN_SYSROOT})
  set(sysroot $ENV{EXATTN_SYSROOT})
else()
  get_filename_component(sysroot ${CMAKE_CURRENT_LIST_DIR}/../build/sysroot-${EXATTN_DEBIAN_ARCH} ABSOLUTE)
endif()
if(NOT EXISTS ${sysroot}/usr/include/pthreadpool.h)
  message(FATAL_ERROR "The libraries for ${EXATTN_DEBIAN_ARCH} are not in ${sysroot}: run scripts/sysroot ${EXATTN_DEBIAN_ARCH}")
endif()

set(CMAKE_C_COMPILER ${EXATTN_TRIPLET}-gcc)
set(CMAKE_CXX_COMPILER ${EXATTN_TRIPLET}-g++)

# Libraries and headers come from the sysroot and the compiler's own tree; packages of pure headers also lie there.
set(CMAKE_FIND_ROOT_PATH ${sysroot} /usr/${EXATTN_TRIPLET})
set(CMAKE_LIBRARY_ARCHITECTURE ${EXATTN_TRIPLET})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# Programs find the C library in the compiler's tree and the rest by the rpath of the build.
set(CMAKE_CROSSCOMPILING_EMULATOR ${EXATTN_QEMU} -L /usr/${EXATTN_TRIPLET})
