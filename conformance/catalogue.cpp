#include "catalogue.hpp"

#include "oracle_case.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <utility>

namespace exattn::conformance {
namespace {

// Cases up to this many multiply-adds are quick.
constexpr std::int64_t kQuickLimit = 26'000'000;

constexpr std::uint32_t kNan = 0x7FC00000;
constexpr std::uint32_t kSignallingNan = 0xFF800001; // negative, too
constexpr std::uint32_t kInfinity = 0x7F800000;
constexpr std::uint32_t kMinusInfinity = 0xFF800000;
constexpr std::uint32_t kMinusZero = 0x80000000;
constexpr std::uint32_t kOne = 0x3F800000;
constexpr std::uint32_t kLargest = 0x7F7FFFFF;
constexpr std::uint32_t kMinusLargest = 0xFF7FFFFF;
constexpr std::uint32_t kLeastSubnormal = 0x00000001;
constexpr std::uint32_t kExpCut = 0xC2AEAC4F; // definition, section 7

// The bits of a whole number, and of a fraction with a power of two below, without floating point.
constexpr std::uint32_t number(std::int32_t numerator, int halvings = 0) {
  if (numerator == 0) {
    return 0;
  }
  std::uint32_t sign = 0;
  auto magnitude = static_cast<std::uint32_t>(numerator);
  if (numerator < 0) {
    sign = kMinusZero;
    magnitude = 0 - magnitude;
  }
  int exponent = 150 - halvings; // of 24 bits before the point
  while ((magnitude & 0x00800000u) == 0) {
    magnitude <<= 1;
    --exponent;
  }
  return sign | (static_cast<std::uint32_t>(exponent) << 23) | (magnitude & 0x007FFFFFu);
}
static_assert(number(1) == kOne && number(-3, 1) == 0xBFC00000u && number(8388608) == 0x4B000000u);

// Seeds come from the id, so that a case that is added changes no other. FNV-1a.
std::uint64_t seed_of(const std::string &id, const char *tensor) {
  std::uint32_t hash = 0x811C9DC5u;
  for (const char c : id + "/" + tensor) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  }
  return hash;
}

Input normal(int scale_exponent = kDefaultScaleExponent) {
  Input input;
  input.scale_exponent = scale_exponent;
  return input;
}

Input constant(std::uint32_t bits) {
  Input input;
  input.kind = InputKind::kConstant;
  input.bits = bits;
  return input;
}

Input any_bits() {
  Input input;
  input.kind = InputKind::kBits;
  return input;
}

Input visible(int per_256) {
  Input input;
  input.kind = InputKind::kVisible;
  input.per_256 = per_256;
  return input;
}

struct Sizes {
  std::int64_t batch, heads, kv_heads, q_len, kv_len, head_dim, value_dim;
};

// A case that is being written: inputs are normal, and there is no option, until said otherwise.
class Attention {
public:
  Attention(std::string id, std::string guards, const Sizes &sizes) {
    item.id = std::move(id);
    item.guards = std::move(guards);
    item.params.batch = sizes.batch;
    item.params.heads = sizes.heads;
    item.params.kv_heads = sizes.kv_heads;
    item.params.q_len = sizes.q_len;
    item.params.kv_len = sizes.kv_len;
    item.params.head_dim = sizes.head_dim;
    item.params.value_dim = sizes.value_dim;
    set_shapes();
  }

  // Ragged queries, ragged keys: before a mask.
  Attention &ragged(std::vector<std::int64_t> q_starts) {
    item.params.q_starts = std::move(q_starts);
    return set_shapes();
  }
  Attention &ragged_keys(std::vector<std::int64_t> kv_starts) {
    item.params.kv_starts = std::move(kv_starts);
    return set_shapes();
  }
  Attention &pages(std::int64_t page_size) {
    item.params.page_size = page_size;
    return *this;
  }
  Attention &resume(std::vector<std::int64_t> edges) {
    item.params.resume = std::move(edges);
    return *this;
  }
  Attention &store(Storage storage) {
    item.q.storage = item.k.storage = item.v.storage = storage;
    return *this;
  }
  Attention &store(Storage q, Storage k, Storage v) {
    item.q.storage = q;
    item.k.storage = k;
    item.v.storage = v;
    return *this;
  }

  Attention &q(Input input) { return put(item.q, std::move(input)); }
  Attention &k(Input input) { return put(item.k, std::move(input)); }
  Attention &v(Input input) { return put(item.v, std::move(input)); }

  // Mask: which of the four sizes are full (the others broadcast), and its elements.
  Attention &mask(std::array<bool, 4> full, Input input = normal()) {
    item.mask.emplace();
    item.mask->shape = mask_shape(full);
    return put(*item.mask, std::move(input));
  }
  Attention &mask_bool(std::array<bool, 4> full, Input input = visible(128)) {
    item.mask_bool.emplace();
    item.mask_bool->shape = mask_shape(full);
    item.mask_bool->storage = Storage::kByte;
    return put(*item.mask_bool, std::move(input));
  }

  Attention &sinks(Input input) {
    item.sinks.emplace();
    item.sinks->shape = {item.params.heads};
    return put(*item.sinks, std::move(input));
  }

  Attention &alibi(Input input) {
    item.alibi.emplace();
    item.alibi->shape = {item.params.heads};
    return put(*item.alibi, std::move(input));
  }

  // Boxes. A tensor's name (m: mask, b: mask_bool), the index from which and the index before which; along a size left
  // at kAll, everything.
  static constexpr std::int64_t kAll = -1;
  Attention &set(char tensor, std::array<std::int64_t, 4> at, std::uint32_t bits) { return set(tensor, at, at, bits); }
  Attention &set(char tensor, const std::array<std::int64_t, 4> &first, const std::array<std::int64_t, 4> &last,
                 std::uint32_t bits) {
    CaseTensor &target = tensor == 'q'   ? item.q
                         : tensor == 'k' ? item.k
                         : tensor == 'v' ? item.v
                         : tensor == 'b' ? *item.mask_bool
                                         : *item.mask;
    Box box;
    for (std::size_t n = 0; n < first.size(); ++n) {
      box.from.push_back(first[n] == kAll ? 0 : first[n]);
      box.to.push_back(last[n] == kAll ? target.shape[n] : last[n] + 1);
    }
    box.bits = bits;
    target.input.set.push_back(std::move(box));
    return *this;
  }
  Attention &set_sink(std::int64_t head, std::uint32_t bits) {
    item.sinks->input.set.push_back({{head}, {head + 1}, bits});
    return *this;
  }
  Attention &set_slope(std::int64_t head, std::uint32_t bits) {
    item.alibi->input.set.push_back({{head}, {head + 1}, bits});
    return *this;
  }
  // Value row j is j + first throughout.
  Attention &count_values(std::int32_t first) {
    for (std::int64_t j = 0; j < item.v.shape[2]; ++j) {
      set('v', {kAll, kAll, j, kAll}, number(static_cast<std::int32_t>(j) + first));
    }
    return *this;
  }
  // Key j's only element, which is its score where q and the scale are 1.
  Attention &score(std::int64_t j, std::uint32_t bits) { return set('k', {kAll, kAll, j, kAll}, bits); }
  Attention &scores(std::int64_t first, std::int64_t last, std::uint32_t bits) {
    return set('k', {kAll, kAll, first, kAll}, {kAll, kAll, last, kAll}, bits);
  }

  Attention &scale(std::uint32_t bits) {
    item.params.scale_bits = bits;
    return *this;
  }
  Attention &causal(std::int64_t q_offset = 0) {
    item.params.causal = true;
    item.params.q_offset = q_offset;
    return *this;
  }
  Attention &window(std::int64_t window, std::int64_t q_offset) {
    item.params.window = window;
    item.params.q_offset = q_offset;
    return *this;
  }
  Attention &q_offsets(std::vector<std::int64_t> offsets) {
    item.params.q_offset = 0;
    item.params.q_offsets = std::move(offsets);
    return *this;
  }
  Attention &kv_lens(std::vector<std::int64_t> lengths) {
    item.params.kv_lens = std::move(lengths);
    return *this;
  }
  Attention &softcap(std::uint32_t bits) {
    item.params.softcap_bits = bits;
    return *this;
  }
  Attention &fully_masked_zero() {
    item.params.fully_masked_zero = true;
    return *this;
  }

  AttentionCase finish() const {
    AttentionCase result = item;
    result.tier = multiply_adds(item.params) <= kQuickLimit ? Tier::kQuick : Tier::kFull;
    for (const auto &[name, tensor] : tensors_of(result)) {
      if (tensor->input.kind != InputKind::kConstant) {
        tensor->input.seed = seed_of(item.id, name);
      }
    }
    return result;
  }

private:
  Attention &set_shapes() {
    item.q.shape = query_shape(item.params);
    item.k.shape = key_shape(item.params);
    item.v.shape = value_shape(item.params);
    return *this;
  }

  std::vector<std::int64_t> mask_shape(const std::array<bool, 4> &full) const {
    std::vector<std::int64_t> shape = score_shape(item.params);
    for (std::size_t n = 0; n < full.size(); ++n) {
      if (!full[n]) {
        shape[n] = 1;
      }
    }
    return shape;
  }

  Attention &put(CaseTensor &tensor, Input input) {
    tensor.input = std::move(input);
    return *this;
  }

