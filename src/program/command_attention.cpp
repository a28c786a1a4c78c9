#include "attention_call.hpp"

#include "conformance/runner.hpp"
#include "conformance/sha256.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <bit>
#include <iostream>
#include <optional>

namespace exattn::program {
namespace {

// What is printed of an output.
struct Printed {
  const char *name; // "out"
  std::string hash;
  std::vector<std::int64_t> shape;
};

void print_json(const exattn_attention_args &args, const char *kernel, std::int32_t threads,
                const std::vector<Printed> &outputs) {
  const float scale = args.scale_mode == EXATTN_SCALE_GIVEN ? args.scale : exattn_default_scale(args.head_dim);
  nlohmann::ordered_json document;
  document["definition"] = exattn_definition();
  document["flavour"] = exattn_flavour_name(args.flavour);
  document["kernel"] = kernel;
  document["threads"] = threads;
  document["scale_bits"] = conformance::hex_bits(std::bit_cast<std::uint32_t>(scale));
  for (const Printed &output : outputs) {
    document[output.name] = {{"sha256", output.hash}, {"shape", output.shape}};
  }
  std::cout << document.dump(2) << "\n";
}

void attention(const AttentionOptions &options) {
  AttentionCall call;
  exattn_attention_args &args = call.args;
  const std::int32_t threads = parse_threads(options.threads);
  std::vector<NamedFile> files;
  read_call(call, options, files);

  std::optional<OutputFile> out_file;
  std::optional<OutputFile> lse_file;
  std::optional<OutputFile> state_file;
  if (!options.out.empty()) {
    out_file.emplace(NamedFile{"--out", options.out}, files);
  }
  if (!options.lse.empty()) {
    lse_file.emplace(NamedFile{"--lse-out", options.lse}, files);
  }
  if (!options.state_out.empty()) {
    state_file.emplace(NamedFile{"--state-out", options.state_out}, files);
  }

  std::array<char, 512> message{};
  args.message = message.data();
  args.message_size = message.size();
  const FourSizes out4 = call.out_sizes();
  const std::array<std::int64_t, 3> lse3{out4[0], args.heads, args.q_len};
  std::size_t out_count = 0;
  std::vector<float> out = allocate(out4, out_count);
  args.out = contiguous_output(out, out4);
  std::size_t lse_count = 0;
  std::vector<float> lse;
  if (lse_file) {
    lse = allocate(lse3, lse_count);
    args.lse = contiguous_output(lse, lse3);
  }
  std::vector<unsigned char> state;
  if (state_file) {
    std::size_t bytes = 0;
    require_ok(exattn_attention_state_size(&args, &bytes), message.data());
    state.resize(bytes);
    args.state_out = state.data();
    args.state_out_size = bytes;
  }
  const Pool pool(threads);
  args.pool = pool.get();
  const char *kernel = "";
  args.kernel = &kernel;
  require_ok(exattn_attention(&args), message.data());

  // The files show the number of dimensions that q has.
  const std::span<const float> out_data(out.data(), out_count);
  const std::span<const float> lse_data(lse.data(), lse_count);
  std::vector<Printed> printed{{"out", sha256_of(out_data), call.out_shape()}};
  if (out_file) {
    write_npy(*out_file, printed[0].shape, out_data);
    out_file->finish();
  }
  if (lse_file) {
    printed.push_back({"lse", sha256_of(lse_data), call.lse_shape()});
    write_npy(*lse_file, printed.back().shape, lse_data);
    lse_file->finish();
  }
  if (state_file) {
    const std::string_view bytes(reinterpret_cast<const char *>(state.data()), state.size());
    printed.push_back({"state", sha256_of(bytes), {static_cast<std::int64_t>(bytes.size())}});
    state_file->write(bytes);
    state_file->finish();
  }
  for (std::optional<OutputFile> *file : {&state_file, &lse_file, &out_file}) {
    if (*file) {
      (*file)->commit();
    }
  }
  if (options.json) {
    print_json(args, kernel, pool.threads(), printed);
    return;
  }
  for (const Printed &output : printed) {
    std::cout << "sha256" << (&output == printed.data() ? "" : std::string("-") + output.name) << " " << output.hash
              << " " << shape_text(output.shape) << "\n";
  }
}

} // namespace

void add_attention(CLI::App &app, int &exit_code) {
  auto options = std::make_shared<AttentionOptions>();
  CLI::App *command = app.add_subcommand("attention", "Compute attention on .npy files and print the output's SHA-256");
  add_tensor_options(*command, *options);
  add_meaning_options(*command, *options);
  command->add_option("--state-out", options->state_out, "Write where the computation stops, for --state-in")
      ->type_name("FILE");
  command->add_option("--lse-out,--lse", options->lse, "Write the log-sum-exp of every row to this .npy file")
      ->type_name("FILE");
  add_run_options(*command, *options);
  command->footer(
      "The number of key and value heads is that of k, by shape; q's must be a multiple of it.\n"
      "FILE|N,.. is a list with commas, or a .npy file.\n"
      "Prints: sha256 <64 hex digits> <shape>, of the output's little-endian bytes in C order; then\n"
      "sha256-lse and sha256-state, if they are written. docs/attention.md has an example of each option.\n\n"
      "Example:\n  exattn attention --q q.npy --k k.npy --v v.npy --out out.npy");
  command->callback([options, &exit_code] {
    attention(*options);
    exit_code = kExitSame;
  });
}

} // namespace exattn::program
