// Work items on threads: pools, executors that behave in every way, scratch, memory that runs out.
#include "parallel.hpp"
#include "problem.hpp"

#include "exattn/exattn.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

using exattn::Message;
using exattn::run_items;
using exattn::Team;
using exattn::Work;
using exattn::tests::Problem;

// ---- Memory that can run out, and is counted ----

namespace {

std::atomic<long> allocations = 0;
std::atomic<long> allocations_left = -1; // below 0: without end

void *allocate(std::size_t size, std::size_t alignment) {
  ++allocations;
  const std::size_t more_than_there_is = std::size_t{1} << 40; // sanitizers end the program rather than say no
  if (allocations_left.load() == 0 || size > more_than_there_is) {
    throw std::bad_alloc();
  }
  if (allocations_left.load() > 0) {
    --allocations_left;
  }
  const std::size_t rounded = (std::max<std::size_t>(size, 1) + alignment - 1) / alignment * alignment;
  if (void *memory = std::aligned_alloc(alignment, rounded)) {
    return memory;
  }
  throw std::bad_alloc();
}

} // namespace

// Not inlined, so that the compiler does not take new and free for a pair that does not match.
#define EXATTN_NOT_INLINE __attribute__((noinline))
EXATTN_NOT_INLINE void *operator new(std::size_t size) {
  return allocate(size, alignof(std::max_align_t));
}
EXATTN_NOT_INLINE void *operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
EXATTN_NOT_INLINE void *operator new(std::size_t size, const std::nothrow_t &) noexcept {
  try {
    return operator new(size);
  } catch (const std::bad_alloc &) {
    return nullptr;
  }
}
EXATTN_NOT_INLINE void *operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t &) noexcept {
  try {
    return operator new(size, alignment);
  } catch (const std::bad_alloc &) {
    return nullptr;
  }
}
EXATTN_NOT_INLINE void operator delete(void *memory) noexcept {
  std::free(memory);
}
EXATTN_NOT_INLINE void operator delete(void *memory, std::size_t) noexcept {
  std::free(memory);
}
EXATTN_NOT_INLINE void operator delete(void *memory, std::align_val_t) noexcept {
  std::free(memory);
}
EXATTN_NOT_INLINE void operator delete(void *memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace {

struct Destroy {
  void operator()(exattn_pool *pool) const { exattn_pool_destroy(pool); }
};
using Pool = std::unique_ptr<exattn_pool, Destroy>;

Pool make_pool(std::int32_t threads) {
  exattn_pool *pool = nullptr;
  REQUIRE(exattn_pool_create(threads, &pool) == EXATTN_OK);
  REQUIRE(pool != nullptr);
  return Pool(pool);
}

// A parallel_for from a function.
using Task = void (*)(void *, std::size_t);
using ParallelFor = std::function<void(std::size_t count, Task task, void *task_context)>;

void call_function(void *context, std::size_t count, Task task, void *task_context) {
  (*static_cast<const ParallelFor *>(context))(count, task, task_context);
}

exattn_executor executor_of(const ParallelFor &function, std::int32_t threads) {
  return {sizeof(exattn_executor), const_cast<ParallelFor *>(&function), call_function, threads};
}

void on_threads(std::size_t count, const std::function<void(std::size_t)> &function) {
  std::vector<std::thread> threads;
  for (std::size_t n = 0; n < count; ++n) {
    threads.emplace_back(function, n);
  }
  for (std::thread &thread : threads) {
    thread.join();
  }
}

struct NamedExecutor {
  const char *name;
  ParallelFor parallel_for;
};

// All of these run at least one task to its end before they return.
std::vector<NamedExecutor> working_executors() {
  return {
      {"in order",
       [](std::size_t count, Task task, void *context) {
         for (std::size_t n = 0; n < count; ++n) {
           task(context, n);
         }
       }},
      {"reversed",
       [](std::size_t count, Task task, void *context) {
         for (std::size_t n = count; n-- > 0;) {
           task(context, n);
         }
       }},
      {"each on a thread", [](std::size_t count, Task task,
                              void *context) { on_threads(count, [&](std::size_t n) { task(context, n); }); }},
      {"each twice at the same time",
       [](std::size_t count, Task task, void *context) {
         on_threads(2 * count, [&](std::size_t n) { task(context, n / 2); });
       }},
      {"one index on every thread",
       [](std::size_t count, Task task, void *context) {
         on_threads(3 * count, [&](std::size_t) { task(context, 0); });
       }},
      {"only the last", [](std::size_t count, Task task, void *context) { task(context, count - 1); }},
      {"an index that does not exist", [](std::size_t, Task task, void *context) { task(context, SIZE_MAX); }},
  };
}

// Items that notice when one runs twice, or when two at once have the same slice.
struct Witness {
  explicit Witness(std::int64_t items) : runs(static_cast<std::size_t>(items)) {}

  static constexpr std::size_t kSlice = 128;
  std::vector<std::atomic<int>> runs;
  std::atomic<int> clashes = 0;
  std::function<void(std::int64_t)> also;
  bool one_share = false;

  static void run(const void *context, std::int64_t item, void *slice) {
    Witness &self = *static_cast<Witness *>(const_cast<void *>(context));
    std::atomic<int> &owner = *static_cast<std::atomic<int> *>(slice);
    self.clashes += owner.exchange(1) != 0 ? 1 : 0;
    ++self.runs[static_cast<std::size_t>(item)];
    if (self.also) {
      self.also(item);
    }
    std::this_thread::yield();
    owner.store(0);
  }

  exattn_status run_on(const Team &team, std::string *text = nullptr) {
    const std::size_t workers =
        static_cast<std::size_t>(exattn::workers_for(team, static_cast<std::int64_t>(runs.size())));
    std::vector<std::byte> scratch((workers + 1) * kSlice);
    void *first = scratch.data();
    std::size_t space = scratch.size();
    std::byte *aligned = static_cast<std::byte *>(std::align(64, workers * kSlice, first, space));
    std::array<char, 200> buffer{};
    Message message(buffer.data(), buffer.size());
    const exattn_status status =
        run_items(team, {run, this, static_cast<std::int64_t>(runs.size()), aligned, kSlice, one_share}, message);
    if (text != nullptr) {
      *text = buffer.data();
    }
    return status;
  }

  bool each_once() const {
    return std::all_of(runs.begin(), runs.end(), [](const std::atomic<int> &count) { return count == 1; });
  }
};

} // namespace

TEST_CASE("pool: sizes") {
  for (const std::int32_t threads : {1, 2, 3, 7, 40}) {
    CHECK(exattn_pool_threads(make_pool(threads).get()) == threads);
  }
  exattn_pool *pool = nullptr;
  for (const std::int32_t threads : {-1, 4097, INT32_MIN, INT32_MAX}) {
    CHECK(exattn_pool_create(threads, &pool) == EXATTN_ERROR_THREADS);
    CHECK(pool == nullptr);
  }
  CHECK(exattn_pool_create(1, nullptr) == EXATTN_ERROR_NULL);
  CHECK(exattn_pool_create(-1, nullptr) == EXATTN_ERROR_NULL);
  CHECK(exattn_pool_threads(nullptr) == 0);
  exattn_pool_destroy(nullptr);
}

#if defined(__linux__)
TEST_CASE("pool: 0 threads means the processors that this process may use") {
  cpu_set_t all;
  REQUIRE(sched_getaffinity(0, sizeof(all), &all) == 0);
  CHECK(exattn_pool_threads(make_pool(0).get()) == CPU_COUNT(&all));

  cpu_set_t one;
  CPU_ZERO(&one);
  std::size_t processor = 0;
  while (!CPU_ISSET(processor, &all)) {
    ++processor;
  }
  CPU_SET(processor, &one);
  REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
  const std::int32_t threads = exattn_pool_threads(make_pool(0).get());
  REQUIRE(sched_setaffinity(0, sizeof(all), &all) == 0);
  CHECK(threads == 1);
}

TEST_CASE("pool: threads that the system refuses are an error, not a wait without end") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(20); // ends the child if it waits after all
    // For the superuser the limit does not hold.
    if (geteuid() == 0 && setuid(65534) != 0 && setuid(1000) != 0) {
      _exit(90);
    }
    const rlimit none{1, 1};
    if (setrlimit(RLIMIT_NPROC, &none) != 0) {
      _exit(91);
    }
    exattn_pool *pool = nullptr;
    if (exattn_pool_create(8, &pool) != EXATTN_ERROR_THREADS || pool != nullptr) {
      _exit(92);
    }
    _exit(exattn_pool_create(1, &pool) == EXATTN_OK ? 0 : 93); // needs no new thread
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
#endif

TEST_CASE("items: each once, and no slice for two workers at a time") {
  for (const std::int64_t items : {1, 2, 3, 5, 64, 1000}) {
    Witness serial(items);
    CHECK(serial.run_on({}) == EXATTN_OK);
    CHECK(serial.each_once());
    for (const std::int32_t threads : {1, 2, 3, 7}) {
      INFO(items << " items, " << threads << " threads");
      const Pool pool = make_pool(threads);
      Witness on_pool(items);
      CHECK(on_pool.run_on({pool.get(), nullptr, threads}) == EXATTN_OK);
      CHECK(on_pool.each_once());
      CHECK(on_pool.clashes == 0);
      for (const NamedExecutor &named : working_executors()) {
        INFO(std::string(named.name));
        const exattn_executor executor = executor_of(named.parallel_for, threads);
        Witness witness(items);
        CHECK(witness.run_on({nullptr, &executor, threads}) == EXATTN_OK);
        CHECK(witness.each_once());
        CHECK(witness.clashes == 0);
      }
    }
  }
}

TEST_CASE("items: each task begins with its share, and in one share they begin in their order") {
  const ParallelFor reversed = [](std::size_t count, Task task, void *context) {
    for (std::size_t n = count; n-- > 0;) {
      task(context, n);
    }
  };
  const exattn_executor executor = executor_of(reversed, 3);
  std::vector<std::int64_t> order;
  Witness witness(8);
  witness.also = [&](std::int64_t item) { order.push_back(item); };
  CHECK(witness.run_on({nullptr, &executor, 3}) == EXATTN_OK);
  CHECK(order == std::vector<std::int64_t>{6, 7, 0, 1, 2, 3, 4, 5});
  Witness in_order(8);
  order.clear();
  in_order.one_share = true;
  in_order.also = witness.also;
  CHECK(in_order.run_on({nullptr, &executor, 3}) == EXATTN_OK);
  CHECK(order == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("items: no more tasks than items and threads, and none for a single one") {
  std::size_t asked = 0;
  const ParallelFor counting = [&](std::size_t count, Task task, void *context) {
    asked = count;
    task(context, 0);
  };
  const exattn_executor executor = executor_of(counting, 4);
  for (const std::int64_t items : {2, 3, 4, 5, 100}) {
    Witness witness(items);
    CHECK(witness.run_on({nullptr, &executor, 4}) == EXATTN_OK);
    CHECK(asked == static_cast<std::size_t>(std::min<std::int64_t>(items, 4)));
  }
  asked = 0;
  Witness single(1);
  CHECK(single.run_on({nullptr, &executor, 4}) == EXATTN_OK);
  CHECK(single.each_once());
  CHECK(asked == 0);
  CHECK(Witness(0).run_on({nullptr, &executor, 4}) == EXATTN_OK);
  CHECK(asked == 0);
}

TEST_CASE("items: a pool runs on all of its threads") {
  // Three items that each wait until all three have begun.
  const Pool pool = make_pool(3);
  std::atomic<int> begun = 0;
  Witness witness(3);
  witness.also = [&](std::int64_t) {
    ++begun;
    while (begun < 3) {
      std::this_thread::yield();
    }
  };
  CHECK(witness.run_on({pool.get(), nullptr, 3}) == EXATTN_OK);
  CHECK(witness.each_once());
  CHECK(witness.clashes == 0);
}

TEST_CASE("items: an executor that does not do its work is an error") {
  std::string text;
  const ParallelFor nothing = [](std::size_t, Task, void *) {};
  const exattn_executor idle = executor_of(nothing, 2);
  Witness none(5);
  CHECK(none.run_on({nullptr, &idle, 2}, &text) == EXATTN_ERROR_EXECUTOR);
  CHECK(text.find("0 of 5 work items are done") != std::string::npos);
  CHECK(std::all_of(none.runs.begin(), none.runs.end(), [](const std::atomic<int> &count) { return count == 0; }));

  const ParallelFor throwing = [](std::size_t, Task, void *) { throw std::runtime_error("no threads today"); };
  const exattn_executor broken = executor_of(throwing, 2);
  Witness thrown(5);
  CHECK(thrown.run_on({nullptr, &broken, 2}, &text) == EXATTN_ERROR_EXECUTOR);
  CHECK(text.find("threw an exception") != std::string::npos);

  const ParallelFor throwing_late = [](std::size_t, Task task, void *context) {
    task(context, 0);
    throw 42;
  };
  const exattn_executor late = executor_of(throwing_late, 2);
  Witness thrown_late(5);
  CHECK(thrown_late.run_on({nullptr, &late, 2}, &text) == EXATTN_ERROR_EXECUTOR);
  CHECK(text.find("threw an exception") != std::string::npos);
}

TEST_CASE("items: a task that has begun is awaited, though the executor returned or threw too early") {
  for (const bool throws : {false, true}) {
    std::thread helper;
    std::atomic<bool> begun = false;
    std::atomic<int> finished = 0;
    const ParallelFor early = [&](std::size_t, Task task, void *context) {
      helper = std::thread([task, context] { task(context, 0); });
      while (!begun) {
        std::this_thread::yield();
      }
      if (throws) {
        throw std::runtime_error("too early");
      }
    };
    const exattn_executor executor = executor_of(early, 2);
    Witness witness(4);
    witness.also = [&](std::int64_t) {
      begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++finished;
    };
    const exattn_status status = witness.run_on({nullptr, &executor, 2});
    CHECK(finished == 4); // all that were begun are done when it returns
    CHECK(status == (throws ? EXATTN_ERROR_EXECUTOR : EXATTN_OK));
    helper.join();
  }
}

TEST_CASE("attention: the same bits on any threads") {
  // 2 sequences, 6 heads on 2, 45 rows: several items for each head, the last one short.
  for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
    Problem reference(2, 6, 2, 45, 70, 20, 24);
    reference.args.flavour = flavour;
    reference.use_lse();
    reference.use_mask();
    reference.args.causal = 1;
    reference.args.q_offset = 30;
    REQUIRE(reference.run() == EXATTN_OK);
    REQUIRE(reference.out.guards_intact());

    const auto check = [&](exattn_pool *pool, const exattn_executor *executor) {
      Problem problem(2, 6, 2, 45, 70, 20, 24);
      problem.args.flavour = flavour;
      problem.use_lse();
      problem.use_mask();
      problem.args.causal = 1;
      problem.args.q_offset = 30;
      problem.args.pool = pool;
      problem.args.executor = executor;
      REQUIRE(problem.run() == EXATTN_OK);
      CHECK(problem.out.bits() == reference.out.bits());
      CHECK(problem.lse.bits() == reference.lse.bits());
      CHECK(problem.out.guards_intact());
      CHECK(problem.lse.guards_intact());
    };
    for (const std::int32_t threads : {1, 2, 3, 7}) {
      INFO(threads << " threads");
      const Pool pool = make_pool(threads);
      check(pool.get(), nullptr);
      for (const NamedExecutor &named : working_executors()) {
        INFO(std::string(named.name));
        const exattn_executor executor = executor_of(named.parallel_for, threads);
        check(nullptr, &executor);
      }
    }
  }
}

TEST_CASE("attention: hand-derived means on threads") {
  const Pool pool = make_pool(3);
  Problem problem(3, 4, 2, 50, 256, 8, 5);
  problem.make_means();
  problem.args.pool = pool.get();
  REQUIRE(problem.run() == EXATTN_OK);
  CHECK(problem.out.values() == problem.expected_means());
}

TEST_CASE("attention and softmax: a thrown exception does not cross the C interface") {
  const ParallelFor throwing = [](std::size_t, Task, void *) { throw std::runtime_error("no"); };
  const exattn_executor executor = executor_of(throwing, 2);
  Problem problem(1, 2, 2, 100, 8, 4, 4);
  problem.args.executor = &executor;
  problem.args.split_keys = EXATTN_SPLIT_KEYS_ALWAYS; // so small a call would not ask the executor otherwise
  CHECK(problem.run() == EXATTN_ERROR_EXECUTOR);
  CHECK(problem.text().find("threw an exception") != std::string::npos);
  CHECK(problem.kernel == nullptr);

  std::vector<float> x(100000, 1.0F);
  exattn_softmax_args args = EXATTN_SOFTMAX_ARGS_INIT;
  args.lanes = EXATTN_LANES_SCALAR;
  args.shape[0] = args.shape[1] = 1;
  args.shape[2] = 1000;
  args.shape[3] = 100;
  args.x = {x.data(), EXATTN_F32, 4, {0, 0, 100, 1}};
  args.y = {x.data(), 0, 4, {0, 0, 100, 1}};
  args.executor = &executor;
  CHECK(exattn_softmax(&args) == EXATTN_ERROR_EXECUTOR);
}

TEST_CASE("attention: many calls at once on one pool") {
  const Pool pool = make_pool(3);
  std::atomic<int> wrong = 0;
  on_threads(6, [&](std::size_t n) {
    // Head sizes differ, so that the scratch of one call does not suit another.
    const std::int64_t size = 3 + 17 * static_cast<std::int64_t>(n);
    Problem problem(2, 4, 2, 40, 64, size, size + 1);
    problem.make_means();
    problem.args.pool = pool.get();
    for (int round = 0; round < 20; ++round) {
      std::fill(problem.out.data(), problem.out.data() + problem.out.values().size(), -1.0F);
      if (problem.run() != EXATTN_OK || problem.out.values() != problem.expected_means()) {
        ++wrong;
      }
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("attention: repeated calls on a pool allocate nothing") {
  for (const std::int32_t threads : {1, 2, 3}) {
    const Pool pool = make_pool(threads);
    Problem problem(1, 4, 2, 40, 64, 32, 48);
    problem.make_means();
    problem.args.pool = pool.get();
    REQUIRE(problem.run() == EXATTN_OK);
    Problem smaller(1, 4, 2, 40, 64, 16, 16);
    smaller.args.pool = pool.get();
    const long before = allocations;
    const exattn_status first = problem.run();
    const exattn_status second = smaller.run();
    const exattn_status third = problem.run();
    const long after = allocations;
    CHECK(after == before);
    CHECK(first == EXATTN_OK);
    CHECK(second == EXATTN_OK);
    CHECK(third == EXATTN_OK);
    CHECK(problem.out.values() == problem.expected_means());
  }
}

TEST_CASE("attention: with scratch from the caller nothing is allocated") {
  Problem problem(1, 4, 2, 40, 64, 32, 48);
  std::size_t bytes = 0;
  REQUIRE(exattn_attention_scratch_size(&problem.args, &bytes) == EXATTN_OK);
  std::vector<std::byte> scratch(bytes);
  problem.args.scratch = scratch.data();
  problem.args.scratch_size = bytes;
  const long before = allocations;
  const exattn_status status = problem.run();
  const long after = allocations;
  CHECK(status == EXATTN_OK);
  CHECK(after == before);
}

TEST_CASE("memory that runs out: the status, nothing written, and all is well again afterwards") {
  const Pool pool = make_pool(2);
  for (const bool with_pool : {false, true}) {
    Problem problem(1, 4, 2, 40, 64, 32, 48);
    problem.make_means();
    problem.args.pool = with_pool ? pool.get() : nullptr;
    allocations_left = 0;
    const exattn_status status = problem.run();
    allocations_left = -1;
    CHECK(status == EXATTN_ERROR_MEMORY);
    CHECK(problem.text().find("bytes of scratch could not be allocated") != std::string::npos);
    CHECK(problem.out.untouched());
    CHECK(problem.run() == EXATTN_OK);
    CHECK(problem.out.values() == problem.expected_means());

    // Growing fails where the smaller one is there.
    Problem larger(1, 4, 2, 40, 64, 320, 480);
    larger.args.pool = problem.args.pool;
    allocations_left = 0;
    const exattn_status grown = larger.run();
    allocations_left = -1;
    CHECK(grown == EXATTN_ERROR_MEMORY);
    CHECK(larger.out.untouched());
    CHECK(problem.run() == EXATTN_OK);
    CHECK(larger.run() == EXATTN_OK);
  }

  // A head size that no memory is enough for.
  Problem huge(1, 1, 1, 1, 1, 1, 1);
  huge.args.head_dim = std::int64_t{1} << 40;
  huge.args.q.stride[3] = huge.args.k.stride[3] = 0;
  CHECK(huge.run() == EXATTN_ERROR_MEMORY);
  CHECK(huge.out.untouched());

  // Every allocation of a pool in turn.
  int failures = 0;
  for (long left = 0;; ++left) {
    exattn_pool *made = nullptr;
    allocations_left = left;
    const exattn_status status = exattn_pool_create(3, &made);
    allocations_left = -1;
    if (status == EXATTN_OK) {
      exattn_pool_destroy(made);
      break;
    }
    CHECK(status == EXATTN_ERROR_MEMORY);
    CHECK(made == nullptr);
    ++failures;
  }
  CHECK(failures >= 2);
}
