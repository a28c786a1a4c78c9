#include "pools.hpp"

#include <exattn/exattn.hpp>

#include <atomic>
#include <map>
#include <new>
#include <system_error>

#include <pthread.h>

namespace exattn_python {

namespace {

std::atomic<unsigned> forks = 0; // of this process' ancestors since the module was loaded

struct Pools {
  std::map<std::int32_t, exattn::pool> of_threads;
  unsigned made_after = 0; // forks
};

Pools *make_pools() {
  static const int kRefused = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
  if (kRefused != 0) {
    throw std::bad_alloc();
  }
  return new Pools{{}, forks.load()};
}

} // namespace

exattn_pool *pool_of(std::int32_t threads) {
  if (threads == 1) {
    return nullptr;
  }
  // Never given back: at exit daemon threads may still be computing, and in the child of a fork there is nobody to end.
  static Pools *pools = make_pools();
  if (pools->made_after != forks.load()) {
    pools = make_pools();
  }
  const auto found = pools->of_threads.find(threads);
  return (found != pools->of_threads.end() ? found : pools->of_threads.try_emplace(threads, threads).first)
      ->second.get();
}

} // namespace exattn_python
