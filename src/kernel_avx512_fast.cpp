#include "make_kernel.hpp"

extern const exattn::Kernel exattn_kernel_avx512_fast =
    exattn::make_kernel<exattn::Avx512Lanes, exattn::Fast<exattn::Avx512Lanes>>("avx512/fast");
