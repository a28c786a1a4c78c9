/* exattn: fused attention with the same bits everywhere.
 *
 * C11 and C++17. No function here throws, none needs initialisation, all may be called from any number of
 * threads at once. "Definition" below means docs/definition.md, version EXATTN_DEFINITION.
 *
 * Shapes are written [a, b, c, d], outermost first. Sizes and strides count elements, in 64 bits.
 */
#ifndef EXATTN_EXATTN_H
#define EXATTN_EXATTN_H

#include <stddef.h>
#include <stdint.h>

#define EXATTN_VERSION_MAJOR 0
#define EXATTN_VERSION_MINOR 2
#define EXATTN_VERSION_PATCH 0
#define EXATTN_VERSION "0.2.0"

/** The version of the definition that the bits follow. Other bits would be another version. */
#define EXATTN_DEFINITION "exattn-1"

#if defined(EXATTN_STATIC)
#define EXATTN_API
#elif defined(_WIN32)
#if defined(EXATTN_BUILDING)
#define EXATTN_API __declspec(dllexport)
#else
#define EXATTN_API __declspec(dllimport)
#endif
#else
#define EXATTN_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** What a call returns: one of the EXATTN_OK / EXATTN_ERROR_* values. */
typedef int32_t exattn_status;

enum {
  EXATTN_OK = 0,
  EXATTN_ERROR_NULL = 1,                 /**< a required pointer is null */
  EXATTN_ERROR_STRUCT_SIZE = 2,          /**< struct_size is not one that this library knows */
  EXATTN_ERROR_SIZE = 3,                 /**< a size is negative, or zero where it may not be */
  EXATTN_ERROR_OVERFLOW = 4,             /**< a product of sizes and strides does not fit in 64 bits (or size_t) */
  EXATTN_ERROR_STRIDES = 5,              /**< strides are missing (rank not set), or not those of packed keys */
  EXATTN_ERROR_OVERLAP = 6,              /**< an output overlaps itself or something else that the call uses */
  EXATTN_ERROR_ENUM = 7,                 /**< an enumeration field holds an unknown value */
  EXATTN_ERROR_HEADS = 8,                /**< heads is not a multiple of kv_heads */
  EXATTN_ERROR_OFFSET = 9,               /**< a position, or a start or length of a sequence, is out of range */
  EXATTN_ERROR_ALIGNMENT = 10,           /**< a pointer is not aligned as its element type must be */
  EXATTN_ERROR_SCRATCH = 11,             /**< the caller's scratch is smaller than the size query says */
  EXATTN_ERROR_LANES_UNKNOWN = 12,       /**< no lane kind has that name or number */
  EXATTN_ERROR_LANES_UNSUPPORTED = 13,   /**< the lane kind is not in this build, or not on this CPU or system */
  EXATTN_ERROR_FLAVOUR_UNSUPPORTED = 14, /**< the lane kind has no fast flavour here */
  EXATTN_ERROR_MEMORY = 15,              /**< memory could not be allocated */
  EXATTN_ERROR_THREADS = 16,             /**< threads could not be made, are too many, or a pool and an executor came */
  EXATTN_ERROR_EXECUTOR = 17,            /**< the caller's parallel_for did not run the tasks it was given */
  EXATTN_ERROR_OPTION = 18,              /**< an option's value is out of range, or it excludes another that is set */
  EXATTN_ERROR_PAGE = 19,                /**< the page table names a page that there is not */
  EXATTN_ERROR_STATE = 20                /**< a state is damaged, or of another call than this one */
};

/** The name of a status, such as "EXATTN_ERROR_OVERLAP"; "EXATTN_STATUS_UNKNOWN" for any other number. */
EXATTN_API const char *exattn_status_name(exattn_status status);

/** One sentence that explains a status. Never null. */
EXATTN_API const char *exattn_status_string(exattn_status status);

/** EXATTN_VERSION of the library that is linked (not of the header). */
EXATTN_API const char *exattn_version(void);

/** EXATTN_DEFINITION of the library that is linked. */
EXATTN_API const char *exattn_definition(void);

