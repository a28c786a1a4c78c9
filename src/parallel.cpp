#include "parallel.hpp"

#include "fp_environment.hpp"

#include <pthreadpool.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

struct exattn_pool {
  struct Destroy {
    void operator()(pthreadpool_t handle) const noexcept { pthreadpool_destroy(handle); }
  };

  std::unique_ptr<pthreadpool, Destroy> workers;
  std::int32_t threads = 0;
  std::uint32_t flags = 0;

  // Calls take turns, as pthreadpool would make them anyway. The job goes to the threads by an atomic of our own, which
  // race checkers see, unlike what pthreadpool does inside.
  std::mutex run_mutex;
  std::atomic<void *> job = nullptr;

  std::mutex scratch_mutex; // held for as long as a call uses the scratch
  exattn::AlignedBuffer scratch;
  std::size_t scratch_bytes = 0;
};

namespace exattn {

namespace {

AlignedBuffer allocate_aligned(std::size_t bytes) noexcept {
  return AlignedBuffer(
      static_cast<std::byte *>(::operator new (bytes, std::align_val_t{kScratchAlignment}, std::nothrow)));
}

std::int32_t usable_processors() {
#if defined(__linux__)
  // A set for more processors than any system has yet; the system refuses one that is too small for its own.
  std::vector<cpu_set_t> sets(64);
  const std::size_t bytes = sets.size() * sizeof(cpu_set_t);
  if (sched_getaffinity(0, bytes, sets.data()) == 0) {
    return std::clamp(CPU_COUNT_S(bytes, sets.data()), 1, kMaxThreads);
  }
#endif
  return static_cast<std::int32_t>(
      std::clamp(std::thread::hardware_concurrency(), 1U, static_cast<unsigned>(kMaxThreads)));
}

// pthreadpool does not look whether its threads could be made, and waits forever for one that could not. So the same
// threads are made here first. Twice as many: those that have just ended may still count against a limit when the
// pool makes its own.
exattn_status try_threads(std::int32_t threads) {
  const std::size_t count = 2 * static_cast<std::size_t>(threads - 1);
  std::vector<std::thread> probes;
  probes.reserve(count);
  std::atomic<bool> end = false;
  exattn_status status = EXATTN_OK;
  try {
    while (probes.size() < count) {
      probes.emplace_back([&end] { end.wait(false); });
    }
  } catch (const std::bad_alloc &) {
    status = EXATTN_ERROR_MEMORY;
  } catch (const std::system_error &) {
    status = EXATTN_ERROR_THREADS;
  }
  end = true;
  end.notify_all();
  for (std::thread &probe : probes) {
    probe.join();
  }
  return status;
}

// Items that follow each other. Alone in its cache line, since mostly one worker takes from it.
struct alignas(kScratchAlignment) Share {
  std::atomic<std::uint64_t> next = 0;
  std::uint64_t end = 0;
};

// One run_items. Workers pull items from counters, and from all of them in the end, so an executor that runs fewer
// tasks than it was given, or runs them one after the other, still gets all items done.
struct Job {
  Job(const Work &w, std::uint64_t n) : work(w), workers(n), shares(w.one_share ? 1 : std::min(n, kMostShares)) {
    // As equal as can be, and without a product that could overflow.
    const std::uint64_t items = static_cast<std::uint64_t>(work.items), each = items / shares, more = items % shares;
    for (std::uint64_t s = 0; s < shares; ++s) {
      share[s].next = s * each + std::min(s, more);
      share[s].end = (s + 1) * each + std::min(s + 1, more);
    }
  }

