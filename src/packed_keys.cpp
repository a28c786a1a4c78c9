// Writes keys into packed keys (definition, section 3).
#include "checks.hpp"
#include "fp_environment.hpp"
#include "widen.hpp"

#include "exact/safe_math.hpp"
#include "exattn/exattn.h"

#include <cstddef>
#include <cstdint>

namespace exattn {

namespace {

template <class From, class To, class Convert>
void write_key(const void *from, std::int64_t stride, std::int64_t head_dim, void *to, Convert convert) {
  const From *const key = static_cast<const From *>(from);
  To *const place = static_cast<To *>(to);
  for (std::int64_t x = 0; x < head_dim; ++x) {
    place[x * kGroupKeys] = convert(key[x * stride]);
  }
}

// A key of k, and the place of its element 0.
void write_key(const exattn_pack_keys_args &args, const void *from, void *to) {
  const std::int64_t stride = args.k.stride[3];
  const auto same = [](auto element) { return element; };
  if (args.k.dtype == EXATTN_F32) {
    write_key<float, float>(from, stride, args.head_dim, to, same);
  } else if (args.packed.dtype != EXATTN_F32) {
    write_key<std::uint16_t, std::uint16_t>(from, stride, args.head_dim, to, same);
  } else if (args.k.dtype == EXATTN_BF16) {
    write_key<std::uint16_t, float>(from, stride, args.head_dim, to, widen_bfloat16);
  } else {
    write_key<std::uint16_t, float>(from, stride, args.head_dim, to, widen_float16);
  }
}

std::int64_t width_of(std::int32_t dtype) {
  return dtype == EXATTN_F32 ? 4 : 2;
}

// Key n of k, which is `key` of its sequence.
void pack_key(const exattn_pack_keys_args &args, std::int64_t b, std::int64_t n, std::int64_t key) {
  const std::int64_t *const from = args.k.stride;
  const std::int64_t *const to = args.packed.stride;
  std::int64_t page = b;
  if (args.page_table != nullptr) {
    page = args.page_table[b * args.page_table_stride + key / args.page_size];
    key %= args.page_size;
  }
  for (std::int64_t h = 0; h < args.kv_heads; ++h) {
    const std::int64_t source = b * from[0] + h * from[1] + n * from[2];
    const std::int64_t place = page * to[0] + h * to[1] + key / kGroupKeys * to[2] + key % kGroupKeys;
    write_key(args, static_cast<const unsigned char *>(args.k.data) + source * width_of(args.k.dtype),
              static_cast<unsigned char *>(args.packed.data) + place * width_of(args.packed.dtype));
  }
}

} // namespace

} // namespace exattn

exattn_status exattn_packed_keys_size(int64_t batch, int64_t kv_heads, int64_t kv_len, int64_t head_dim, int32_t dtype,
                                      size_t *bytes) {
  return bytes == nullptr ? exattn_status{EXATTN_ERROR_NULL}
                          : exattn::measure_packed_keys(batch, kv_heads, kv_len, head_dim, dtype, *bytes);
}

exattn_status exattn_pack_keys(const exattn_pack_keys_args *args) {
  exattn_pack_keys_args taken;
  exattn_status status = exattn::take_args(args, taken);
  if (status != EXATTN_OK) {
    return status;
  }
  exattn::Message message(taken.message, taken.message_size);
  status = exattn::check_pack_keys(taken, message);
  if (status != EXATTN_OK) {
    return status;
  }
  const exattn::FpEnvironment environment; // widening multiplies
  for (int64_t b = 0; b < taken.batch; ++b) {
    for (int64_t n = 0; n < taken.count; ++n) {
      exattn::pack_key(taken, b, n, exattn::first_key_of(taken, b) + n);
    }
  }
  return EXATTN_OK;
}
