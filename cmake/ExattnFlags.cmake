# Compiler options: what keeps the bits, what warns, and what each lane kind needs.
include(CheckCXXCompilerFlag)
include(CheckCXXSourceCompiles)

# Which architecture the compiler makes code for; its own macros know that better than CMAKE_SYSTEM_PROCESSOR.
function(exattn_detect_architecture out)
  set(CMAKE_REQUIRED_QUIET ON)
  check_cxx_source_compiles("#if !defined(__x86_64__) && !defined(_M_X64)\n#error\n#endif\nint main() {}"
                            EXATTN_TARGET_IS_X86_64)
  check_cxx_source_compiles("#if !defined(__aarch64__) && !defined(_M_ARM64)\n#error\n#endif\nint main() {}"
                            EXATTN_TARGET_IS_ARM64)
  if(EXATTN_TARGET_IS_X86_64)
    set(${out} x86_64 PARENT_SCOPE)
  elseif(EXATTN_TARGET_IS_ARM64)
    set(${out} arm64 PARENT_SCOPE)
  else()
    set(${out} other PARENT_SCOPE)
  endif()
endfunction()
exattn_detect_architecture(EXATTN_ARCHITECTURE)

# Options that come after the user's: no contraction, no reassociation, no assumption about special values. Contraction
# comes last, since Clang's other options switch it back on. GCC's -fno-trapping-math changes no result, so it stays
# the user's choice.
set(EXATTN_SAFE_MATH_OPTIONS
    -fno-fast-math
    -fno-unsafe-math-optimizations
    -fno-associative-math
    -fno-reciprocal-math
    -fno-finite-math-only
    -fsigned-zeros
    -fno-rounding-math)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND EXATTN_SAFE_MATH_OPTIONS -fno-single-precision-constant)
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(APPEND EXATTN_SAFE_MATH_OPTIONS -fdenormal-fp-math=ieee)
  # Overriding what the user asked for is the point here, so Clang need not say it for each file.
  foreach(option overriding-t-option overriding-option)
    string(MAKE_C_IDENTIFIER "EXATTN_HAS_W_${option}" variable)
    check_cxx_compiler_flag(-Werror=unknown-warning-option\;-W${option} ${variable})
    if(${variable})
      list(APPEND EXATTN_SAFE_MATH_OPTIONS -Wno-${option})
    endif()
  endforeach()
endif()
list(APPEND EXATTN_SAFE_MATH_OPTIONS -ffp-contract=off)

# A known instruction set after the user's options (-march=native, -mavx): without it the compiler may put
# instructions into a kernel that its lane kind does not promise. -mno-sse3 takes back all later vector extensions.
if(EXATTN_ARCHITECTURE STREQUAL "x86_64")
  set(EXATTN_BASELINE_OPTIONS -march=x86-64 -mtune=generic -mfpmath=sse -mno-sse3 -mno-bmi -mno-bmi2 -mno-lzcnt
                              -mno-popcnt -mno-movbe -mno-adx)
elseif(EXATTN_ARCHITECTURE STREQUAL "arm64" AND NOT APPLE)
  set(EXATTN_BASELINE_OPTIONS -march=armv8-a)
endif()

# What each kernel may use beyond the baseline. An exact kernel is not given FMA where it can be kept away.
set(EXATTN_OPTIONS_avx2_exact -mavx2)
set(EXATTN_OPTIONS_avx2_fast -mavx2 -mfma)
set(EXATTN_OPTIONS_avx512_exact -mavx2 -mavx512f -mavx512cd -mavx512dq -mavx512bw -mavx512vl
                                -mprefer-vector-width=512)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 finds its own headers' deliberately undefined registers uninitialised (its bug 105593).
  list(APPEND EXATTN_OPTIONS_avx512_exact -Wno-uninitialized -Wno-maybe-uninitialized)
endif()
set(EXATTN_OPTIONS_avx512_fast ${EXATTN_OPTIONS_avx512_exact} -mfma)
set(EXATTN_OPTIONS_avx512n_exact ${EXATTN_OPTIONS_avx512_exact})
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Scheduled before registers are given out, 16 products would be alive at once, and sums spilled.
  set(EXATTN_OPTIONS_neon64_exact -fno-schedule-insns)
endif()

# For every kernel. The one place for options that make kernels fast. GCC takes an int that sizes an array in a template
# for a conversion that could change its sign.
set(EXATTN_KERNEL_OPTIONS -Wno-sign-conversion -fno-exceptions -fno-rtti -fno-threadsafe-statics -fno-lto)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC's "unique" symbols, which inline variables get, are one in a process whatever the linker is told.
  list(APPEND EXATTN_KERNEL_OPTIONS -fno-gnu-unique)
endif()

# GCC 12 finds overlapping copies inside std::string where there are none (its bug 105329).
set(EXATTN_QUIET_OPTIONS "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(EXATTN_QUIET_OPTIONS -Wno-restrict)
endif()

# C++20, warnings and hidden symbols.
function(exattn_common target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion
                                           ${EXATTN_QUIET_OPTIONS} $<$<BOOL:${EXATTN_WERROR}>:-Werror>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
endfunction()

# For every target whose floating-point results count.
function(exattn_safe_math target)
  target_compile_options(${target} PRIVATE ${EXATTN_SAFE_MATH_OPTIONS})
endfunction()

# For targets whose hot code is elsewhere: templates of CLI11, nlohmann-json and doctest take half the time to compile.
function(exattn_light_optimisation target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()
