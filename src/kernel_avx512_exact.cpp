#include "make_kernel.hpp"

extern const exattn::Kernel exattn_kernel_avx512_exact =
    exattn::make_kernel<exattn::Avx512Lanes, exattn::Exact<exattn::Avx512Lanes>>("avx512/exact");