/* ---- Flavours and lane kinds ------------------------------------------------------------------------- */

/** Flavour: which of the two definitions the bits follow (definition, section 2). */
enum {
  EXATTN_EXACT = 0, /**< unfused binary32 operations: the same bits on every machine */
  EXATTN_FAST = 1   /**< every multiply-add fused: the same bits on every machine with a fused multiply-add */
};

/** Lane kind: which instructions compute. Never changes a bit. */
enum {
  EXATTN_LANES_AUTO = 0,   /**< EXATTN_LANES of the environment if set, else the widest that CPU and system support;
                              of two as wide, the one for this CPU and flavour */
  EXATTN_LANES_SCALAR = 1, /**< one lane; fast through an emulated fused multiply-add (slow) */
  EXATTN_LANES_SSE2 = 2,   /**< 4 lanes, exact only */
  EXATTN_LANES_AVX2 = 3,   /**< 8 lanes; fast needs FMA3 */
  EXATTN_LANES_AVX512 = 4, /**< 16 lanes */
  EXATTN_LANES_NEON64 = 5, /**< 4 lanes, arm64 */
  EXATTN_LANES_AVX512N = 6 /**< 16 lanes in narrower tiles, exact only: faster on AMD's Zen 4 */
};
#define EXATTN_LANES_COUNT 7

/** "exact" or "fast"; null for any other number. */
EXATTN_API const char *exattn_flavour_name(int32_t flavour);

/** "auto", "scalar", "sse2", "avx2", "avx512", "neon64" or "avx512n"; null for any other number. */
EXATTN_API const char *exattn_lanes_name(int32_t lanes);

/** The lane kind of that name. EXATTN_ERROR_LANES_UNKNOWN if there is none, EXATTN_ERROR_NULL. */
EXATTN_API exattn_status exattn_lanes_from_name(const char *name, int32_t *lanes);

/** What is known of a lane kind here and now. Fill in struct_size, then call exattn_lanes_query. */
typedef struct exattn_lanes_info {
  size_t struct_size; /**< sizeof(exattn_lanes_info) */
  int32_t built;      /**< 1: this library holds its kernels */
  int32_t cpu;        /**< 1: the CPU has its instructions */
  int32_t os;         /**< 1: the operating system saves its registers */
  int32_t exact;      /**< 1: usable for EXATTN_EXACT */
  int32_t fast;       /**< 1: usable for EXATTN_FAST */
  int32_t width;      /**< binary32 lanes in one vector */
} exattn_lanes_info;

/** Describes one lane kind (not EXATTN_LANES_AUTO). EXATTN_ERROR_LANES_UNKNOWN, _NULL, _STRUCT_SIZE. */
EXATTN_API exattn_status exattn_lanes_query(int32_t lanes, exattn_lanes_info *info);

/** The lane kind that a request resolves to, and the name that the chosen kernel gives itself, such as
 * "avx2/exact". kernel may be null. EXATTN_ERROR_LANES_UNKNOWN (also for an unknown name in the environment
 * variable EXATTN_LANES), _LANES_UNSUPPORTED, _FLAVOUR_UNSUPPORTED, _ENUM, _NULL. */
EXATTN_API exattn_status exattn_lanes_resolve(int32_t lanes, int32_t flavour, int32_t *resolved, const char **kernel);

/* ---- Threads ----------------------------------------------------------------------------------------- */

/** A pool of worker threads that many calls, also concurrent ones, may share. */
typedef struct exattn_pool exattn_pool;

/** Makes a pool of that many threads, the caller's among them; 0 picks the number of processors that this
 * process may use. EXATTN_ERROR_NULL, _THREADS (negative, over 4096, or refused by the system), _MEMORY. */
EXATTN_API exattn_status exattn_pool_create(int32_t threads, exattn_pool **pool);

/** Ends the pool's threads. No call may be using it. Null is ignored. */
EXATTN_API void exattn_pool_destroy(exattn_pool *pool);

/** How many threads the pool has; 0 for null. */
EXATTN_API int32_t exattn_pool_threads(const exattn_pool *pool);

