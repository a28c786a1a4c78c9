#include "bench.hpp"
#include "program.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace exattn::program {
namespace {

// Roughly normal, standard deviation 1.15: sums of four uniform numbers.
std::vector<float> numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::uint64_t state = seed * 0x9E3779B97F4A7C15U;
  for (float &value : values) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const std::uint64_t word = state ^ (state >> 31);
    const std::int64_t sum =
        static_cast<std::int64_t>((word & 0xFFFF) + (word >> 16 & 0xFFFF) + (word >> 32 & 0xFFFF) + (word >> 48)) -
        131070;
    value = static_cast<float>(sum) / 32768.0F;
  }
  return values;
}

// As 16 bits, toward zero; below the normal numbers of binary16, zero.
std::vector<std::uint16_t> narrow(const std::vector<float> &values, std::int32_t dtype) {
  std::vector<std::uint16_t> narrowed(values.size());
  std::transform(values.begin(), values.end(), narrowed.begin(), [&](float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (dtype == EXATTN_BF16) {
      return static_cast<std::uint16_t>(bits >> 16);
    }
    constexpr std::uint32_t kRebias = (127U - 15U) << 23;
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    const std::uint32_t half = magnitude < kRebias + (1U << 23) ? 0 : (magnitude - kRebias) >> 13;
    return static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | half);
  });
  return narrowed;
}

// In no order, as a cache that sequences come to and leave holds them.
std::vector<std::int32_t> shuffled_pages(std::int64_t count) {
  std::vector<std::int32_t> pages(static_cast<std::size_t>(count));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(1)); // NOLINT(cert-msc32-c,cert-msc51-cpp): the same each time
  return pages;
}

std::int64_t pages_of_sequence(const Shape &shape) {
  return (shape.kv_len - 1) / shape.page_size + 1;
}

void set_strides(std::int64_t (&stride)[4], std::int64_t heads, std::int64_t rows, std::int64_t head_dim) {
  stride[3] = 1;
  stride[2] = head_dim;
  stride[1] = rows * stride[2];
  stride[0] = heads * stride[1];
}

void require_addressable(const Shape &shape) {
  const auto batch = static_cast<double>(shape.batch), keys = static_cast<double>(shape.kv_len),
             page = static_cast<double>(shape.page_size);
  const double rows = static_cast<double>(shape.heads) * static_cast<double>(shape.q_len) +
                      static_cast<double>(shape.kv_heads) * (keys + page); // less than a page is left over
  if (2 * batch * rows * static_cast<double>(shape.head_dim) > 0x1p40) {
    throw InputError(shape.name + ": its tensors would have more than 2^40 elements");
  }
  if (shape.page_size > 0 && batch * std::ceil(keys / page) > std::numeric_limits<std::int32_t>::max()) {
    throw InputError(shape.name + ": there would be more than 2^31 - 1 pages");
  }
}

} // namespace

std::vector<Shape> usual_shapes() {
  return {
      {"BERT-base 128", 1, 12, 12, 128, 128, 64},
      {"BERT-base 512", 1, 12, 12, 512, 512, 64},
      {"MiniLM 128", 1, 12, 12, 128, 128, 32},
      {"Whisper encoder 1500", 1, 12, 12, 1500, 1500, 64},
      {"Whisper cross 1 x 1500", 1, 12, 12, 1, 1500, 64},
      {"Whisper cross 448 x 1500", 1, 12, 12, 448, 1500, 64},
      {"one head 4096", 1, 1, 1, 4096, 4096, 64},
      {"Llama prefill 2048", 1, 32, 8, 2048, 2048, 128, true},
      {"Llama decode 1 x 8192", 1, 32, 8, 1, 8192, 128},
  };
}

Shape parse_shape(const std::string &text) {
  const std::vector<std::string> fields = split_list(text);
  const auto refuse = [&] {
    throw InputError("--shape " + text + ": must be B,H,Hkv,Tq,Tk,D, then causal or a window of so many keys or both");
  };
  if (fields.size() < 6 || fields.size() > 8) {
    refuse();
  }
  std::array<std::int64_t, 6> n{};
  for (std::size_t i = 0; i < n.size(); ++i) {
    n[i] = parse_integer(fields[i], "--shape", 1);
  }
  Shape shape{text, n[0], n[1], n[2], n[3], n[4], n[5]};
  for (std::size_t i = n.size(); i < fields.size(); ++i) {
    if (fields[i] == "causal" && !shape.causal && shape.window == 0) {
      shape.causal = true;
    } else if (fields[i] != "causal" && shape.window == 0) {
      shape.window = parse_integer(fields[i], "--shape", 1);
    } else {
      refuse();
    }
  }
  if (shape.heads % shape.kv_heads != 0) {
    throw InputError("--shape " + text + ": heads must be a multiple of kv_heads");
  }
  require_addressable(shape);
  return shape;
}

