#include "make_kernel.hpp"

extern const exattn::Kernel exattn_kernel_avx2_exact =
    exattn::make_kernel<exattn::Avx2Lanes, exattn::Exact<exattn::Avx2Lanes>>("avx2/exact");