/** The caller's own threads. parallel_for must call task(task_context, i) once for every i in [0, count), on any
 * threads and in any order, and return when all have returned. count is never above `threads`. A call that
 * comes twice, or not at all, does no harm to the result as long as one comes. */
typedef struct exattn_executor {
  size_t struct_size; /**< sizeof(exattn_executor) */
  void *context;      /**< handed to parallel_for */
  void (*parallel_for)(void *context, size_t count, void (*task)(void *task_context, size_t index), void *task_context);
  int32_t threads; /**< how many tasks may run at once, 1 to 4096 */
} exattn_executor;

/* ---- Attention --------------------------------------------------------------------------------------- */

/** Element types of inputs. q, k and v may each be any of the first three; the 16-bit ones are widened as they are
 * read, which is exact (definition, section 3). */
enum {
  EXATTN_F32 = 0,  /**< IEEE-754 binary32 */
  EXATTN_BF16 = 1, /**< bfloat16: the upper 16 bits of a binary32 */
  EXATTN_F16 = 2,  /**< IEEE-754 binary16 */
  EXATTN_U8 = 3    /**< unsigned bytes: mask_bool only */
};

/** An input. Element [i0, i1, ...] is at data + sum(i_n * stride[n]) elements; strides may be 0 (broadcast) or
 * negative; data need only be aligned as its element type is. */
typedef struct exattn_tensor {
  const void *data;
  int32_t dtype; /**< EXATTN_F32, _BF16, _F16 or _U8 */
  int32_t rank;  /**< how many strides are set: 4 */
  int64_t stride[4];
} exattn_tensor;

/** An output, binary32. No two elements may share memory. */
typedef struct exattn_output {
  float *data;
  int32_t reserved; /**< 0 */
  int32_t rank;     /**< how many strides are set: 4, or 3 for the log-sum-exp */
  int64_t stride[4];
} exattn_output;

/** Where the scale comes from. */
enum {
  EXATTN_SCALE_DEFAULT = 0, /**< exattn_default_scale(head_dim); the field scale must be 0 */
  EXATTN_SCALE_GIVEN = 1    /**< the field scale, whatever it holds */
};

/** What a row gives whose visible scores are all -inf (definition, section 9). */
enum {
  EXATTN_FULLY_MASKED_NAN = 0, /**< NaN */
  EXATTN_FULLY_MASKED_ZERO = 1 /**< +0 */
};

/** How k lies in memory. */
enum {
  EXATTN_K_ROWS = 0,  /**< by the four strides, as any tensor */
  EXATTN_K_PACKED = 1 /**< packed: 16 keys side by side, see exattn_packed_keys */
};

/** Whether the keys of a row may be shared out among threads. Never changes a bit: the order of all operations on a row
 * stays that of the definition. It takes scratch that grows with the keys: 4 bytes for each key and query row, and some
 * for each 64 keys. */
enum {
  EXATTN_SPLIT_KEYS_AUTO = 0,  /**< where rows and heads alone would leave threads idle, and it is faster */
  EXATTN_SPLIT_KEYS_NEVER = 1, /**< the scratch never depends on q_len and kv_len */
  EXATTN_SPLIT_KEYS_ALWAYS = 2 /**< also where it is slower, on one thread too: for tests */
};
/** What scratch for split keys may take if split_limit is 0. Calls that would need more do not split keys. */
#define EXATTN_SPLIT_LIMIT_DEFAULT ((size_t)64 << 20)

