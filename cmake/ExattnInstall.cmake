# Installs headers, library, CMake package, pkg-config file, program and golden data.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/exattn)
install(TARGETS exattn EXPORT exattnTargets)
install(FILES ${PROJECT_SOURCE_DIR}/include/exattn/exattn.h ${PROJECT_SOURCE_DIR}/include/exattn/exattn.hpp
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/exattn)
install(EXPORT exattnTargets NAMESPACE exattn:: DESTINATION ${package_dir})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/exattnConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/exattnConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/exattnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/exattnConfig.cmake ${PROJECT_BINARY_DIR}/exattnConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindPthreadpool.cmake
        DESTINATION ${package_dir})

# A static library's users have to link what it needs: the thread pool, and what the C++ runtime is here.
set(pc_private "-lpthreadpool")
foreach(library IN LISTS CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
  if(library MATCHES "^(stdc\\+\\+|c\\+\\+)$")
    string(APPEND pc_private " -l${library}")
  endif()
endforeach()
if(BUILD_SHARED_LIBS)
  set(pc_libs "")
  set(pc_cflags "")
else()
  set(pc_libs " ${pc_private}") # only a static library is there, so that pkg-config needs no --static
  set(pc_cflags " -DEXATTN_STATIC")
endif()
# The file finds its own prefix, so that the installed tree can be moved.
file(RELATIVE_PATH pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
foreach(dir IN ITEMS INCLUDEDIR LIBDIR)
  file(RELATIVE_PATH pc_${dir} ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_${dir}})
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/cmake/exattn.pc.in ${PROJECT_BINARY_DIR}/exattn.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/exattn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(TARGET exattn-program)
  install(TARGETS exattn-program)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/golden/ DESTINATION ${CMAKE_INSTALL_DATADIR}/exattn/golden)
  install(FILES ${PROJECT_SOURCE_DIR}/src/program/completion.bash
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME exattn)
endif()
