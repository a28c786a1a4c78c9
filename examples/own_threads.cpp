// An engine's own threads, injected: exattn makes none, and the result has the same bits as without them.
//
// Queries of head 0 are zero, so all of its scores are equal and each row is the mean of the values it sees. Value j is
// j, so row i of the causal call is (0 + ... + i) / (i + 1) = i / 2, exactly: the sums stay below 2^24.
#include <exattn/exattn.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace {

// The least that a pool has to do. Any number of callers may use it at once, and each works along until its own jobs
// are done.
class ThreadPool {
public:
  explicit ThreadPool(std::size_t workers) {
    for (std::size_t n = 0; n < workers; ++n) {
      workers_.emplace_back([this] { work(); });
    }
  }
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;
  ~ThreadPool() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (std::thread &worker : workers_) {
      worker.join();
    }
  }

  void parallel_for(std::size_t count, const std::function<void(std::size_t)> &run_one) {
    std::size_t left = count;
    std::unique_lock<std::mutex> lock(mutex_);
    for (std::size_t n = 0; n < count; ++n) {
      jobs_.push_back({&run_one, n, &left});
    }
    jobs_run_ += count;
    changed_.notify_all();
    while (left > 0) {
      run_job_or_wait(lock);
    }
  }

  std::size_t jobs_run() const { return jobs_run_; }

private:
  struct Job {
    const std::function<void(std::size_t)> *run_one;
    std::size_t index;
    std::size_t *left; // of the caller, who waits until it is 0
  };

  void run_job_or_wait(std::unique_lock<std::mutex> &lock) {
    if (jobs_.empty()) {
      changed_.wait(lock);
      return;
    }
    const Job job = jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    (*job.run_one)(job.index);
    lock.lock();
    if (--*job.left == 0) {
      changed_.notify_all();
    }
  }

  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!ending_) {
      run_job_or_wait(lock);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool ending_ = false;
  std::size_t jobs_run_ = 0;
  std::vector<std::thread> workers_; // last: they use all of the above
};

constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kTokens = 300;
constexpr std::int64_t kSize = 32;

bool run() {
  const std::size_t elements = kHeads * kTokens * kSize;
  std::vector<float> q(elements);
  std::vector<float> k(elements);
  std::vector<float> v(elements);
  for (std::size_t n = 0; n < elements; ++n) {
    const std::size_t head = n / (kTokens * kSize);
    q[n] = head == 0 ? 0.0F : static_cast<float>(n * 7 % 23) / 11 - 1;
    k[n] = static_cast<float>(n * 5 % 19) / 9 - 1;
    v[n] = static_cast<float>(n / kSize % kTokens);
  }
  std::vector<float> serial(elements);
  std::vector<float> parallel(elements);

  const exattn::extents shape{1, kHeads, kTokens, kSize};
  exattn_attention_args args =
      exattn::attention_arguments({q.data(), shape}, {k.data(), shape}, {v.data(), shape}, {serial.data(), shape});
  args.causal = 1;
  exattn::attention(args);

  ThreadPool pool(3);
  const exattn::executor threads(4,
                                 [&pool](std::size_t count, const exattn::executor::task &run_one) { // with the caller
                                   pool.parallel_for(count, run_one);
                                 });
  args.out.data = parallel.data();
  exattn::attention(args, threads);
  std::printf("%zu jobs\n", pool.jobs_run());

  for (std::int64_t i = 0; i < kTokens; ++i) {
    if (parallel[static_cast<std::size_t>(i * kSize)] != static_cast<float>(i) / 2) {
      std::fprintf(stderr, "row %lld is wrong\n", static_cast<long long>(i));
      return false;
    }
  }
  return pool.jobs_run() > 1 && std::memcmp(serial.data(), parallel.data(), elements * sizeof(float)) == 0;
}

} // namespace

int main() {
  try {
    return run() ? 0 : 1;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
