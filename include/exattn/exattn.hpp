/// exattn for C++17: the C interface with exceptions, owners and shapes.
///
/// Everything here stands on exattn.h, which says what a call computes and what each field means; "definition" is
/// docs/definition.md, version EXATTN_DEFINITION. Sizes and strides count elements. Functions that fail throw
/// exattn::error, whose what() says what was wrong and what is allowed. Nothing here computes with floating-point
/// numbers, so no compiler option of yours can change a bit of a result.
#pragma once

#include <exattn/exattn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace exattn {

/// A status other than EXATTN_OK.
class error : public std::runtime_error {
public:
  /// `message` may be empty: what() then explains the status in general.
  explicit error(exattn_status code, const std::string &message = {})
      : std::runtime_error(std::string(exattn_status_name(code)) + ": " +
                           (message.empty() ? std::string(exattn_status_string(code)) : message)),
        code_(code) {}

  /// EXATTN_ERROR_*.
  exattn_status status() const noexcept { return code_; }

private:
  exattn_status code_;
};

/// Throws exattn::error unless the status is EXATTN_OK.
inline void check(exattn_status status) {
  if (status != EXATTN_OK) {
    throw error(status);
  }
}

// ---- Shapes and tensors ----

/// Four sizes or four strides, outermost first.
using extents = std::array<std::int64_t, 4>;

/// The strides of a tensor of that shape that lies in memory without gaps, last dimension fastest:
/// [b, h, t, d] gives [h t d, t d, d, 1]. Throws error(EXATTN_ERROR_OVERFLOW) if they do not fit in 64 bits, and
/// error(EXATTN_ERROR_SIZE) if a size is negative.
inline extents contiguous(const extents &shape) {
  for (std::size_t n = 0; n < 4; ++n) {
    if (shape[n] < 0) {
      throw error(EXATTN_ERROR_SIZE,
                  "size " + std::to_string(n) + " of a shape is " + std::to_string(shape[n]) + ", must be 0 or more");
    }
  }
  extents strides{0, 0, 0, 1};
  for (std::size_t n = 3; n > 0; --n) {
    if (shape[n] != 0 && strides[n] > INT64_MAX / shape[n]) {
      throw error(EXATTN_ERROR_OVERFLOW, "the strides of a contiguous tensor do not fit in 64 bits");
    }
    strides[n - 1] = strides[n] * shape[n];
  }
  return strides;
}

/// A bfloat16 number: the upper 16 bits of a binary32 number.
struct bfloat16 {
  std::uint16_t bits;
};

/// An IEEE-754 binary16 number.
struct float16 {
  std::uint16_t bits;
};

/// An input, [a, b, c, d], not owned: numbers of 32 or 16 bits, or bytes for a boolean mask.
struct tensor {
  const void *data = nullptr;
  std::int32_t dtype = EXATTN_F32;
  extents shape{};
  extents strides{};

  /// Nothing.
  tensor() = default;
  /// Contiguous.
  tensor(const float *first, const extents &sizes) : tensor(first, sizes, contiguous(sizes)) {}
  tensor(const bfloat16 *first, const extents &sizes) : tensor(first, sizes, contiguous(sizes)) {}
  tensor(const float16 *first, const extents &sizes) : tensor(first, sizes, contiguous(sizes)) {}
  tensor(const std::uint8_t *first, const extents &sizes) : tensor(first, sizes, contiguous(sizes)) {}
  /// Strided: element [i, j, k, l] is at first[i strides[0] + j strides[1] + k strides[2] + l strides[3]].
  tensor(const float *first, const extents &sizes, const extents &steps)
      : data(first), dtype(EXATTN_F32), shape(sizes), strides(steps) {}
  tensor(const bfloat16 *first, const extents &sizes, const extents &steps)
      : data(first), dtype(EXATTN_BF16), shape(sizes), strides(steps) {}
  tensor(const float16 *first, const extents &sizes, const extents &steps)
      : data(first), dtype(EXATTN_F16), shape(sizes), strides(steps) {}
  tensor(const std::uint8_t *first, const extents &sizes, const extents &steps)
      : data(first), dtype(EXATTN_U8), shape(sizes), strides(steps) {}
};

/// An output, [a, b, c, d], not owned.
struct output {
  float *data = nullptr;
  extents shape{};
  extents strides{};

