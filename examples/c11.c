/* One causal call from C11, and what an error looks like.
 *
 * Three tokens, one head of one number. Every query is 1 and the keys are 0, ln 2, 0, so with a scale of 1 the weights
 * are in the ratio 1 : 2 : 1. With the values 4, 1, 6 the rows are
 *   4,  (4 + 2 * 1) / 3 = 2,  (4 + 2 * 1 + 6) / 4 = 3,
 * and the log-sum-exps ln 1, ln 3, ln 4. */
#include <exattn/exattn.h>

#include <stdio.h>

enum { tokens = 3 };

static int near(float value, double expected) {
  return (double)value - expected <= 1e-6 && expected - (double)value <= 1e-6;
}

int main(void) {
  static const float q[tokens] = {1, 1, 1};
  static const float k[tokens] = {0, 0.693147181F, 0};
  static const float v[tokens] = {4, 1, 6};
  float out[tokens] = {0};
  float lse[tokens] = {0};
  char message[256];

  exattn_attention_args args = EXATTN_ATTENTION_ARGS_INIT; /* sets struct_size; whatever is left alone is a default */
  args.batch = args.heads = args.kv_heads = 1;
  args.q_len = args.kv_len = tokens;
  args.head_dim = args.value_dim = 1;
  args.causal = 1;
  args.scale_mode = EXATTN_SCALE_GIVEN; /* the default would be 1 / sqrt(head_dim) */
  args.scale = 1;
  args.q = (exattn_tensor){q, EXATTN_F32, 4, {tokens, tokens, 1, 1}}; /* strides in elements */
  args.k = (exattn_tensor){k, EXATTN_F32, 4, {tokens, tokens, 1, 1}};
  args.v = (exattn_tensor){v, EXATTN_F32, 4, {tokens, tokens, 1, 1}};
  args.out = (exattn_output){out, 0, 4, {tokens, tokens, 1, 1}};
  args.lse = (exattn_output){lse, 0, 3, {tokens, tokens, 1}};
  args.message = message;
  args.message_size = sizeof message;

  /* Two query heads can't share three key heads. Every error is found before anything is written. */
  args.heads = 2;
  args.kv_heads = 3;
  exattn_status status = exattn_attention(&args);
  printf("refused as it should be: %s: %s\n", exattn_status_name(status), message);
  if (status != EXATTN_ERROR_HEADS || out[0] != 0) {
    return 1;
  }

  args.heads = args.kv_heads = 1;
  status = exattn_attention(&args);
  if (status != EXATTN_OK) {
    fprintf(stderr, "%s: %s\n", exattn_status_name(status), message);
    return 1;
  }
  printf("out %.6f %.6f %.6f\n", (double)out[0], (double)out[1], (double)out[2]);
  return near(out[0], 4) && near(out[1], 2) && near(out[2], 3) && near(lse[0], 0) &&
                 near(lse[1], 1.0986123 /* log 3 */) && near(lse[2], 1.3862944 /* log 4 */)
             ? 0
             : 1;
}
