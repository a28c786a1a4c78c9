#include "make_kernel.hpp"

extern const exattn::Kernel exattn_kernel_sse2_exact =
    exattn::make_kernel<exattn::Sse2Lanes, exattn::Exact<exattn::Sse2Lanes>>("sse2/exact");