  /// Nothing.
  output() = default;
  /// Contiguous.
  output(float *first, const extents &sizes) : output(first, sizes, contiguous(sizes)) {}
  /// Strided, as for a tensor.
  output(float *first, const extents &sizes, const extents &steps) : data(first), shape(sizes), strides(steps) {}
};

/// Packed keys, [B, Hkv, T, D], not owned: 16 keys side by side, as exattn_packed_keys says. They can be written
/// (pack_arguments) and be the keys of a call (attention_arguments).
struct packed_keys {
  void *data = nullptr;
  std::int32_t dtype = EXATTN_F32;
  extents shape{};
  extents strides{};

  /// Without gaps; `first` has the bytes that packed_keys_size says. Throws as exattn::contiguous does.
  static packed_keys contiguous(float *first, const extents &sizes) { return make(first, EXATTN_F32, sizes); }
  static packed_keys contiguous(bfloat16 *first, const extents &sizes) { return make(first, EXATTN_BF16, sizes); }
  static packed_keys contiguous(float16 *first, const extents &sizes) { return make(first, EXATTN_F16, sizes); }

private:
  // The strides of a tensor [B, Hkv, groups, D, 16], its last dimension taken apart.
  static packed_keys make(void *first, std::int32_t type, const extents &sizes) {
    const std::int64_t groups = sizes[2] > 0 ? (sizes[2] - 1) / 16 + 1 : sizes[2];
    const extents group = exattn::contiguous({1, groups, sizes[3], 16});
    const extents head = exattn::contiguous({sizes[0], sizes[1], 1, group[0]});
    return {first, type, sizes, {head[0], head[1], group[1], 16}};
  }
};

/// Bytes of packed keys [B, Hkv, T, D] without gaps, of EXATTN_F32, _BF16 or _F16. Throws exattn::error.
inline std::size_t packed_keys_size(const extents &shape, std::int32_t dtype = EXATTN_F32) {
  std::size_t bytes = 0;
  check(exattn_packed_keys_size(shape[0], shape[1], shape[2], shape[3], dtype, &bytes));
  return bytes;
}

/// For the fields of the C structs.
inline exattn_tensor to_c(const tensor &input) noexcept {
  return {input.data, input.dtype, 4, {input.strides[0], input.strides[1], input.strides[2], input.strides[3]}};
}

/// For the fields of the C structs.
inline exattn_output to_c(const output &result) noexcept {
  return {result.data, 0, 4, {result.strides[0], result.strides[1], result.strides[2], result.strides[3]}};
}

/// For the fields mask and mask_bool, [B, H, Tq, Tk] as exattn.h says: a dimension of size 1 stands for all of its
/// indices. The other sizes are the caller's word: neither this nor the call compares them with the arguments'.
inline exattn_tensor to_c_mask(const tensor &mask) noexcept {
  exattn_tensor result = to_c(mask);
  for (std::size_t n = 0; n < 4; ++n) {
    if (mask.shape[n] == 1) {
      result.stride[n] = 0;
    }
  }
  return result;
}

/// For the field lse, [batch, heads, q_len], contiguous.
inline exattn_output to_c_lse(float *data, std::int64_t heads, std::int64_t q_len) {
  const extents strides = contiguous({1, 1, heads, q_len});
  return {data, 0, 3, {strides[1], strides[2], strides[3], 0}};
}

namespace detail {

inline void expect(const char *what, std::int64_t size, std::int64_t wanted) {
  if (size != wanted) {
    throw error(EXATTN_ERROR_SIZE,
                std::string(what) + " is " + std::to_string(size) + ", must be " + std::to_string(wanted));
  }
}

// With every check of shapes but that of the batches of q and k.
inline exattn_attention_args arguments(const tensor &q, const tensor &k, const tensor &v, const output &out) {
  expect("the batch of v", v.shape[0], k.shape[0]);
  expect("the number of heads of v", v.shape[1], k.shape[1]);
  expect("the length of v", v.shape[2], k.shape[2]);
  expect("the head size of k", k.shape[3], q.shape[3]);
  exattn_attention_args args{};
  args.struct_size = sizeof(args);
  args.batch = q.shape[0];
  args.heads = q.shape[1];
  args.kv_heads = k.shape[1];
  args.q_len = q.shape[2];
  args.kv_len = k.shape[2];
  args.head_dim = q.shape[3];
  args.value_dim = v.shape[3];
  args.q = to_c(q);
  args.k = to_c(k);
  args.v = to_c(v);
  if (out.data != nullptr || out.shape != extents{}) {
    expect("the batch of out", out.shape[0], q.shape[0]);
    expect("the number of heads of out", out.shape[1], q.shape[1]);
    expect("the length of out", out.shape[2], q.shape[2]);
    expect("the head size of out", out.shape[3], v.shape[3]);
    args.out = to_c(out);
  }
  return args;
}

} // namespace detail

