// Whatever floating-point state the calling thread or a worker is in: the same bits, and the state as it was, sticky
// flags included.
#include "fp_environment.hpp"
#include "problem.hpp"

#include "exattn/exattn.h"

#include <doctest/doctest.h>

#include <atomic>
#include <bit>
#include <cfenv>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

using exattn::tests::GuardedOutput;
using exattn::tests::Problem;

namespace {

// The control and status registers, as far as they can be read here.
struct State {
  std::uint64_t control = 0;
  std::uint64_t status = 0;
  bool operator==(const State &other) const = default;
};

struct NamedState {
  std::string name;
  State state;
};

#if defined(__x86_64__)

State get_state() {
  return {_mm_getcsr(), 0};
}
void set_state(const State &state) {
  _mm_setcsr(static_cast<std::uint32_t>(state.control));
}

std::vector<NamedState> hostile_states() {
  std::vector<NamedState> states;
  const char *roundings[] = {"nearest", "down", "up", "to zero"};
  for (std::uint32_t rounding = 0; rounding < 4; ++rounding) {
    for (const std::uint32_t flush : {0x0000U, 0x0040U, 0x8000U, 0x8040U}) { // DAZ bit 6, FTZ bit 15
      for (const std::uint32_t masks : {0x1F80U, 0x0000U}) {
        for (const std::uint32_t flags : {0x00U, 0x15U, 0x3FU}) {
          if (masks == 0 && flags != 0) {
            continue; // an unmasked exception that is pending would fire at the test's own next operation
          }
          const std::uint32_t mxcsr = masks | flush | flags | rounding << 13;
          states.push_back({std::string(roundings[rounding]) + ", MXCSR " + std::to_string(mxcsr), {mxcsr, 0}});
        }
      }
    }
  }
  return states;
}

#elif defined(__aarch64__)

State get_state() {
  State state;
  __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(state.control), "=r"(state.status));
  return state;
}

