/* The caller's scratch: sized once, used by every call; a decode loop in which nothing is allocated.
 *
 * All queries are zero, so all scores are equal and each row is the mean of the values that it sees. Value j is 2 j, so
 * step t, which sees the keys 0 to t, gives t, exactly. */
#include <exattn/exattn.h>

#include <stdio.h>
#include <stdlib.h>

enum { heads = 4, kv_heads = 2, size = 16, capacity = 200 };

static float q[heads * size];
static float out[heads * size];
static float k[kv_heads * capacity * size];
static float v[kv_heads * capacity * size];

static exattn_attention_args step_arguments(exattn_pool *pool) {
  exattn_attention_args args = EXATTN_ATTENTION_ARGS_INIT;
  args.batch = 1;
  args.heads = heads;
  args.kv_heads = kv_heads;
  args.q_len = 1;
  args.kv_len = capacity;
  args.head_dim = args.value_dim = size;
  args.q = (exattn_tensor){q, EXATTN_F32, 4, {heads * size, size, size, 1}};
  args.k = (exattn_tensor){k, EXATTN_F32, 4, {kv_heads * capacity * size, capacity * size, size, 1}};
  args.v = (exattn_tensor){v, EXATTN_F32, 4, {kv_heads * capacity * size, capacity * size, size, 1}};
  args.out = (exattn_output){out, 0, 4, {heads * size, size, size, 1}};
  args.pool = pool;
  /* So the size depends on head_dim, value_dim and the number of threads alone. With EXATTN_SPLIT_KEYS_AUTO, one row
   * over very many keys may use all threads, for up to split_limit bytes more: then supply those as well. */
  args.split_keys = EXATTN_SPLIT_KEYS_NEVER;
  return args;
}

static int decode(exattn_attention_args *args) {
  for (int t = 0; t < capacity; ++t) {
    for (int h = 0; h < kv_heads; ++h) {
      for (int x = 0; x < size; ++x) {
        k[(h * capacity + t) * size + x] = (float)(x - t);
        v[(h * capacity + t) * size + x] = (float)(2 * t);
      }
    }
    args->kv_len = t + 1;
    const exattn_status status = exattn_attention(args);
    if (status != EXATTN_OK) {
      fprintf(stderr, "step %d: %s\n", t, exattn_status_string(status));
      return 1;
    }
    for (int n = 0; n < heads * size; ++n) {
      if (out[n] != (float)t) {
        fprintf(stderr, "step %d: element %d is %.7f\n", t, n, (double)out[n]);
        return 1;
      }
    }
  }
  return 0;
}

int main(void) {
  exattn_pool *pool = NULL;
  if (exattn_pool_create(2, &pool) != EXATTN_OK) {
    return 1;
  }
  exattn_attention_args args = step_arguments(pool);
  int failed = exattn_attention_scratch_size(&args, &args.scratch_size) != EXATTN_OK;
  args.scratch = failed ? NULL : malloc(args.scratch_size); /* any alignment will do */
  failed = args.scratch == NULL || decode(&args) != 0;
  printf("%d steps in %zu bytes of scratch: %s\n", capacity, args.scratch_size, failed ? "failed" : "right");

  args.scratch_size -= 1; /* too little is an error, never a hidden allocation */
  failed = exattn_attention(&args) != EXATTN_ERROR_SCRATCH || failed;
  free(args.scratch);
  exattn_pool_destroy(pool);
  return failed;
}
