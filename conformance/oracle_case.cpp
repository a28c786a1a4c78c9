#include "oracle_case.hpp"

#include "exact/oracle.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string_view>

namespace exattn::conformance {
namespace {

std::size_t element_count(const std::vector<std::int64_t> &shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, [](std::size_t product, std::int64_t size) {
    return product * static_cast<std::size_t>(size);
  });
}

std::vector<float> widened(const Elements &elements) {
  std::vector<float> result(elements.size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::uint32_t bits = elements.bits(i);
    if (elements.storage == Storage::kBfloat16) {
      result[i] = oracle::widen_bfloat16(static_cast<std::uint16_t>(bits));
    } else if (elements.storage == Storage::kFloat16) {
      result[i] = oracle::widen_float16(static_cast<std::uint16_t>(bits));
    } else {
      std::memcpy(&result[i], &bits, sizeof bits);
    }
  }
  return result;
}

// `count` keys of `key_elements` elements, both tensors counted in keys.
void copy_keys(const Elements &from, std::int64_t from_key, Elements &to, std::int64_t to_key, std::int64_t count,
               std::int64_t key_elements) {
  const std::int64_t key_bytes = key_elements * static_cast<std::int64_t>(element_size(from.storage));
  if (count > 0) {
    std::memcpy(to.bytes.data() + to_key * key_bytes, from.bytes.data() + from_key * key_bytes,
                static_cast<std::size_t>(count * key_bytes));
  }
}

// A call over the keys of a part, with its numbers widened.
class OracleCall {
public:
  OracleCall(const AttentionCase &item, const AttentionInputs &inputs, const KeyPart &part)
      : q(widened(inputs.q)), k(widened(part.k)), v(widened(part.v)), mask(widened(inputs.mask)),
        sinks(widened(inputs.sinks)), alibi(widened(inputs.alibi)) {
    const AttentionParams &params = item.params;
    call.batch = params.batch;
    call.heads = params.heads;
    call.kv_heads = params.kv_heads;
    call.q_len = params.q_len;
    call.kv_len = part.kv_len;
    call.head_dim = params.head_dim;
    call.value_dim = params.value_dim;
    call.scale = params.scale_bits ? std::bit_cast<float>(*params.scale_bits) : oracle::default_scale(params.head_dim);
    call.causal = params.causal;
    call.window = params.window;
    call.q_offsets =
        params.q_offsets.value_or(std::vector<std::int64_t>(static_cast<std::size_t>(params.batch), params.q_offset));
    call.kv_lens = part.kv_lens;
    call.fully_masked_zero = params.fully_masked_zero;
    call.q = q.data();
    call.k = k.data();
    call.v = v.data();
    if (item.mask) {
      call.mask = mask.data();
      set_strides(call.mask_stride, *item.mask);
    }
    if (item.mask_bool) {
      call.mask_bool = inputs.mask_bool.bytes.data();
      set_strides(call.mask_bool_stride, *item.mask_bool);
    }
    call.sinks = item.sinks ? sinks.data() : nullptr;
    call.alibi_slopes = item.alibi ? alibi.data() : nullptr;
    call.softcap = params.softcap_bits ? std::bit_cast<float>(*params.softcap_bits) : 0.0F;
    if (params.q_starts) {
      call.q_starts = *params.q_starts;
    }
    call.kv_starts = part.kv_starts;
  }
  OracleCall(const OracleCall &) = delete;
  OracleCall &operator=(const OracleCall &) = delete;

  const oracle::AttentionCase &get() const { return call; }

private:
  static void set_strides(std::int64_t (&strides)[4], const CaseTensor &tensor) {
    const std::vector<std::int64_t> found = strides_of(tensor.shape);
    std::copy(found.begin(), found.end(), strides);
  }

  std::vector<float> q, k, v, mask, sinks, alibi;
  oracle::AttentionCase call{};
};

} // namespace

