#include "npy.hpp"
#include "output_file.hpp"
#include "program.hpp"

#include "conformance/sha256.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <iostream>
#include <optional>
#include <span>

namespace exattn::program {
namespace {

struct SoftmaxOptions : RunOptions {
  std::string x;
};

void softmax(const SoftmaxOptions &options) {
  exattn_softmax_args args{};
  args.struct_size = sizeof args;
  args.flavour = parse_flavour(options.flavour);
  args.lanes = parse_lanes(options.lanes);
  const std::int32_t threads = parse_threads(options.threads);
  const NpyArray x = read_tensor(options.x);
  if (x.shape.empty() || x.shape.size() > 4) {
    throw InputError(x.name + ": " + dimensions_text(x.shape.size(), 1, 4));
  }
  std::fill(args.shape, args.shape + 4, 1);
  std::copy_backward(x.shape.begin(), x.shape.end(), args.shape + 4);
  args.x.data = x.data;
  args.x.dtype = EXATTN_F32;
  args.x.rank = 4;
  std::copy_backward(x.strides.begin(), x.strides.end(), args.x.stride + 4);

  std::optional<OutputFile> file;
  if (!options.out.empty()) {
    const NamedFile input{"--x", file_of_tensor(options.x)};
    file.emplace(NamedFile{"--out", options.out}, std::span(&input, 1));
  }
  std::vector<float> y(std::max<std::size_t>(x.size(), 1));
  args.y.data = y.data();
  args.y.rank = 4;
  std::int64_t step = 1;
  for (std::size_t n = 4; n-- > 0;) {
    args.y.stride[n] = step;
    step *= std::max<std::int64_t>(args.shape[n], 1);
  }
  const Pool pool(threads);
  args.pool = pool.get();
  const char *kernel = "";
  args.kernel = &kernel;
  std::array<char, 512> message{};
  args.message = message.data();
  args.message_size = message.size();
  require_ok(exattn_softmax(&args), message.data());

  const std::span<const float> result(y.data(), x.size());
  const std::string hash = sha256_of(result);
  if (file) {
    write_npy(*file, x.shape, result);
    file->commit();
  }
  if (options.json) {
    nlohmann::ordered_json document;
    document["definition"] = exattn_definition();
    document["flavour"] = exattn_flavour_name(args.flavour);
    document["kernel"] = kernel;
    document["threads"] = pool.threads();
    document["out"] = {{"sha256", hash}, {"shape", x.shape}};
    std::cout << document.dump(2) << "\n";
  } else {
    std::cout << "sha256 " << hash << " " << shape_text(x.shape) << "\n";
  }
}

} // namespace

void add_softmax(CLI::App &app, int &exit_code) {
  auto options = std::make_shared<SoftmaxOptions>();
  CLI::App *command = app.add_subcommand("softmax", "Compute softmax over the last dimension of a .npy file");
  command->add_option("--x", options->x, "Input, 1 to 4 dimensions, float32")->required();
  add_run_options(*command, *options);
  command->footer("Prints: sha256 <64 hex digits> <shape>, of the output's little-endian bytes in C order.\n\n"
                  "Example:\n  exattn softmax --x logits.npy --out probabilities.npy");
  command->callback([options, &exit_code] {
    softmax(*options);
    exit_code = kExitSame;
  });
}

} // namespace exattn::program