/// Arguments of an attention call over q [B, H, Tq, D], k [B, Hkv, Tk, D], v [B, Hkv, Tk, Dv] and out [B, H, Tq, Dv],
/// everything else left at its default; set the other fields as exattn.h says. `out` may be output() where the call
/// stops in a state. Throws error(EXATTN_ERROR_SIZE) if the shapes do not fit together; all else is checked by the
/// call.
inline exattn_attention_args attention_arguments(const tensor &q, const tensor &k, const tensor &v, const output &out) {
  detail::expect("the batch of k", k.shape[0], q.shape[0]);
  return detail::arguments(q, k, v, out);
}

/// How sequences lie in memory. What is left empty is as without a layout: one length for all.
struct layout {
  /// [B + 1]: q and out are [1, H, Tq, D], and sequence b has the rows from q_starts[b] up to q_starts[b + 1].
  std::vector<std::int64_t> q_starts;
  /// [B + 1]: k and v are [1, Hkv, Tk, D], and sequence b has the keys from kv_starts[b] up to kv_starts[b + 1].
  std::vector<std::int64_t> kv_starts;
  /// [B, entries of a sequence]: k and v are [pages, Hkv, page_size, D].
  std::vector<std::int32_t> page_table;
  /// With a page table: the most keys that a sequence has; below 0: as many as its entries have room for.
  std::int64_t kv_len = -1;
};

namespace detail {

// The fields that say where pages of that shape are.
template <class Args>
void set_pages(Args &args, const extents &k, const layout &lies) {
  const std::int64_t entries = static_cast<std::int64_t>(lies.page_table.size());
  args.page_table = lies.page_table.data();
  args.page_table_stride = args.batch == 0 ? entries : entries / args.batch;
  expect("the number of entries of the page table", entries, args.batch * args.page_table_stride);
  args.pages = k[0];
  args.page_size = k[2];
  args.kv_len = lies.kv_len < 0 ? args.page_table_stride * args.page_size : lies.kv_len;
}

} // namespace detail

/// Arguments of an attention call over ragged sequences, paged keys, or both. The arguments point into `lies`, which
/// must live until the call. Throws error(EXATTN_ERROR_SIZE) if the shapes do not fit together.
inline exattn_attention_args attention_arguments(const tensor &q, const tensor &k, const tensor &v, const output &out,
                                                 const layout &lies) {
  std::int64_t batch = q.shape[0];
  if (!lies.q_starts.empty()) {
    detail::expect("the batch of ragged q", q.shape[0], 1);
    batch = static_cast<std::int64_t>(lies.q_starts.size()) - 1;
  }
  exattn_attention_args args = detail::arguments(q, k, v, out);
  args.batch = batch;
  args.q_starts = lies.q_starts.empty() ? nullptr : lies.q_starts.data();
  if (!lies.page_table.empty()) {
    detail::set_pages(args, k.shape, lies);
  } else if (lies.kv_starts.empty()) {
    detail::expect("the batch of k", k.shape[0], batch);
  }
  if (!lies.kv_starts.empty()) {
    detail::expect("the size of kv_starts", static_cast<std::int64_t>(lies.kv_starts.size()), batch + 1);
    if (lies.page_table.empty()) { // else the call refuses both together
      detail::expect("the batch of ragged k", k.shape[0], 1);
    }
    args.kv_starts = lies.kv_starts.data();
  }
  return args;
}

/// A layout that would be gone before the call.
exattn_attention_args attention_arguments(const tensor &q, const tensor &k, const tensor &v, const output &out,
                                          layout &&lies) = delete;