Elements &AttentionInputs::operator[](const char *name) {
  const std::string_view wanted = name;
  for (const auto &[known, elements] : {std::pair<std::string_view, Elements *>{"q", &q},
                                        {"k", &k},
                                        {"v", &v},
                                        {"mask", &mask},
                                        {"mask_bool", &mask_bool},
                                        {"sinks", &sinks},
                                        {"alibi", &alibi}}) {
    if (known == wanted) {
      return *elements;
    }
  }
  throw std::logic_error("no input is called " + std::string(wanted));
}

std::vector<std::int64_t> strides_of(const std::vector<std::int64_t> &shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t n = shape.size(); n-- > 0;) {
    strides[n] = shape[n] == 1 ? 0 : step;
    step *= shape[n];
  }
  return strides;
}

KeyPart key_part(const AttentionCase &item, const AttentionInputs &inputs, std::int64_t first, std::int64_t last) {
  const AttentionParams &params = item.params;
  const auto between = [&](std::int64_t keys) { return std::clamp<std::int64_t>(keys - first, 0, last - first); };
  KeyPart part;
  part.first = first;
  for (std::int64_t b = 0; b < params.batch; ++b) {
    part.kv_lens.push_back(
        between(params.kv_lens ? (*params.kv_lens)[static_cast<std::size_t>(b)] : keys_of(params, b)));
  }
  if (first == 0 && last == most_keys(params)) { // with the keys of no sequence, if there are any
    part.kv_len = params.kv_len;
    part.k = inputs.k;
    part.v = inputs.v;
    part.kv_starts = params.kv_starts.value_or(std::vector<std::int64_t>());
    return part;
  }
  part.kv_len = last - first;
  if (params.kv_starts) {
    part.kv_starts.push_back(0);
    for (std::int64_t b = 0; b < params.batch; ++b) {
      part.kv_starts.push_back(part.kv_starts.back() + between(keys_of(params, b)));
    }
    part.kv_len = part.kv_starts.back();
  }
  const auto make = [&](const Elements &from, std::int64_t size) {
    Elements to;
    to.storage = from.storage;
    const std::int64_t sequences = params.kv_starts ? 1 : params.batch;
    to.bytes.resize(static_cast<std::size_t>(sequences * params.kv_heads * part.kv_len * size) *
                    element_size(from.storage));
    for (std::int64_t b = 0; b < params.batch; ++b) {
      for (std::int64_t head = 0; head < params.kv_heads; ++head) {
        if (params.kv_starts) {
          const auto n = static_cast<std::size_t>(b);
          copy_keys(from, head * params.kv_len + (*params.kv_starts)[n] + first, to,
                    head * part.kv_len + part.kv_starts[n], part.kv_starts[n + 1] - part.kv_starts[n], size);
        } else {
          const std::int64_t row = b * params.kv_heads + head;
          copy_keys(from, row * params.kv_len + first, to, row * part.kv_len, part.kv_len, size);
        }
      }
    }
    return to;
  };
  part.k = make(inputs.k, params.head_dim);
  part.v = make(inputs.v, params.value_dim);
  return part;
}

AttentionOutputs compute_by_oracle(const AttentionCase &item, const AttentionInputs &inputs, bool fast, int threads) {
  const oracle::Flavour flavour = fast ? oracle::Flavour::fast : oracle::Flavour::exact;
  AttentionOutputs outputs;
  outputs.out.resize(element_count(out_shape(item.params)));
  outputs.lse.resize(element_count(lse_shape(item.params)));
  const OracleCall whole(item, inputs, key_part(item, inputs, 0, most_keys(item.params)));
  oracle::attention(whole.get(), flavour, outputs.out.data(), outputs.lse.data(), threads);
  for (const std::int64_t edge : item.params.resume) {
    const OracleCall call(item, inputs, key_part(item, inputs, 0, edge));
    outputs.states.push_back(oracle::attention_state(call.get(), flavour, threads));
  }
  return outputs;
}

} // namespace exattn::conformance