void set_state(const State &state) {
  __asm__ volatile("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(state.control), "r"(state.status) : "memory");
}

std::vector<NamedState> hostile_states() {
  std::vector<NamedState> states;
  const char *roundings[] = {"nearest", "up", "down", "to zero"};
  for (std::uint64_t rounding = 0; rounding < 4; ++rounding) {
    for (const std::uint64_t flush : {0x0000000U, 0x1000000U, 0x3000000U}) { // FZ bit 24, DN bit 25
      for (const std::uint64_t flags : {0x00U, 0x15U, 0x9FU}) {
        const std::uint64_t fpcr = flush | rounding << 22;
        states.push_back({std::string(roundings[rounding]) + ", FPCR " + std::to_string(fpcr), {fpcr, flags}});
      }
    }
  }
  return states;
}

#else

State get_state() {
  return {static_cast<std::uint64_t>(std::fegetround()), static_cast<std::uint64_t>(std::fetestexcept(FE_ALL_EXCEPT))};
}

void set_state(const State &state) {
  std::fesetround(static_cast<int>(state.control));
  std::feclearexcept(FE_ALL_EXCEPT);
  std::feraiseexcept(static_cast<int>(state.status));
}

std::vector<NamedState> hostile_states() {
  std::vector<NamedState> states;
  for (const int rounding : {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO}) {
    states.push_back({"rounding " + std::to_string(rounding), {static_cast<std::uint64_t>(rounding), 0}});
  }
  return states;
}

#endif

// Runs a function in a state; gives back the state that it left, and restores the test's own.
State run_in(const State &state, const std::function<void()> &function) {
  const State own = get_state();
  set_state(state);
  function();
  const State left = get_state();
  set_state(own);
  return left;
}

// Scores with every kind of rounding, subnormal products, infinities and NaN among values, and rows that see nothing.
struct Calls {
  explicit Calls(std::int32_t call_flavour, std::int32_t call_lanes, exattn_pool *pool = nullptr,
                 const exattn_executor *executor = nullptr)
      : attention(2, 4, 2, 45, 70, 9, 11), flavour(call_flavour), lanes(call_lanes) {
    attention.args.flavour = flavour;
    attention.args.lanes = lanes;
    attention.args.pool = pool;
    attention.args.executor = executor;
    attention.args.causal = 1;
    attention.use_lse();
    attention.use_mask();
    attention.kv_lens[1] = 0;
    attention.args.kv_lens = attention.kv_lens.data();
    const float infinity = std::numeric_limits<float>::infinity();
    for (std::size_t n = 0; n < attention.v.size(); n += 97) {
      attention.v[n] = n % 2 == 0 ? infinity : std::numeric_limits<float>::signaling_NaN();
    }
    for (std::size_t n = 0; n < attention.k.size(); n += 7) {
      attention.k[n] = std::numeric_limits<float>::denorm_min() * static_cast<float>(n);
    }
    for (std::size_t n = 0; n < attention.mask.size(); n += 13) {
      attention.mask[n] = n % 2 == 0 ? -infinity : -90.0F; // e^-90 is close to the subnormal numbers
    }
    softmax = EXATTN_SOFTMAX_ARGS_INIT;
    softmax.flavour = flavour;
    softmax.lanes = lanes;
    softmax.shape[0] = softmax.shape[1] = 1;
    softmax.shape[2] = 3000;
    softmax.shape[3] = 21;
    softmax.x = {x.data(), EXATTN_F32, 4, {0, 0, 21, 1}};
    softmax.y = {y.data(), 0, 4, {0, 0, 21, 1}};
    softmax.pool = pool;
    softmax.executor = executor;
    for (std::size_t n = 0; n < points.size(); ++n) {
      points[n] = -static_cast<float>(n) / 7.0F;
    }
  }

  void run() {
    ok = attention.run() == EXATTN_OK && exattn_softmax(&softmax) == EXATTN_OK &&
         exattn_evaluate(EXATTN_FUNCTION_EXP, flavour, lanes, points.data(), exps.data(), points.size()) == EXATTN_OK &&
         exattn_evaluate(EXATTN_FUNCTION_LOG, flavour, lanes, exps.data(), logs.data(), 1) == EXATTN_OK;
    for (std::int64_t head_dim = 1; head_dim <= 300; ++head_dim) {
      scales[static_cast<std::size_t>(head_dim - 1)] = exattn_default_scale(head_dim);
    }
    scales[300] = exattn_default_scale(std::numeric_limits<std::int64_t>::max());
  }

  // Everything that was computed, as bits.
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> result = attention.out.bits();
    for (const GuardedOutput *output : {&attention.lse, &y, &exps, &logs}) {
      const std::vector<std::uint32_t> more = output->bits();
      result.insert(result.end(), more.begin(), more.end());
    }
    for (const float scale : scales) {
      result.push_back(std::bit_cast<std::uint32_t>(scale));
    }
    return result;
  }

  Problem attention;
  std::int32_t flavour;
  std::int32_t lanes;
  exattn_softmax_args softmax{};
  std::vector<float> x = exattn::tests::some_numbers(6, 3000 * 21);
  GuardedOutput y{3000 * 21};
  std::vector<float> points = std::vector<float>(700);
  GuardedOutput exps{700};
  GuardedOutput logs{1};
  std::vector<float> scales = std::vector<float>(301);
  bool ok = false;
};

struct Combination {
  std::int32_t flavour;
  std::int32_t lanes;
};

// All that this machine can run.
std::vector<Combination> combinations() {
  std::vector<Combination> result;
  for (std::int32_t lanes = 1; lanes < EXATTN_LANES_COUNT; ++lanes) {
    exattn_lanes_info info{};
    info.struct_size = sizeof(info);
    REQUIRE(exattn_lanes_query(lanes, &info) == EXATTN_OK);
    if (info.exact == 1) {
      result.push_back({EXATTN_EXACT, lanes});
    }
    if (info.fast == 1) {
      result.push_back({EXATTN_FAST, lanes});
    }
  }
  REQUIRE(result.size() >= 2);
  return result;
}

std::string name_of(const Combination &combination) {
  return std::string(exattn_lanes_name(combination.lanes)) + "/" + exattn_flavour_name(combination.flavour);
}