  static constexpr std::uint64_t kMostShares = 64;
  Share share[kMostShares];
  const Work &work;
  const std::uint64_t workers;
  const std::uint64_t shares;
  std::atomic<std::uint64_t> next_worker = 0; // a worker's slice is its order of arrival, never the task's index
  std::atomic<std::uint64_t> done = 0;
  std::atomic<std::uint64_t> running = 0;
};

void run_worker(void *context, std::size_t task) noexcept {
  Job &job = *static_cast<Job *>(context);
  job.running.fetch_add(1);
  const std::uint64_t worker = job.next_worker.fetch_add(1);
  if (worker < job.workers) {
    const Work &work = job.work;
    void *slice = work.scratch == nullptr ? nullptr : work.scratch + worker * work.slice_size;
    std::uint64_t done = 0;
    const FpEnvironment environment;
    const std::uint64_t own = task % job.shares; // an executor may call with any index
    for (std::uint64_t s = 0; s < job.shares; ++s) {
      Share &share = job.share[(own + s) % job.shares];
      for (std::uint64_t item = share.next.fetch_add(1); item < share.end; item = share.next.fetch_add(1)) {
        work.run(work.context, static_cast<std::int64_t>(item), slice);
        ++done;
      }
    }
    job.done.fetch_add(done);
  }
  // The last access to the job, which is gone once the caller has seen it.
  job.running.fetch_sub(1);
}

void run_pool_worker(void *context, std::size_t task) noexcept {
  run_worker(static_cast<exattn_pool *>(context)->job.load(), task);
}

} // namespace

exattn_status make_team(exattn_pool *pool, const exattn_executor *executor, Team &team, Message &message) noexcept {
  team = {};
  if (pool != nullptr && executor != nullptr) {
    return message.fail(EXATTN_ERROR_THREADS, "pool and executor are both given, at most one of them is allowed");
  }
  if (executor != nullptr) {
    if (executor->struct_size != sizeof(exattn_executor)) {
      return message.fail(EXATTN_ERROR_STRUCT_SIZE, "executor.struct_size is %zu, must be sizeof(exattn_executor), %zu",
                          executor->struct_size, sizeof(exattn_executor));
    }
    if (executor->parallel_for == nullptr) {
      return message.fail(EXATTN_ERROR_NULL, "executor.parallel_for is null");
    }
    if (executor->threads < 1 || executor->threads > kMaxThreads) {
      return message.fail(EXATTN_ERROR_THREADS, "executor.threads is %d, must be 1 to %d", executor->threads,
                          kMaxThreads);
    }
    team.executor = executor;
    team.threads = executor->threads;
  }
  if (pool != nullptr) {
    team.pool = pool;
    team.threads = pool->threads;
  }
  return EXATTN_OK;
}

void Scratch::use(void *memory) noexcept {
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(memory);
  base = static_cast<std::byte *>(memory) + (kScratchAlignment - address % kScratchAlignment) % kScratchAlignment;
}

exattn_status Scratch::allocate(exattn_pool *pool, std::size_t bytes, Message &message) noexcept {
  if (pool != nullptr) {
    pool_lock = std::unique_lock<std::mutex>(pool->scratch_mutex, std::try_to_lock);
  }
  exattn_pool *const lender = pool_lock.owns_lock() ? pool : nullptr;
  if (lender != nullptr && lender->scratch_bytes >= bytes) {
    base = lender->scratch.get();
    return EXATTN_OK;
  }
  if (lender != nullptr) { // the old one first, so that both need not fit in memory together
    lender->scratch.reset();
    lender->scratch_bytes = 0;
  }
  AlignedBuffer memory = allocate_aligned(bytes);
  if (memory == nullptr) {
    return message.fail(EXATTN_ERROR_MEMORY, "%zu bytes of scratch could not be allocated", bytes);
  }
  base = memory.get();
  if (lender != nullptr) {
    lender->scratch = std::move(memory);
    lender->scratch_bytes = bytes;
  } else {
    own = std::move(memory);
  }
  return EXATTN_OK;
}

std::int32_t workers_for(const Team &team, std::int64_t items) noexcept {
  return static_cast<std::int32_t>(std::min<std::int64_t>(team.threads, items));
}

exattn_status run_items(const Team &team, const Work &work, Message &message) noexcept {
  if (work.items <= 0) {
    return EXATTN_OK;
  }
  const std::size_t workers = static_cast<std::size_t>(workers_for(team, work.items));
  Job job(work, workers);
  bool threw = false;
  if (workers == 1) {
    run_worker(&job, 0); // nothing to share out, so no thread is woken
  } else if (team.pool != nullptr) {
    const std::lock_guard<std::mutex> turn(team.pool->run_mutex);
    team.pool->job.store(&job);
    pthreadpool_parallelize_1d(team.pool->workers.get(), run_pool_worker, team.pool, workers, team.pool->flags);
  } else {
    try {
      team.executor->parallel_for(team.executor->context, workers, run_worker, &job);
    } catch (...) {
      threw = true;
    }
  }
  // A well-behaved executor has nothing running now. One that returned, or threw, too early may: nobody starts any
  // more, and those that have started are awaited. (A task that it calls after that has nothing left to look at.)
  job.next_worker.store(workers);
  while (job.running.load() != 0) {
    std::this_thread::yield();
  }
  if (threw) {
    return message.fail(EXATTN_ERROR_EXECUTOR, "executor.parallel_for threw an exception; outputs may be incomplete");
  }
  if (job.done.load() != static_cast<std::uint64_t>(work.items)) {
    return message.fail(EXATTN_ERROR_EXECUTOR,
                        "executor.parallel_for returned without running the tasks it was given: %" PRIu64 " of %" PRId64
                        " work items are done",
                        job.done.load(), work.items);
  }
  return EXATTN_OK;
}

} // namespace exattn

exattn_status exattn_pool_create(int32_t threads, exattn_pool **pool) {
  if (pool == nullptr) {
    return EXATTN_ERROR_NULL;
  }
  *pool = nullptr;
  if (threads < 0 || threads > exattn::kMaxThreads) {
    return EXATTN_ERROR_THREADS;
  }
  try {
    const std::int32_t processors = exattn::usable_processors();
    auto made = std::make_unique<exattn_pool>();
    made->threads = threads == 0 ? processors : threads;
    // Between calls pthreadpool's threads spin for a while; with more threads than processors they would spin on
    // processors that others need.
    made->flags = made->threads > processors ? PTHREADPOOL_FLAG_YIELD_WORKERS : 0;
    if (made->threads > 1) {
      if (const exattn_status status = exattn::try_threads(made->threads); status != EXATTN_OK) {
        return status;
      }
      made->workers.reset(pthreadpool_create(static_cast<std::size_t>(made->threads)));
      if (made->workers == nullptr) {
        return EXATTN_ERROR_MEMORY;
      }
    }
    *pool = made.release();
    return EXATTN_OK;
  } catch (const std::bad_alloc &) {
    return EXATTN_ERROR_MEMORY;
  }
}

void exattn_pool_destroy(exattn_pool *pool) {
  delete pool;
}

int32_t exattn_pool_threads(const exattn_pool *pool) {
  return pool == nullptr ? 0 : pool->threads;
}
