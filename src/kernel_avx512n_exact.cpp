#include "make_kernel.hpp"

extern const exattn::Kernel exattn_kernel_avx512n_exact =
    exattn::make_kernel<exattn::Avx512NarrowLanes, exattn::Exact<exattn::Avx512NarrowLanes>>("avx512n/exact");
