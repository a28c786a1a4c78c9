#include "make_kernel.hpp"

extern const exattn::Kernel exattn_kernel_neon64_exact =
    exattn::make_kernel<exattn::Neon64Lanes, exattn::Exact<exattn::Neon64Lanes>>("neon64/exact");
