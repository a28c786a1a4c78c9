// Two sequences decode over one paged key and value cache, which grows by a token in each step. Every row has the bits
// that a prefill of the whole sequence gives it.
//
// By hand: queries of head 0 are zero, so its rows are means of the values they see; element 0 of value j is j, so
// element 0 of row i is i / 2, exactly.
#include <exattn/exattn.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

namespace {

constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kKvHeads = 2;
constexpr std::int64_t kSize = 8;
constexpr std::int64_t kPageSize = 16;
constexpr std::int64_t kPages = 12;
constexpr std::int64_t kEntries = 6; // pages that a sequence may have
constexpr std::int64_t kSteps = 35;
constexpr std::array<std::int64_t, 2> kPrompts{5, 40};

// What a model would compute for a token: kv_heads keys and values, heads queries.
float query(std::size_t sequence, std::int64_t token, std::int64_t head, std::int64_t x) {
  const auto seed = static_cast<std::int64_t>(sequence) * 13 + token * 29 + head * 17 + x * 7;
  return head == 0 ? 0.0F : static_cast<float>(seed % 31) / 8 - 2;
}
float key(std::size_t sequence, std::int64_t token, std::int64_t head, std::int64_t x) {
  const auto seed = static_cast<std::int64_t>(sequence) * 11 + token * 19 + head * 23 + x * 5;
  return static_cast<float>(seed % 37) / 9 - 2;
}
float value(std::size_t sequence, std::int64_t token, std::int64_t head, std::int64_t x) {
  return x == 0 ? static_cast<float>(token) : key(sequence, token, head, x + 3);
}

// [kPages, kKvHeads, kPageSize, kSize], and which pages a sequence has. Pages are given out as they are needed.
struct Cache {
  std::vector<float> k = std::vector<float>(kPages * kKvHeads * kPageSize * kSize);
  std::vector<float> v = k;
  std::array<std::int32_t, kPrompts.size() * kEntries> page_table{};
  std::array<std::int64_t, kPrompts.size()> lengths{};
  std::int32_t next_page = 0;

  void append(std::size_t sequence) {
    const std::int64_t token = lengths[sequence]++;
    std::int32_t &page = page_table[sequence * kEntries + static_cast<std::size_t>(token / kPageSize)];
    if (token % kPageSize == 0) {
      page = next_page++;
    }
    for (std::int64_t head = 0; head < kKvHeads; ++head) {
      for (std::int64_t x = 0; x < kSize; ++x) {
        const std::int64_t slot = (page * kKvHeads + head) * kPageSize + token % kPageSize;
        k[static_cast<std::size_t>(slot * kSize + x)] = key(sequence, token, head, x);
        v[static_cast<std::size_t>(slot * kSize + x)] = value(sequence, token, head, x);
      }
    }
  }
};

// One row of every sequence: [2, kHeads, 1, kSize].
std::vector<float> decode_step(const Cache &cache) {
  std::vector<float> q;
  std::array<std::int64_t, kPrompts.size()> positions{};
  for (std::size_t sequence = 0; sequence < kPrompts.size(); ++sequence) {
    positions[sequence] = cache.lengths[sequence] - 1;
    for (std::int64_t n = 0; n < kHeads * kSize; ++n) {
      q.push_back(query(sequence, positions[sequence], n / kSize, n % kSize));
    }
  }
  std::vector<float> out(q.size());

  // Filled in by hand, since the page table stays in the cache; exattn::layout would own a copy.
  exattn_attention_args args = EXATTN_ATTENTION_ARGS_INIT;
  args.batch = static_cast<std::int64_t>(kPrompts.size());
  args.heads = kHeads;
  args.kv_heads = kKvHeads;
  args.q_len = 1;
  args.kv_len = kEntries * kPageSize; // the most that a sequence may have
  args.head_dim = args.value_dim = kSize;
  args.q = exattn::to_c(exattn::tensor(q.data(), {args.batch, kHeads, 1, kSize}));
  args.k = exattn::to_c(exattn::tensor(cache.k.data(), {kPages, kKvHeads, kPageSize, kSize}));
  args.v = exattn::to_c(exattn::tensor(cache.v.data(), {kPages, kKvHeads, kPageSize, kSize}));
  args.out = exattn::to_c(exattn::output(out.data(), {args.batch, kHeads, 1, kSize}));
  args.page_table = cache.page_table.data(); // entries beyond a sequence's length are not looked at
  args.page_table_stride = kEntries;
  args.page_size = kPageSize;
  args.pages = kPages;
  args.kv_lens = cache.lengths.data();
  args.causal = 1;
  args.q_offsets = positions.data(); // row 0 of a sequence is its newest token
  exattn::attention(args);
  return out;
}

// All rows of a sequence at once, from contiguous memory: [1, kHeads, length, kSize].
std::vector<float> prefill(std::size_t sequence, std::int64_t length) {
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;
  for (std::int64_t n = 0; n < kHeads * length * kSize; ++n) {
    q.push_back(query(sequence, n / kSize % length, n / kSize / length, n % kSize));
  }
  for (std::int64_t n = 0; n < kKvHeads * length * kSize; ++n) {
    k.push_back(key(sequence, n / kSize % length, n / kSize / length, n % kSize));
    v.push_back(value(sequence, n / kSize % length, n / kSize / length, n % kSize));
  }
  std::vector<float> out(q.size());
  exattn_attention_args args =
      exattn::attention_arguments({q.data(), {1, kHeads, length, kSize}}, {k.data(), {1, kKvHeads, length, kSize}},
                                  {v.data(), {1, kKvHeads, length, kSize}}, {out.data(), {1, kHeads, length, kSize}});
  args.causal = 1;
  exattn::attention(args);
  return out;
}

bool run() {
  Cache cache;
  std::array<std::vector<float>, kPrompts.size()> whole;
  for (std::size_t sequence = 0; sequence < kPrompts.size(); ++sequence) {
    whole[sequence] = prefill(sequence, kPrompts[sequence] + kSteps);
    for (std::int64_t token = 0; token < kPrompts[sequence]; ++token) {
      cache.append(sequence);
    }
  }
  for (std::int64_t step = 0; step < kSteps; ++step) {
    for (std::size_t sequence = 0; sequence < kPrompts.size(); ++sequence) {
      cache.append(sequence);
    }
    const std::vector<float> out = decode_step(cache);
    for (std::size_t sequence = 0; sequence < kPrompts.size(); ++sequence) {
      const std::int64_t row = kPrompts[sequence] + step;
      const float *decoded = out.data() + sequence * kHeads * kSize;
      bool right = decoded[0] == static_cast<float>(row) / 2;
      for (std::int64_t head = 0; head < kHeads; ++head) {
        const float *wanted = whole[sequence].data() + (head * (kPrompts[sequence] + kSteps) + row) * kSize;
        right = std::memcmp(decoded + head * kSize, wanted, kSize * sizeof(float)) == 0 && right;
      }
      if (!right) {
        std::fprintf(stderr, "sequence %zu: row %lld differs\n", sequence, static_cast<long long>(row));
        return false;
      }
    }
  }
  std::printf("%lld steps of %zu sequences, %d pages: the bits of a prefill\n", static_cast<long long>(kSteps),
              kPrompts.size(), cache.next_page);
  return true;
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
