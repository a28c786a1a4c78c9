#include "attention_call.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <limits>

namespace exattn::program {
namespace {

[[noreturn]] void misfit(const NpyArray &array, const std::string &problem) {
  throw InputError(array.name + ": its shape is " + shape_text(array.shape) + "; " + problem);
}

// "3 numbers are given"
std::string given_text(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " number is given; " : " numbers are given; ");
}

// A value starts like a number, or it names a file.
bool is_list(const std::string &text) {
  if (text.ends_with(".npy") || text.find(".safetensors") != std::string::npos || text.find('/') != std::string::npos) {
    return false;
  }
  const std::string first = split_list(text)[0];
  return first == "inf" || first == "nan" || first.find_first_of("+-0123456789") == 0 ||
         (first.size() > 1 && first[0] == '.' && first.find_first_of("0123456789", 1) == 1);
}

// Reads what the user names, and remembers which files these are.
class Reader {
public:
  explicit Reader(std::vector<NamedFile> &files) : named(files) {}

  NpyArray tensor(const char *option, const std::string &path, std::size_t least, std::size_t most,
                  const NpyTypes &types) {
    named.push_back({option, file_of_tensor(path)});
    NpyArray array = read_tensor(path, types);
    if (array.shape.size() < least || array.shape.size() > most) {
      throw InputError(path + ": " + dimensions_text(array.shape.size(), least, most));
    }
    return array;
  }

  // Numbers of at least 0: N,N,... or a file of one dimension.
  std::vector<std::int64_t> integers(const char *option, const std::string &text) {
    std::vector<std::int64_t> values;
    if (is_list(text)) {
      for (const std::string &item : split_list(text)) {
        values.push_back(parse_integer(item, option, 0));
      }
      return values;
    }
    values = tensor(option, text, 0, 1, {NpyType::kInt32, NpyType::kInt64}).integers();
    for (std::size_t n = 0; n < values.size(); ++n) {
      if (values[n] < 0) {
        throw InputError(text + ": element " + std::to_string(n) + " is " + std::to_string(values[n]) + "; " + option +
                         " must be 0 or more");
      }
    }
    return values;
  }

  // One number for all sequences, or one for each.
  std::vector<std::int64_t> per_sequence(const char *option, const std::string &text, std::int64_t batch) {
    std::vector<std::int64_t> values = integers(option, text);
    if (values.size() == 1) {
      values.resize(static_cast<std::size_t>(batch), values[0]);
    }
    if (values.size() != static_cast<std::size_t>(batch)) {
      throw InputError(std::string(option) + ": " + given_text(values.size()) +
                       "allowed are 1, or one per sequence: " + std::to_string(batch));
    }
    return values;
  }

  // Where each sequence starts, and where the last one ends.
  std::vector<std::int64_t> starts(const char *option, const std::string &text) {
    std::vector<std::int64_t> values = integers(option, text);
    if (values.empty()) {
      throw InputError(std::string(option) + ": " + given_text(0) +
                       "needed are the start of every sequence and the end of the last");
    }
    return values;
  }

  // One number for each head: X,X,... or a file of one dimension.
  std::vector<float> per_head(const char *option, const std::string &text, std::int64_t heads) {
    std::vector<float> values;
    if (is_list(text)) {
      for (const std::string &item : split_list(text)) {
        values.push_back(parse_float(item, option));
      }
      if (values.size() != static_cast<std::size_t>(heads)) {
        throw InputError(std::string(option) + ": " + given_text(values.size()) +
                         "one per head is needed: " + std::to_string(heads));
      }
      return values;
    }
    const NpyArray array = tensor(option, text, 1, 1, {NpyType::kFloat32});
    if (array.shape[0] != heads) {
      misfit(array, "one number per head is needed: " + std::to_string(heads));
    }
    values.assign(array.floats(), array.floats() + heads);
    return values;
  }