namespace detail {

// As `arguments` of rows; k's strides mean something else, and no shape hangs on them.
inline tensor rows_of(const packed_keys &k) {
  tensor rows;
  rows.data = k.data;
  rows.dtype = k.dtype;
  rows.shape = k.shape;
  rows.strides = k.strides;
  return rows;
}

} // namespace detail

/// The same over packed keys.
inline exattn_attention_args attention_arguments(const tensor &q, const packed_keys &k, const tensor &v,
                                                 const output &out) {
  exattn_attention_args args = attention_arguments(q, detail::rows_of(k), v, out);
  args.k_layout = EXATTN_K_PACKED;
  return args;
}
inline exattn_attention_args attention_arguments(const tensor &q, const packed_keys &k, const tensor &v,
                                                 const output &out, const layout &lies) {
  exattn_attention_args args = attention_arguments(q, detail::rows_of(k), v, out, lies);
  args.k_layout = EXATTN_K_PACKED;
  return args;
}
exattn_attention_args attention_arguments(const tensor &q, const packed_keys &k, const tensor &v, const output &out,
                                          layout &&lies) = delete;

namespace detail {

inline exattn_pack_keys_args pack_arguments(const tensor &k, const packed_keys &to, std::int64_t first_key) {
  expect("the number of heads of the packed keys", to.shape[1], k.shape[1]);
  expect("the head size of the packed keys", to.shape[3], k.shape[3]);
  exattn_pack_keys_args args{};
  args.struct_size = sizeof(args);
  args.batch = k.shape[0];
  args.kv_heads = k.shape[1];
  args.kv_len = to.shape[2];
  args.head_dim = k.shape[3];
  args.count = k.shape[2];
  args.first_key = first_key;
  args.k = to_c(k);
  args.packed = {to.data, to.dtype, 4, {to.strides[0], to.strides[1], to.strides[2], to.strides[3]}};
  return args;
}

} // namespace detail

/// Arguments of a call that writes k [B, Hkv, count, D] into packed keys [B, Hkv, T, D], as the keys from first_key on;
/// set first_keys as exattn.h says where they differ. Throws error(EXATTN_ERROR_SIZE) if the shapes do not fit
/// together.
inline exattn_pack_keys_args pack_arguments(const tensor &k, const packed_keys &to, std::int64_t first_key) {
  detail::expect("the batch of the packed keys", to.shape[0], k.shape[0]);
  return detail::pack_arguments(k, to, first_key);
}

/// The same into pages, [pages, Hkv, page_size, D]. The arguments point into `lies`, which must live until the call; of
/// it only the page table and kv_len count.
inline exattn_pack_keys_args pack_arguments(const tensor &k, const packed_keys &to, std::int64_t first_key,
                                            const layout &lies) {
  exattn_pack_keys_args args = detail::pack_arguments(k, to, first_key);
  detail::set_pages(args, to.shape, lies);
  return args;
}
exattn_pack_keys_args pack_arguments(const tensor &k, const packed_keys &to, std::int64_t first_key,
                                     layout &&lies) = delete;

/// Arguments of a softmax call over the last dimension. x and y may be the same memory with the same strides. Throws
/// error(EXATTN_ERROR_SIZE) if the shapes differ.
inline exattn_softmax_args softmax_arguments(const tensor &x, const output &y) {
  exattn_softmax_args args{};
  args.struct_size = sizeof(args);
  for (std::size_t n = 0; n < 4; ++n) {
    detail::expect("a size of y", y.shape[n], x.shape[n]);
    args.shape[n] = x.shape[n];
  }
  args.x = to_c(x);
  args.y = to_c(y);
  return args;
}

// ---- Threads ----

/// A pool of threads, for the field pool: `args.pool = threads.get()`. Calls may share it, also at the same time.
class pool {
public:
  /// As many threads, the caller's among them, 1 to 4096; 0: one per processor that this process may use. Throws
  /// error(EXATTN_ERROR_THREADS or EXATTN_ERROR_MEMORY).
  explicit pool(std::int32_t threads = 0) {
    exattn_pool *made = nullptr;
    check(exattn_pool_create(threads, &made));
    handle_.reset(made);
  }

  exattn_pool *get() const noexcept { return handle_.get(); }