/** One attention call: for every b, h, i: out[b,h,i,:] = softmax(scale * q[b,h,i,:] k^T + mask[b,h,i,:]) v.
 * Start from EXATTN_ATTENTION_ARGS_INIT; every field that is left zero means "none" or "default".
 *
 * Four layouts change where things lie, never a bit of a row:
 * - Ragged queries (q_starts): q, out, lse, mask and mask_bool hold the rows of all sequences one after the other, as
 * if B were 1; q_len is how many rows there are in all, and sequence b has the rows q_starts[b] to q_starts[b+1] - 1.
 * - Ragged keys (kv_starts): likewise k and v. A mask still has a column for every key of its row's sequence, so its Tk
 *   is the length of the longest sequence.
 * - Pages (page_table): k is [pages, Hkv, page_size, D], v [pages, Hkv, page_size, Dv]; key n of sequence b is in slot
 *   n % page_size of the page page_table[b * page_table_stride + n / page_size]. Entries of pages in which
 *   no row of the sequence sees a key by kv_len, causal and window are not looked at.
 * - Packed keys (k_layout): k lies as exattn_packed_keys says, and is read without being rearranged first. page_size
 * must be a multiple of 16, and with kv_starts so must be the start of every sequence that has keys (by kv_lens);
 *   a mask then has a column for every place from one start to the next. */
typedef struct exattn_attention_args {
  size_t struct_size; /**< sizeof(exattn_attention_args) */

  int32_t flavour; /**< EXATTN_EXACT or EXATTN_FAST */
  int32_t lanes;   /**< EXATTN_LANES_* */

  int64_t batch;     /**< B, sequences, 0 or more */
  int64_t heads;     /**< H, query heads, 0 or more, a multiple of kv_heads */
  int64_t kv_heads;  /**< Hkv, key and value heads; query head h reads head h / (heads / kv_heads) */
  int64_t q_len;     /**< Tq, query rows, 0 or more */
  int64_t kv_len;    /**< Tk, keys, 0 or more; with pages the most that a sequence has */
  int64_t head_dim;  /**< D, of queries and keys, 1 or more */
  int64_t value_dim; /**< Dv, of values and outputs, 1 or more */

  exattn_tensor q;         /**< [B, H, Tq, D] */
  exattn_tensor k;         /**< [B, Hkv, Tk, D]; packed, its strides are those of exattn_packed_keys */
  exattn_tensor v;         /**< [B, Hkv, Tk, Dv] */
  exattn_tensor mask;      /**< [B, H, Tq, Tk], binary32, added to the scores; data null: none */
  exattn_tensor mask_bool; /**< [B, H, Tq, Tk], EXATTN_U8: 0 hides the key, all else shows it; data null: none */
  exattn_output out;       /**< [B, H, Tq, Dv]; data may be null where state_out is not */
  exattn_output lse;       /**< [B, H, Tq], natural log-sum-exp; data null: not wanted */

  float scale;          /**< used as it is when scale_mode is EXATTN_SCALE_GIVEN */
  int32_t scale_mode;   /**< EXATTN_SCALE_* */
  int32_t causal;       /**< 1: row i sees keys j <= q_offset + i only; 0: no such rule */
  int32_t fully_masked; /**< EXATTN_FULLY_MASKED_* */
  int64_t q_offset;     /**< absolute position of query row 0, 0 or more */
  int64_t window;       /**< above 0: row i sees keys j > q_offset + i - window only; 0 or below: none */
  float softcap;    /**< above 0 and finite: scores become softcap * tanh(score / softcap) before any mask; 0: none */
  int32_t k_layout; /**< EXATTN_K_* */

  const float *sinks;        /**< [H] sink logits, or null */
  const float *alibi_slopes; /**< [H]: -slope * |position of the row - position of the key| is added, or null */
  const int64_t *q_offsets;  /**< [B], replaces q_offset, or null */
  const int64_t *kv_lens;    /**< [B], each 0 to the keys of that sequence: how many there are, or null: all */

  const int64_t *q_starts;   /**< [B + 1], not decreasing, 0 to q_len: ragged queries; or null */
  const int64_t *kv_starts;  /**< [B + 1], not decreasing, 0 to kv_len: ragged keys, no pages; or null */
  const int32_t *page_table; /**< [B, page_table_stride]: paged keys and values; or null */
  int64_t page_table_stride; /**< entries of a sequence, at least kv_len / page_size rounded up */
  int64_t page_size;         /**< keys of a page, 1 or more */
  int64_t pages;             /**< how many there are: entries are 0 to pages - 1 */

  int64_t kv_offset;    /**< absolute position of key 0 of this call, a multiple of 64 */
  const void *state_in; /**< where an earlier call stopped (definition, section 14); or null */
  size_t state_in_size; /**< bytes at state_in, exattn_attention_state_size of them */
  void *state_out; /**< receives where this call stops; or null. May be state_in. Void after an error of the executor */
  size_t state_out_size; /**< bytes at state_out, exattn_attention_state_size or more */

  void *scratch;       /**< exattn_attention_scratch_size bytes, any alignment; or null: the library allocates */
  size_t scratch_size; /**< bytes at scratch */
  size_t split_limit;  /**< the most bytes of scratch for split keys; 0: EXATTN_SPLIT_LIMIT_DEFAULT */
  int32_t split_keys;  /**< EXATTN_SPLIT_KEYS_* */
  int32_t reserved;    /**< 0 */

  exattn_pool *pool;               /**< threads to use, or null */
  const exattn_executor *executor; /**< the caller's threads, or null; not together with pool. Neither: serial */

  const char **kernel; /**< receives the name of the kernel that ran, such as "avx2/exact"; or null */
  char *message;       /**< receives what was wrong and what is allowed, zero-terminated, or ""; or null */
  size_t message_size; /**< bytes at message, which no tensor may share. Not written if struct_size is wrong */
} exattn_attention_args;

