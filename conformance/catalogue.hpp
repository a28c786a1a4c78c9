// Which golden cases there are. A case is what a golden file says of it, without the hashes.
#pragma once

#include "cases.hpp"

#include <cstdint>

namespace exattn::conformance {

// In the order of the golden files; every hash is empty.
Goldens catalogue();

// Multiply-adds of the two products, as if every key were visible.
std::int64_t multiply_adds(const AttentionParams &params);

} // namespace exattn::conformance