// Threads whose state is hostile before each task, and which notice when a task leaves another one.
struct HostileExecutor {
  HostileExecutor(const State &worker_state, std::int32_t threads)
      : state(worker_state), c{sizeof(exattn_executor), this, parallel_for, threads} {}

  static void parallel_for(void *context, std::size_t count, void (*task)(void *, std::size_t), void *task_context) {
    HostileExecutor &self = *static_cast<HostileExecutor *>(context);
    std::vector<std::thread> threads;
    for (std::size_t n = 0; n < count; ++n) {
      threads.emplace_back([&self, task, task_context, n] {
        const State left = run_in(self.state, [&] { task(task_context, n); });
        self.changed += left == self.state ? 0 : 1;
        ++self.tasks;
      });
    }
    for (std::thread &thread : threads) {
      thread.join();
    }
  }

  State state;
  exattn_executor c;
  std::atomic<int> changed = 0;
  std::atomic<int> tasks = 0;
};

// volatile, so that the machine divides and not the compiler.
float third() {
  volatile float one = 1.0F;
  volatile float three = 3.0F;
  volatile float result = one / three;
  return result;
}

} // namespace

TEST_CASE("the guard: nearest and gradual inside, the old state outside") {
  for (const NamedState &named : hostile_states()) {
    INFO(named.name);
    volatile float smallest = std::numeric_limits<float>::min();
    volatile float half = 0.5F;
    volatile float quotient = 0.0F;
    volatile float product = 0.0F;
    volatile float tiny_sum = 0.0F;
    const State left = run_in(named.state, [&] {
      const exattn::FpEnvironment environment;
      quotient = third();
      product = smallest * half;
      tiny_sum = product + product;
    });
    CHECK(left == named.state);
    CHECK(quotient == 0x1.555556p-2F); // 0.333...: the nearest is above
    CHECK(product == 0x1p-127F);       // subnormal, not flushed
    CHECK(tiny_sum == 0x1p-126F);      // nor taken for 0
  }
}

TEST_CASE("the states of this test do change arithmetic") {
  // Otherwise the tests below would prove nothing.
  std::vector<float> thirds;
  for (const NamedState &named : hostile_states()) {
    float quotient = 0.0F;
    if (named.name.find("nearest") == std::string::npos) {
      State masked = named.state;
#if defined(__x86_64__)
      masked.control |= 0x1F80;
#endif
      run_in(masked, [&] { quotient = third(); });
      thirds.push_back(quotient);
    }
  }
  bool rounds_down = false;
  bool rounds_up = false;
  for (const float quotient : thirds) {
    rounds_down = rounds_down || quotient == 0x1.555554p-2F;
    rounds_up = rounds_up || quotient == 0x1.555556p-2F;
  }
  CHECK(rounds_down);
  CHECK(rounds_up);
}

TEST_CASE("the calling thread's state changes no bit and comes back") {
  for (const Combination &combination : combinations()) {
    INFO(name_of(combination));
    Calls reference(combination.flavour, combination.lanes);
    reference.run();
    REQUIRE(reference.ok);
    const std::vector<std::uint32_t> bits = reference.bits();
    for (const NamedState &named : hostile_states()) {
      INFO(named.name);
      Calls calls(combination.flavour, combination.lanes);
      const State left = run_in(named.state, [&] { calls.run(); });
      CHECK(calls.ok);
      CHECK(left == named.state);
      CHECK(calls.bits() == bits);
    }
  }
}