  /// How many threads; 0 after a move.
  std::int32_t threads() const noexcept { return exattn_pool_threads(get()); }

private:
  struct destroy {
    void operator()(exattn_pool *made) const noexcept { exattn_pool_destroy(made); }
  };
  std::unique_ptr<exattn_pool, destroy> handle_;
};

namespace detail {
class executor_call;
}

/// Your own threads: `run(count, task)` calls task(i) once for every i in [0, count), on any threads, in any order,
/// and returns when all have returned. An executor may serve several calls at the same time, if `run` may.
///
/// What `run` throws comes out of attention() or softmax() as it was thrown; outputs may then be incomplete. task
/// itself never throws. When `run` returns without having called any task, error(EXATTN_ERROR_EXECUTOR) comes.
class executor {
public:
  using task = std::function<void(std::size_t index)>;
  using parallel_for = std::function<void(std::size_t count, const task &run_one)>;

  /// `threads`: how many tasks may run at once, 1 to 4096.
  executor(std::int32_t threads, parallel_for run) : threads_(threads), run_(std::move(run)) {}

  std::int32_t threads() const noexcept { return threads_; }

private:
  friend class detail::executor_call;
  std::int32_t threads_;
  parallel_for run_;
};

namespace detail {

// One call's use of an executor: hands it to the C interface and keeps what it throws.
class executor_call {
public:
  explicit executor_call(const executor &used) noexcept
      : used_(used), handle_{sizeof(exattn_executor), this, used.run_ ? &executor_call::run : nullptr, used.threads_} {}
  executor_call(const executor_call &) = delete;
  executor_call &operator=(const executor_call &) = delete;

  const exattn_executor *get() const noexcept { return &handle_; }

  void rethrow() const {
    if (thrown_) {
      std::rethrow_exception(thrown_);
    }
  }

private:
  static void run(void *context, std::size_t count, void (*task)(void *, std::size_t), void *task_context) {
    executor_call &call = *static_cast<executor_call *>(context);
    try {
      call.used_.run_(count, [task, task_context](std::size_t index) { task(task_context, index); });
    } catch (...) {
      call.thrown_ = std::current_exception();
    }
  }

  const executor &used_;
  exattn_executor handle_;
  std::exception_ptr thrown_;
};

} // namespace detail

// ---- Calls ----

namespace detail {

// Runs `function`, with a buffer for the message unless the caller brought one; gives the kernel's name.
template <class Args>
const char *call(exattn_status (*function)(const Args *), Args args) {
  std::array<char, 512> buffer{};
  const char *kernel = "";
  if (args.message == nullptr || args.message_size == 0) {
    args.message = buffer.data();
    args.message_size = buffer.size();
  }
  args.message[0] = '\0';
  const char **const wanted = args.kernel;
  args.kernel = &kernel;
  const exattn_status status = function(&args);
  if (status != EXATTN_OK) {
    throw error(status, args.message);
  }
  if (wanted != nullptr) {
    *wanted = kernel;
  }
  return kernel;
}

// What a size query answers.
inline std::size_t ask(exattn_status (*query)(const exattn_attention_args *, std::size_t *),
                       exattn_attention_args args) {
  std::array<char, 512> buffer{};
  args.message = buffer.data();
  args.message_size = buffer.size();
  std::size_t bytes = 0;
  const exattn_status status = query(&args, &bytes);
  if (status != EXATTN_OK) {
    throw error(status, buffer.data());
  }
  return bytes;
}

template <class Args>
const char *call(exattn_status (*function)(const Args *), Args args, const executor &threads) {
  const executor_call used(threads);
  args.executor = used.get();
  const char *kernel = "";
  try {
    kernel = call(function, args);
  } catch (const error &) {
    used.rethrow();
    throw;
  }
  used.rethrow();
  return kernel;
}

} // namespace detail

/// Computes attention as exattn_attention does; returns the name of the kernel that ran, such as "avx2/exact".
/// Throws exattn::error; nothing has been written then, unless its status is EXATTN_ERROR_EXECUTOR.
inline const char *attention(const exattn_attention_args &args) {
  return detail::call(&exattn_attention, args);
}

/// The same on your own threads; args.executor is not looked at.
inline const char *attention(const exattn_attention_args &args, const executor &threads) {
  return detail::call(&exattn_attention, args, threads);
}

