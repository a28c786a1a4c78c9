// A key cache kept packed: each token is put in its place once, and no call rearranges it again. Same bits as from
// rows.
//
// By hand: queries of head 0 are zero, so its rows are means of the values they see; value j is j, so the step that
// sees the keys 0 to t gives t / 2, exactly.
#include <exattn/exattn.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

namespace {

constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kSize = 8;
constexpr std::int64_t kCapacity = 100;

bool run() {
  const exattn::extents cache{1, kHeads, kCapacity, kSize};
  const exattn::extents one{1, kHeads, 1, kSize};
  std::vector<float> rows(kHeads * kCapacity * kSize);
  std::vector<float> values(rows.size());
  std::vector<float> packed(exattn::packed_keys_size(cache) / sizeof(float)); // room for a multiple of 16 keys
  const exattn::packed_keys packed_keys = exattn::packed_keys::contiguous(packed.data(), cache);

  std::vector<float> q(kHeads * kSize);
  std::vector<float> token(q.size());
  std::vector<float> out(q.size());
  std::vector<float> from_rows(q.size());
  for (std::int64_t t = 0; t < kCapacity; ++t) {
    for (std::size_t n = 0; n < token.size(); ++n) {
      const auto seed = static_cast<std::size_t>(t) * 29 + n * 7;
      q[n] = n < kSize ? 0.0F : static_cast<float>(seed % 31) / 8 - 2;
      token[n] = static_cast<float>(seed % 37) / 9 - 2;
      const std::size_t at = (n / kSize * kCapacity + static_cast<std::size_t>(t)) * kSize + n % kSize;
      rows[at] = token[n];
      values[at] = static_cast<float>(t);
    }
    exattn::pack_keys(
        exattn::pack_arguments({token.data(), one}, packed_keys, t)); // the whole prompt may be one call too

    const exattn::tensor v(values.data(), cache);
    exattn_attention_args args = exattn::attention_arguments({q.data(), one}, packed_keys, v, {out.data(), one});
    args.kv_len = t + 1; // of the cache's capacity
    exattn::attention(args);
    args = exattn::attention_arguments({q.data(), one}, {rows.data(), cache}, v, {from_rows.data(), one});
    args.kv_len = t + 1;
    exattn::attention(args);
    if (out[0] != static_cast<float>(t) / 2 || out != from_rows) {
      std::fprintf(stderr, "step %lld is wrong\n", static_cast<long long>(t));
      return false;
    }
  }
  std::printf("%lld steps\n", static_cast<long long>(kCapacity));
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
