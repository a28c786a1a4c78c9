#include "make_kernel.hpp"

extern const exattn::Kernel exattn_kernel_scalar_fast =
    exattn::make_kernel<exattn::ScalarLanes, exattn::Fast<exattn::ScalarLanes>>("scalar/fast");