void set_storage(Shape &shape, const std::string &storage) {
  if (storage != kStorages[EXATTN_F32]) {
    shape.dtype = static_cast<std::int32_t>(std::find(kStorages.begin(), kStorages.end(), storage) - kStorages.begin());
    shape.name += " " + storage;
  }
}

void set_page_size(Shape &shape, std::int64_t page_size) {
  if (page_size > 0) {
    shape.page_size = page_size;
    shape.name += " pages of " + std::to_string(page_size);
    require_addressable(shape);
  }
}

void set_packed(Shape &shape) {
  shape.packed = true;
  shape.name += " packed";
}

double Shape::flops() const {
  double pairs = 0;
  for (std::int64_t i = 0; i < q_len; ++i) {
    pairs += static_cast<double>(std::max<std::int64_t>(0, end(i) - begin(i)));
  }
  return 4.0 * static_cast<double>(batch * heads * head_dim) * pairs;
}

std::int64_t Shape::bytes() const {
  const std::int64_t keys = std::max<std::int64_t>(0, end(q_len - 1) - begin(0));
  return batch * kv_heads * keys * 2 * head_dim * (dtype == EXATTN_F32 ? 4 : 2);
}

BenchProblem::BenchProblem(const Shape &shape) {
  const bool paged = shape.page_size > 0;
  const std::int64_t parts = paged ? shape.batch * pages_of_sequence(shape) : shape.batch; // of keys and values
  const std::int64_t rows = paged ? shape.page_size : shape.kv_len;
  q = numbers(shape.batch * shape.heads * shape.q_len * shape.head_dim, 1);
  k = numbers(parts * shape.kv_heads * rows * shape.head_dim, 2);
  v = numbers(parts * shape.kv_heads * rows * shape.head_dim, 3);
  out.resize(q.size());
  args.struct_size = sizeof args;
  args.batch = shape.batch;
  args.heads = shape.heads;
  args.kv_heads = shape.kv_heads;
  args.q_len = shape.q_len;
  args.kv_len = shape.kv_len;
  args.head_dim = args.value_dim = shape.head_dim;
  args.causal = shape.causal ? 1 : 0;
  args.window = shape.window;
  args.q_offset = shape.q_offset();
  args.q = {q.data(), EXATTN_F32, 4, {}};
  args.k = {k.data(), shape.dtype, 4, {}};
  args.v = {v.data(), shape.dtype, 4, {}};
  args.out = {out.data(), 0, 4, {}};
  set_strides(args.q.stride, shape.heads, shape.q_len, shape.head_dim);
  set_strides(args.k.stride, shape.kv_heads, rows, shape.head_dim);
  set_strides(args.v.stride, shape.kv_heads, rows, shape.head_dim);
  set_strides(args.out.stride, shape.heads, shape.q_len, shape.head_dim);
  if (shape.dtype != EXATTN_F32) {
    narrow_k = narrow(std::exchange(k, {}), shape.dtype);
    narrow_v = narrow(std::exchange(v, {}), shape.dtype);
    args.k.data = narrow_k.data();
    args.v.data = narrow_v.data();
  }
  if (paged) {
    pages = shuffled_pages(parts);
    args.page_table = pages.data();
    args.page_table_stride = pages_of_sequence(shape);
    args.page_size = shape.page_size;
    args.pages = parts;
  }
  if (shape.packed) {
    pack_keys(parts, rows);
  }
}

void BenchProblem::pack_keys(std::int64_t parts, std::int64_t rows) {
  constexpr std::int64_t kGroup = 16;
  const std::int64_t group = kGroup * args.head_dim, groups = (rows - 1) / kGroup + 1;
  std::size_t bytes = 0;
  require_ok(exattn_packed_keys_size(parts, args.kv_heads, rows, args.head_dim, args.k.dtype, &bytes), "packed keys");
  packed.resize(bytes / sizeof(float));
  std::array<char, 512> message{};
  exattn_pack_keys_args from = EXATTN_PACK_KEYS_ARGS_INIT;
  from.batch = parts;
  from.kv_heads = args.kv_heads;
  from.kv_len = from.count = rows;
  from.head_dim = args.head_dim;
  from.k = args.k;
  from.packed = {packed.data(), args.k.dtype, 4, {args.kv_heads * groups * group, groups * group, group, kGroup}};
  from.message = message.data();
  from.message_size = message.size();
  require_ok(exattn_pack_keys(&from), message.data());
  std::copy(std::begin(from.packed.stride), std::end(from.packed.stride), std::begin(args.k.stride));
  args.k.data = packed.data();
  args.k_layout = EXATTN_K_PACKED;
}

void BenchProblem::run(std::int32_t flavour, std::int32_t lanes, exattn_pool *pool) {
  std::array<char, 512> message{};
  args.flavour = flavour;
  args.lanes = lanes;
  args.pool = pool;
  args.message = message.data();
  args.message_size = message.size();
  require_ok(exattn_attention(&args), message.data());
}

} // namespace exattn::program
