#include "make_kernel.hpp"

extern const exattn::Kernel exattn_kernel_neon64_fast =
    exattn::make_kernel<exattn::Neon64Lanes, exattn::Fast<exattn::Neon64Lanes>>("neon64/fast");
