#include "catalogue.hpp"

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
    item.q.shape = query_shape(item.params);
    item.k.shape = key_shape(item.params);
    item.v.shape = value_shape(item.params);
    item.tier = multiply_adds(item.params) <= kQuickLimit ? Tier::kQuick : Tier::kFull;
  }

  Attention &q(Input input) { return put(item.q, std::move(input)); }
  Attention &k(Input input) { return put(item.k, std::move(input)); }
  Attention &v(Input input) { return put(item.v, std::move(input)); }

  // Mask: which of the four sizes are full (the others broadcast), and its elements.
  Attention &mask(std::array<bool, 4> full, Input input = normal()) {
    item.mask.emplace();
    item.mask->shape = score_shape(item.params);
    for (std::size_t n = 0; n < full.size(); ++n) {
      if (!full[n]) {
        item.mask->shape[n] = 1;
      }
    }
    return put(*item.mask, std::move(input));
  }

  Attention &sinks(Input input) {
    item.sinks.emplace();
    item.sinks->shape = {item.params.heads};
    return put(*item.sinks, std::move(input));
  }

  // Boxes. A tensor's name, the index from which and the index before which; along a size left at kAll, everything.
  static constexpr std::int64_t kAll = -1;
  Attention &set(char tensor, std::array<std::int64_t, 4> at, std::uint32_t bits) { return set(tensor, at, at, bits); }
  Attention &set(char tensor, const std::array<std::int64_t, 4> &first, const std::array<std::int64_t, 4> &last,
                 std::uint32_t bits) {
    CaseTensor &target = tensor == 'q' ? item.q : tensor == 'k' ? item.k : tensor == 'v' ? item.v : *item.mask;
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
  Attention &fully_masked_zero() {
    item.params.fully_masked_zero = true;
    return *this;
  }

  AttentionCase finish() const {
    AttentionCase result = item;
    const auto seed = [&](CaseTensor &tensor, const char *name) {
      if (tensor.input.kind != InputKind::kConstant) {
        tensor.input.seed = seed_of(item.id, name);
      }
    };
    seed(result.q, "q");
    seed(result.k, "k");
    seed(result.v, "v");
    if (result.mask) {
      seed(*result.mask, "mask");
    }
    if (result.sinks) {
      seed(*result.sinks, "sinks");
    }
    return result;
  }

private:
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

std::int64_t multiply_adds(const AttentionParams &params) {
  return params.batch * params.heads * params.q_len * params.kv_len * (params.head_dim + params.value_dim);
}

Goldens catalogue() {
  Goldens goldens;
  add_models(goldens.attention);
  add_sizes(goldens.attention);
  add_scales(goldens.attention);
  add_specials(goldens.attention);
  add_scores(goldens.attention);
  add_options(goldens.attention);
  goldens.softmax = softmax_cases();
  return goldens;
}

} // namespace exattn::conformance
