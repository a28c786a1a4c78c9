// The C++ face: shapes instead of strides, exceptions instead of statuses, a pool that ends with its scope.
//
// Two query heads share a key and value head; three tokens, causal, scale 1. The keys are 0, ln 2, 0 and the values
// 4, 1, 6. Queries of head 0 are 1: weights 1 : 2 : 1, so rows 4, 6 / 3 = 2, 12 / 4 = 3. Queries of head 1 are -1:
// weights 1 : 1/2 : 1, so rows 4, 4.5 / 1.5 = 3, 10.5 / 2.5 = 4.2.
#include <exattn/exattn.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>

namespace {

bool refuses_wrong_shapes(const exattn::tensor &q, const exattn::tensor &k, const exattn::tensor &v) {
  std::array<float, 6> out{};
  try {
    exattn::attention_arguments(q, k, v, {out.data(), {1, 3, 2, 1}}); // heads and tokens swapped
  } catch (const exattn::error &error) {
    std::printf("refused as it should be: %s\n", error.what());
    return error.status() == EXATTN_ERROR_SIZE;
  }
  return false;
}

bool run() {
  const std::array<float, 6> q_data{1, 1, 1, -1, -1, -1};
  const std::array<float, 3> k_data{0, 0.693147181F, 0};
  const std::array<float, 3> v_data{4, 1, 6};
  std::array<float, 6> out{};

  const exattn::tensor q(q_data.data(), {1, 2, 3, 1}); // [batch, heads, tokens, head size]
  const exattn::tensor k(k_data.data(), {1, 1, 3, 1});
  const exattn::tensor v(v_data.data(), {1, 1, 3, 1});
  exattn_attention_args args = exattn::attention_arguments(q, k, v, {out.data(), {1, 2, 3, 1}});
  args.causal = 1;
  args.scale_mode = EXATTN_SCALE_GIVEN;
  args.scale = 1;

  const exattn::pool threads(2); // make one, use it for every call
  args.pool = threads.get();
  std::printf("computed by %s\n", exattn::attention(args));

  const std::array<double, 6> expected{4, 2, 3, 4, 3, 4.2};
  for (std::size_t n = 0; n < out.size(); ++n) {
    if (!(std::fabs(double{out[n]} - expected[n]) <= 1e-6)) {
      std::fprintf(stderr, "out[%zu] is %.7f, not %.7f\n", n, double{out[n]}, expected[n]);
      return false;
    }
  }
  return refuses_wrong_shapes(q, k, v);
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