/// Computes softmax rows as exattn_softmax does; returns and throws as attention does.
inline const char *softmax(const exattn_softmax_args &args) {
  return detail::call(&exattn_softmax, args);
}

/// The same on your own threads; args.executor is not looked at.
inline const char *softmax(const exattn_softmax_args &args, const executor &threads) {
  return detail::call(&exattn_softmax, args, threads);
}

/// Writes keys into packed keys as exattn_pack_keys does. Throws exattn::error.
inline void pack_keys(exattn_pack_keys_args args) {
  std::array<char, 512> buffer{};
  if (args.message == nullptr || args.message_size == 0) {
    args.message = buffer.data();
    args.message_size = buffer.size();
  }
  const exattn_status status = exattn_pack_keys(&args);
  if (status != EXATTN_OK) {
    throw error(status, args.message);
  }
}

/// Bytes of scratch that attention needs with these arguments, if you supply it. With threads it may grow with kv_len,
/// up to split_limit and not with EXATTN_SPLIT_KEYS_NEVER. Throws as attention does.
inline std::size_t scratch_size(const exattn_attention_args &args) {
  return detail::ask(&exattn_attention_scratch_size, args);
}

/// The same for a call on your own threads.
inline std::size_t scratch_size(exattn_attention_args args, const executor &threads) {
  const detail::executor_call used(threads);
  args.executor = used.get();
  return scratch_size(args);
}

// ---- States and merging ----

/// Where a call stopped, as bytes that another call, process or machine goes on from (definition, section 14).
using state = std::vector<unsigned char>;

/// Bytes of a state of these arguments. Throws exattn::error.
inline std::size_t state_size(const exattn_attention_args &args) {
  return detail::ask(&exattn_attention_state_size, args);
}

/// Makes the call go on from a state whose next key is at kv_offset. The arguments point into it: it must live until
/// the call. Throws error(EXATTN_ERROR_STATE) if it is empty, which C would take for none.
inline void start_from(exattn_attention_args &args, const state &from, std::int64_t kv_offset) {
  if (from.empty()) {
    throw error(EXATTN_ERROR_STATE, "the state is empty: it must be what a call with stop_in has left");
  }
  args.state_in = from.data();
  args.state_in_size = from.size();
  args.kv_offset = kv_offset;
}

/// Makes the call write where it stops into `to`, which gets the size that it needs; it must live until the call, and
/// may be the state that the call goes on from. Set the sizes before. Throws exattn::error.
inline void stop_in(exattn_attention_args &args, state &to) {
  const std::size_t bytes = state_size(args);
  if (to.size() != bytes && args.state_in == to.data() && args.state_in != nullptr) {
    throw error(EXATTN_ERROR_STATE, "the state has " + std::to_string(to.size()) + " bytes, a state of this call has " +
                                        std::to_string(bytes));
  }
  to.resize(bytes);
  args.state_out = to.data();
  args.state_out_size = to.size();
}

/// A result over some of the keys: out [rows, value_dim] and lse [rows], contiguous.
struct partial {
  const float *out = nullptr;
  const float *lse = nullptr;
};

/// Merges two results over disjoint keys as exattn_merge_tolerant does: close to one call's, but not its bits. out and
/// lse may be those of a or b. Throws exattn::error.
inline void merge_tolerant(std::int64_t rows, std::int64_t value_dim, const partial &a, const partial &b, float *out,
                           float *lse) {
  check(exattn_merge_tolerant(rows, value_dim, a.out, a.lse, b.out, b.lse, out, lse));
}

/// What a request for lanes comes to.
struct resolution {
  std::int32_t lanes; ///< EXATTN_LANES_*, never EXATTN_LANES_AUTO
  const char *kernel; ///< the kernel's own name, such as "avx2/exact"
};

/// The kernel that EXATTN_LANES_* and EXATTN_EXACT or EXATTN_FAST lead to on this machine. Throws exattn::error with a
/// status of exattn_lanes_resolve.
inline resolution resolve(std::int32_t lanes, std::int32_t flavour) {
  resolution result{EXATTN_LANES_AUTO, ""};
  check(exattn_lanes_resolve(lanes, flavour, &result.lanes, &result.kernel));
  return result;
}

} // namespace exattn
