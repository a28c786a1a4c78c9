# Kernels: one translation unit for each lane kind and flavour, each with its own instruction set.
#
# Inline functions and templates that two of them share are weak symbols, and a linker keeps any one of the copies: an
# AVX-512 copy could then run on a machine without AVX-512. So each object is linked by itself first (ld -r), its
# COMDAT groups dissolved, and every symbol but the kernel made local. Apple's linker has no such step, and needs none:
# there the lane kinds (scalar and neon64) share one instruction set, and any copy is as good as another.

# What there is. A new lane kind starts here: its architecture, flavours and options (ExattnFlags.cmake). One that is a
# variant of another goes with it, so that turning AVX-512 off leaves none of it.
set(EXATTN_LANE_KINDS sse2 avx2 avx512 avx512n neon64)
set(EXATTN_ARCHITECTURE_sse2 x86_64)
set(EXATTN_ARCHITECTURE_avx2 x86_64)
set(EXATTN_ARCHITECTURE_avx512 x86_64)
set(EXATTN_ARCHITECTURE_avx512n x86_64)
set(EXATTN_ARCHITECTURE_neon64 arm64)
set(EXATTN_FLAVOURS_scalar exact fast)
set(EXATTN_FLAVOURS_sse2 exact)
set(EXATTN_FLAVOURS_avx2 exact fast)
set(EXATTN_FLAVOURS_avx512 exact fast)
set(EXATTN_FLAVOURS_avx512n exact)
set(EXATTN_FLAVOURS_neon64 exact fast)
set(EXATTN_VARIANT_OF_avx512n avx512)

foreach(lanes IN LISTS EXATTN_LANE_KINDS)
  string(TOUPPER ${lanes} LANES)
  set(EXATTN_ENABLE_${LANES} AUTO CACHE STRING "Lane kind ${lanes}: AUTO (if it can be built), ON (must be), OFF")
  set_property(CACHE EXATTN_ENABLE_${LANES} PROPERTY STRINGS AUTO ON OFF)
endforeach()

# The lane kinds of this build. One that is set to ON and can't be built stops the configuration.
function(exattn_enabled_lanes out)
  set(enabled scalar)
  foreach(lanes IN LISTS EXATTN_LANE_KINDS)
    string(TOUPPER ${lanes} LANES)
    set(wanted ${EXATTN_ENABLE_${LANES}})
    if(NOT wanted STREQUAL "AUTO" AND NOT wanted)
      continue()
    endif()
    set(reason "")
    if(NOT EXATTN_ARCHITECTURE STREQUAL EXATTN_ARCHITECTURE_${lanes})
      set(reason "it needs a compiler for ${EXATTN_ARCHITECTURE_${lanes}}, and this one's target is another")
    elseif(DEFINED EXATTN_VARIANT_OF_${lanes} AND NOT EXATTN_VARIANT_OF_${lanes} IN_LIST enabled)
      set(reason "it goes with ${EXATTN_VARIANT_OF_${lanes}}, which is not built")
    else()
      list(JOIN EXATTN_BASELINE_OPTIONS " " CMAKE_REQUIRED_FLAGS)
      foreach(flavour IN LISTS EXATTN_FLAVOURS_${lanes})
        list(APPEND CMAKE_REQUIRED_FLAGS ${EXATTN_OPTIONS_${lanes}_${flavour}})
      endforeach()
      list(JOIN CMAKE_REQUIRED_FLAGS " " CMAKE_REQUIRED_FLAGS)
      check_cxx_source_compiles("int main() {}" EXATTN_COMPILER_HAS_${LANES})
      if(NOT EXATTN_COMPILER_HAS_${LANES})
        set(reason "the compiler does not accept ${CMAKE_REQUIRED_FLAGS}")
      endif()
    endif()
    if(NOT reason)
      list(APPEND enabled ${lanes})
    elseif(NOT wanted STREQUAL "AUTO")
      message(FATAL_ERROR "EXATTN_ENABLE_${LANES} is ${wanted}, but ${lanes} can't be built: ${reason}.")
    endif()
  endforeach()
  set(${out} ${enabled} PARENT_SCOPE)
endfunction()

if(CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF")
  # GNU ld, whichever linker the compiler uses otherwise: no other dissolves COMDAT groups.
  if(NOT EXATTN_LD)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-prog-name=ld.bfd
                    OUTPUT_VARIABLE linker OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    find_program(EXATTN_LD NAMES ${linker} ${CMAKE_LINKER} DOC "GNU ld, used to make kernel objects self-contained")
  endif()
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
    set(object $<TARGET_OBJECTS:${target}>)
  else()
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${EXATTN_LD} -r --force-group-allocation -o ${name}.joined.o $<TARGET_OBJECTS:${target}>
      COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=${name} ${name}.joined.o ${object}
      DEPENDS ${target} $<TARGET_OBJECTS:${target}> BYPRODUCTS ${name}.joined.o
      COMMENT "Sealing ${name}.o" COMMAND_EXPAND_LISTS VERBATIM)
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  endif()
  list(APPEND ${out} ${object})
  set(${out} ${${out}} PARENT_SCOPE)
endfunction()
