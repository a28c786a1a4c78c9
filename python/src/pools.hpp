// Pools of threads, made when they are first asked for and kept: one for each number of threads.
#pragma once

#include <exattn/exattn.h>

#include <cstdint>

namespace exattn_python {

/// The most threads that a pool can have.
constexpr std::int64_t kMostThreads = 4096;

/// Null for one thread. The caller holds the GIL, which is what guards the pools. After a fork the child makes its own:
/// the parent's threads are not in it. Throws exattn::error.
exattn_pool *pool_of(std::int32_t threads);

} // namespace exattn_python