  MappedFile bytes(const char *option, const std::string &path) {
    named.push_back({option, path});
    return map_file(path);
  }

private:
  std::vector<NamedFile> &named;
};

// Sizes and strides with leading ones, so that every tensor is [B, H, T, D].
FourSizes four_sizes(const NpyArray &array) {
  FourSizes sizes{1, 1, 1, 1};
  std::copy_backward(array.shape.begin(), array.shape.end(), sizes.end());
  return sizes;
}

std::int32_t element_type(NpyType type) {
  switch (type) {
  case NpyType::kFloat16:
    return EXATTN_F16;
  case NpyType::kBits16:
  case NpyType::kBfloat16:
    return EXATTN_BF16;
  case NpyType::kBool:
  case NpyType::kUint8:
    return EXATTN_U8;
  default:
    return EXATTN_F32;
  }
}

exattn_tensor four_strides(const NpyArray &array) {
  exattn_tensor tensor{};
  tensor.data = array.data;
  tensor.dtype = element_type(array.type);
  tensor.rank = 4;
  std::copy_backward(array.strides.begin(), array.strides.end(), tensor.stride + 4);
  return tensor;
}

// NumPy's rule: sizes are aligned at the right, and 1 stands for any size.
exattn_tensor broadcast_mask(const NpyArray &mask, const FourSizes &scores) {
  exattn_tensor tensor = four_strides(mask);
  const FourSizes sizes = four_sizes(mask);
  for (std::size_t n = 0; n < 4; ++n) {
    if (sizes[n] == 1) {
      tensor.stride[n] = 0;
    } else if (sizes[n] != scores[n]) {
      misfit(mask, "it cannot be broadcast to " + shape_text(scores) + " (batch, heads, queries, keys)");
    }
  }
  return tensor;
}

// Which of q, k and v hold bfloat16.
struct Bfloat16 {
  explicit Bfloat16(const std::string &list) {
    if (list.empty()) {
      return;
    }
    for (const std::string &item : split_list(list)) {
      if (item != "q" && item != "k" && item != "v") {
        throw InputError("--bf16: '" + item + "' is none of q, k, v");
      }
      names += item;
    }
  }
  NpyTypes types(char name) const {
    if (names.find(name) != std::string::npos) {
      return {{NpyType::kBits16}, std::string("--bf16 names ") + name};
    }
    return {{NpyType::kFloat32, NpyType::kFloat16}, std::string("bfloat16 needs --bf16 ") + name};
  }

private:
  std::string names;
};

// Whether q, k and v belong together. Sets the sizes in the arguments, but for kv_len where there are pages.
void set_shapes(AttentionCall &call) {
  const NpyArray &q = call.q;
  const NpyArray &k = call.k;
  const NpyArray &v = call.v;
  if (!call.paged && call.ragged_q == call.ragged_kv && k.shape.size() != q.shape.size()) {
    misfit(k, "it must have as many dimensions as q, whose shape is " + shape_text(q.shape));
  }
  if (v.shape.size() != k.shape.size()) {
    misfit(v, "it must have as many dimensions as k, whose shape is " + shape_text(k.shape));
  }
  const FourSizes q4 = four_sizes(q);
  const FourSizes k4 = four_sizes(k);
  const FourSizes v4 = four_sizes(v);
  if (call.ragged_q && q4[0] != 1) {
    misfit(q, "its batch size must be 1 with --q-starts: the rows of all sequences, one after the other");
  }
  const std::int64_t batch = call.ragged_q ? static_cast<std::int64_t>(call.q_starts.size()) - 1 : q4[0];
  if (call.ragged_kv) {
    if (k4[0] != 1) {
      misfit(k, "its batch size must be 1 with --kv-starts: the keys of all sequences, one after the other");
    }
    if (static_cast<std::int64_t>(call.kv_starts.size()) - 1 != batch) {
      throw InputError("--kv-starts: " + given_text(call.kv_starts.size()) + "needed are " + std::to_string(batch + 1) +
                       ": the start of every sequence and the end of the last");
    }
  } else if (!call.paged && k4[0] != batch) {
    misfit(k, std::string("its batch size must be ") + (call.ragged_q ? "that of --q-starts, " : "q's, ") +
                  std::to_string(batch));
  }
  if (k4[3] != q4[3]) {
    misfit(k, "its last size must be q's, " + std::to_string(q4[3]));
  }
  if (v4[0] != k4[0] || v4[1] != k4[1] || v4[2] != k4[2]) {
    misfit(v, "all sizes but the last must be k's, whose shape is " + shape_text(k.shape));
  }
  if (k4[1] == 0 ? q4[1] != 0 : q4[1] % k4[1] != 0) {
    misfit(k, "q has " + std::to_string(q4[1]) + " heads, which must be a multiple of k's " + std::to_string(k4[1]));
  }
  exattn_attention_args &args = call.args;
  args.batch = batch;
  args.heads = q4[1];
  args.kv_heads = k4[1];
  args.q_len = q4[2];
  args.kv_len = k4[2];
  args.head_dim = q4[3];
  args.value_dim = v4[3];
  args.q = four_strides(q);
  args.k = four_strides(k);
  args.v = four_strides(v);
}

// Pages: sizes follow from k and the table, and from the lengths, which have been read.
void set_pages(AttentionCall &call, const NpyArray &table, const std::string &page_size) {
  exattn_attention_args &args = call.args;
  args.pages = call.k.shape[0];
  args.page_size = call.k.shape[2];
  if (!page_size.empty() && parse_integer(page_size, "--page-size", 1) != args.page_size) {
    misfit(call.k, "its third size must be that of --page-size, " + page_size);
  }
  const std::int64_t rows = table.shape.size() == 2 ? table.shape[0] : 1;
  if (rows != args.batch) {
    misfit(table, "one row per sequence is needed: " + std::to_string(args.batch));
  }
  args.page_table_stride = table.shape.back();
  call.page_table_shape = table.shape;
  for (const std::int64_t entry : table.integers()) {
    if (entry < std::numeric_limits<std::int32_t>::min() || entry > std::numeric_limits<std::int32_t>::max()) {
      throw InputError(table.name + ": holds " + std::to_string(entry) + ", which does not fit in 32 bits");
    }
    call.page_table.push_back(static_cast<std::int32_t>(entry));
  }
  call.page_table.reserve(1); // a table without entries needs an address as well
  args.page_table = call.page_table.data();
  if (!call.kv_lens.empty()) {
    args.kv_len = *std::max_element(call.kv_lens.begin(), call.kv_lens.end());
  } else if (__builtin_mul_overflow(args.page_table_stride, args.page_size, &args.kv_len)) {
    misfit(table, "so many pages of " + std::to_string(args.page_size) + " keys do not fit in 63 bits");
  }
}

void read_tensors(AttentionCall &call, const AttentionOptions &options, Reader &reader) {
  exattn_attention_args &args = call.args;
  call.ragged_q = !options.q_starts.empty();
  call.ragged_kv = !options.kv_starts.empty();
  call.paged = !options.page_table.empty();
  if (call.paged && call.ragged_kv) {
    throw InputError("--page-table and --kv-starts exclude each other: keys lie in pages, or one after the other");
  }
  if (!call.paged && !options.page_size.empty()) {
    throw InputError("--page-size needs --page-table");
  }
  const Bfloat16 bfloat16(options.bf16);
  const std::size_t least = call.paged ? 4 : 2;
  call.q = reader.tensor("--q", options.q, 2, 4, bfloat16.types('q'));
  call.k = reader.tensor("--k", options.k, least, 4, bfloat16.types('k'));
  call.v = reader.tensor("--v", options.v, least, 4, bfloat16.types('v'));
  if (call.ragged_q) {
    call.q_starts = reader.starts("--q-starts", options.q_starts);
    args.q_starts = call.q_starts.data();
  }
  if (call.ragged_kv) {
    call.kv_starts = reader.starts("--kv-starts", options.kv_starts);
    args.kv_starts = call.kv_starts.data();
  }
  set_shapes(call);
  if (!options.q_offset.empty()) {
    call.q_offsets = reader.per_sequence("--q-offset", options.q_offset, args.batch);
    args.q_offsets = call.q_offsets.empty() ? nullptr : call.q_offsets.data();
  }
  if (!options.kv_len.empty()) {
    call.kv_lens = reader.per_sequence("--kv-len", options.kv_len, args.batch);
    args.kv_lens = call.kv_lens.empty() ? nullptr : call.kv_lens.data();
  }
  if (call.paged) {
    const NpyArray table = reader.tensor("--page-table", options.page_table, 1, 2, {NpyType::kInt32, NpyType::kInt64});
    set_pages(call, table, options.page_size);
  }
  FourSizes scores{call.ragged_q ? 1 : args.batch, args.heads, args.q_len, args.kv_len};
  if (call.ragged_kv) {
    scores[3] = 0;
    for (std::size_t b = 0; b + 1 < call.kv_starts.size(); ++b) {
      scores[3] = std::max(scores[3], call.kv_starts[b + 1] - call.kv_starts[b]);
    }
  }
  if (!options.mask.empty()) {
    call.mask = reader.tensor(
        "--mask", options.mask, 2, 4,
        {{NpyType::kFloat32}, "this mask is added to the scores, one that hides keys is given by --mask-bool"});
    args.mask = broadcast_mask(call.mask, scores);
  }
  if (!options.mask_bool.empty()) {
    call.mask_bool = reader.tensor("--mask-bool", options.mask_bool, 2, 4, {NpyType::kBool, NpyType::kUint8});
    args.mask_bool = broadcast_mask(call.mask_bool, scores);
  }
  if (!options.sinks.empty()) {
    call.sinks = reader.per_head("--sinks", options.sinks, args.heads);
    args.sinks = call.sinks.data();
  }
  if (!options.alibi.empty()) {
    call.alibi = reader.per_head("--alibi", options.alibi, args.heads);
    args.alibi_slopes = call.alibi.data();
  }
}

// Packs all that k holds: of sequences, or of pages.
void pack_k(AttentionCall &call) {
  std::array<char, 512> message{};
  const FourSizes sizes = four_sizes(call.k);
  exattn_pack_keys_args pack = EXATTN_PACK_KEYS_ARGS_INIT;
  pack.message = message.data();
  pack.message_size = message.size();
  pack.batch = sizes[0];
  pack.kv_heads = sizes[1];
  pack.kv_len = pack.count = sizes[2];
  pack.head_dim = sizes[3];
  pack.k = call.args.k;
  std::size_t bytes = 0;
  require_ok(exattn_packed_keys_size(sizes[0], sizes[1], sizes[2], sizes[3], pack.k.dtype, &bytes), "");
  call.packed_k.resize(std::max<std::size_t>(bytes, 1)); // k without keys needs an address as well
  const std::int64_t group = sizes[3] * 16;
  const std::int64_t head = (sizes[2] + 15) / 16 * group;
  pack.packed = {call.packed_k.data(), pack.k.dtype, 4, {sizes[1] * head, head, group, 16}};
  require_ok(exattn_pack_keys(&pack), message.data());
  call.args.k_layout = EXATTN_K_PACKED;
  call.args.k = {call.packed_k.data(), pack.k.dtype, 4, {sizes[1] * head, head, group, 16}};
}

void read_numbers(exattn_attention_args &args, const AttentionOptions &options) {
  if (!options.scale.empty()) {
    args.scale_mode = EXATTN_SCALE_GIVEN;
    args.scale = parse_float(options.scale, "--scale");
  }
  args.softcap = options.softcap.empty() ? 0 : parse_float(options.softcap, "--softcap");
  if (!options.softcap.empty() && args.softcap == 0.0F) {
    throw InputError("--softcap " + options.softcap + ": must be above 0; leave it out for none");
  }
  args.causal = options.causal ? 1 : 0;
  args.window = options.window.empty() ? 0 : parse_integer(options.window, "--window", 0);
  args.kv_offset = options.kv_offset.empty() ? 0 : parse_integer(options.kv_offset, "--kv-offset", 0);
  if (options.fully_masked != "nan" && options.fully_masked != "zero") {
    throw InputError("--fully-masked: '" + options.fully_masked + "' is neither nan nor zero");
  }
  args.fully_masked = options.fully_masked == "zero" ? EXATTN_FULLY_MASKED_ZERO : EXATTN_FULLY_MASKED_NAN;
}

} // namespace

