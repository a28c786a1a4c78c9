# Finds pthreadpool, which comes without a CMake package or pkg-config file in most distributions.
# Defines Pthreadpool::pthreadpool, Pthreadpool_INCLUDE_DIR and Pthreadpool_LIBRARY.
find_path(Pthreadpool_INCLUDE_DIR pthreadpool.h)
find_library(Pthreadpool_LIBRARY pthreadpool)
mark_as_advanced(Pthreadpool_INCLUDE_DIR Pthreadpool_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Pthreadpool
  REQUIRED_VARS Pthreadpool_LIBRARY Pthreadpool_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install it (Debian, Ubuntu: apt-get install libpthreadpool-dev)")

if(Pthreadpool_FOUND AND NOT TARGET Pthreadpool::pthreadpool)
  add_library(Pthreadpool::pthreadpool UNKNOWN IMPORTED)
  set_target_properties(Pthreadpool::pthreadpool PROPERTIES
    IMPORTED_LOCATION ${Pthreadpool_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${Pthreadpool_INCLUDE_DIR})
  if(Pthreadpool_LIBRARY MATCHES "\\.a$")
    find_package(Threads REQUIRED)
    set_property(TARGET Pthreadpool::pthreadpool PROPERTY INTERFACE_LINK_LIBRARIES Threads::Threads)
  endif()
endif()
