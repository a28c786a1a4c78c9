// Which golden cases there are. A case is what a golden file says of it, without the hashes.
#pragma once

#include "cases.hpp"

namespace exattn::conformance {

// In the order of the golden files; every hash is empty.
Goldens catalogue();

} // namespace exattn::conformance
