#include "make_kernel.hpp"

extern const exattn::Kernel exattn_kernel_avx2_fast =
    exattn::make_kernel<exattn::Avx2Lanes, exattn::Fast<exattn::Avx2Lanes>>("avx2/fast");