/* Every field by name would need C++20, and fewer fields than there are bring warnings. */
#define EXATTN_TENSOR_NONE                                                                                             \
  {                                                                                                                    \
    NULL, 0, 0, {                                                                                                      \
      0, 0, 0, 0                                                                                                       \
    }                                                                                                                  \
  }
#define EXATTN_ATTENTION_ARGS_INIT                                                                                     \
  {                                                                                                                    \
    sizeof(exattn_attention_args), EXATTN_EXACT, EXATTN_LANES_AUTO, 0, 0, 0, 0, 0, 0, 0, EXATTN_TENSOR_NONE,           \
        EXATTN_TENSOR_NONE, EXATTN_TENSOR_NONE, EXATTN_TENSOR_NONE, EXATTN_TENSOR_NONE, EXATTN_TENSOR_NONE,            \
        EXATTN_TENSOR_NONE, 0, EXATTN_SCALE_DEFAULT, 0, EXATTN_FULLY_MASKED_NAN, 0, 0, 0, 0, NULL, NULL, NULL, NULL,   \
        NULL, NULL, NULL, 0, 0, 0, 0, NULL, 0, NULL, 0, NULL, 0, 0, EXATTN_SPLIT_KEYS_AUTO, 0, NULL, NULL, NULL, NULL, \
        0                                                                                                              \
  }

/** Computes attention. Everything is checked first: with any status but EXATTN_OK and EXATTN_ERROR_EXECUTOR
 * nothing has been written. The bits depend on the inputs, the flavour and the options of the definition alone.
 * Runs in round-to-nearest with gradual underflow and leaves the caller's floating-point state as it was. */
EXATTN_API exattn_status exattn_attention(const exattn_attention_args *args);

/** Scratch bytes that exattn_attention needs for these arguments (pointers in them may be null). The size depends
 * on head_dim, value_dim and the number of threads alone, but where keys may be split: with more than one thread and
 * too few rows and heads for them, up to split_limit are added. EXATTN_ERROR_NULL, _STRUCT_SIZE, _SIZE, _HEADS,
 * _OVERFLOW, _THREADS, _ENUM. */
EXATTN_API exattn_status exattn_attention_scratch_size(const exattn_attention_args *args, size_t *bytes);

/** Bytes of a state of these arguments (definition, section 14): it holds, for every row, what is needed to go on with
 * further keys in another call, process or machine, with the bits that one call would have given. The call that stops
 * sets state_out; the one that goes on sets state_in, kv_offset where the other stopped, and k and v of the keys from
 * there on. Both have the same flavour, sequences, heads, rows and value_dim, which is checked, and all other options
 * alike (scale, positions, q_starts, softcap, ...), which can't be. Sinks count where a row starts, so they are not
 * looked at with state_in. A sequence whose keys ended before the key at which the call stops can take no more.
 *
 * Only the order of the keys is fixed, not the calls: partial results over other key ranges can't be put together
 * without changing bits (exattn_merge_tolerant). */
