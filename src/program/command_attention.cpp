#include "npy.hpp"
#include "output_file.hpp"
#include "program.hpp"

#include "conformance/runner.hpp"
#include "conformance/sha256.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <bit>
#include <iostream>
#include <optional>

namespace exattn::program {
namespace {

struct AttentionOptions : RunOptions {
  std::string q, k, v, mask, sinks;
  std::string scale, q_offset, window, kv_len;
  bool causal = false;
  std::string fully_masked = "nan";
  std::string lse;
};

NpyArray read_tensor(const std::string &path, std::size_t least, std::size_t most) {
  NpyArray array = read_npy(path);
  if (array.shape.size() < least || array.shape.size() > most) {
    throw InputError(path + ": has " + std::to_string(array.shape.size()) + " dimensions; " +
                     (least == most ? "" : std::to_string(least) + " to ") + std::to_string(most) + " are allowed");
  }
  return array;
}

// Sizes and strides with leading ones, so that every tensor is [B, H, T, D].
std::array<std::int64_t, 4> four_sizes(const NpyArray &array) {
  std::array<std::int64_t, 4> sizes{1, 1, 1, 1};
  std::copy_backward(array.shape.begin(), array.shape.end(), sizes.end());
  return sizes;
}

exattn_tensor four_strides(const NpyArray &array) {
  exattn_tensor tensor{};
  tensor.data = array.data;
  tensor.dtype = EXATTN_F32;
  tensor.rank = 4;
  std::copy_backward(array.strides.begin(), array.strides.end(), tensor.stride + 4);
  return tensor;
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

// At least one element, so that there is an address; `count` of them count.
std::vector<float> allocate(std::span<const std::int64_t> shape, std::size_t &count) {
  count = 1;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(count, static_cast<std::size_t>(size), &count)) {
      throw InputError("an output of shape " + shape_text(shape) + " is too large");
    }
  }
  return std::vector<float>(std::max<std::size_t>(count, 1));
}

[[noreturn]] void misfit(const NpyArray &array, const std::string &problem) {
  throw InputError(array.name + ": its shape is " + shape_text(array.shape) + "; " + problem);
}

void check_shapes(const NpyArray &q, const NpyArray &k, const NpyArray &v) {
  for (const NpyArray *other : {&k, &v}) {
    if (other->shape.size() != q.shape.size()) {
      misfit(*other, "it must have as many dimensions as q, whose shape is " + shape_text(q.shape));
    }
  }
  const std::array<std::int64_t, 4> q4 = four_sizes(q);
  const std::array<std::int64_t, 4> k4 = four_sizes(k);
  const std::array<std::int64_t, 4> v4 = four_sizes(v);
  if (k4[0] != q4[0]) {
    misfit(k, "its batch size must be q's, " + std::to_string(q4[0]));
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
}

// NumPy's rule: sizes are aligned at the right, and 1 stands for any size.
exattn_tensor broadcast_mask(const NpyArray &mask, const std::array<std::int64_t, 4> &scores) {
  exattn_tensor tensor = four_strides(mask);
  const std::array<std::int64_t, 4> sizes = four_sizes(mask);
  for (std::size_t n = 0; n < 4; ++n) {
    if (sizes[n] == 1) {
      tensor.stride[n] = 0;
    } else if (sizes[n] != scores[n]) {
      misfit(mask, "it cannot be broadcast to " + shape_text(scores) + " (batch, heads, queries, keys)");
    }
  }
  return tensor;
}

// One number for all sequences, or one for each.
std::vector<std::int64_t> per_sequence(const std::string &text, const char *option, std::int64_t batch) {
  std::vector<std::int64_t> values;
  for (const std::string &item : split_list(text)) {
    values.push_back(parse_integer(item, option, 0));
  }
  if (values.size() == 1) {
    values.resize(static_cast<std::size_t>(batch), values[0]);
  }
  if (values.size() != static_cast<std::size_t>(batch)) {
    throw InputError(std::string(option) + ": " + std::to_string(values.size()) +
                     " numbers are given; allowed are 1, or one per sequence: " + std::to_string(batch));
  }
  return values;
}

void attention(const AttentionOptions &options) {
  exattn_attention_args args{};
  args.struct_size = sizeof args;
  args.flavour = parse_flavour(options.flavour);
  args.lanes = parse_lanes(options.lanes);
  const std::int32_t threads = parse_threads(options.threads);

  const NpyArray q = read_tensor(options.q, 2, 4);
  const NpyArray k = read_tensor(options.k, 2, 4);
  const NpyArray v = read_tensor(options.v, 2, 4);
  check_shapes(q, k, v);
  const std::array<std::int64_t, 4> q4 = four_sizes(q);
  const std::array<std::int64_t, 4> k4 = four_sizes(k);
  args.batch = q4[0];
  args.heads = q4[1];
  args.kv_heads = k4[1];
  args.q_len = q4[2];
  args.kv_len = k4[2];
  args.head_dim = q4[3];
  args.value_dim = four_sizes(v)[3];
  args.q = four_strides(q);
  args.k = four_strides(k);
  args.v = four_strides(v);

  std::optional<NpyArray> mask;
  if (!options.mask.empty()) {
    mask = read_tensor(options.mask, 2, 4);
    args.mask = broadcast_mask(*mask, {args.batch, args.heads, args.q_len, args.kv_len});
  }
  std::optional<NpyArray> sinks;
  if (!options.sinks.empty()) {
    sinks = read_tensor(options.sinks, 1, 1);
    if (sinks->shape[0] != args.heads) {
      misfit(*sinks, "one number per head is needed: " + std::to_string(args.heads));
    }
    args.sinks = sinks->data;
  }
  if (!options.scale.empty()) {
    args.scale_mode = EXATTN_SCALE_GIVEN;
    args.scale = parse_float(options.scale, "--scale");
  }
  args.causal = options.causal ? 1 : 0;
  args.window = options.window.empty() ? 0 : parse_integer(options.window, "--window", 0);
  if (options.fully_masked != "nan" && options.fully_masked != "zero") {
    throw InputError("--fully-masked: '" + options.fully_masked + "' is neither nan nor zero");
  }
  args.fully_masked = options.fully_masked == "zero" ? EXATTN_FULLY_MASKED_ZERO : EXATTN_FULLY_MASKED_NAN;
  std::vector<std::int64_t> q_offsets;
  if (!options.q_offset.empty()) {
    q_offsets = per_sequence(options.q_offset, "--q-offset", args.batch);
    args.q_offsets = q_offsets.empty() ? nullptr : q_offsets.data();
  }
  std::vector<std::int64_t> kv_lens;
  if (!options.kv_len.empty()) {
    kv_lens = per_sequence(options.kv_len, "--kv-len", args.batch);
    args.kv_lens = kv_lens.empty() ? nullptr : kv_lens.data();
  }

  const std::array<std::int64_t, 4> out4{args.batch, args.heads, args.q_len, args.value_dim};
  const std::array<std::int64_t, 3> lse3{args.batch, args.heads, args.q_len};
  // The files show the number of dimensions that q has.
  const std::span<const std::int64_t> out_shape = std::span(out4).last(q.shape.size());
  const std::span<const std::int64_t> lse_shape = std::span(lse3).last(q.shape.size() - 1);
  std::optional<OutputFile> out_file;
  std::optional<OutputFile> lse_file;
  if (!options.out.empty()) {
    out_file.emplace(options.out);
  }
  std::size_t out_count = 0;
  std::vector<float> out = allocate(out4, out_count);
  args.out = contiguous_output(out, out4);
  std::size_t lse_count = 0;
  std::vector<float> lse;
  if (!options.lse.empty()) {
    lse_file.emplace(options.lse);
    lse = allocate(lse3, lse_count);
    args.lse = contiguous_output(lse, lse3);
  }

  const Pool pool(threads);
  args.pool = pool.get();
  const char *kernel = "";
  args.kernel = &kernel;
  std::array<char, 512> message{};
  args.message = message.data();
  args.message_size = message.size();
  require_ok(exattn_attention(&args), message.data());

  const std::span<const float> out_data(out.data(), out_count);
  const std::span<const float> lse_data(lse.data(), lse_count);
  const std::string out_hash = sha256_of(out_data);
  const std::string lse_hash = lse_file ? sha256_of(lse_data) : "";
  if (out_file) {
    write_npy(*out_file, out_shape, out_data);
  }
  if (lse_file) {
    write_npy(*lse_file, lse_shape, lse_data);
    lse_file->commit();
  }
  if (out_file) {
    out_file->commit();
  }
  if (options.json) {
    const float scale = args.scale_mode == EXATTN_SCALE_GIVEN ? args.scale : exattn_default_scale(args.head_dim);
    nlohmann::ordered_json document;
    document["definition"] = exattn_definition();
    document["flavour"] = exattn_flavour_name(args.flavour);
    document["kernel"] = kernel;
    document["threads"] = pool.threads();
    document["scale_bits"] = conformance::hex_bits(std::bit_cast<std::uint32_t>(scale));
    document["out"] = {{"sha256", out_hash}, {"shape", out_shape}};
    if (lse_file) {
      document["lse"] = {{"sha256", lse_hash}, {"shape", lse_shape}};
    }
    std::cout << document.dump(2) << "\n";
  } else {
    std::cout << "sha256 " << out_hash << " " << shape_text(out_shape) << "\n";
    if (lse_file) {
      std::cout << "lse-sha256 " << lse_hash << " " << shape_text(lse_shape) << "\n";
    }
  }
}

} // namespace

void add_attention(CLI::App &app, int &exit_code) {
  auto options = std::make_shared<AttentionOptions>();
  CLI::App *command = app.add_subcommand("attention", "Compute attention on .npy files and print the output's SHA-256");
  command->add_option("--q", options->q, "Queries: [T, D], [H, T, D] or [B, H, T, D], float32")->required();
  command->add_option("--k", options->k, "Keys, as many dimensions as q; fewer heads are shared by groups of q's")
      ->required();
  command->add_option("--v", options->v, "Values, of k's shape but for the last size")->required();
  command->add_option("--mask", options->mask, "Added to the scores; 2 to 4 dimensions, broadcast to [B, H, Tq, Tk]");
  command->add_option("--scale", options->scale, "Factor of the scores; default 1/sqrt(D)");
  command->add_flag("--causal", options->causal, "A query at position p sees keys 0 to p only");
  command->add_option("--q-offset", options->q_offset, "Position of the first query: N, or one per sequence: N,N,...");
  command->add_option("--window", options->window, "A query at position p sees keys after p - N only");
  command->add_option("--kv-len", options->kv_len, "Only the first N keys count; N, or one per sequence: N,N,...");
  command->add_option("--sinks", options->sinks, "A sink logit per head, [H]");
  command->add_option("--fully-masked", options->fully_masked, "What a row gives whose visible scores are all -inf")
      ->type_name("nan|zero")
      ->capture_default_str();
  command->add_option("--lse", options->lse, "Write the log-sum-exp of every row to this .npy file");
  add_run_options(*command, *options);
  command->footer("Prints: sha256 <64 hex digits> <shape>, of the output's little-endian bytes in C order.\n\n"
                  "Example:\n  exattn attention --q q.npy --k k.npy --v v.npy --out out.npy");
  command->callback([options, &exit_code] {
    attention(*options);
    exit_code = kExitSame;
  });
}

} // namespace exattn::program