void add_tensor_options(CLI::App &command, AttentionOptions &options) {
  const auto add = [&](const char *names, std::string &value, const char *type, const char *text) {
    return command.add_option(names, value, text)->type_name(type);
  };
  add("--q", options.q, "FILE", "Queries: [T, D], [H, T, D] or [B, H, T, D], float32 or float16")->required();
  add("--k", options.k, "FILE", "Keys, as many dimensions as q; fewer heads are shared by groups of q's")->required();
  add("--v", options.v, "FILE", "Values, of k's shape but for the last size")->required();
  add("--bf16", options.bf16, "q,k,v", "Which of these hold bfloat16, as uint16 ('<u2') or '<V2'");
  add("--mask", options.mask, "FILE", "Added to the scores, float32; 2 to 4 dimensions, broadcast to [B, H, Tq, Tk]");
  add("--mask-bool", options.mask_bool, "FILE", "0 hides a key from a row; bool or uint8, broadcast likewise");
  add("--alibi", options.alibi, "FILE|X,..", "A slope per head: -slope * |distance| is added to the scores");
  add("--sinks", options.sinks, "FILE|X,..", "A sink logit per head");
  add("--page-table", options.page_table, "FILE", "Pages of each sequence, [B, n]; k and v are [pages, Hkv, size, D]");
  add("--state-in", options.state_in, "FILE", "Go on from this state: k and v hold the keys from --kv-offset on");
}