EXATTN_API exattn_status exattn_attention_state_size(const exattn_attention_args *args, size_t *bytes);

/** 1 / sqrt(head_dim): square root and division rounded to nearest (definition, section 3). head_dim above 0. */
EXATTN_API float exattn_default_scale(int64_t head_dim);

/** Merges results over disjoint sets of keys: (out, lse) of rows [0, rows) from (a_out, a_lse) and (b_out, b_lse), out
 * [rows, value_dim], lse [rows], contiguous. Tolerant: the result is close to that of one call, but not its bits, since
 * the order of operations is another. It is the same on every machine all the same (definition, section 14). A part
 * whose lse is -inf counts for nothing. out and lse may be those of a or of b. Sinks must be in one part only.
 * EXATTN_ERROR_NULL, _SIZE, _OVERFLOW, _ALIGNMENT, _OVERLAP. */
EXATTN_API exattn_status exattn_merge_tolerant(int64_t rows, int64_t value_dim, const float *a_out, const float *a_lse,
                                               const float *b_out, const float *b_lse, float *out, float *lse);

/* ---- Packed keys ------------------------------------------------------------------------------------- */

/** Keys in the order in which attention reads them, in groups of 16 (definition, section 3): element x of key j of
 * (b, kv_head) is at data + b * stride[0] + kv_head * stride[1] + (j / 16) * stride[2] + x * 16 + j % 16 elements.
 * stride[2] is the distance between groups, 16 * head_dim where they follow each other; stride[3] is the distance
 * between elements of a key, always 16. The same four strides, with EXATTN_K_PACKED, make it k of an attention call.
 *
 * All 16 places of a group in which a row sees a key must be readable memory. What the places of other keys hold
 * changes no bit. A cache [B, Hkv, kv_len, D] has kv_len / 16 groups, rounded up; in pages it is [pages, Hkv,
 * page_size, D]. */
typedef struct exattn_packed_keys {
  void *data;    /**< aligned as the element type is */
  int32_t dtype; /**< EXATTN_F32, _BF16 or _F16 */
  int32_t rank;  /**< how many strides are set: 4 */
  int64_t stride[4];
} exattn_packed_keys;

/** Bytes of packed keys [batch, kv_heads, kv_len, head_dim] without gaps, of the type dtype: kv_len is rounded up to a
 * multiple of 16. For a cache in pages, batch is their number and kv_len their size. EXATTN_ERROR_NULL, _SIZE, _ENUM,
 * _OVERFLOW. */
EXATTN_API exattn_status exattn_packed_keys_size(int64_t batch, int64_t kv_heads, int64_t kv_len, int64_t head_dim,
                                                 int32_t dtype, size_t *bytes);

/** Keys to be written into packed keys, a token at a time or a whole prompt: key n of sequence b becomes its key
 * first_key + n. Start from EXATTN_PACK_KEYS_ARGS_INIT. */
typedef struct exattn_pack_keys_args {
  size_t struct_size; /**< sizeof(exattn_pack_keys_args) */

  int64_t batch;    /**< B, sequences, 0 or more */
  int64_t kv_heads; /**< Hkv, 0 or more */
  int64_t kv_len;   /**< keys that a sequence of the cache has room for, 0 or more */
  int64_t head_dim; /**< D, 1 or more */
  int64_t count;    /**< keys of each sequence to write, 0 or more */

  int64_t first_key;         /**< where they begin, 0 or more; first_key + count is at most kv_len */
  const int64_t *first_keys; /**< [B], replaces first_key, or null */

  exattn_tensor k;           /**< [B, Hkv, count, D], what is written: any strides */
  exattn_packed_keys packed; /**< [B, Hkv, kv_len, D], or [pages, Hkv, page_size, D]: of k's type, or binary32 */

  const int32_t *page_table; /**< [B, page_table_stride], as for attention, or null */
  int64_t page_table_stride; /**< entries of a sequence, at least kv_len / page_size rounded up */
  int64_t page_size;         /**< keys of a page, a multiple of 16 */
  int64_t pages;             /**< how many there are: entries are 0 to pages - 1 */

  char *message;       /**< receives what was wrong and what is allowed, zero-terminated, or ""; or null */
  size_t message_size; /**< bytes at message. Not written if struct_size is wrong */
} exattn_pack_keys_args;

