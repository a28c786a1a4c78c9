// The C++ interface: shapes, errors with their words, pools, and exceptions out of an executor.
#include "problem.hpp"

#include <exattn/exattn.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using exattn::tests::Problem;

namespace {

// The error that a call throws; its status is EXATTN_OK when it throws none.
struct Thrown {
  exattn_status status = EXATTN_OK;
  std::string text;
};

template <class Function>
Thrown thrown_by(Function function) {
  try {
    function();
  } catch (const exattn::error &error) {
    return {error.status(), error.what()};
  }
  return {};
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("c++: contiguous strides") {
  CHECK(exattn::contiguous({2, 3, 5, 7}) == exattn::extents{105, 35, 7, 1});
  CHECK(exattn::contiguous({1, 1, 1, 1}) == exattn::extents{1, 1, 1, 1});
  CHECK(exattn::contiguous({4, 0, 5, 7}) == exattn::extents{0, 35, 7, 1});
  const std::int64_t large = std::int64_t{1} << 31;
  CHECK(exattn::contiguous({large, large / 2, large, 2}) == exattn::extents{large << 31, large << 1, 2, 1});
  Thrown thrown = thrown_by([=] { exattn::contiguous({1, large, large, 4}); });
  CHECK(thrown.status == EXATTN_ERROR_OVERFLOW);
  thrown = thrown_by([] { exattn::contiguous({1, 2, -3, 4}); });
  CHECK(thrown.status == EXATTN_ERROR_SIZE);
  CHECK(contains(thrown.text, "size 2 of a shape is -3"));
}

TEST_CASE("c++: attention from shapes, serial, on a pool, on threads of one's own") {
  Problem problem(2, 4, 2, 40, 64, 8, 5);
  problem.make_means();
  exattn_attention_args args =
      exattn::attention_arguments({problem.q.data(), {2, 4, 40, 8}}, {problem.k.data(), {2, 2, 64, 8}},
                                  {problem.v.data(), {2, 2, 64, 5}}, {problem.out.data(), {2, 4, 40, 5}});
  args.lanes = EXATTN_LANES_SCALAR;
  args.lse = exattn::to_c_lse(problem.lse.data(), 4, 40);
  CHECK(std::string(exattn::attention(args)) == "scalar/exact");
  CHECK(problem.out.values() == problem.expected_means());
  CHECK(problem.out.guards_intact());
  // ln 64 = 4.158883083359672
  for (const float lse : problem.lse.values()) {
    CHECK(lse == doctest::Approx(4.158883083359672).epsilon(1e-7));
  }
  CHECK(problem.lse.guards_intact());

  Problem fresh(2, 4, 2, 40, 64, 8, 5);
  args.out.data = fresh.out.data();
  const exattn::pool pool(3);
  CHECK(pool.threads() == 3);
  args.pool = pool.get();
  const char *kernel = nullptr;
  args.kernel = &kernel;
  exattn::attention(args);
  CHECK(fresh.out.values() == problem.expected_means());
  CHECK(std::string(kernel) == "scalar/exact");
  args.pool = nullptr;

  Problem third(2, 4, 2, 40, 64, 8, 5);
  args.out.data = third.out.data();
  args.split_keys = EXATTN_SPLIT_KEYS_ALWAYS; // on all threads, however small it is
  std::size_t largest = 0;
  const exattn::executor executor(3, [&](std::size_t count, const exattn::executor::task &task) {
    largest = count;
    std::vector<std::thread> threads;
    for (std::size_t n = 0; n < count; ++n) {
      threads.emplace_back([&task, n] { task(n); });
    }
    for (std::thread &thread : threads) {
      thread.join();
    }
  });
  CHECK(std::string(exattn::attention(args, executor)) == "scalar/exact");
  CHECK(largest == 3);
  CHECK(third.out.values() == problem.expected_means());

  std::vector<std::byte> scratch(exattn::scratch_size(args, executor));
  CHECK(scratch.size() > exattn::scratch_size(args));
  args.scratch = scratch.data();
  args.scratch_size = scratch.size();
  CHECK_NOTHROW(exattn::attention(args, executor));
  args.scratch_size = exattn::scratch_size(args);
  CHECK(thrown_by([&] { exattn::attention(args, executor); }).status == EXATTN_ERROR_SCRATCH);
}

TEST_CASE("c++: shapes that do not fit together") {
  using exattn::attention_arguments;
  const float x = 0.0F;
  float y = 0.0F;
  const exattn::tensor q(&x, {2, 4, 3, 8});
  const exattn::tensor k(&x, {2, 2, 5, 8});
  const exattn::tensor v(&x, {2, 2, 5, 6});
  const exattn::output out(&y, {2, 4, 3, 6});
  CHECK_NOTHROW(attention_arguments(q, k, v, out));
  const struct {
    std::function<void()> call;
    const char *words;
  } wrong[] = {
      {[&] {
         attention_arguments({&x, {1, 4, 3, 8}}, k, v, out);
       },
       "the batch of k is 2, must be 1"},
      {[&] {
         attention_arguments(q, k, {&x, {3, 2, 5, 6}}, out);
       },
       "the batch of v is 3, must be 2"},
      {[&] {
         attention_arguments(q, k, v, {&y, {1, 4, 3, 6}});
       },
       "the batch of out is 1, must be 2"},
      {[&] {
         attention_arguments(q, k, {&x, {2, 4, 5, 6}}, out);
       },
       "the number of heads of v is 4, must be 2"},
      {[&] {
         attention_arguments(q, k, v, {&y, {2, 2, 3, 6}});
       },
       "the number of heads of out is 2, must be 4"},
      {[&] {
         attention_arguments(q, k, {&x, {2, 2, 4, 6}}, out);
       },
       "the length of v is 4, must be 5"},
      {[&] {
         attention_arguments(q, k, v, {&y, {2, 4, 5, 6}});
       },
       "the length of out is 5, must be 3"},
      {[&] {
         attention_arguments(q, {&x, {2, 2, 5, 7}}, v, out);
       },
       "the head size of k is 7, must be 8"},
      {[&] {
         attention_arguments(q, k, v, {&y, {2, 4, 3, 8}});
       },
       "the head size of out is 8, must be 6"},
      {[&] { exattn::softmax_arguments(q, out); }, "a size of y is 6, must be 8"},
  };
  for (const auto &one : wrong) {
    const Thrown thrown = thrown_by(one.call);
    INFO(std::string(one.words));
    CHECK(thrown.status == EXATTN_ERROR_SIZE);
    CHECK(contains(thrown.text, one.words));
  }
}

TEST_CASE("c++: errors bring the words of the check") {
  Problem problem(1, 2, 1, 3, 5, 4, 4);
  problem.args.message = nullptr;
  problem.args.causal = 7;
  Thrown thrown = thrown_by([&] { exattn::attention(problem.args); });
  CHECK(thrown.status == EXATTN_ERROR_ENUM);
  CHECK(thrown.text == "EXATTN_ERROR_ENUM: causal is 7, must be 0 or 1");
  CHECK(problem.out.untouched());

  // A buffer that the caller brought is used as well.
  problem.args.message = problem.message.data();
  thrown = thrown_by([&] { exattn::attention(problem.args); });
  CHECK(problem.text() == "causal is 7, must be 0 or 1");
  CHECK(thrown.text == "EXATTN_ERROR_ENUM: causal is 7, must be 0 or 1");
  CHECK(problem.kernel == nullptr);

  // Where there are no words, the status speaks.
  problem.args.struct_size = 1;
  thrown = thrown_by([&] { exattn::attention(problem.args); });
  CHECK(thrown.status == EXATTN_ERROR_STRUCT_SIZE);
  CHECK(thrown.text == std::string("EXATTN_ERROR_STRUCT_SIZE: ") + exattn_status_string(EXATTN_ERROR_STRUCT_SIZE));

  thrown = thrown_by([] { exattn::scratch_size(exattn_attention_args{}); });
  CHECK(thrown.status == EXATTN_ERROR_STRUCT_SIZE);
  static_assert(std::is_base_of_v<std::runtime_error, exattn::error>);
}

TEST_CASE("c++: what an executor throws comes back as it was thrown") {
  Problem problem(1, 4, 4, 100, 8, 4, 4);
  problem.make_means();
  const exattn::executor broken(2,
                                [](std::size_t, const exattn::executor::task &) { throw std::out_of_range("mine"); });
  CHECK_THROWS_AS(exattn::attention(problem.args, broken), std::out_of_range);
  CHECK(problem.out.untouched());

  // Also when the work was done before.
  const exattn::executor late(2, [](std::size_t count, const exattn::executor::task &task) {
    for (std::size_t n = 0; n < count; ++n) {
      task(n);
    }
    throw 42;
  });
  CHECK_THROWS_AS(exattn::attention(problem.args, late), int);
  CHECK(problem.out.values() == problem.expected_means());

  const exattn::executor idle(2, [](std::size_t, const exattn::executor::task &) {});
  CHECK(thrown_by([&] { exattn::attention(problem.args, idle); }).status == EXATTN_ERROR_EXECUTOR);
  const exattn::executor empty(2, nullptr);
  CHECK(thrown_by([&] { exattn::attention(problem.args, empty); }).status == EXATTN_ERROR_NULL);
  const exattn::executor none(0, [](std::size_t, const exattn::executor::task &) {});
  CHECK(thrown_by([&] { exattn::attention(problem.args, none); }).status == EXATTN_ERROR_THREADS);
  // The argument check comes before the executor is asked.
  problem.args.causal = 9;
  CHECK(thrown_by([&] { exattn::attention(problem.args, broken); }).status == EXATTN_ERROR_ENUM);
}

TEST_CASE("c++: numbers of 16 bits, and masks") {
  // Scores 0, so the means of the shown values 1, 2, 4: all are exact in 16 bits, 1 is 0x3F80 and 0x3C00.
  const std::vector<exattn::bfloat16> q(2, exattn::bfloat16{0});
  const std::vector<exattn::float16> k(3, exattn::float16{0x3C00});
  const std::vector<exattn::bfloat16> v = {{0x3F80}, {0x4000}, {0x4080}};
  const std::vector<exattn::float16> half = {{0x3C00}, {0x4000}, {0x4400}};
  const std::vector<std::uint8_t> shown = {1, 0, 1};
  float out[2] = {};
  exattn_attention_args args = exattn::attention_arguments({q.data(), {1, 1, 2, 1}}, {k.data(), {1, 1, 3, 1}},
                                                           {v.data(), {1, 1, 3, 1}}, {out, {1, 1, 2, 1}});
  CHECK(args.q.dtype == EXATTN_BF16);
  CHECK(args.k.dtype == EXATTN_F16);
  args.mask_bool = exattn::to_c_mask({shown.data(), {1, 1, 1, 3}}); // one row for both
  CHECK(args.mask_bool.dtype == EXATTN_U8);
  CHECK(args.mask_bool.stride[2] == 0);
  CHECK(args.mask_bool.stride[3] == 1);
  exattn::attention(args);
  CHECK(out[0] == 2.5F);
  CHECK(out[1] == 2.5F);
  args.v = exattn::to_c(exattn::tensor(half.data(), {1, 1, 3, 1}, {0, 0, 1, 0}));
  args.mask_bool = {};
  const std::vector<float> added = {0.0F, -200.0F, -200.0F, -200.0F, 0.0F, -200.0F};
  args.mask = exattn::to_c_mask({added.data(), {1, 1, 2, 3}});
  exattn::attention(args);
  CHECK(out[0] == 1.0F);
  CHECK(out[1] == 2.0F);
}

TEST_CASE("c++: ragged sequences and pages") {
  // Sequences of 1 and 2 rows, on keys 0 to 1 and 2 to 5: V_j = j gives 0.5 and 3.5.
  const std::vector<float> zero(6, 0.0F);
  const std::vector<float> v = {0.0F, 1.0F, 2.0F, 3.0F, 4.0F, 5.0F};
  float out[3] = {};
  const exattn::tensor q(zero.data(), {1, 1, 3, 1});
  const exattn::output result(out, {1, 1, 3, 1});
  exattn::layout lies;
  lies.q_starts = {0, 1, 3};
  lies.kv_starts = {0, 2, 6};
  const exattn::tensor ragged_k(zero.data(), {1, 1, 6, 1});
  const exattn::tensor ragged_v(v.data(), {1, 1, 6, 1});
  exattn_attention_args args = exattn::attention_arguments(q, ragged_k, ragged_v, result, lies);
  CHECK(args.batch == 2);
  exattn::attention(args);
  CHECK(std::vector<float>(out, out + 3) == std::vector<float>{0.5F, 3.5F, 3.5F});

  // The same keys in pages of 2, the first sequence's last.
  exattn::layout paged;
  paged.q_starts = {0, 1, 3};
  paged.page_table = {2, -1, 0, 1};
  paged.kv_len = 4;
  const std::vector<float> pages = {2.0F, 3.0F, 4.0F, 5.0F, 0.0F, 1.0F};
  const exattn::tensor paged_k(zero.data(), {3, 1, 2, 1});
  const exattn::tensor paged_v(pages.data(), {3, 1, 2, 1});
  args = exattn::attention_arguments(q, paged_k, paged_v, result, paged);
  CHECK(args.page_table_stride == 2);
  CHECK(args.page_size == 2);
  CHECK(args.pages == 3);
  const std::vector<std::int64_t> kv_lens = {2, 4};
  args.kv_lens = kv_lens.data();
  std::fill(out, out + 3, -1.0F);
  exattn::attention(args);
  CHECK(std::vector<float>(out, out + 3) == std::vector<float>{0.5F, 3.5F, 3.5F});
  paged.kv_len = -1; // two entries of two keys
  CHECK(exattn::attention_arguments(q, paged_k, paged_v, result, paged).kv_len == 4);
  CHECK(contains(thrown_by([&] { exattn::start_from(args, exattn::state(), 64); }).text, "the state is empty"));

  const auto words_of = [&](const exattn::tensor &some_q, const exattn::tensor &some_k, const exattn::layout &some) {
    return thrown_by([&] { exattn::attention_arguments(some_q, some_k, some_k, result, some); });
  };
  const exattn::tensor two(zero.data(), {2, 1, 3, 1});
  CHECK(contains(words_of(two, ragged_k, lies).text, "the batch of ragged q is 2, must be 1"));
  CHECK(contains(words_of(q, two, lies).text, "the batch of ragged k is 2, must be 1"));
  lies.kv_starts.push_back(6);
  CHECK(contains(words_of(q, ragged_k, lies).text, "the size of kv_starts is 4, must be 3"));
  lies.kv_starts.clear();
  CHECK(contains(words_of(q, ragged_k, lies).text, "the batch of k is 1, must be 2"));
  paged.page_table.push_back(0);
  CHECK(contains(words_of(q, paged_k, paged).text, "the number of entries of the page table is 5, must be 4"));
  CHECK(words_of(q, paged_k, paged).status == EXATTN_ERROR_SIZE);
  paged.page_table.pop_back();
  paged.kv_starts = {0, 2, 6};
  args = exattn::attention_arguments(q, paged_k, paged_v, result, paged);
  CHECK(thrown_by([&] { exattn::attention(args); }).status == EXATTN_ERROR_OPTION);
}

TEST_CASE("c++: packed keys") {
  const exattn::packed_keys sized = exattn::packed_keys::contiguous(static_cast<float *>(nullptr), {2, 3, 33, 5});
  CHECK(sized.strides == exattn::extents{720, 240, 80, 16}); // 3 groups of 80
  CHECK(exattn::packed_keys_size({2, 3, 33, 5}) == 2 * 720 * 4);
  CHECK(exattn::packed_keys_size({2, 3, 33, 5}, EXATTN_F16) == 2 * 720 * 2);
  CHECK(thrown_by([] { exattn::packed_keys_size({2, 3, -1, 5}); }).status == EXATTN_ERROR_SIZE);
  CHECK(thrown_by([] {
          exattn::packed_keys::contiguous(static_cast<float *>(nullptr), {1, 1, -1, 1});
        }).status == EXATTN_ERROR_SIZE);

  // Keys 0 to 2 of two sequences, then key 3: scores 0 for all but -inf for key 1 leave the mean of V_j = 0, 2, 4.
  const float hide = -INFINITY;
  std::vector<float> cache(exattn::packed_keys_size({2, 1, 4, 1}) / sizeof(float), NAN);
  const exattn::packed_keys k = exattn::packed_keys::contiguous(cache.data(), {2, 1, 4, 1});
  const std::vector<float> first = {0.0F, hide, 0.0F, 0.0F, hide, 0.0F};
  const std::vector<exattn::bfloat16> second = {{0}, {0}};
  exattn::pack_keys(exattn::pack_arguments(exattn::tensor(first.data(), {2, 1, 3, 1}), k, 0));
  exattn::pack_keys(exattn::pack_arguments(exattn::tensor(second.data(), {2, 1, 1, 1}), k, 3));
  const std::vector<float> one(2, 1.0F);
  const std::vector<float> v = {0.0F, 1.0F, 2.0F, 4.0F, 0.0F, 1.0F, 2.0F, 4.0F};
  float out[2] = {};
  const exattn::tensor q(one.data(), {2, 1, 1, 1});
  const exattn::output result(out, {2, 1, 1, 1});
  exattn::attention(exattn::attention_arguments(q, k, exattn::tensor(v.data(), {2, 1, 4, 1}), result));
  CHECK(std::vector<float>(out, out + 2) == std::vector<float>{2.0F, 2.0F});

  // The same in pages of 16, the second sequence's first.
  std::vector<float> pool(32, NAN), values(32, NAN);
  const exattn::packed_keys pages = exattn::packed_keys::contiguous(pool.data(), {2, 1, 16, 1});
  exattn::layout lies;
  lies.page_table = {1, 0};
  lies.kv_len = 4;
  exattn::pack_keys(exattn::pack_arguments(exattn::tensor(first.data(), {2, 1, 3, 1}), pages, 0, lies));
  exattn::pack_keys(exattn::pack_arguments(exattn::tensor(second.data(), {2, 1, 1, 1}), pages, 3, lies));
  std::copy_n(v.begin(), 4, values.begin());
  std::copy_n(v.begin(), 4, values.begin() + 16);
  values[3] = 1.0F; // of the second sequence: the mean of 0, 2 and 1
  std::fill(out, out + 2, -1.0F);
  exattn::attention(exattn::attention_arguments(q, pages, exattn::tensor(values.data(), {2, 1, 16, 1}), result, lies));
  CHECK(std::vector<float>(out, out + 2) == std::vector<float>{2.0F, 1.0F});

  const auto words_of = [&](const exattn::extents &shape) {
    return thrown_by([&] { exattn::pack_arguments(exattn::tensor(first.data(), shape), k, 0); }).text;
  };
  CHECK(contains(words_of({3, 1, 1, 1}), "the batch of the packed keys is 2, must be 3"));
  CHECK(contains(words_of({2, 2, 1, 1}), "the number of heads of the packed keys is 1, must be 2"));
  CHECK(contains(words_of({2, 1, 1, 2}), "the head size of the packed keys is 1, must be 2"));
  const exattn::tensor many(first.data(), {2, 1, 3, 1});
  CHECK(contains(thrown_by([&] { exattn::pack_keys(exattn::pack_arguments(many, k, 2)); }).text,
                 "first_key is 2, must be 0 to kv_len 4 - count 3"));
}

TEST_CASE("c++: states and merging") {
  // Keys 0 to 63 and 64 to 127, V_j = j: means 31.5, 95.5 and, of all, 63.5.
  const std::vector<float> zero(128, 0.0F);
  std::vector<float> v(128);
  for (std::size_t n = 0; n < v.size(); ++n) {
    v[n] = static_cast<float>(n);
  }
  const exattn::tensor q(zero.data(), {1, 1, 1, 1});
  const exattn::tensor k(zero.data(), {1, 1, 64, 1});
  exattn_attention_args args = exattn::attention_arguments(q, k, {v.data(), {1, 1, 64, 1}}, exattn::output());
  CHECK(args.out.data == nullptr);
  CHECK(thrown_by([&] { exattn::attention(args); }).status == EXATTN_ERROR_STRIDES); // neither out nor state
  exattn::state state;
  exattn::stop_in(args, state);
  CHECK(state.size() == exattn::state_size(args));
  CHECK(state.size() == 64 + 8 + 16);
  exattn::attention(args);

  float outs[2] = {};
  float lses[2] = {};
  args = exattn::attention_arguments(q, k, {v.data() + 64, {1, 1, 64, 1}}, {outs, {1, 1, 1, 1}});
  args.lse = exattn::to_c_lse(lses, 1, 1);
  exattn::start_from(args, state, 64);
  exattn::stop_in(args, state); // in place
  exattn::attention(args);
  CHECK(outs[0] == 63.5F);
  CHECK(thrown_by([&] { exattn::attention(args); }).status == EXATTN_ERROR_STATE); // it is at 128 now
  args.q_len = 2;
  CHECK(thrown_by([&] { exattn::stop_in(args, state); }).status == EXATTN_ERROR_STATE);
  args.value_dim = 0;
  CHECK(thrown_by([&] { exattn::state_size(args); }).status == EXATTN_ERROR_SIZE);

  // 3 of weight e^0 and 4 of weight e^0.
  outs[0] = 3.0F;
  outs[1] = 4.0F;
  lses[0] = lses[1] = 0.0F;
  float lse = 0.0F;
  exattn::merge_tolerant(1, 1, {outs, lses}, {outs + 1, lses + 1}, outs, &lse);
  CHECK(outs[0] == 3.5F);
  CHECK(lse == doctest::Approx(0.6931471805599453).epsilon(1e-7));
  CHECK(thrown_by([&] { exattn::merge_tolerant(-1, 1, {}, {}, outs, &lse); }).status == EXATTN_ERROR_SIZE);
}

TEST_CASE("c++: softmax") {
  // 4 equal values, and two with a difference that nothing survives: e^-200 is below every binary32 number.
  std::vector<float> x = {5.0F, 5.0F, 5.0F, 5.0F, 0.0F, -200.0F, 0.0F, -200.0F};
  exattn_softmax_args args = exattn::softmax_arguments({x.data(), {1, 1, 2, 4}}, {x.data(), {1, 1, 2, 4}});
  args.lanes = EXATTN_LANES_SCALAR;
  CHECK(std::string(exattn::softmax(args)) == "scalar/exact");
  CHECK(x == std::vector<float>{0.25F, 0.25F, 0.25F, 0.25F, 0.5F, 0.0F, 0.5F, 0.0F});
  args.x.dtype = 3;
  const Thrown thrown = thrown_by([&] { exattn::softmax(args); });
  CHECK(thrown.status == EXATTN_ERROR_ENUM);
  CHECK(contains(thrown.text, "x.dtype is 3"));
  args.x.dtype = EXATTN_F32;
  const exattn::executor executor(1, [](std::size_t, const exattn::executor::task &task) { task(0); });
  CHECK_NOTHROW(exattn::softmax(args, executor));
}

TEST_CASE("c++: pools are owned") {
  exattn::pool pool(2);
  exattn_pool *const handle = pool.get();
  exattn::pool moved = std::move(pool);
  CHECK(moved.get() == handle);
  CHECK(moved.threads() == 2);
  moved = exattn::pool(1);
  CHECK(moved.threads() == 1);
  CHECK(exattn::pool().threads() >= 1);
  CHECK(thrown_by([] { exattn::pool too_large(4097); }).status == EXATTN_ERROR_THREADS);
  CHECK(thrown_by([] { exattn::pool negative(-1); }).status == EXATTN_ERROR_THREADS);
  static_assert(!std::is_copy_constructible_v<exattn::pool>);
}

TEST_CASE("c++: resolve") {
  const exattn::resolution scalar = exattn::resolve(EXATTN_LANES_SCALAR, EXATTN_FAST);
  CHECK(scalar.lanes == EXATTN_LANES_SCALAR);
  CHECK(std::string(scalar.kernel) == "scalar/fast");
  CHECK(thrown_by([] { exattn::resolve(99, EXATTN_EXACT); }).status == EXATTN_ERROR_LANES_UNKNOWN);
  CHECK(thrown_by([] { exattn::resolve(EXATTN_LANES_SCALAR, 99); }).status == EXATTN_ERROR_ENUM);
  CHECK(thrown_by([] { exattn::check(EXATTN_ERROR_MEMORY); }).status == EXATTN_ERROR_MEMORY);
  CHECK_NOTHROW(exattn::check(EXATTN_OK));
}