void add_meaning_options(CLI::App &command, AttentionOptions &options) {
  const auto add = [&](const char *names, std::string &value, const char *type, const char *text) {
    return command.add_option(names, value, text)->type_name(type);
  };
  add("--scale", options.scale, "X",
      "Factor of the scores; default 1/sqrt(D). A number, inf, nan, or bits: 0x3e000000");
  add("--softcap", options.softcap, "X", "Scores become X * tanh(score / X) before masks are added");
  command.add_flag("--causal", options.causal, "A query at position p sees keys 0 to p only")->disable_flag_override();
  add("--q-offset", options.q_offset, "FILE|N,..", "Position of the first query, for all sequences or one for each");
  add("--window", options.window, "N", "A query at position p sees keys after p - N only");
  add("--kv-len", options.kv_len, "FILE|N,..", "Only the first N keys count, for all sequences or one for each");
  add("--fully-masked", options.fully_masked, "nan|zero", "What a row gives whose visible scores are all -inf")
      ->capture_default_str();
  add("--q-starts", options.q_starts, "FILE|N,..", "Ragged: where each sequence's rows start in q, and the last's end");
  add("--kv-starts", options.kv_starts, "FILE|N,..", "Ragged: likewise for the keys in k and v");
  add("--page-size", options.page_size, "N", "Keys of a page; follows from k, which must agree");
  command.add_flag("--pack-k", options.pack_k, "Pack k first, 16 keys side by side: another way to the same bits")
      ->disable_flag_override();
  add("--kv-offset", options.kv_offset, "N", "Position of the first key, a multiple of 64");
}

