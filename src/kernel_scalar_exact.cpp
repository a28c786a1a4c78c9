#include "make_kernel.hpp"

extern const exattn::Kernel exattn_kernel_scalar_exact =
    exattn::make_kernel<exattn::ScalarLanes, exattn::Exact<exattn::ScalarLanes>>("scalar/exact");