  AttentionCase item;
};

constexpr std::int64_t kAll = Attention::kAll;
constexpr std::array<bool, 4> kFullMask = {true, true, true, true};
constexpr std::array<bool, 4> kSharedMask = {false, false, true, true}; // [1, 1, Tq, Tk]
constexpr std::array<bool, 4> kKeyMask = {true, false, false, true};    // [B, 1, 1, Tk]

using Cases = std::vector<AttentionCase>;

// ---- Attention as models use it ----

void add_models(Cases &cases) {
  struct Model {
    const char *id;
    const char *what;
    Sizes sizes;
  };
  const Model models[] = {
      {"bert-base-128", "BERT-base, 128 tokens", {1, 12, 12, 128, 128, 64, 64}},
      {"bert-base-512", "BERT-base, 512 tokens", {1, 12, 12, 512, 512, 64, 64}},
      {"minilm-128", "MiniLM-L6, 128 tokens", {1, 12, 12, 128, 128, 32, 32}},
      {"whisper-small-encoder", "Whisper-small's encoder, 1500 frames", {1, 12, 12, 1500, 1500, 64, 64}},
      {"whisper-small-cross-1", "Whisper-small's decoder, one step across 1500 frames", {1, 12, 12, 1, 1500, 64, 64}},
      {"whisper-small-cross-448",
       "Whisper-small's decoder, 448 steps across 1500 frames",
       {1, 12, 12, 448, 1500, 64, 64}},
  };
  for (const Model &model : models) {
    const std::string id = model.id;
    cases.push_back(Attention(id, std::string(model.what) + ": the whole loop at a size in use", model.sizes).finish());
    cases.push_back(
        Attention(id + "-mask", std::string(model.what) + ", with an additive mask for all heads", model.sizes)
            .mask(kSharedMask)
            .finish());
  }
  cases.push_back(Attention("bert-base-padded-batch", "sequences padded by 0 and -inf in a mask of [B, 1, 1, Tk]",
                            {2, 12, 12, 96, 96, 64, 64})
                      .mask(kKeyMask, constant(0))
                      .set('m', {0, kAll, kAll, 71}, {0, kAll, kAll, 95}, kMinusInfinity)
                      .set('m', {1, kAll, kAll, 17}, {1, kAll, kAll, 95}, kMinusInfinity)
                      .finish());
}

// ---- Sizes ----

constexpr std::array<std::int64_t, 21> kLengths = {1,  2,  3,  4,  5,  7,  8,   9,   15,  16, 17,
                                                   31, 32, 33, 63, 64, 65, 100, 127, 128, 129};
constexpr std::array<std::int64_t, 21> kHeadSizes = {1,  2,  3,  4,  5,  7,   8,   15,  16,  17, 31,
                                                     32, 33, 64, 80, 96, 100, 128, 192, 256, 300};

std::string size_id(const Sizes &sizes) {
  return "size-q" + std::to_string(sizes.q_len) + "-k" + std::to_string(sizes.kv_len) + "-d" +
         std::to_string(sizes.head_dim) + "-dv" + std::to_string(sizes.value_dim);
}

void add_sizes(Cases &cases) {
  // Every length of queries meets four lengths of keys, with head sizes that differ from one to the next. 2, 5, 8 and
  // 11 have no divisor in common with 21, so each of the four goes through all lengths.
  constexpr std::size_t n = kLengths.size();
  static_assert(kHeadSizes.size() == n);
  for (const std::size_t step : {std::size_t{2}, std::size_t{5}, std::size_t{8}, std::size_t{11}}) {
    for (std::size_t a = 0; a < n; ++a) {
      const Sizes sizes{1,
                        2,
                        2,
                        kLengths[a],
                        kLengths[(a * step + step) % n],
                        kHeadSizes[(a * 4 + step) % n],
                        kHeadSizes[(a * 4 + step + (a % 2) * 7) % n]};
      cases.push_back(
          Attention(size_id(sizes), "rows, keys and head sizes round the edges of vectors, tiles and blocks", sizes)
              .finish());
    }
  }
  // Every head size against rows and keys with tails, D and Dv each on its own.
  for (std::size_t a = 0; a < n; ++a) {
    const Sizes queries{1, 1, 1, 6, 67, kHeadSizes[a], 5};
    cases.push_back(Attention(size_id(queries), "any head size of queries and keys", queries).finish());
    const Sizes values{1, 1, 1, 6, 67, 5, kHeadSizes[a]};
    if (kHeadSizes[a] != 5) {
      cases.push_back(Attention(size_id(values), "any head size of values", values).finish());
    }
  }
  cases.push_back(Attention("size-1", "one of everything", {1, 1, 1, 1, 1, 1, 1}).finish());
  cases.push_back(Attention("batch-2", "the second sequence's inputs and outputs", {2, 3, 3, 18, 70, 16, 16}).finish());
  cases.push_back(Attention("batch-3", "heads and sequences mixed up; a full mask", {3, 2, 2, 9, 33, 8, 12})
                      .mask(kFullMask)
                      .finish());
  cases.push_back(Attention("mask-per-head", "the mask's strides: [1, H, 1, Tk]", {2, 3, 3, 5, 66, 8, 8})
                      .mask({false, true, false, true})
                      .finish());
  cases.push_back(
      Attention("mask-per-row", "the mask's strides: [B, 1, Tq, 1] shifts all scores of a row", {2, 3, 3, 5, 66, 8, 8})
          .mask({true, false, true, false})
          .finish());
  cases.push_back(Attention("mask-one-number", "the mask's strides: [1, 1, 1, 1]", {2, 2, 2, 3, 10, 4, 4})
                      .mask({false, false, false, false})
                      .finish());
  cases.push_back(Attention("batch-0", "no sequence: nothing is written", {0, 2, 2, 3, 4, 5, 6}).finish());
  cases.push_back(Attention("heads-0", "no head: nothing is written", {2, 0, 1, 3, 4, 5, 6}).finish());
  cases.push_back(Attention("rows-0", "no query row: nothing is written", {2, 2, 2, 0, 4, 5, 6}).finish());
  cases.push_back(Attention("keys-0", "no key: outputs +0, log-sum-exp -inf", {2, 2, 2, 3, 0, 5, 6}).finish());
  cases.push_back(Attention("keys-0-masked-zero", "no key: the same with the other option", {2, 2, 2, 3, 0, 5, 6})
                      .fully_masked_zero()
                      .finish());
  cases.push_back(Attention("keys-2000", "one row over 32 blocks", {1, 1, 1, 1, 2000, 64, 64}).finish());
  cases.push_back(Attention("keys-5000-equal", "weights that are all 1: the sum over 79 blocks, and one division",
                            {1, 1, 1, 1, 5000, 1, 8})
                      .q(constant(0))
                      .finish());
}

// ---- The scale ----

void add_scales(Cases &cases) {
  struct Scale {
    const char *id;
    const char *guards;
    std::uint32_t bits;
  };
  const Scale scales[] = {
      {"scale-1", "a given scale replaces the default one", kOne},
      {"scale-third", "a scale that is not a power of two", 0x3EAAAAABu},
      {"scale-negative", "a negative scale", number(-1, 1)},
      {"scale-0", "a scale of zero is not the default: equal weights", 0},
      {"scale-minus-0", "-0 * d + 0", kMinusZero},
      {"scale-subnormal", "a scale that is flushed to zero where subnormal numbers are", 0x00400000u},
      {"scale-1e30", "scores far apart: one weight of 1, the others +0", 0x7149F2CAu},
      {"scale-infinity", "scores of both infinities", kInfinity},
      {"scale-nan", "NaN in every score", kNan},
  };
  for (const Scale &scale : scales) {
    Attention item(scale.id, scale.guards, {1, 2, 2, 5, 70, 12, 9});
    if (scale.bits == 0x00400000u) {
      item.q(normal(-46)).k(normal(-46)); // products of about 2^122
    }
    cases.push_back(item.scale(scale.bits).finish());
  }
}

// ---- Special values ----

void add_specials(Cases &cases) {
  struct Special {
    const char *id;
    const char *name;
    std::uint32_t bits;
  };
  const Special specials[] = {{"nan", "a NaN", kNan},
                              {"signalling-nan", "a signalling NaN with a sign", kSignallingNan},
                              {"infinity", "+inf", kInfinity},
                              {"minus-infinity", "-inf", kMinusInfinity},
                              {"largest", "the largest number", kLargest}};
  const Sizes sizes{1, 2, 2, 7, 70, 8, 9};
  for (const Special &special : specials) {
    const std::string id = special.id;
    const std::string name = special.name;
    cases.push_back(Attention("q-" + id, name + " in a query stays in its row", sizes)
                        .set('q', {0, 1, 2, 3}, special.bits)
                        .finish());
    cases.push_back(Attention("k-" + id, name + " in a key of each block of one head", sizes)
                        .set('k', {0, 0, 3, 1}, special.bits)
                        .set('k', {0, 0, 66, 7}, special.bits)
                        .finish());
    cases.push_back(Attention("v-" + id, name + " in a value stays in its column", sizes)
                        .set('v', {0, 0, 3, 1}, special.bits)
                        .set('v', {0, 1, 66, 8}, special.bits)
                        .finish());
    cases.push_back(Attention("mask-" + id, name + " in the mask, in the first and in the last block", sizes)
                        .mask(kSharedMask)
                        .set('m', {0, 0, 1, 3}, special.bits)
                        .set('m', {0, 0, 4, 69}, special.bits)
                        .finish());
  }
  cases.push_back(
      Attention("q-minus-0", "products of -0: every score is +0, none -0", sizes).q(constant(kMinusZero)).finish());
  cases.push_back(
      Attention("k-minus-0", "products of -0: every score is +0, none -0", sizes).k(constant(kMinusZero)).finish());
  cases.push_back(
      Attention("v-minus-0", "sums start from +0: outputs of +0, never -0", sizes).v(constant(kMinusZero)).finish());
  cases.push_back(
      Attention("mask-minus-0", "a mask of -0 changes no bit", sizes).mask(kSharedMask, constant(kMinusZero)).finish());
  // Products of a subnormal number of about 1e-40 with numbers up to 2^111 * 2^15.
  cases.push_back(Attention("q-subnormal", "subnormal queries that are not zero: scores of about 1", sizes)
                      .q(constant(0x00712345u))
                      .k(normal(-110))
                      .finish());
  cases.push_back(Attention("k-subnormal", "subnormal keys that are not zero: scores of about 1", sizes)
                      .q(normal(-110))
                      .k(constant(0x80712345u))
                      .finish());
  cases.push_back(Attention("v-subnormal", "subnormal values: outputs that are subnormal", sizes)
                      .v(constant(0x00012345u))
                      .set('v', {0, 0, 3, kAll}, 0x007FFFFFu)
                      .set('v', {0, 1, 20, 0}, {0, 1, 40, 4}, 0x80000001u)
                      .finish());
  cases.push_back(
      Attention("mask-subnormal", "one key and a subnormal score: it is the log-sum-exp", {1, 1, 1, 3, 1, 2, 2})
          .q(constant(0))
          .mask(kSharedMask, constant(kLeastSubnormal))
          .set('m', {0, 0, 1, 0}, 0x807FFFFFu)
          .finish());
  cases.push_back(
      Attention("any-bits-q", "queries of any bits: rows of one kind of trouble each", {1, 1, 1, 200, 3, 1, 2})
          .q(any_bits())
          .finish());
  cases.push_back(Attention("any-bits-k", "keys of any bits: rows of one kind of trouble each", {200, 1, 1, 2, 1, 1, 2})
                      .k(any_bits())
                      .finish());
  cases.push_back(Attention("any-bits-v", "one key: values of any bits come out as they are, NaN as one pattern",
                            {40, 1, 1, 1, 1, 1, 37})
                      .v(any_bits())
                      .finish());
  cases.push_back(
      Attention("any-bits-mask", "a mask of any bits: rows of one kind of trouble each", {1, 2, 2, 150, 2, 4, 3})
          .mask(kFullMask, any_bits())
          .finish());
}

// ---- Scores: their size, their order, and -inf ----

void add_scores(Cases &cases) {
  const Sizes sizes{1, 2, 2, 6, 200, 8, 10};
  cases.push_back(
      Attention("scores-1e30", "huge scores: weights of 1 and +0 only", sizes).q(normal(-34)).k(normal(-34)).finish());
  cases.push_back(Attention("scores-overflow", "scores that overflow to both infinities, so some rows are NaN",
                            {1, 2, 2, 40, 3, 8, 10})
                      .q(normal(-48))
                      .k(normal(-48))
                      .finish());
  cases.push_back(Attention("scores-apart", "differences of scores that overflow", {1, 1, 1, 2, 4, 1, 3})
                      .q(constant(kOne))
                      .k(constant(kMinusLargest))
                      .score(2, kLargest)
                      .finish());
  cases.push_back(Attention("scores-equal", "ties: weights that are all 1", sizes).q(constant(0)).finish());
  cases.push_back(Attention("scores-equal-not-zero", "ties of a score that is not zero", sizes)
                      .q(constant(number(3, 2)))
                      .k(constant(number(7, 3)))
                      .finish());
  cases.push_back(Attention("scores-wide", "weights over the whole range of the exponential", sizes)
                      .q(normal(12))
                      .k(normal(12))
                      .finish());
  cases.push_back(
      Attention("scores-narrow", "scores near zero: weights just below 1", sizes).q(normal(24)).k(normal(24)).finish());
  cases.push_back(Attention("scores-cancel", "a dot product whose large terms cancel: the order of its sum",
                            {1, 1, 1, 33, 129, 24, 6})
                      .set('q', {0, 0, kAll, 3}, number(4000))
                      .set('q', {0, 0, kAll, 20}, number(-4000))
                      .set('k', {0, 0, kAll, 3}, number(4097, 3))
                      .set('k', {0, 0, kAll, 20}, number(4097, 3))
                      .finish());

  // One query of 1: a key is its score. Rows differ by a mask of [1, 1, Tq, 1], which shifts all their scores.
  struct Staircase {
    const char *id;
    const char *guards;
    bool lone; // no other key of the block has any weight
    std::function<std::uint32_t(std::int32_t)> of_block;
  };
  const Staircase staircases[] = {
      {"maximum-grows", "a new maximum in every block: each is rescaled", false,
       [](std::int32_t t) { return number(3 * t); }},
      {"maximum-grows-little", "a maximum that grows by one unit in the last place: factors just below 1", false,
       [](std::int32_t t) { return kOne + static_cast<std::uint32_t>(t); }},
      {"maximum-grows-much", "a maximum that grows by 100: factors of +0", false,
       [](std::int32_t t) { return number(100 * t); }},
      {"maximum-falls", "the first maximum stays: never rescaled", true, [](std::int32_t t) { return number(-3 * t); }},
      {"maximum-alternates", "a maximum that grows in every other block", true,
       [](std::int32_t t) { return number(t % 2 == 0 ? 2 * t : -5); }},
      {"maximum-stays", "the same maximum in every block: a factor of 1", false,
       [](std::int32_t) { return number(2); }},
      {"maximum-from-below", "negative scores that grow through zero", true,
       [](std::int32_t t) { return number(5 * t - 23, 1); }},
  };
  for (const Staircase &staircase : staircases) {
    Attention item(staircase.id, staircase.guards, {1, 1, 1, 3, 634, 1, 9});
    item.q(constant(kOne)).k(staircase.lone ? constant(number(-1000)) : normal(17));
    item.mask({false, false, true, false}, normal(14)).set('m', {0, 0, 0, 0}, 0);
    for (std::int32_t t = 0; t < 10; ++t) {
      item.score(64 * t + (17 * t + 3) % 58, staircase.of_block(t));
    }
    cases.push_back(item.finish());
  }

  // Keys of the first block have the score 0; the second block's maximum makes its factor the exponential of a number
  // round the cut, another one in each sequence. Values of the second block are 0, so that the rescaled sums come out.
  cases.push_back(
      Attention("rescale-cut", "a factor of 2^-126 at the exponential's cut, and +0 below it", {4, 1, 1, 1, 128, 1, 6})
          .q(constant(kOne))
          .k(constant(0))
          .v(normal(-100))
          .set('k', {kAll, 0, 64, 0}, {kAll, 0, 127, 0}, number(-1000))
          .set('v', {kAll, 0, 64, kAll}, {kAll, 0, 127, kAll}, 0)
          .set('k', {0, 0, 100, 0}, (kExpCut ^ kMinusZero) - 1)
          .set('k', {1, 0, 100, 0}, kExpCut ^ kMinusZero)
          .set('k', {2, 0, 100, 0}, (kExpCut ^ kMinusZero) + 1)
          .set('k', {3, 0, 100, 0}, number(88))
          .finish());

  // Key 0 has the score 0 and the value 0, so that what comes out is made of the tiny weights alone.
  Attention cut("exponential-cut", "scores round the least that has a weight: +0 below it, 2^-126 and more above",
                {1, 1, 1, 1, 80, 1, 3});
  cut.q(constant(kOne)).k(constant(kMinusInfinity)).score(0, 0);
  cut.v(normal(-100)).set('v', {0, 0, 0, kAll}, 0);
  for (std::int64_t j = 1; j < 64; ++j) {
    cut.score(j, static_cast<std::uint32_t>(kExpCut + 32 - j)); // a negative number: more bits are less
  }
  cases.push_back(cut.finish());
  Attention region("exponential-small", "weights from e^-80 to e^-88, a sixteenth apart", {1, 1, 1, 1, 130, 1, 4});
  region.q(constant(kOne)).k(constant(kMinusInfinity)).score(0, 0);
  region.v(normal(-100)).set('v', {0, 0, 0, kAll}, 0);
  for (std::int32_t j = 1; j < 130; ++j) {
    region.score(j, number(-80 * 16 - j, 4));
  }
  cases.push_back(region.finish());
  cases.push_back(Attention("exponential-dense", "weights of 1000 scores between 0 and -18", {1, 1, 1, 2, 1000, 1, 16})
                      .q(constant(kOne))
                      .k(normal(14))
                      .mask({false, false, true, true}, normal(14))
                      .finish());
  cases.push_back(Attention("subnormal-rescale", "sums that shrink through the subnormal numbers block by block",
                            {1, 1, 1, 2, 400, 1, 5})
                      .q(constant(kOne))
                      .v(normal(121))
                      .scores(64, 127, number(4))
                      .scores(128, 191, number(8))
                      .scores(192, 255, number(12))
                      .scores(256, 319, number(15))
                      .scores(320, 399, number(18))
                      .set('v', {0, 0, 64, kAll}, {0, 0, 399, kAll}, kMinusZero)
                      .finish());
  cases.push_back(Attention("sum-overflow", "sums of values that overflow, and infinity stays", {1, 1, 1, 2, 70, 4, 3})
                      .q(constant(0))
                      .set('v', {0, 0, 5, 0}, {0, 0, 6, 0}, kLargest)
                      .set('v', {0, 0, 66, 1}, {0, 0, 67, 1}, kMinusLargest)
                      .finish());
  cases.push_back(
      Attention("value-order", "large values that cancel: the order of the sum over keys", {1, 1, 1, 2, 200, 1, 8})
          .q(constant(0))
          .set('v', {0, 0, 10, kAll}, number(1 << 22))
          .set('v', {0, 0, 63, kAll}, number(-(1 << 22)))
          .set('v', {0, 0, 64, kAll}, number(1 << 22))
          .set('v', {0, 0, 150, kAll}, number(-(1 << 22)))
          .finish());

  // -inf in the mask.
  const Sizes masked{1, 2, 2, 5, 200, 8, 6};
  for (const bool zero : {false, true}) {
    const std::string suffix = zero ? "-zero" : "-nan";
    const auto add = [&](Attention item) {
      if (zero) {
        item.fully_masked_zero();
      }
      cases.push_back(item.finish());
    };
    add(Attention("row-masked" + suffix, "a row whose scores are all -inf, between others", masked)
            .mask(kSharedMask)
            .set('m', {0, 0, 2, kAll}, kMinusInfinity));
    add(Attention("all-masked" + suffix, "all rows' scores are -inf, and a value is NaN", masked)
            .mask(kSharedMask, constant(kMinusInfinity))
            .set('v', {0, 1, 100, 2}, kNan));
    add(Attention("row-masked-nan-score" + suffix, "scores of -inf and one NaN are not a masked row", masked)
            .mask(kSharedMask, constant(kMinusInfinity))
            .set('m', {0, 0, 3, 130}, kNan));
  }
  cases.push_back(Attention("first-block-masked", "a first block of -inf, then finite scores", masked)
                      .mask(kSharedMask)
                      .set('m', {0, 0, kAll, 0}, {0, 0, kAll, 63}, kMinusInfinity)
                      .finish());
  cases.push_back(
      Attention("first-blocks-masked-by-row", "rows whose first finite score is in different blocks", masked)
          .mask(kSharedMask)
          .set('m', {0, 0, 1, 0}, {0, 0, 1, 70}, kMinusInfinity)
          .set('m', {0, 0, 2, 0}, {0, 0, 2, 127}, kMinusInfinity)
          .set('m', {0, 0, 3, 0}, {0, 0, 3, 198}, kMinusInfinity)
          .finish());
  cases.push_back(Attention("middle-block-masked", "a block of -inf between others", masked)
                      .mask(kSharedMask)
                      .set('m', {0, 0, kAll, 64}, {0, 0, kAll, 127}, kMinusInfinity)
                      .finish());
  cases.push_back(Attention("last-block-masked", "a last block of -inf", masked)
                      .mask(kSharedMask)
                      .set('m', {0, 0, kAll, 192}, {0, 0, kAll, 199}, kMinusInfinity)
                      .finish());
  cases.push_back(Attention("mask-lowest", "-FLT_MAX in the mask is a number: its rows are as without it", masked)
                      .mask(kSharedMask, constant(kMinusLargest))
                      .set('m', {0, 0, 0, kAll}, 0)
                      .set('m', {0, 0, 1, 100}, 0)
                      .finish());
  cases.push_back(Attention("masked-nan-value",
                            "a key of weight +0 by -inf in the mask: NaN and infinity in its value show", masked)
                      .mask(kSharedMask)
                      .set('m', {0, 0, kAll, 80}, kMinusInfinity)
                      .set('v', {0, 0, 80, 1}, kNan)
                      .set('v', {0, 1, 80, 4}, kInfinity)
                      .finish());
  cases.push_back(Attention("mask-checkered", "-inf in every other key", {1, 1, 1, 4, 9, 6, 6})
                      .mask({false, false, false, true})
                      .set('m', {0, 0, 0, 1}, kMinusInfinity)
                      .set('m', {0, 0, 0, 3}, kMinusInfinity)
                      .set('m', {0, 0, 0, 5}, kMinusInfinity)
                      .set('m', {0, 0, 0, 7}, kMinusInfinity)
                      .finish());
}

// ---- Options: groups of heads, visibility, sinks ----

void add_options(Cases &cases) {
  cases.push_back(
      Attention("groups-6-on-2", "which key and value head a query head reads", {2, 6, 2, 5, 70, 16, 16}).finish());
  cases.push_back(
      Attention("groups-7-on-1", "all query heads on one key and value head", {1, 7, 1, 5, 33, 16, 24}).finish());
  cases.push_back(Attention("causal", "a row sees its own position and none after it", {1, 2, 2, 130, 130, 16, 16})
                      .causal()
                      .finish());
  cases.push_back(
      Attention("causal-offset", "positions are absolute: rows that begin at 61", {1, 2, 2, 70, 150, 16, 16})
          .causal(61)
          .finish());
  cases.push_back(Attention("causal-mask", "the causal rule and a mask together", {2, 2, 2, 33, 70, 8, 8})
                      .causal(20)
                      .mask(kFullMask)
                      .set('m', {0, 1, 7, 0}, {0, 1, 7, 20}, kMinusInfinity)
                      .finish());
  cases.push_back(
      Attention("causal-poison", "a hidden key's NaN leaves no trace, a visible one's does", {1, 1, 1, 40, 100, 8, 8})
          .causal(50)
          .set('k', {0, 0, 90, kAll}, {0, 0, 99, kAll}, kNan)
          .set('v', {0, 0, 85, 3}, kNan)
          .set('v', {0, 0, 90, kAll}, {0, 0, 99, kAll}, kInfinity)
          .finish());
  cases.push_back(
      Attention("window-1", "a window of one key: its value", {1, 1, 1, 20, 90, 8, 8}).causal().window(1, 55).finish());
  cases.push_back(
      Attention("window-65", "a window over a block's edges; whole blocks skipped", {1, 2, 1, 140, 300, 16, 16})
          .causal()
          .window(65, 150)
          .finish());
  cases.push_back(Attention("window-not-causal", "a window hides earlier keys only", {1, 2, 2, 40, 150, 16, 16})
                      .window(30, 60)
                      .finish());
  cases.push_back(
      Attention("window-past-the-keys", "rows that see fewer and fewer keys, then none", {1, 1, 1, 30, 20, 8, 8})
          .window(5, 10)
          .finish());
  cases.push_back(Attention("window-poison", "NaN in front of the window leaves no trace", {1, 1, 1, 3, 200, 8, 8})
                      .causal()
                      .window(20, 150)
                      .set('k', {0, 0, 0, kAll}, {0, 0, 130, kAll}, kNan)
                      .set('v', {0, 0, 0, kAll}, {0, 0, 130, kAll}, kNan)
                      .finish());
  cases.push_back(
      Attention("lengths", "key lengths per sequence, 0 among them; poison after them", {4, 2, 2, 3, 130, 8, 8})
          .kv_lens({65, 0, 130, 1})
          .set('k', {0, kAll, 65, kAll}, {0, kAll, 129, kAll}, kNan)
          .set('v', {1, kAll, 0, kAll}, {1, kAll, 129, kAll}, kNan)
          .set('v', {3, kAll, 1, kAll}, {3, kAll, 129, kAll}, kInfinity)
          .finish());
  cases.push_back(Attention("offsets-and-lengths", "positions and lengths per sequence: a ragged decode batch",
                            {3, 4, 2, 2, 100, 16, 16})
                      .causal()
                      .q_offsets({98, 3, 64})
                      .kv_lens({100, 5, 66})
                      .finish());
  cases.push_back(Attention("sinks", "a sink per head: in the sum, without a value", {2, 4, 2, 5, 70, 16, 16})
                      .sinks(normal())
                      .finish());
  cases.push_back(Attention("sinks-special", "sinks of NaN, both infinities, both zeros, and ones far from the scores",
                            {1, 9, 3, 3, 70, 8, 8})
                      .sinks(constant(0))
                      .set_sink(1, kMinusZero)
                      .set_sink(2, kNan)
                      .set_sink(3, kInfinity)
                      .set_sink(4, kMinusInfinity)
                      .set_sink(5, number(90))
                      .set_sink(6, number(-90))
                      .set_sink(7, kLargest)
                      .set_sink(8, kMinusLargest)
                      .finish());
  cases.push_back(Attention("sinks-empty-rows", "rows without keys beside sinks of every kind", {1, 6, 6, 8, 8, 4, 4})
                      .sinks(constant(number(-3, 1)))
                      .set_sink(1, kMinusInfinity)
                      .set_sink(2, kNan)
                      .set_sink(3, kInfinity)
                      .set_sink(4, kMinusZero)
                      .set_sink(5, number(1000))
                      .window(4, 7)
                      .finish());
  cases.push_back(
      Attention("sinks-masked-rows", "rows of -inf beside a sink are not divided by zero", {1, 3, 3, 4, 70, 4, 4})
          .sinks(normal())
          .set_sink(1, kMinusInfinity)
          .mask(kSharedMask)
          .set('m', {0, 0, 1, kAll}, kMinusInfinity)
          .set('m', {0, 0, 3, 0}, {0, 0, 3, 63}, kMinusInfinity)
          .finish());
  cases.push_back(Attention("all-options",
                            "groups, causal rule, window, positions, lengths, sinks, mask and scale at once",
                            {3, 6, 3, 40, 180, 24, 20})
                      .causal()
                      .window(70, 0)
                      .q_offsets({0, 100, 140})
                      .kv_lens({180, 120, 150})
                      .sinks(normal())
                      .mask({true, true, false, true})
                      .scale(0x3E4CCCCDu)
                      .fully_masked_zero()
                      .finish());
  cases.push_back(Attention("llama-decode", "a decode step: 32 heads on 8, D 128", {1, 32, 8, 1, 300, 128, 128})
                      .causal(299)
                      .finish());
  cases.push_back(Attention("llama-prefill-chunk", "64 rows of a prefill at position 236: 32 heads on 8, D 128",
                            {1, 32, 8, 64, 300, 128, 128})
                      .causal(236)
                      .finish());
}

// ---- Boolean masks ----

constexpr std::array<bool, 4> kRowMask = {true, false, true, false}; // [B, 1, Tq, 1]

void add_boolean_masks(Cases &cases) {
  const Sizes small{1, 2, 2, 5, 200, 8, 6};
  cases.push_back(Attention("mask-bool", "each key of each row on its own", {2, 2, 2, 18, 130, 8, 8})
                      .mask_bool(kFullMask)
                      .finish());
  cases.push_back(Attention("mask-bool-any-byte", "every byte but 0 shows the key", {1, 2, 2, 9, 300, 8, 6})
                      .mask_bool(kSharedMask, any_bits())
                      .set('b', {0, 0, 4, 20}, {0, 0, 4, 90}, 0x80)
                      .set('b', {0, 0, 5, 20}, {0, 0, 5, 90}, 0x00)
                      .finish());
  cases.push_back(
      Attention("mask-bool-per-sequence", "the boolean mask's strides: [B, 1, 1, Tk]", {2, 3, 3, 5, 66, 8, 8})
          .mask_bool(kKeyMask)
          .finish());
  cases.push_back(Attention("mask-bool-per-head", "the boolean mask's strides: [1, H, 1, Tk]", {2, 3, 3, 5, 66, 8, 8})
                      .mask_bool({false, true, false, true})
                      .finish());
  cases.push_back(Attention("mask-bool-per-row",
                            "the boolean mask's strides: [B, 1, Tq, 1] hides all keys of a row, or none",
                            {2, 3, 3, 5, 66, 8, 8})
                      .mask_bool(kRowMask)
                      .finish());
  cases.push_back(Attention("mask-bool-one-hides", "a boolean mask of one 0: no row sees a key", {2, 2, 2, 3, 10, 4, 4})
                      .mask_bool({false, false, false, false}, constant(0))
                      .finish());
  cases.push_back(Attention("mask-bool-one-shows", "a boolean mask of one 2 hides nothing", {2, 2, 2, 3, 10, 4, 4})
                      .mask_bool({false, false, false, false}, constant(2))
                      .finish());
  cases.push_back(Attention("mask-bool-sparse", "rows that see a key here and there", {1, 2, 1, 40, 150, 8, 8})
                      .mask_bool(kFullMask, visible(8))
                      .finish());
  cases.push_back(Attention("mask-bool-dense",
                            "rows that miss a key here and there: which partial sum a weight goes to",
                            {1, 2, 1, 20, 150, 8, 8})
                      .mask_bool(kFullMask, visible(248))
                      .finish());
  cases.push_back(Attention("mask-bool-blocks",
                            "whole blocks hidden, first, middle and last; NaN and infinities in them leave "
                            "no trace",
                            {1, 2, 2, 5, 330, 8, 6})
                      .mask_bool(kSharedMask, constant(1))
                      .set('b', {0, 0, kAll, 0}, {0, 0, kAll, 63}, 0)
                      .set('b', {0, 0, kAll, 128}, {0, 0, kAll, 191}, 0)
                      .set('b', {0, 0, kAll, 320}, {0, 0, kAll, 329}, 0)
                      .set('b', {0, 0, 3, 64}, {0, 0, 3, 255}, 0)
                      .set('k', {0, kAll, 0, kAll}, {0, kAll, 63, kAll}, kNan)
                      .set('v', {0, kAll, 128, kAll}, {0, kAll, 191, kAll}, kInfinity)
                      .set('k', {0, kAll, 325, kAll}, {0, kAll, 329, kAll}, kInfinity)
                      .set('v', {0, kAll, 320, kAll}, {0, kAll, 329, kAll}, kNan)
                      .finish());
  cases.push_back(
      Attention("mask-bool-poison", "NaN and infinities in keys, values and mask of hidden keys leave no trace", small)
          .mask(kSharedMask)
          .mask_bool(kSharedMask, visible(200))
          .set('b', {0, 0, kAll, 17}, 0)
          .set('b', {0, 0, kAll, 100}, {0, 0, kAll, 102}, 0)
          .set('b', {0, 0, 2, 40}, 0)
          .set('b', {0, 0, 3, 41}, 1)
          .set('k', {0, kAll, 17, kAll}, kNan)
          .set('v', {0, kAll, 17, kAll}, kInfinity)
          .set('k', {0, kAll, 100, kAll}, kInfinity)
          .set('v', {0, kAll, 101, kAll}, kNan)
          .set('m', {0, 0, kAll, 102}, kNan)
          .set('m', {0, 0, 2, 40}, kInfinity)
          .set('m', {0, 0, 3, 41}, kNan)
          .finish());
  for (const bool zero : {false, true}) {
    Attention item(zero ? "mask-bool-empty-row-zero" : "mask-bool-empty-row",
                   "a row that the boolean mask hides every key from: +0 and -inf, with either option", small);
    item.mask_bool(kSharedMask).set('b', {0, 0, 0, kAll}, 0).set('b', {0, 0, 3, kAll}, 0);
    if (zero) {
      item.fully_masked_zero();
    }
    cases.push_back(item.finish());
  }
  cases.push_back(
      Attention("mask-bool-empty-row-sinks", "rows without a key beside sinks of every kind", {1, 6, 3, 4, 70, 8, 6})
          .sinks(normal())
          .set_sink(1, kMinusInfinity)
          .set_sink(2, kNan)
          .set_sink(3, kInfinity)
          .set_sink(4, kMinusZero)
          .mask_bool(kSharedMask)
          .set('b', {0, 0, 1, kAll}, 0)
          .set('b', {0, 0, 3, 0}, {0, 0, 3, 63}, 0)
          .finish());
  cases.push_back(Attention("mask-bool-and-minus-infinity",
                            "hidden is not -inf: a visible key of -inf multiplies its NaN value by +0", small)
                      .mask(kSharedMask)
                      .mask_bool(kSharedMask, constant(1))
                      .set('m', {0, 0, kAll, 80}, kMinusInfinity)
                      .set('b', {0, 0, 1, 80}, 0)
                      .set('b', {0, 0, 4, 80}, 0)
                      .set('v', {0, kAll, 80, 2}, kNan)
                      .set('m', {0, 0, 2, kAll}, kMinusInfinity)
                      .set('b', {0, 0, 2, 5}, {0, 0, 2, 150}, 0)
                      .finish());
  cases.push_back(Attention("mask-bool-causal-window", "the boolean mask, the causal rule and a window together",
                            {1, 4, 2, 40, 150, 8, 8})
                      .causal()
                      .window(70, 90)
                      .mask_bool(kFullMask, visible(150))
                      .set('k', {0, kAll, 0, kAll}, {0, kAll, 20, kAll}, kNan)
                      .set('v', {0, kAll, 130, kAll}, {0, kAll, 149, kAll}, kInfinity)
                      .finish());
  cases.push_back(
      Attention("mask-bool-lengths", "the boolean mask beside key lengths per sequence", {3, 4, 2, 3, 130, 8, 8})
          .kv_lens({130, 0, 65})
          .mask_bool({true, false, true, true})
          .set('k', {2, kAll, 65, kAll}, {2, kAll, 129, kAll}, kNan)
          .finish());
}

// ---- ALiBi ----

void add_alibi(Cases &cases) {
  cases.push_back(Attention("alibi",
                            "a bias by distance, before and after the row's position; heads that share a key "
                            "head have slopes of their own",
                            {1, 4, 2, 20, 130, 8, 8})
                      .window(0, 50)
                      .alibi(normal(18))
                      .finish());
  cases.push_back(Attention("alibi-causal", "slopes in the causal case, over a block's edge", {2, 4, 4, 35, 100, 8, 8})
                      .causal(61)
                      .alibi(normal(17))
                      .finish());
  cases.push_back(Attention("alibi-powers", "slopes of 1/2 to 1/256 as trained with 8 heads", {1, 8, 8, 9, 90, 8, 8})
                      .causal(81)
                      .alibi(constant(number(1, 1)))
                      .set_slope(1, number(1, 2))
                      .set_slope(2, number(1, 3))
                      .set_slope(3, number(1, 4))
                      .set_slope(4, number(1, 5))
                      .set_slope(5, number(1, 6))
                      .set_slope(6, number(1, 7))
                      .set_slope(7, number(1, 8))
                      .finish());
  cases.push_back(
      Attention("alibi-mask", "the bias is one multiply-add of distance and mask entry", {2, 3, 3, 9, 130, 8, 6})
          .alibi(normal(17))
          .q_offsets({3, 120})
          .mask(kFullMask)
          .set('m', {0, 1, 4, 0}, {0, 1, 4, 70}, kMinusInfinity)
          .set('m', {1, 2, 5, kAll}, kMinusInfinity)
          .set('m', {1, 0, 2, 9}, kNan)
          .finish());
  cases.push_back(Attention("alibi-mask-cancels", "a mask entry that cancels the bias: it is rounded once, or twice",
                            {1, 2, 2, 6, 100, 4, 6})
                      .alibi(constant(0x3DCCCCCDu))
                      .window(0, 47)
                      .mask(kSharedMask, constant(number(3)))
                      .finish());
  cases.push_back(Attention("alibi-far", "distances beyond 2^24 are rounded to the nearest number, ties to even",
                            {1, 4, 4, 9, 140, 8, 8})
                      .causal((std::int64_t{1} << 24) + 61)
                      .alibi(constant(number(1, 3)))
                      .set_slope(1, number(1, 5))
                      .set_slope(2, number(-1, 5))
                      .set_slope(3, 0x3DCCCCCDu)
                      .finish());
  cases.push_back(
      Attention("alibi-farther", "distances of 53 bits, round a tie of their rounding", {1, 3, 3, 5, 140, 8, 8})
          .causal((std::int64_t{1} << 52) + (std::int64_t{1} << 28) + 70)
          .alibi(constant(number(1, 28)))
          .set_slope(1, number(3, 30))
          .set_slope(2, number(-1, 29))
          .finish());
  cases.push_back(Attention("alibi-special",
                            "slopes of both zeros, of both infinities (NaN at distance 0), NaN, huge and subnormal",
                            {1, 9, 3, 4, 70, 8, 8})
                      .window(0, 68)
                      .alibi(constant(0))
                      .set_slope(1, kMinusZero)
                      .set_slope(2, kInfinity)
                      .set_slope(3, kMinusInfinity)
                      .set_slope(4, kNan)
                      .set_slope(5, kLargest)
                      .set_slope(6, kMinusLargest)
                      .set_slope(7, kLeastSubnormal)
                      .set_slope(8, number(-1, 2))
                      .finish());
  cases.push_back(Attention("alibi-infinite", "an infinite slope away from every key: rows whose scores are all -inf",
                            {1, 2, 2, 3, 70, 8, 8})
                      .window(0, 100)
                      .alibi(constant(kInfinity))
                      .set_slope(1, number(1, 4))
                      .fully_masked_zero()
                      .finish());
  cases.push_back(
      Attention("alibi-options", "slopes with a boolean mask, a window, lengths and sinks", {2, 4, 2, 12, 150, 8, 6})
          .causal()
          .window(80, 0)
          .q_offsets({138, 90})
          .kv_lens({150, 99})
          .alibi(normal(18))
          .sinks(normal())
          .mask_bool(kSharedMask, visible(200))
          .finish());
}

// ---- Softcap ----

void add_softcaps(Cases &cases) {
  struct Softcap {
    const char *id;
    const char *guards;
    std::uint32_t bits;
  };
  const Softcap softcaps[] = {
      {"softcap-half", "a softcap of 1/2: nearly every score is capped", number(1, 1)},
      {"softcap-30", "a softcap of 30, as for logits", number(30)},
      {"softcap-50", "a softcap of 50, as for attention", number(50)},
      {"softcap-1e30", "a softcap far above the scores: the tangent of numbers near zero", 0x7149F2CAu},
      {"softcap-largest", "the largest softcap: arguments that are subnormal", kLargest},
      {"softcap-subnormal", "the least softcap: arguments that overflow", kLeastSubnormal},
  };
  for (const Softcap &softcap : softcaps) {
    cases.push_back(
        Attention(softcap.id, softcap.guards, {1, 2, 2, 9, 140, 16, 8}).q(normal(13)).softcap(softcap.bits).finish());
  }
  // One query of 1 and a scale of 1: a key is the tangent's argument.
  cases.push_back(Attention("softcap-dense", "the tangent of 1000 numbers within +-4", {1, 1, 1, 1, 1000, 1, 8})
                      .q(constant(kOne))
                      .softcap(kOne)
                      .finish());
  cases.push_back(Attention("softcap-dense-small", "the tangent of 700 numbers within +-1/2", {1, 1, 1, 1, 700, 1, 8})
                      .q(constant(kOne))
                      .k(normal(18))
                      .softcap(kOne)
                      .finish());
  cases.push_back(Attention("softcap-dense-large", "the tangent of 700 numbers within +-16", {1, 1, 1, 1, 700, 1, 8})
                      .q(constant(kOne))
                      .k(normal(13))
                      .softcap(kOne)
                      .finish());
  // One row and one key: the log-sum-exp is the capped score.
  cases.push_back(Attention("softcap-one-key", "one key: the log-sum-exp is the capped score", {300, 1, 1, 1, 1, 1, 1})
                      .q(constant(kOne))
                      .softcap(kOne)
                      .finish());
  cases.push_back(
      Attention("softcap-any-bits", "one key of any bits: its capped score, or NaN", {300, 1, 1, 1, 1, 1, 1})
          .q(constant(kOne))
          .k(any_bits())
          .softcap(number(3, 1))
          .finish());
  cases.push_back(
      Attention("softcap-special", "scores of both infinities are capped, NaN is not", {1, 2, 2, 6, 80, 2, 5})
          .q(constant(kOne))
          .scale(kOne)
          .softcap(number(5))
          .set('k', {0, 0, 3, 0}, kInfinity)
          .set('k', {0, 0, 40, 0}, kMinusInfinity)
          .set('k', {0, 0, 70, 0}, kLargest)
          .set('k', {0, 0, 71, kAll}, kMinusZero)
          .set('k', {0, 0, 72, kAll}, kLeastSubnormal)
          .set('k', {0, 1, 66, 1}, kNan)
          .set('q', {0, 1, 2, 0}, kMinusInfinity)
          .finish());
  cases.push_back(Attention("softcap-scale-nan", "a scale of NaN is NaN in every capped score", {1, 1, 1, 3, 70, 4, 4})
                      .scale(kNan)
                      .softcap(number(50))
                      .finish());
  cases.push_back(Attention("softcap-scale-infinity",
                            "a scale of infinity: every capped score is the cap or its opposite",
                            {1, 1, 1, 3, 70, 4, 4})
                      .scale(kInfinity)
                      .softcap(number(2))
                      .finish());
  cases.push_back(Attention("softcap-scale-minus-0", "a scale of -0: the tangent of both zeros", {1, 1, 1, 3, 70, 4, 4})
                      .scale(kMinusZero)
                      .softcap(number(2))
                      .finish());
  cases.push_back(Attention("softcap-mask", "the mask comes after the cap: -inf in it stays", {2, 2, 2, 7, 130, 8, 6})
                      .q(normal(13))
                      .softcap(number(3))
                      .mask(kFullMask)
                      .set('m', {0, 1, 4, 0}, {0, 1, 4, 70}, kMinusInfinity)
                      .set('m', {1, 0, 5, kAll}, kMinusInfinity)
                      .set('m', {1, 1, 6, 100}, number(1000))
                      .finish());
  cases.push_back(
      Attention("softcap-alibi-sinks", "the cap is not of the bias, nor of the sink", {1, 4, 2, 9, 130, 8, 6})
          .q(normal(13))
          .causal(121)
          .softcap(number(3))
          .alibi(normal(16))
          .sinks(constant(number(20)))
          .set_sink(1, number(-20))
          .finish());
  cases.push_back(Attention("softcap-options", "a cap with a boolean mask, a window, lengths, ALiBi and a mask",
                            {2, 4, 2, 12, 150, 8, 6})
                      .causal()
                      .window(80, 0)
                      .q_offsets({138, 90})
                      .kv_lens({150, 99})
                      .softcap(number(7, 2))
                      .alibi(normal(18))
                      .mask(kSharedMask)
                      .mask_bool(kFullMask, visible(200))
                      .finish());
}

// ---- Layouts: ragged batches, pages ----

void add_ragged(Cases &cases) {
  // Sequences of 3, 0, 17, 1 and 2 rows with 28, 0, 130, 1 and 0 keys; keys of no sequence before and after them.
  const std::vector<std::int64_t> q_starts = {0, 3, 3, 20, 21, 23};
  const std::vector<std::int64_t> kv_starts = {2, 30, 30, 160, 161, 161};
  const Sizes sizes{5, 4, 2, 23, 170, 8, 6};
  const auto with_gaps = [](Attention &item) -> Attention & {
    return item.set('k', {0, kAll, 0, kAll}, {0, kAll, 1, kAll}, kNan)
        .set('v', {0, kAll, 0, kAll}, {0, kAll, 1, kAll}, kInfinity)
        .set('k', {0, kAll, 161, kAll}, {0, kAll, 169, kAll}, kInfinity)
        .set('v', {0, kAll, 161, kAll}, {0, kAll, 169, kAll}, kNan);
  };
  const auto ragged = [&](const char *id, const char *guards) {
    Attention item(id, guards, sizes);
    item.ragged(q_starts).ragged_keys(kv_starts);
    return item;
  };
  Attention plain = ragged("ragged", "sequences one after the other, without rows, without keys, of one row; "
                                     "poison that belongs to none");
  cases.push_back(with_gaps(plain).finish());
  Attention causal = ragged("ragged-causal", "positions count from the start of each sequence");
  cases.push_back(with_gaps(causal).causal().q_offsets({25, 4, 113, 0, 9}).finish());
  Attention window = ragged("ragged-window", "a window and one offset for sequences of other lengths");
  cases.push_back(with_gaps(window).causal().window(20, 30).finish());
  Attention masks = ragged("ragged-masks", "a mask has a column for each key of the row's sequence");
  masks.mask(kFullMask).mask_bool(kSharedMask, visible(200)).set('m', {0, 1, 5, 0}, {0, 1, 5, 66}, kMinusInfinity);
  cases.push_back(with_gaps(masks).finish());
  Attention lengths = ragged("ragged-lengths", "key lengths within ragged sequences; poison after them");
  lengths.kv_lens({20, 0, 65, 1, 0}).set('k', {0, kAll, 22, kAll}, {0, kAll, 29, kAll}, kNan);
  lengths.set('v', {0, kAll, 95, kAll}, {0, kAll, 159, kAll}, kNan);
  cases.push_back(with_gaps(lengths).finish());
  Attention options = ragged("ragged-options", "ragged sequences with sinks, ALiBi, a cap and a mask for all rows");
  options.causal().q_offsets({25, 4, 113, 0, 9}).sinks(normal()).alibi(normal(18)).softcap(number(5));
  options.mask({false, true, false, true});
  cases.push_back(with_gaps(options).finish());
  cases.push_back(Attention("ragged-queries", "ragged rows on keys that are not ragged", {3, 4, 2, 12, 100, 8, 6})
                      .ragged({0, 1, 1, 12})
                      .kv_lens({100, 7, 66})
                      .finish());
  cases.push_back(
      Attention("ragged-queries-masks", "masks of rows that are ragged: no batch in them", {3, 4, 2, 12, 100, 8, 6})
          .ragged({0, 7, 8, 12})
          .mask({false, true, true, true})
          .mask_bool({false, false, true, true}, visible(200))
          .finish());
  cases.push_back(Attention("ragged-keys", "ragged keys for rows that are not ragged", {3, 4, 2, 5, 200, 8, 6})
                      .ragged_keys({0, 65, 65, 200})
                      .finish());
  cases.push_back(Attention("ragged-keys-masks", "masks over ragged keys: as many columns as the longest sequence has",
                            {3, 4, 2, 5, 200, 8, 6})
                      .ragged_keys({0, 65, 70, 200})
                      .mask({true, false, true, true})
                      .mask_bool({true, true, false, true}, visible(200))
                      .finish());
  cases.push_back(Attention("ragged-long", "sequences with more rows than a work item has beside short ones",
                            {4, 2, 1, 310, 90, 4, 4})
                      .ragged({0, 150, 152, 309, 310})
                      .ragged_keys({0, 20, 40, 80, 90})
                      .finish());
  cases.push_back(Attention("ragged-no-sequence", "no sequence, so no row", {0, 2, 1, 0, 5, 4, 4})
                      .ragged({0})
                      .ragged_keys({3})
                      .finish());
  cases.push_back(Attention("ragged-no-row", "sequences that have keys and no row", {2, 2, 1, 0, 5, 4, 4})
                      .ragged({0, 0, 0})
                      .ragged_keys({0, 2, 5})
                      .finish());
}

void add_pages(Cases &cases) {
  for (const std::int64_t size : {1, 16, 48, 64, 100}) {
    cases.push_back(Attention("pages-" + std::to_string(size), "pages in any order, and slots that no key is in",
                              {2, 4, 2, 3, 150, 8, 6})
                        .pages(size)
                        .finish());
  }
  cases.push_back(
      Attention("pages-256", "a page that is longer than the sequence", {2, 2, 1, 3, 70, 8, 6}).pages(256).finish());
  cases.push_back(Attention("pages-lengths", "key lengths on a page's edge, in a page, and 0", {4, 4, 2, 2, 150, 8, 6})
                      .pages(16)
                      .kv_lens({96, 97, 0, 150})
                      .finish());
  cases.push_back(Attention("pages-window", "pages before the window and after the row", {2, 2, 2, 6, 300, 8, 6})
                      .causal()
                      .window(70, 0)
                      .q_offsets({200, 100})
                      .pages(48)
                      .set('k', {0, kAll, 0, kAll}, {0, kAll, 130, kAll}, kNan)
                      .set('v', {1, kAll, 106, kAll}, {1, kAll, 299, kAll}, kInfinity)
                      .finish());
  cases.push_back(Attention("pages-masks", "masks count keys, not slots", {2, 2, 1, 4, 150, 8, 6})
                      .pages(48)
                      .mask({true, false, true, true})
                      .mask_bool(kSharedMask, visible(180))
                      .finish());
  cases.push_back(
      Attention("pages-ragged-queries", "prefill and decode in one batch over pages", {4, 4, 2, 24, 130, 8, 6})
          .ragged({0, 1, 20, 23, 24})
          .causal()
          .q_offsets({99, 0, 127, 64})
          .kv_lens({100, 19, 130, 65})
          .pages(16)
          .finish());
  cases.push_back(
      Attention("pages-options", "pages of 16-bit keys with ALiBi, a cap and sinks", {2, 4, 2, 3, 150, 8, 6})
          .store(Storage::kFloat32, Storage::kBfloat16, Storage::kFloat16)
          .pages(64)
          .causal()
          .q_offsets({147, 80})
          .alibi(normal(18))
          .softcap(number(4))
          .sinks(normal())
          .finish());
}

// ---- States ----

void add_resumed(Cases &cases) {
  const Sizes sizes{2, 4, 2, 5, 150, 8, 6};
  cases.push_back(
      Attention("resume-64", "one stop: the bits of one call, and the state's bytes", sizes).resume({64}).finish());
  cases.push_back(
      Attention("resume-64-128", "two stops: a state that goes on from a state", sizes).resume({64, 128}).finish());
  cases.push_back(Attention("resume-128", "a stop after two blocks at once", sizes).resume({128}).finish());
  cases.push_back(Attention("resume-at-the-end", "a stop after the last key: no key follows", {1, 2, 1, 4, 128, 8, 6})
                      .resume({128})
                      .finish());
  cases.push_back(Attention("resume-sinks", "sinks count once, where a row starts", {1, 8, 4, 3, 150, 8, 6})
                      .resume({64, 128})
                      .sinks(normal())
                      .set_sink(1, kMinusInfinity)
                      .set_sink(2, kNan)
                      .set_sink(3, kInfinity)
                      .set_sink(4, kMinusZero)
                      .set_sink(5, number(90))
                      .finish());
  cases.push_back(Attention("resume-causal", "rows that see no key after a stop", {1, 2, 1, 140, 150, 4, 4})
                      .causal(5)
                      .resume({64, 128})
                      .finish());
  cases.push_back(Attention("resume-window", "rows that see no key before a stop, and rows that see none at all",
                            {1, 4, 2, 6, 200, 8, 6})
                      .window(20, 150)
                      .resume({64, 128})
                      .set('k', {0, kAll, 0, kAll}, {0, kAll, 130, kAll}, kNan)
                      .finish());
  cases.push_back(Attention("resume-empty-rows", "rows without any key, with and without a sink, over a stop",
                            {2, 4, 2, 6, 100, 8, 6})
                      .window(3, 0)
                      .q_offsets({96, 500})
                      .resume({64})
                      .sinks(constant(number(-3, 1)))
                      .set_sink(1, kMinusInfinity)
                      .set_sink(2, kMinusZero)
                      .fully_masked_zero()
                      .finish());
  cases.push_back(
      Attention("resume-lengths", "sequences that end before a stop, at it and after it", {5, 2, 1, 3, 150, 8, 6})
          .kv_lens({150, 40, 64, 0, 100})
          .resume({64, 128})
          .set('k', {1, kAll, 40, kAll}, {1, kAll, 149, kAll}, kNan)
          .finish());
  cases.push_back(
      Attention("resume-masks", "columns of both masks after a stop; rows of -inf before it", {2, 2, 2, 5, 150, 8, 6})
          .resume({64, 128})
          .mask({true, false, true, true})
          .mask_bool({false, true, true, true}, visible(200))
          .set('m', {0, 0, 1, 0}, {0, 0, 1, 63}, kMinusInfinity)
          .set('m', {0, 0, 2, 0}, {0, 0, 2, 129}, kMinusInfinity)
          .set('m', {1, 0, 3, kAll}, kMinusInfinity)
          .set('b', {0, 0, 4, 0}, {0, 0, 4, 80}, 0)
          .finish());
  cases.push_back(Attention("resume-special", "NaN and infinities in a state", {1, 2, 2, 4, 150, 8, 6})
                      .resume({64})
                      .set('k', {0, 0, 3, 1}, kNan)
                      .set('v', {0, 1, 20, 2}, kInfinity)
                      .set('v', {0, 1, 100, 3}, kSignallingNan)
                      .set('q', {0, 1, 2, 0}, kInfinity)
                      .finish());
  cases.push_back(Attention("resume-minus-0", "a maximum of -0 is written to a state as +0", {1, 1, 1, 2, 100, 1, 3})
                      .q(constant(kOne))
                      .k(constant(number(-2)))
                      .scale(kOne)
                      .mask(kSharedMask, constant(kMinusZero))
                      .score(9, kMinusZero)
                      .score(40, 0)
                      .score(80, kMinusZero)
                      .sinks(constant(kMinusZero))
                      .resume({64})
                      .finish());
  cases.push_back(
      Attention("resume-value-minus-0", "a value sum of -0 is written to a state as it is", {1, 1, 1, 2, 150, 1, 3})
          .q(constant(kOne))
          .k(constant(0))
          .scores(64, 149, kOne)
          .scale(kOne)
          .v(constant(kMinusZero))
          .set('v', {0, 0, 0, kAll}, kMinusZero | 1)
          .resume({64, 128})
          .finish());
  cases.push_back(Attention("resume-short",
                            "the position of the next key follows the call, not what its sequences hold",
                            {2, 2, 1, 2, 150, 8, 6})
                      .kv_lens({30, 50})
                      .resume({64, 128})
                      .finish());
  cases.push_back(Attention("resume-options", "a cap, ALiBi and the causal rule: positions stay absolute after a stop",
                            {2, 4, 2, 7, 150, 8, 6})
                      .causal()
                      .q_offsets({143, 60})
                      .softcap(number(4))
                      .alibi(normal(18))
                      .resume({64, 128})
                      .finish());
  cases.push_back(
      Attention("resume-pages", "pages that do not end where a state does, in 16 bits", {2, 4, 2, 3, 150, 8, 6})
          .store(Storage::kBfloat16)
          .pages(48)
          .kv_lens({150, 70})
          .resume({64, 128})
          .finish());
  cases.push_back(Attention("resume-ragged", "ragged rows and keys over stops; sequences that end before them",
                            {4, 2, 1, 12, 300, 8, 6})
                      .ragged({0, 5, 5, 11, 12})
                      .ragged_keys({0, 140, 170, 170, 300})
                      .causal()
                      .q_offsets({135, 7, 30, 129})
                      .resume({64, 128})
                      .finish());
  cases.push_back(
      Attention("resume-ragged-queries", "ragged rows whose keys are not ragged, over a stop", {3, 2, 1, 12, 100, 8, 6})
          .ragged({0, 7, 8, 12})
          .mask({false, true, true, true})
          .resume({64})
          .finish());
}

// ---- Storage ----

void add_storage(Cases &cases) {
  struct Kind {
    const char *name;
    Storage storage;
    std::uint32_t infinity, nan, largest, subnormal, most_subnormal, minus_zero;
  };
  const Kind kinds[] = {{"bf16", Storage::kBfloat16, 0x7F80, 0x7FC1, 0x7F7F, 0x0001, 0x007F, 0x8000},
                        {"f16", Storage::kFloat16, 0x7C00, 0x7E01, 0x7BFF, 0x0001, 0x03FF, 0x8000}};
  for (const Kind &kind : kinds) {
    const std::string id = kind.name;
    const bool half = kind.storage == Storage::kFloat16;
    cases.push_back(
        Attention(id, "queries, keys and values of 16 bits", {2, 4, 2, 9, 130, 16, 12}).store(kind.storage).finish());
    cases.push_back(Attention(id + "-q", "queries of 16 bits", {1, 2, 2, 5, 70, 9, 7})
                        .store(kind.storage, Storage::kFloat32, Storage::kFloat32)
                        .finish());
    cases.push_back(Attention(id + "-k", "keys of 16 bits", {1, 2, 2, 5, 70, 9, 7})
                        .store(Storage::kFloat32, kind.storage, Storage::kFloat32)
                        .finish());
    cases.push_back(Attention(id + "-v", "values of 16 bits", {1, 2, 2, 5, 70, 9, 7})
                        .store(Storage::kFloat32, Storage::kFloat32, kind.storage)
                        .finish());
    for (const auto &[d, dv] : {std::pair<std::int64_t, std::int64_t>{1, 33}, {3, 17}, {17, 3}, {33, 1}, {80, 65}}) {
      cases.push_back(Attention(id + "-d" + std::to_string(d) + "-dv" + std::to_string(dv),
                                "16-bit head sizes round the edges of vectors", {1, 1, 1, 6, 67, d, dv})
                          .store(kind.storage)
                          .finish());
    }
    cases.push_back(
        Attention(id + "-special", "NaN, infinities, largest and subnormal numbers of 16 bits", {1, 2, 2, 7, 70, 8, 9})
            .store(kind.storage)
            .set('q', {0, 0, 1, 2}, kind.nan)
            .set('q', {0, 0, 2, 2}, kind.infinity)
            .set('q', {0, 0, 3, kAll}, kind.most_subnormal)
            .set('q', {0, 0, 4, kAll}, kind.minus_zero)
            .set('k', {0, 1, 3, 1}, kind.infinity | 0x8000)
            .set('k', {0, 1, 5, kAll}, kind.subnormal)
            .set('v', {0, 1, 6, 2}, kind.nan | 0x8000)
            .set('v', {0, 1, 7, 3}, kind.infinity)
            .set('v', {0, 1, kAll, 4}, kind.subnormal)
            .set('v', {0, 1, kAll, 5}, kind.largest)
            .set('v', {0, 1, kAll, 6}, kind.most_subnormal | 0x8000)
            .finish());
    cases.push_back(Attention(id + "-subnormal", "subnormal queries, keys and values of 16 bits are not zero",
                              {1, 1, 1, 4, 66, 4, 5})
                        .store(kind.storage)
                        .q(half ? normal(24) : constant(0x0071))
                        .k(half ? constant(0x7B00) : normal(-110))
                        .scale(half ? number(1 << 6) : number(1))
                        .v(constant(0x0012))
                        .set('v', {0, 0, 3, kAll}, 0x8001)
                        .finish());
    cases.push_back(Attention(id + "-any-bits-q", "queries of any 16 bits", {1, 1, 1, 200, 3, 1, 2})
                        .store(kind.storage)
                        .q(any_bits())
                        .finish());
    cases.push_back(Attention(id + "-any-bits-k", "keys of any 16 bits", {200, 1, 1, 2, 1, 1, 2})
                        .store(kind.storage)
                        .k(any_bits())
                        .finish());
    cases.push_back(
        Attention(id + "-any-bits-v", "one key: values of any 16 bits come out widened", {40, 1, 1, 1, 1, 1, 37})
            .store(kind.storage)
            .v(any_bits())
            .finish());
  }
  cases.push_back(
      Attention("storage-mixed", "a storage of its own for queries, keys and values", {1, 4, 2, 9, 130, 16, 12})
          .store(Storage::kFloat16, Storage::kBfloat16, Storage::kFloat32)
          .causal(121)
          .finish());
  cases.push_back(Attention("storage-mixed-hidden", "16-bit NaN and infinities in hidden keys leave no trace",
                            {1, 2, 1, 5, 100, 8, 6})
                      .store(Storage::kBfloat16, Storage::kFloat16, Storage::kBfloat16)
                      .causal(70)
                      .set('k', {0, 0, 75, kAll}, {0, 0, 99, kAll}, 0xFE00)
                      .set('v', {0, 0, 75, kAll}, {0, 0, 99, kAll}, 0x7F80)
                      .finish());
}

// ---- Everything at once ----

void add_everything(Cases &cases) {
  cases.push_back(
      Attention("everything", "every option of the definition at once; D and Dv differ", {3, 6, 3, 20, 180, 12, 20})
          .store(Storage::kBfloat16, Storage::kFloat16, Storage::kBfloat16)
          .causal()
          .window(90, 0)
          .q_offsets({10, 100, 150})
          .kv_lens({180, 115, 160})
          .sinks(normal())
          .alibi(normal(19))
          .softcap(number(6))
          .mask({true, false, true, true})
          .mask_bool({false, true, true, true}, visible(220))
          .scale(0x3E4CCCCDu)
          .resume({64, 128})
          .fully_masked_zero()
          .finish());
  cases.push_back(Attention("everything-pages", "the same with ragged rows over pages", {3, 6, 3, 20, 180, 12, 20})
                      .ragged({0, 9, 10, 20})
                      .store(Storage::kFloat16, Storage::kBfloat16, Storage::kFloat16)
                      .causal()
                      .window(90, 0)
                      .q_offsets({10, 100, 150})
                      .kv_lens({180, 101, 160})
                      .sinks(normal())
                      .alibi(normal(19))
                      .softcap(number(6))
                      .mask({false, false, true, true})
                      .mask_bool({false, true, true, true}, visible(220))
                      .pages(16)
                      .resume({64, 128})
                      .finish());
  cases.push_back(Attention("everything-ragged", "the same with ragged rows and keys", {3, 6, 3, 20, 330, 20, 12})
                      .ragged({0, 9, 10, 20})
                      .ragged_keys({1, 180, 230, 330})
                      .store(Storage::kBfloat16)
                      .causal()
                      .window(90, 0)
                      .q_offsets({150, 40, 90})
                      .kv_lens({170, 50, 99})
                      .sinks(normal())
                      .alibi(normal(19))
                      .softcap(number(6))
                      .mask({false, false, true, true})
                      .mask_bool({false, true, true, true}, visible(220))
                      .resume({64, 128})
                      .fully_masked_zero()
                      .finish());
}

// ---- Worked out by hand: what comes out is known, and conformance/tests/test_mint.cpp says it ----

void add_by_hand(Cases &cases) {
  // Zero queries: every visible key has the same weight.
  const auto mean = [](const char *id, const char *guards, const Sizes &sizes) {
    Attention item(id, guards, sizes);
    item.q(constant(0)).scale(kOne);
    return item;
  };
  cases.push_back(mean("hand-causal", "means of the keys up to the row's: 1, 1.5, 2", {1, 1, 1, 3, 5, 1, 2})
                      .count_values(1)
                      .causal()
                      .finish());
  cases.push_back(mean("hand-causal-offset", "means of the keys up to the row's: 2, 2.5, 3", {1, 1, 1, 3, 5, 1, 2})
                      .count_values(1)
                      .causal(2)
                      .finish());
  for (const std::int64_t window : {1, 3, 4, 6}) {
    cases.push_back(
        mean(("hand-window-" + std::to_string(window)).c_str(), "the mean of the window's keys", {1, 1, 1, 1, 6, 1, 2})
            .count_values(0)
            .causal()
            .window(window, 5)
            .finish());
  }
  cases.push_back(mean("hand-window-rows", "means of windows that move: 3.5, 4.5", {1, 1, 1, 2, 6, 1, 2})
                      .count_values(0)
                      .causal()
                      .window(2, 4)
                      .finish());
  cases.push_back(mean("hand-window-past", "a window past all keys: +0 and -inf", {1, 1, 1, 1, 3, 1, 2})
                      .causal()
                      .window(4, 10)
                      .finish());
  cases.push_back(mean("hand-sink", "three keys of value 1 beside a sink of 0: 3/4", {1, 1, 1, 1, 3, 1, 2})
                      .v(constant(kOne))
                      .sinks(constant(0))
                      .finish());
  cases.push_back(mean("hand-sink-alone", "a sink of -1.5 and no key: +0, and -1.5", {1, 1, 1, 1, 0, 1, 2})
                      .sinks(constant(number(-3, 1)))
                      .finish());
  cases.push_back(mean("hand-mask-lowest", "three equal scores of -FLT_MAX: the mean, 2", {1, 1, 1, 1, 3, 1, 2})
                      .count_values(1)
                      .mask(kSharedMask, constant(kMinusLargest))
                      .finish());
  for (const std::int64_t heads : {4, 6}) {
    cases.push_back(mean(("hand-groups-" + std::to_string(heads)).c_str(),
                         "values of 10 and 20 by key head: which query heads have which", {1, heads, 2, 1, 1, 1, 1})
                        .v(constant(number(10)))
                        .set('v', {0, 1, 0, 0}, number(20))
                        .finish());
  }
  cases.push_back(mean("hand-mask-bool", "the mean of the keys that are shown: 0, 2 and 4", {1, 1, 1, 1, 6, 1, 2})
                      .count_values(0)
                      .mask_bool(kSharedMask, constant(0xFF))
                      .set('b', {0, 0, 0, 1}, 0)
                      .set('b', {0, 0, 0, 3}, 0)
                      .set('b', {0, 0, 0, 5}, 0)
                      .finish());
  cases.push_back(
      mean("hand-alibi", "one key five before the row, slope 1/4: the log-sum-exp is -5/4", {1, 1, 1, 1, 1, 1, 1})
          .window(0, 5)
          .alibi(constant(number(1, 2)))
          .finish());
  cases.push_back(
      mean("hand-softcap", "an infinite score with a softcap of 3: the log-sum-exp is 3", {1, 1, 1, 1, 1, 1, 1})
          .q(constant(kOne))
          .k(constant(kInfinity))
          .softcap(number(3))
          .finish());
  cases.push_back(mean("hand-ragged", "means of two sequences of 3 and 2 keys: 2, 4.5", {2, 1, 1, 2, 5, 1, 2})
                      .ragged({0, 1, 2})
                      .ragged_keys({0, 3, 5})
                      .count_values(1)
                      .finish());
  cases.push_back(mean("hand-pages", "the mean of five keys in three pages: 3", {1, 1, 1, 1, 5, 1, 2})
                      .pages(2)
                      .count_values(1)
                      .finish());
  cases.push_back(
      mean("hand-state", "128 keys of value 1, 64 of them in the state: m 0, l 64, acc 64", {1, 1, 1, 1, 128, 1, 2})
          .v(constant(kOne))
          .resume({64})
          .finish());
  cases.push_back(Attention("hand-logarithms", "scores ln 2, ln 3 and ln 6: 26/11, and ln 11", {1, 1, 1, 1, 3, 2, 1})
                      .q(constant(0x3F317218u))
                      .set('q', {0, 0, 0, 1}, 0x3F8C9F54u)
                      .k(constant(kOne))
                      .set('k', {0, 0, 0, 1}, 0)
                      .set('k', {0, 0, 1, 0}, 0)
                      .count_values(1)
                      .scale(kOne)
                      .finish());
  cases.push_back(Attention("hand-far", "scores of -60000 and -60001: e/(e + 1) and its rest", {1, 1, 1, 1, 2, 1, 1})
                      .q(constant(kOne))
                      .k(constant(number(-60000)))
                      .score(1, number(-60001))
                      .count_values(1)
                      .scale(kOne)
                      .finish());
  // 1 + 2^-23, and a product of 2^-24 - 2^-54, which is 2^-24 when it is rounded.
  cases.push_back(Attention("hand-fma-once",
                            "a sum just below a tie: an fma by way of binary64 rounds it twice, and up",
                            {1, 1, 1, 1, 1, 2, 1})
                      .q(constant(0x3F800001u))
                      .set('q', {0, 0, 0, 1}, 0x39800100u)
                      .k(constant(kOne))
                      .set('k', {0, 0, 0, 1}, 0x397FFE00u)
                      .scale(kOne)
                      .finish());
  // The first block's acc is +0 times NaN, times infinity, and times 1.
  cases.push_back(mean("hand-alpha-zero", "acc is multiplied by an alpha of +0, not set to +0: NaN, NaN and 1",
                       {1, 1, 1, 1, 65, 1, 3})
                      .v(constant(kOne))
                      .set('v', {0, 0, 0, 0}, kNan)
                      .set('v', {0, 0, 1, 1}, kInfinity)
                      .mask(kSharedMask, constant(0))
                      .set('m', {0, 0, 0, 0}, {0, 0, 0, 63}, kMinusInfinity)
                      .finish());
}

// ---- Models that use these options ----

// 2^(-h/4) for h = 1, ..., 32, each rounded: the slopes of 32 heads.
Attention &mpt_slopes(Attention &item) {
  constexpr std::array<std::uint32_t, 4> kQuarters = {kOne, 0x3F5744FDu, 0x3F3504F3u, 0x3F1837F0u};
  item.alibi(constant(kOne));
  for (std::uint32_t h = 1; h <= 32; ++h) {
    item.set_slope(h - 1, kQuarters[h % 4] - ((h / 4) << 23));
  }
  return item;
}

void add_more_models(Cases &cases) {
  cases.push_back(Attention("llama-prefill", "a causal prefill: 32 heads on 8, D 128", {1, 32, 8, 8, 8, 128, 128})
                      .causal()
                      .finish());
  cases.push_back(Attention("llama-prefill-512", "a causal prefill of 512 tokens in bfloat16: 32 heads on 8, D 128",
                            {1, 32, 8, 512, 512, 128, 128})
                      .store(Storage::kBfloat16)
                      .causal()
                      .finish());
  cases.push_back(Attention("llama-decode-4096", "a decode step over 4096 keys in pages of 16, bfloat16",
                            {1, 32, 8, 1, 4096, 128, 128})
                      .store(Storage::kBfloat16)
                      .causal(4095)
                      .pages(16)
                      .finish());
  cases.push_back(Attention("llama-decode-batch", "decode steps of three sequences in pages of 16, bfloat16",
                            {3, 32, 8, 1, 70, 128, 128})
                      .store(Storage::kBfloat16)
                      .causal()
                      .q_offsets({69, 12, 33})
                      .kv_lens({70, 13, 34})
                      .pages(16)
                      .finish());
  cases.push_back(Attention("mistral-window", "a sliding window: 32 heads on 8, D 128", {1, 32, 8, 2, 80, 128, 128})
                      .causal()
                      .window(32, 78)
                      .finish());
  cases.push_back(
      Attention("mistral-window-4096", "a sliding window of 4096 keys at position 4600", {1, 32, 8, 4, 4604, 128, 128})
          .causal()
          .window(4096, 4600)
          .finish());
  cases.push_back(Attention("gpt-oss", "sinks and a window of 128: 64 heads on 8, D 64", {1, 64, 8, 1, 150, 64, 64})
                      .causal()
                      .window(128, 149)
                      .sinks(normal())
                      .finish());
  cases.push_back(Attention("gpt-oss-prefill-400",
                            "sinks and a window of 128 over a prefill of 400: 64 heads on 8, D 64",
                            {1, 64, 8, 400, 400, 64, 64})
                      .causal()
                      .window(128, 0)
                      .sinks(normal())
                      .finish());
  cases.push_back(Attention("gemma-softcap", "a softcap of 50, D 256, 16 heads on 8", {1, 16, 8, 2, 70, 256, 256})
                      .causal(68)
                      .softcap(number(50))
                      .scale(0x3D800000u)
                      .finish());
  cases.push_back(Attention("gemma-softcap-256", "a softcap of 50 over a prefill of 256: D 256, 16 heads on 8",
                            {1, 16, 8, 256, 256, 256, 256})
                      .causal()
                      .softcap(number(50))
                      .scale(0x3D800000u)
                      .finish());
  Attention mpt("mpt-alibi", "ALiBi of 32 heads, D 128", {1, 32, 32, 2, 70, 128, 128});
  cases.push_back(mpt_slopes(mpt).causal(68).finish());
  Attention mpt_prefill("mpt-alibi-256", "ALiBi over a prefill of 256: 32 heads, D 128",
                        {1, 32, 32, 256, 256, 128, 128});
  cases.push_back(mpt_slopes(mpt_prefill).causal().finish());
  cases.push_back(Attention("mla", "multi-head latent attention: D 192, Dv 128, 16 heads", {1, 16, 16, 3, 70, 192, 128})
                      .causal(67)
                      .finish());
  cases.push_back(Attention("mla-prefill-256",
                            "multi-head latent attention over a prefill of 256: D 192, Dv 128, 16 heads",
                            {1, 16, 16, 256, 256, 192, 128})
                      .causal()
                      .finish());
  cases.push_back(Attention("mixed-batch-1000",
                            "a prefill of 200 and three decode steps in one ragged batch over pages",
                            {4, 32, 8, 203, 1000, 128, 128})
                      .ragged({0, 200, 201, 202, 203})
                      .store(Storage::kFloat16)
                      .causal()
                      .q_offsets({0, 999, 511, 64})
                      .kv_lens({200, 1000, 512, 65})
                      .pages(16)
                      .finish());
}

// ---- Softmax rows ----

class Softmax {
public:
  Softmax(std::string id, std::string guards, std::int64_t rows, std::int64_t columns, Input input = normal(13)) {
    item.id = std::move(id);
    item.guards = std::move(guards);
    item.params.rows = rows;
    item.params.columns = columns;
    item.x.shape = {rows, columns};
    item.x.input = std::move(input);
    if (item.x.input.kind != InputKind::kConstant) {
      item.x.input.seed = seed_of(item.id, "x");
    }
  }
  // Columns first to last of a row.
  Softmax &set(std::int64_t row, std::int64_t first, std::int64_t last, std::uint32_t bits) {
    item.x.input.set.push_back({{row, first}, {row + 1, last + 1}, bits});
    return *this;
  }
  SoftmaxCase finish() const { return item; }

private:
  SoftmaxCase item;
};

std::vector<SoftmaxCase> softmax_cases() {
  std::vector<SoftmaxCase> cases;
  for (const std::int64_t columns : {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,  12,  13,  14,   15,   16,
                                     17, 31, 32, 33, 63, 64, 65, 79, 80, 81, 127, 128, 129, 1000, 1500, 4096}) {
    cases.push_back(Softmax("softmax-" + std::to_string(columns), "the sixteen partial sums and their tails",
                            columns > 200 ? 3 : 5, columns)
                        .finish());
  }
  cases.push_back(Softmax("softmax-rows-0", "no row: nothing is written", 0, 9).finish());
  cases.push_back(Softmax("softmax-columns-0", "rows of length 0: nothing is written", 7, 0).finish());
  cases.push_back(Softmax("softmax-many-rows", "rows that are shared out among threads", 1000, 37).finish());
  cases.push_back(
      Softmax("softmax-equal", "equal numbers: 1/n, and its rounding", 3, 1000, constant(number(5, 1))).finish());
  cases.push_back(
      Softmax("softmax-zeros", "zeros of both signs are equal", 2, 50, constant(0)).set(1, 3, 30, kMinusZero).finish());
  cases.push_back(Softmax("softmax-narrow", "numbers near zero", 3, 100, normal(30)).finish());
  cases.push_back(Softmax("softmax-wide", "numbers far apart", 5, 300, normal(11)).finish());
  cases.push_back(Softmax("softmax-huge", "differences that overflow", 4, 40, normal(-110))
                      .set(1, 7, 7, kLargest)
                      .set(1, 30, 30, kMinusLargest)
                      .finish());
  cases.push_back(Softmax("softmax-subnormal", "subnormal numbers: all weights are 1", 2, 33, constant(0x00345678u))
                      .set(1, 5, 20, 0x807FFFFFu)
                      .finish());
  cases.push_back(Softmax("softmax-special", "NaN and infinities stay in their rows", 9, 70)
                      .set(1, 0, 0, kNan)
                      .set(2, 69, 69, kSignallingNan)
                      .set(3, 33, 33, kInfinity)
                      .set(4, 0, 68, kMinusInfinity)
                      .set(5, 0, 69, kMinusInfinity)
                      .set(6, 10, 40, kMinusInfinity)
                      .set(7, 12, 12, kInfinity)
                      .set(7, 13, 13, kNan)
                      .finish());
  cases.push_back(Softmax("softmax-any-bits-1", "one number of any bits: 1 or NaN", 100, 1, any_bits()).finish());
  cases.push_back(Softmax("softmax-any-bits-2", "two numbers of any bits", 300, 2, any_bits()).finish());
  Softmax cut("softmax-cut", "numbers round the exponential's cut", 1, 65, constant(0));
  for (std::int64_t j = 1; j < 65; ++j) {
    cut.set(0, j, j, static_cast<std::uint32_t>(kExpCut + 32 - j));
  }
  cases.push_back(cut.finish());
  return cases;
}

} // namespace

Goldens catalogue() {
  Goldens goldens;
  add_models(goldens.attention);
  add_sizes(goldens.attention);
  add_scales(goldens.attention);
  add_specials(goldens.attention);
  add_scores(goldens.attention);
  add_options(goldens.attention);
  add_boolean_masks(goldens.attention);
  add_alibi(goldens.attention);
  add_softcaps(goldens.attention);
  add_ragged(goldens.attention);
  add_pages(goldens.attention);
  add_resumed(goldens.attention);
  add_storage(goldens.attention);
  add_everything(goldens.attention);
  add_by_hand(goldens.attention);
  add_more_models(goldens.attention);
  goldens.softmax = softmax_cases();
  return goldens;
}

} // namespace exattn::conformance
