// Work items on threads: a pool's, the caller's, or this one alone.
#pragma once

#include "message.hpp"

#include "exattn/exattn.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>

namespace exattn {

inline constexpr std::int32_t kMaxThreads = 4096;
inline constexpr std::size_t kScratchAlignment = 64;

struct AlignedDelete {
  void operator()(std::byte *memory) const noexcept { ::operator delete (memory, std::align_val_t{kScratchAlignment}); }
};
using AlignedBuffer = std::unique_ptr<std::byte[], AlignedDelete>;

// Who computes. `threads` is how many workers may run at once.
struct Team {
  exattn_pool *pool = nullptr;
  const exattn_executor *executor = nullptr;
  std::int32_t threads = 1;
};

// Checks what the caller gave; neither of the two is the calling thread alone.
exattn_status make_team(exattn_pool *pool, const exattn_executor *executor, Team &team, Message &message) noexcept;

// The scratch of one call.
class Scratch {
public:
  Scratch() noexcept = default;
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;

  // From the caller's memory, in which it is aligned.
  void use(void *memory) noexcept;

  // The pool's own memory, which grows and stays, or, when another call is using that, memory for this call alone.
  exattn_status allocate(exattn_pool *pool, std::size_t bytes, Message &message) noexcept;

  std::byte *data() const noexcept { return base; }

private:
  std::byte *base = nullptr;
  AlignedBuffer own;
  std::unique_lock<std::mutex> pool_lock;
};

// Items 0 .. items - 1, each of which run(context, item, slice) computes. Slices are slice_size bytes apart.
//
// Each task begins with a share of the items that follow each other, and then helps with what is left of the others'.
// Items next to each other mostly read the same keys and values, which so stay with one processor. In one share, all
// items begin in their order.
struct Work {
  void (*run)(const void *context, std::int64_t item, void *slice) = nullptr;
  const void *context = nullptr;
  std::int64_t items = 0;
  std::byte *scratch = nullptr; // null: every slice is null
  std::size_t slice_size = 0;
  bool one_share = false;
};

// How many workers a number of items keeps busy.
std::int32_t workers_for(const Team &team, std::int64_t items) noexcept;

// Runs every item once, in the floating-point environment of the definition, on workers_for(team, work.items) workers.
// No two of them share a slice, whatever an executor does with the tasks that it is given.
exattn_status run_items(const Team &team, const Work &work, Message &message) noexcept;

} // namespace exattn
