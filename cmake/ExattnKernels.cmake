# Kernels: one translation unit for each lane kind and flavour, each with its own instruction set.
#
# Inline functions and templates that two of them share are weak symbols, and a linker keeps any one of the copies: an
# AVX-512 copy could then run on a machine without AVX-512. So each object is linked by itself first (ld -r), its
# COMDAT groups dissolved, and every symbol but the kernel made local. Apple's linker has no such step, and needs none:
# there the lane kinds (scalar and neon64) share one instruction set, and any copy is as good as another.

foreach(lanes IN ITEMS SSE2 AVX2 AVX512 NEON64)
  set(EXATTN_ENABLE_${lanes} AUTO CACHE STRING "Lane kind ${lanes}: AUTO (if it can be built), ON (must be), OFF")
  set_property(CACHE EXATTN_ENABLE_${lanes} PROPERTY STRINGS AUTO ON OFF)
endforeach()

# Whether the lane kind can be built: out is ON or OFF. An explicit ON that can't be met stops.
function(exattn_lanes_enabled lanes architecture out)
  string(TOUPPER ${lanes} LANES)
  set(wanted ${EXATTN_ENABLE_${LANES}})
  set(${out} OFF PARENT_SCOPE)
  if(NOT wanted)
    return()
  endif()
  set(reason "")
  if(NOT EXATTN_ARCHITECTURE STREQUAL architecture)
    set(reason "it needs the architecture ${architecture}, and this compiler targets ${EXATTN_ARCHITECTURE}")
  else()
    set(CMAKE_REQUIRED_FLAGS ${EXATTN_BASELINE_OPTIONS} ${EXATTN_OPTIONS_${lanes}_exact} ${EXATTN_OPTIONS_${lanes}_fast})
    list(JOIN CMAKE_REQUIRED_FLAGS " " CMAKE_REQUIRED_FLAGS)
    check_cxx_source_compiles("int main() {}" EXATTN_COMPILER_HAS_${LANES})
    if(NOT EXATTN_COMPILER_HAS_${LANES})
      set(reason "the compiler does not accept ${CMAKE_REQUIRED_FLAGS}")
    endif()
  endif()
  if(reason AND NOT wanted STREQUAL "AUTO")
    message(FATAL_ERROR "EXATTN_ENABLE_${LANES} is ${wanted}, but ${lanes} can't be built: ${reason}.")
  elseif(NOT reason)
    set(${out} ON PARENT_SCOPE)
  endif()
endfunction()

if(CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF")
  # The linker for ld -r has to be GNU ld: no other dissolves COMDAT groups.
  set(EXATTN_LD ${CMAKE_LINKER} CACHE FILEPATH "GNU ld, used to make kernel objects self-contained")
  execute_process(COMMAND ${EXATTN_LD} --help OUTPUT_VARIABLE help ERROR_QUIET)
  if(NOT help MATCHES "force-group-allocation")
    message(FATAL_ERROR "EXATTN_LD is '${EXATTN_LD}', which has no --force-group-allocation. Name GNU ld (binutils "
                        "2.29 or newer) for the target by -DEXATTN_LD=/path/to/ld.")
  endif()
  if(NOT CMAKE_OBJCOPY)
    message(FATAL_ERROR "No objcopy was found: install binutils for the target, or name it by -DCMAKE_OBJCOPY=...")
  endif()
endif()

# Adds kernel exattn_kernel_<lanes>_<flavour>; its object file is appended to the list out.
function(exattn_add_kernel lanes flavour out)
  set(name exattn_kernel_${lanes}_${flavour})
  set(target exattn-kernel-${lanes}-${flavour})
  add_library(${target} OBJECT ${PROJECT_SOURCE_DIR}/src/kernel_${lanes}_${flavour}.cpp)
  exattn_common(${target})
  target_include_directories(${target} SYSTEM PRIVATE ${EXATTN_XSIMD_INCLUDE_DIR})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${target} PRIVATE ${EXATTN_BASELINE_OPTIONS} ${EXATTN_OPTIONS_${lanes}_${flavour}}
                                           ${EXATTN_KERNEL_OPTIONS})
  exattn_safe_math(${target})
  set_target_properties(${target} PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
  if(NOT CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF")
    list(APPEND ${out} $<TARGET_OBJECTS:${target}>)
  else()
    set(object ${CMAKE_CURRENT_BINARY_DIR}/kernels/${name}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${EXATTN_LD} -r --force-group-allocation -o ${object}.joined $<TARGET_OBJECTS:${target}>
      COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=${name} ${object}.joined ${object}
      DEPENDS ${target} $<TARGET_OBJECTS:${target}>
      COMMENT "Sealing ${name}.o" COMMAND_EXPAND_LISTS VERBATIM)
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    list(APPEND ${out} ${object})
  endif()
  set(${out} ${${out}} PARENT_SCOPE)
endfunction()
