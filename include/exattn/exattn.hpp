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

/// Memory that holds [a, b, c, d] numbers, not owned. Float is float or const float.
template <class Float>
struct view {
  Float *data = nullptr;
  extents shape{};
  extents strides{};

  /// Nothing.
  view() = default;
  /// Contiguous.
  view(Float *first, const extents &sizes) : data(first), shape(sizes), strides(contiguous(sizes)) {}
  /// Strided: element [i, j, k, l] is at first[i strides[0] + j strides[1] + k strides[2] + l strides[3]].
  view(Float *first, const extents &sizes, const extents &steps) : data(first), shape(sizes), strides(steps) {}
};

/// An input, [a, b, c, d].
using tensor = view<const float>;
/// An output, [a, b, c, d].
using output = view<float>;

/// For the fields of the C structs.
inline exattn_tensor to_c(const tensor &input) noexcept {
  return {input.data, EXATTN_F32, 4, {input.strides[0], input.strides[1], input.strides[2], input.strides[3]}};
}

/// For the fields of the C structs.
inline exattn_output to_c(const output &result) noexcept {
  return {result.data, 0, 4, {result.strides[0], result.strides[1], result.strides[2], result.strides[3]}};
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

} // namespace detail

/// Arguments of an attention call over q [B, H, Tq, D], k [B, Hkv, Tk, D], v [B, Hkv, Tk, Dv] and out [B, H, Tq, Dv],
/// everything else left at its default; set the other fields as exattn.h says. Throws error(EXATTN_ERROR_SIZE) if
/// the shapes do not fit together; all else is checked by the call.
inline exattn_attention_args attention_arguments(const tensor &q, const tensor &k, const tensor &v, const output &out) {
  detail::expect("the batch of k", k.shape[0], q.shape[0]);
  detail::expect("the batch of v", v.shape[0], q.shape[0]);
  detail::expect("the batch of out", out.shape[0], q.shape[0]);
  detail::expect("the number of heads of v", v.shape[1], k.shape[1]);
  detail::expect("the number of heads of out", out.shape[1], q.shape[1]);
  detail::expect("the length of v", v.shape[2], k.shape[2]);
  detail::expect("the length of out", out.shape[2], q.shape[2]);
  detail::expect("the head size of k", k.shape[3], q.shape[3]);
  detail::expect("the head size of out", out.shape[3], v.shape[3]);
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
  args.out = to_c(out);
  return args;
}

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

/// Bytes of scratch that attention needs with these arguments, if you supply it. Throws as attention does.
inline std::size_t scratch_size(exattn_attention_args args) {
  std::array<char, 512> buffer{};
  args.message = buffer.data();
  args.message_size = buffer.size();
  std::size_t bytes = 0;
  const exattn_status status = exattn_attention_scratch_size(&args, &bytes);
  if (status != EXATTN_OK) {
    throw error(status, buffer.data());
  }
  return bytes;
}

/// The same for a call on your own threads.
inline std::size_t scratch_size(exattn_attention_args args, const executor &threads) {
  const detail::executor_call used(threads);
  args.executor = used.get();
  return scratch_size(args);
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
