/* An outside program in C11: one query, three keys, worked by hand. Scores 1, 0, 1; weights e, 1, e over 2e + 1. */
#include <exattn/exattn.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static exattn_tensor tensor(const float *data, int64_t columns) {
  exattn_tensor t = {0};
  t.data = data;
  t.dtype = EXATTN_F32;
  t.rank = 4;
  t.stride[2] = columns;
  t.stride[3] = 1;
  return t;
}

static int run(int32_t flavour) {
  static const float q[] = {1, 0};
  static const float k[] = {1, 0, 0, 1, 1, 1};
  static const float v[] = {1, 2, 3, 4, 5, 6};
  float out[2] = {0, 0};
  float lse = 0;
  char message[256] = "";
  const char *kernel = "";

  exattn_attention_args args = EXATTN_ATTENTION_ARGS_INIT;
  args.flavour = flavour;
  args.batch = args.heads = args.kv_heads = args.q_len = 1;
  args.kv_len = 3;
  args.head_dim = args.value_dim = 2;
  args.q = tensor(q, 2);
  args.k = tensor(k, 2);
  args.v = tensor(v, 2);
  args.out.data = out;
  args.out.rank = 4;
  args.out.stride[2] = 2;
  args.out.stride[3] = 1;
  args.lse.data = &lse;
  args.lse.rank = 3;
  args.lse.stride[2] = 1;
  args.scale_mode = EXATTN_SCALE_GIVEN;
  args.scale = 1;
  args.kernel = &kernel;
  args.message = message;
  args.message_size = sizeof message;

  exattn_status status = exattn_attention(&args);
  if (status == EXATTN_ERROR_FLAVOUR_UNSUPPORTED) { /* a CPU without a fused multiply-add: emulate it */
    args.lanes = EXATTN_LANES_SCALAR;
    status = exattn_attention(&args);
  }
  if (status != EXATTN_OK) {
    fprintf(stderr, "%s: %s\n", exattn_status_name(status), message);
    return 1;
  }
  printf("%s: out %.7f %.7f, lse %.7f\n", kernel, (double)out[0], (double)out[1], (double)lse);
  return fabs((double)out[0] - 3) <= 1e-6 && fabs((double)out[1] - 4) <= 1e-6 && fabs((double)lse - 1.8619948) <= 1e-6
             ? 0
             : 1;
}

int main(void) {
  if (strcmp(exattn_version(), EXATTN_VERSION) != 0) {
    fprintf(stderr, "header of %s, library of %s\n", EXATTN_VERSION, exattn_version());
    return 1;
  }
  return run(EXATTN_EXACT) != 0 || run(EXATTN_FAST) != 0;
}