FourSizes AttentionCall::out_sizes() const {
  return {ragged_q ? 1 : args.batch, args.heads, args.q_len, args.value_dim};
}

std::vector<std::int64_t> AttentionCall::out_shape() const {
  const FourSizes sizes = out_sizes();
  return {sizes.end() - static_cast<std::ptrdiff_t>(q.shape.size()), sizes.end()};
}

std::vector<std::int64_t> AttentionCall::lse_shape() const {
  std::vector<std::int64_t> shape = out_shape();
  shape.pop_back();
  return shape;
}

void read_call(AttentionCall &call, const AttentionOptions &options, std::vector<NamedFile> &files) {
  exattn_attention_args &args = call.args;
  args.struct_size = sizeof args;
  args.flavour = parse_flavour(options.flavour);
  args.lanes = parse_lanes(options.lanes);
  read_numbers(args, options);
  Reader reader(files);
  read_tensors(call, options, reader);
  if (!options.state_in.empty()) {
    call.state = reader.bytes("--state-in", options.state_in);
    args.state_in = call.state.bytes.data();
    args.state_in_size = call.state.bytes.size();
  }
  if (options.pack_k) {
    pack_k(call);
  }
}

exattn_output contiguous_output(std::vector<float> &data, std::span<const std::int64_t> shape) {
  exattn_output output{};
  output.data = data.data();
  output.rank = static_cast<std::int32_t>(shape.size());
  std::int64_t step = 1;
  for (std::size_t n = shape.size(); n-- > 0;) {
    output.stride[n] = step;
    step *= std::max<std::int64_t>(shape[n], 1);
  }
  return output;
}

std::vector<float> allocate(std::span<const std::int64_t> shape, std::size_t &count) {
  count = 1;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(count, static_cast<std::size_t>(size), &count)) {
      throw InputError("an output of shape " + shape_text(shape) + " is too large");
    }
  }
  return std::vector<float>(std::max<std::size_t>(count, 1));
}

} // namespace exattn::program
