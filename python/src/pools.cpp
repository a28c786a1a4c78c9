#include "pools.hpp"

#include <exattn/exattn.hpp>

#include <map>
#include <new>

#include <pthread.h>

namespace exattn_python {

namespace {

// Of this process' ancestors since the module was loaded. Written in the child alone, while it has but one thread.
unsigned forks = 0;

struct Pools {
  std::map<std::int32_t, exattn::pool> of_threads;
  unsigned made_after = 0; // forks
};

Pools *make_pools() {
  static const int kRefused = pthread_atfork(nullptr, nullptr, [] { ++forks; });
  if (kRefused != 0) {
    throw std::bad_alloc();
  }
  Pools *const made = new Pools;
  made->made_after = forks;
  return made;
}

} // namespace

exattn_pool *pool_of(std::int32_t threads) {
  if (threads == 1) {
    return nullptr;
  }
  // Never given back: at exit daemon threads may still be computing, and in the child of a fork there is nobody to end.
  static Pools *pools = make_pools();
  if (pools->made_after != forks) {
    pools = make_pools();
  }
  const auto found = pools->of_threads.find(threads);
  return (found != pools->of_threads.end() ? found : pools->of_threads.try_emplace(threads, threads).first)
      ->second.get();
}

} // namespace exattn_python