TEST_CASE("subnormal operands count, by hand") {
  // q = 2^-149 and k = 2^126: the product is 2^-23, times a scale of 2^23 it is a score of 1, the other score is 0.
  // With denormals taken for 0 both would be 0 and the weights equal. Values 0 and 1: the output is 1 / (1 + e) in the
  // one case and 1/2 in the other.
  for (const Combination &combination : combinations()) {
    for (const NamedState &named : hostile_states()) {
      INFO(name_of(combination) << ", " << named.name);
      Problem problem(1, 1, 1, 1, 2, 1, 1);
      problem.args.flavour = combination.flavour;
      problem.args.lanes = combination.lanes;
      problem.q = {0x1p-149F};
      problem.k = {0x1p126F, 0.0F};
      problem.v = {0.0F, 1.0F};
      problem.args.q.data = problem.q.data();
      problem.args.k.data = problem.k.data();
      problem.args.v.data = problem.v.data();
      problem.args.scale_mode = EXATTN_SCALE_GIVEN;
      problem.args.scale = 0x1p23F;
      exattn_status status = EXATTN_ERROR_NULL;
      run_in(named.state, [&] { status = problem.run(); });
      REQUIRE(status == EXATTN_OK);
      CHECK(problem.out.values()[0] == doctest::Approx(0.26894142137).epsilon(1e-6));
    }
  }
}

TEST_CASE("subnormal binary16 numbers are packed with their value in any state, which comes back") {
  // 2^-24 and 1023 * 2^-24.
  const std::uint16_t halves[] = {0x0001, 0x03FF};
  for (const NamedState &named : hostile_states()) {
    INFO(named.name);
    std::uint32_t cache[32] = {};
    exattn_pack_keys_args args = EXATTN_PACK_KEYS_ARGS_INIT;
    args.batch = args.kv_heads = args.kv_len = args.count = 1;
    args.head_dim = 2;
    args.k = {halves, EXATTN_F16, 4, {0, 0, 0, 1}};
    args.packed = {cache, EXATTN_F32, 4, {0, 0, 0, 16}};
    exattn_status status = EXATTN_ERROR_NULL;
    const State left = run_in(named.state, [&] { status = exattn_pack_keys(&args); });
    REQUIRE(status == EXATTN_OK);
    CHECK(left == named.state);
    CHECK(cache[0] == 0x33800000);
    CHECK(cache[16] == 0x387FC000);
  }
}

TEST_CASE("a worker thread's state changes no bit and comes back") {
  for (const Combination &combination : combinations()) {
    INFO(name_of(combination));
    Calls reference(combination.flavour, combination.lanes);
    reference.run();
    REQUIRE(reference.ok);
    const std::vector<std::uint32_t> bits = reference.bits();
    int round = 0;
    for (const NamedState &named : hostile_states()) {
      if (++round % 5 != 0 && named.state.control != 0) { // a sample, the calling thread has seen them all
        continue;
      }
      INFO(named.name);
      HostileExecutor executor(named.state, 3);
      Calls calls(combination.flavour, combination.lanes, nullptr, &executor.c);
      calls.attention.args.split_keys = EXATTN_SPLIT_KEYS_ALWAYS;
      calls.run();
      CHECK(calls.ok);
      CHECK(executor.tasks == 12); // three for each phase of attention, three for softmax
      CHECK(executor.changed == 0);
      CHECK(calls.bits() == bits);
    }
  }
}

TEST_CASE("a pool made in another state, before, changes no bit") {
  // Threads start with the state of the thread that makes them.
  struct Destroy {
    void operator()(exattn_pool *pool) const { exattn_pool_destroy(pool); }
  };
  for (const NamedState &named : hostile_states()) {
    if (named.name.find("to zero") == std::string::npos) {
      continue;
    }
    INFO(named.name);
    exattn_pool *made = nullptr;
    run_in(named.state, [&] { exattn_pool_create(3, &made); });
    const std::unique_ptr<exattn_pool, Destroy> pool(made);
    REQUIRE(pool != nullptr);
    for (const Combination &combination : combinations()) {
      INFO(name_of(combination));
      Calls reference(combination.flavour, combination.lanes);
      reference.run();
      REQUIRE(reference.ok);
      Calls calls(combination.flavour, combination.lanes, pool.get());
      calls.run();
      CHECK(calls.ok);
      CHECK(calls.bits() == reference.bits());
      // The caller takes part in the pool's work, so its own state is at stake as well.
      Calls both(combination.flavour, combination.lanes, pool.get());
      const State left = run_in(named.state, [&] { both.run(); });
      CHECK(both.ok);
      CHECK(left == named.state);
      CHECK(both.bits() == reference.bits());
    }
  }
}
