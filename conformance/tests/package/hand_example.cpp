// An outside program in C++17: the example of hand_example.c, and an error that arrives as an exception.
#include <exattn/exattn.hpp>

#include <array>
#include <cmath>
#include <cstdio>

namespace {

bool near(double value, double wanted) {
  return std::fabs(value - wanted) <= 1e-6;
}

bool hand_example() {
  const std::array<float, 2> q{1, 0};
  const std::array<float, 6> k{1, 0, 0, 1, 1, 1};
  const std::array<float, 6> v{1, 2, 3, 4, 5, 6};
  std::array<float, 2> out{};
  float lse = 0;
  exattn_attention_args args = exattn::attention_arguments({q.data(), {1, 1, 1, 2}}, {k.data(), {1, 1, 3, 2}},
                                                           {v.data(), {1, 1, 3, 2}}, {out.data(), {1, 1, 1, 2}});
  args.lse = exattn::to_c_lse(&lse, 1, 1);
  args.scale_mode = EXATTN_SCALE_GIVEN;
  args.scale = 1;
  exattn::attention(args);
  std::printf("out %.7f %.7f, lse %.7f\n", double{out[0]}, double{out[1]}, double{lse});
  return near(out[0], 3) && near(out[1], 4) && near(lse, 1.8619948);
}

bool error_arrives() {
  exattn_attention_args args = EXATTN_ATTENTION_ARGS_INIT;
  args.flavour = 7;
  try {
    exattn::attention(args);
  } catch (const exattn::error &error) {
    std::printf("%s\n", error.what());
    return error.status() == EXATTN_ERROR_ENUM;
  }
  return false;
}

} // namespace

int main() {
  return hand_example() && error_arrives() ? 0 : 1;
}