#define EXATTN_PACK_KEYS_ARGS_INIT                                                                                     \
  {                                                                                                                    \
    sizeof(exattn_pack_keys_args), 0, 0, 0, 0, 0, 0, NULL, EXATTN_TENSOR_NONE, EXATTN_TENSOR_NONE, NULL, 0, 0, 0,      \
        NULL, 0                                                                                                        \
  }

/** Writes keys into packed keys; all other places are left as they are, so a cache may be filled in any order, also by
 * calls at the same time that write other keys. Elements of one type are copied bit by bit; 16-bit ones are widened,
 * exactly, where the cache is binary32. Everything is checked first: with any other status than EXATTN_OK nothing has
 * been written. No two keys of a call may have one place (the same page twice, strides that overlap), nor may k and the
 * cache share memory. Entries of pages in which no key is written are not looked at. EXATTN_ERROR_NULL, _STRUCT_SIZE,
 * _SIZE, _ENUM, _STRIDES, _ALIGNMENT, _OVERFLOW, _OVERLAP, _OFFSET (first_key), _OPTION (pages), _PAGE, _MEMORY. */
EXATTN_API exattn_status exattn_pack_keys(const exattn_pack_keys_args *args);

/* ---- Softmax ----------------------------------------------------------------------------------------- */

/** Softmax of every row of a [d0, d1, d2, n] tensor over its last dimension (definition, section 11). */
typedef struct exattn_softmax_args {
  size_t struct_size; /**< sizeof(exattn_softmax_args) */
  int32_t flavour;    /**< EXATTN_EXACT or EXATTN_FAST */
  int32_t lanes;      /**< EXATTN_LANES_* */
  int64_t shape[4];   /**< each 0 or more; unused leading ones are 1 */
  exattn_tensor x;    /**< input */
  exattn_output y;    /**< output; may be x itself with the same strides (in place), else no overlap */
  exattn_pool *pool;
  const exattn_executor *executor;
  const char **kernel;
  char *message;
  size_t message_size;
} exattn_softmax_args;

#define EXATTN_SOFTMAX_ARGS_INIT                                                                                       \
  {                                                                                                                    \
    sizeof(exattn_softmax_args), EXATTN_EXACT, EXATTN_LANES_AUTO, {0, 0, 0, 0}, EXATTN_TENSOR_NONE,                    \
        EXATTN_TENSOR_NONE, NULL, NULL, NULL, NULL, 0                                                                  \
  }

/** Computes softmax rows. Errors and guarantees as for exattn_attention. */
EXATTN_API exattn_status exattn_softmax(const exattn_softmax_args *args);

/* ---- The functions of the definition ----------------------------------------------------------------- */

enum {
  EXATTN_FUNCTION_EXP = 0, /**< e^x for x <= 0 or NaN (definition, section 7); any other x is not defined */
  EXATTN_FUNCTION_LOG = 1, /**< ln x for x = 0, x >= 1 or NaN (definition, section 8); any other x is not defined */
  EXATTN_FUNCTION_TANH = 2 /**< tanh x for any x (definition, section 13) */
};

/** y[i] = f(x[i]) for i in [0, n), with the bits that attention uses: for measuring and checking them. x == y is
 * allowed, any other overlap is not. EXATTN_ERROR_NULL, _ENUM, _ALIGNMENT, _OVERFLOW, _OVERLAP and the statuses of
 * exattn_lanes_resolve. */
EXATTN_API exattn_status exattn_evaluate(int32_t function, int32_t flavour, int32_t lanes, const float *x, float *y,
                                         size_t n);

#ifdef __cplusplus
}
#endif

#endif /* EXATTN_EXATTN_H */
