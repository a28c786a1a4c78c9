// exattn-mint: writes golden files from the oracle, and proves that they are what the oracle gives. It knows nothing of
// the engine. A golden that exists is never changed.
#include "catalogue.hpp"
#include "oracle_case.hpp"
#include "sha256.hpp"

#include "exact/oracle.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace exattn::conformance {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kExitSame = 0;
constexpr int kExitDiffers = 1;
constexpr int kExitBadInput = 2;

struct Options {
  std::filesystem::path golden = EXATTN_GOLDEN_DIR;
  bool check = false;
  std::string tier = "all";
  std::string cases;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
};

// The golden files and the catalogue are not of one mind: a line for each case.
struct Disagreement : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// ---- Cases as JSON ----

// As many digits as an element of that storage has.
std::string hex(std::uint32_t bits, Storage storage = Storage::kFloat32) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%0*x", static_cast<int>(2 * element_size(storage)),
                static_cast<unsigned int>(bits));
  return text.data();
}

const char *kind_name(InputKind kind) {
  switch (kind) {
  case InputKind::kNormal:
    return "normal";
  case InputKind::kConstant:
    return "constant";
  case InputKind::kBits:
    return "bits";
  case InputKind::kVisible:
    return "visible";
  }
  throw std::logic_error("unknown input kind");
}

Json input_json(const CaseTensor &tensor, bool with_shape) {
  Json result;
  if (with_shape) {
    result["shape"] = tensor.shape;
  }
  const Input &input = tensor.input;
  result["kind"] = kind_name(input.kind);
  if (input.kind == InputKind::kConstant) {
    result["bits"] = hex(input.bits, tensor.storage);
  } else {
    result["seed"] = input.seed;
  }
  if (input.kind == InputKind::kNormal && input.scale_exponent != kDefaultScaleExponent) {
    result["scale_exponent"] = input.scale_exponent;
  }
  if (input.kind == InputKind::kVisible) {
    result["per_256"] = input.per_256;
  }
  for (const Box &box : input.set) {
    result["set"].push_back({{"from", box.from}, {"to", box.to}, {"bits", hex(box.bits, tensor.storage)}});
  }
  return result;
}

template <class Case>
Json head_json(const Case &item) {
  return {{"id", item.id}, {"guards", item.guards}, {"tier", item.tier == Tier::kFull ? "full" : "quick"}};
}

// What is absent is left out.
Json params_json(const AttentionCase &item) {
  const AttentionParams &params = item.params;
  Json result;
  const auto add = [&](const char *key, const auto &value) {
    if (value) {
      result[key] = *value;
    }
  };
  result["batch"] = params.batch;
  result["heads"] = params.heads;
  result["kv_heads"] = params.kv_heads;
  result["q_len"] = params.q_len;
  result["kv_len"] = params.kv_len;
  result["head_dim"] = params.head_dim;
  result["value_dim"] = params.value_dim;
  for (const auto &[name, tensor] : {std::pair{"q", &item.q}, std::pair{"k", &item.k}, std::pair{"v", &item.v}}) {
    if (tensor->storage != Storage::kFloat32) {
      result["storage"][name] = tensor->storage == Storage::kFloat16 ? "f16" : "bf16";
    }
  }
  result["scale"] = params.scale_bits ? hex(*params.scale_bits) : "default";
  if (params.softcap_bits) {
    result["softcap"] = hex(*params.softcap_bits);
  }
  result["causal"] = params.causal;
  result["window"] = params.window;
  result["q_offset"] = params.q_offset;
  add("q_offsets", params.q_offsets);
  add("kv_lens", params.kv_lens);
  add("q_starts", params.q_starts);
  add("kv_starts", params.kv_starts);
  add("page_size", params.page_size);
  if (!params.resume.empty()) {
    result["resume"] = params.resume;
  }
  result["fully_masked"] = params.fully_masked_zero ? "zero" : "nan";
  return result;
}

std::vector<std::pair<const char *, CaseTensor *>> tensors_of(SoftmaxCase &item) {
  return {{"x", &item.x}};
}

Json params_json(const SoftmaxCase &item) {
  return {{"rows", item.params.rows}, {"columns", item.params.columns}};
}

Json hashes_json(const AttentionHashes &hashes) {
  Json result = {{"out", hashes.out}, {"lse", hashes.lse}};
  if (!hashes.states.empty()) {
    result["states"] = hashes.states;
  }
  return result;
}

Json hashes_json(const SoftmaxHashes &hashes) {
  return {{"out", hashes.out}};
}

// What the catalogue says of a case: all but the hashes.
template <class Case>
Json description_json(Case item) {
  Json result = head_json(item);
  result["params"] = params_json(item);
  for (const auto &[name, tensor] : tensors_of(item)) {
    result["inputs"][name] = input_json(*tensor, std::string(name).starts_with("mask"));
  }
  return result;
}

template <class Case>
Json case_json(Case item) {
  Json result = description_json(item);
  for (const auto &[name, tensor] : tensors_of(item)) {
    result["sha256"]["inputs"][name] = tensor->sha256;
  }
  result["sha256"]["exact"] = hashes_json(item.exact);
  result["sha256"]["fast"] = hashes_json(item.fast);
  return result;
}

std::string one_line(const Json &value) {
  if (!value.is_structured()) {
    return value.dump();
  }
  std::string text;
  for (const auto &member : value.items()) {
    text += text.empty() ? "" : ", ";
    text += (value.is_object() ? Json(member.key()).dump() + ": " : "") + one_line(member.value());
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

// Two spaces a level; what fits into a line of 120 is one.
std::string pretty(const Json &value, std::size_t indent = 0) {
  constexpr std::size_t kColumns = 120;
  std::string line = one_line(value);
  if (!value.is_structured() || (indent > 0 && indent + line.size() < kColumns)) {
    return line;
  }
  const std::string margin(indent + 2, ' ');
  std::string text;
  for (const auto &member : value.items()) {
    text += (text.empty() ? "\n" : ",\n") + margin;
    text += (value.is_object() ? Json(member.key()).dump() + ": " : "") + pretty(member.value(), indent + 2);
  }
  text += "\n" + std::string(indent, ' ');
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

template <class Case>
std::string file_text(const char *kind, const std::vector<Case> &cases) {
  Json document = {{"definition", kDefinition}, {"kind", kind}, {"cases", Json::array()}};
  for (const Case &item : cases) {
    document["cases"].push_back(case_json(item));
  }
  return pretty(document) + "\n";
}

// Name and content of every file that is minted.
std::map<std::string, std::string> file_texts(const Goldens &goldens) {
  std::map<std::string, std::string> texts;
  texts[kAttentionFile] = file_text("attention", goldens.attention);
  texts[kSoftmaxFile] = file_text("softmax", goldens.softmax);
  texts[kSumsFile] = sha256_of(texts[kAttentionFile]) + "  " + kAttentionFile + "\n" + sha256_of(texts[kSoftmaxFile]) +
                     "  " + kSoftmaxFile + "\n";
  texts[kVersionFile] = std::string(kDefinition) + "\n";
  return texts;
}

// ---- Computing ----

// Fills in every hash.
void compute(AttentionCase &item, int threads) {
  AttentionInputs inputs;
  for (const auto &[name, tensor] : tensors_of(item)) {
    inputs[name] = generate(tensor->input, tensor->shape, tensor->storage);
    tensor->sha256 = inputs[name].sha256();
  }
  for (const bool fast : {false, true}) {
    const AttentionOutputs outputs = compute_by_oracle(item, inputs, fast, threads);
    AttentionHashes &hashes = fast ? item.fast : item.exact;
    hashes.out = sha256_of(outputs.out);
    hashes.lse = sha256_of(outputs.lse);
    hashes.states.clear();
    for (const std::vector<std::uint8_t> &state : outputs.states) {
      hashes.states.push_back(sha256_of(std::string_view(reinterpret_cast<const char *>(state.data()), state.size())));
    }
  }
}

void compute(SoftmaxCase &item, int /*threads*/) {
  const std::vector<float> x = generate(item.x.input, item.x.shape);
  item.x.sha256 = sha256_of(x);
  for (const bool fast : {false, true}) {
    std::vector<float> y(x.size());
    oracle::softmax(x.data(), item.params.rows, item.params.columns,
                    fast ? oracle::Flavour::fast : oracle::Flavour::exact, y.data());
    SoftmaxHashes &hashes = fast ? item.fast : item.exact;
    hashes.out = sha256_of(y);
  }
}

// ---- Selecting, minting, checking ----

template <class Case>
bool selected(const Options &options, const Case &item) {
  const bool of_tier = options.tier == "all" || (options.tier == "full") == (item.tier == Tier::kFull);
  return of_tier && (options.cases.empty() || fnmatch(options.cases.c_str(), item.id.c_str(), 0) == 0);
}

class Progress {
public:
  explicit Progress(std::size_t count) : total(count) {}

  template <class Case>
  void compute(Case &item, int threads) {
    std::fprintf(stderr, "[%zu/%zu] %s", ++done, total, item.id.c_str());
    std::fflush(stderr);
    const auto start = std::chrono::steady_clock::now();
    conformance::compute(item, threads);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::fprintf(stderr, ", %.1f s\n", seconds.count());
  }

private:
  std::size_t total;
  std::size_t done = 0;
};

template <class Case>
std::map<std::string, Case> by_id(const std::vector<Case> &cases) {
  std::map<std::string, Case> result;
  for (const Case &item : cases) {
    if (!result.emplace(item.id, item).second) {
      throw std::logic_error("the catalogue has two cases " + item.id);
    }
  }
  return result;
}

// Cases of the files that the catalogue does not have, or describes otherwise.
template <class Case>
void find_changed(const std::vector<Case> &wanted, const std::vector<Case> &existing, std::string &problems) {
  const std::map<std::string, Case> catalogued = by_id(wanted);
  for (const Case &item : existing) {
    const auto found = catalogued.find(item.id);
    if (found == catalogued.end()) {
      problems += "\n  " + item.id + ": is in the golden files and not in the catalogue";
    } else if (description_json(found->second) != description_json(item)) {
      problems += "\n  " + item.id + ": the catalogue describes it otherwise than the golden files do";
    }
  }
}

std::string read_text(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// All of the files are written aside before the first of them is renamed.
void write_files(const std::filesystem::path &folder, const std::map<std::string, std::string> &texts) {
  const std::string suffix = ".aside-" + std::to_string(getpid());
  try {
    for (const auto &[name, text] : texts) {
      std::ofstream file(folder / (name + suffix), std::ios::binary);
      if (!(file << text) || !file.flush()) {
        throw std::runtime_error((folder / name).string() + ": cannot be written");
      }
    }
    for (const auto &[name, text] : texts) {
      std::filesystem::rename(folder / (name + suffix), folder / name);
    }
  } catch (...) {
    for (const auto &[name, text] : texts) {
      std::error_code error;
      std::filesystem::remove(folder / (name + suffix), error);
    }
    throw;
  }
}

// Golden files that are there; none of the two at first.
Goldens read_existing(const std::filesystem::path &folder) {
  if (std::filesystem::exists(folder / kAttentionFile) || std::filesystem::exists(folder / kSoftmaxFile)) {
    return read_goldens(folder);
  }
  return {};
}

// The cases of the catalogue that the files are to hold: those that they have, and those that are selected, for which
// `computed` counts.
template <class Case>
std::vector<Case> merge(const Options &options, const std::vector<Case> &wanted, const std::vector<Case> &existing,
                        std::size_t &computed) {
  const std::map<std::string, Case> known = by_id(existing);
  std::vector<Case> result;
  for (const Case &item : wanted) {
    if (const auto found = known.find(item.id); found != known.end()) {
      result.push_back(found->second);
    } else if (selected(options, item)) {
      result.push_back(item);
      ++computed;
    }
  }
  return result;
}

int mint(const Options &options) {
  const Goldens wanted = catalogue();
  const Goldens existing = read_existing(options.golden);
  std::string problems;
  find_changed(wanted.attention, existing.attention, problems);
  find_changed(wanted.softmax, existing.softmax, problems);
  if (!problems.empty()) {
    throw Disagreement("a golden is never changed, so nothing has been written:" + problems);
  }
  std::size_t missing = 0;
  Goldens goldens;
  goldens.attention = merge(options, wanted.attention, existing.attention, missing);
  goldens.softmax = merge(options, wanted.softmax, existing.softmax, missing);
  Progress progress(missing);
  const auto compute_new = [&](auto &cases) {
    for (auto &item : cases) {
      if (item.exact.out.empty()) {
        progress.compute(item, options.threads);
      }
    }
  };
  compute_new(goldens.attention);
  compute_new(goldens.softmax);
  if (goldens.attention.empty() || goldens.softmax.empty()) {
    throw Disagreement("a golden file without cases is not written: select cases of attention and of softmax");
  }
  write_files(options.golden, file_texts(goldens));
  std::printf("%zu cases added to %s, which now holds %zu\n", missing, options.golden.c_str(),
              goldens.attention.size() + goldens.softmax.size());
  return kExitSame;
}

// The cases as they should be: what is selected is computed anew, the rest taken from the files. Adds a line to
// `problems` for each that is missing or has another hash.
template <class Case>
std::vector<Case> recompute(const Options &options, const std::vector<Case> &wanted, const std::vector<Case> &existing,
                            Progress &progress, std::string &problems) {
  const std::map<std::string, Case> known = by_id(existing);
  std::vector<Case> result;
  for (const Case &item : wanted) {
    const auto found = known.find(item.id);
    if (found == known.end()) {
      problems += "\n  " + item.id + ": is in the catalogue and not in the golden files";
      continue;
    }
    result.push_back(found->second);
    if (selected(options, item)) {
      Case computed = item;
      progress.compute(computed, options.threads);
      const Json expected = case_json(computed);
      const Json actual = case_json(found->second);
      for (const auto &part : expected["sha256"].items()) {
        for (const auto &hash : part.value().items()) {
          if (hash.value() != actual["sha256"][part.key()][hash.key()]) {
            problems += "\n  " + item.id + ": " + part.key() + " " + hash.key() + " is " +
                        (hash.value().is_string() ? hash.value().template get<std::string>() : one_line(hash.value()));
          }
        }
      }
    }
  }
  return result;
}

int check(const Options &options) {
  const Goldens wanted = catalogue();
  const Goldens existing = read_goldens(options.golden);
  std::string problems;
  find_changed(wanted.attention, existing.attention, problems);
  find_changed(wanted.softmax, existing.softmax, problems);
  const auto is_selected = [&](const auto &item) { return selected(options, item); };
  const auto chosen =
      static_cast<std::size_t>(std::count_if(wanted.attention.begin(), wanted.attention.end(), is_selected) +
                               std::count_if(wanted.softmax.begin(), wanted.softmax.end(), is_selected));
  if (!problems.empty()) {
    throw Disagreement("the golden files are not what the catalogue asks for:" + problems);
  }
  if (chosen == 0) {
    throw Disagreement("no case is selected, so nothing has been checked");
  }
  Progress progress(chosen);
  Goldens goldens;
  goldens.attention = recompute(options, wanted.attention, existing.attention, progress, problems);
  goldens.softmax = recompute(options, wanted.softmax, existing.softmax, progress, problems);
  if (problems.empty()) {
    for (const auto &[name, text] : file_texts(goldens)) {
      if (read_text(options.golden / name) != text) {
        problems += "\n  " + name + ": is not, byte for byte, what would be written";
      }
    }
  }
  if (!problems.empty()) {
    throw Disagreement("the golden files are not what the oracle gives:" + problems);
  }
  std::printf("%zu of %zu cases computed anew: %s is what the oracle gives\n", chosen,
              wanted.attention.size() + wanted.softmax.size(), options.golden.c_str());
  return kExitSame;
}

int run(int argc, char **argv) {
  Options options;
  CLI::App app(
      "Writes the golden cases that are missing, from the oracle, or checks those that there are. A golden that "
      "exists is never changed.",
      "exattn-mint");
  std::string golden;
  app.add_option("--golden", golden, "Folder of the golden files [" EXATTN_GOLDEN_DIR "]")->type_name("DIR");
  app.add_flag("--check", options.check, "Compute the cases again, write nothing, exit 1 if a file differs");
  app.add_option("--tier", options.tier, "quick, full or all")
      ->check(CLI::IsMember({"quick", "full", "all"}))
      ->type_name("TIER");
  app.add_option("--case", options.cases, "Cases whose id matches, such as 'bert-*'")->type_name("GLOB");
  app.add_option("--threads", options.threads, "Threads of the oracle [all processors]")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? kExitSame : kExitBadInput;
  }
  if (!golden.empty()) {
    options.golden = golden;
  }
  if (!std::filesystem::is_directory(options.golden)) {
    std::fprintf(stderr, "exattn-mint: %s: is not a folder\n", options.golden.c_str());
    return kExitBadInput;
  }
  try {
    return options.check ? check(options) : mint(options);
  } catch (const Disagreement &error) {
    std::fprintf(stderr, "exattn-mint: %s\n", error.what());
    return kExitDiffers;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "exattn-mint: %s\n", error.what());
    return kExitBadInput;
  }
}

} // namespace
} // namespace exattn::conformance

int main(int argc, char **argv) {
  return exattn::conformance::run(argc, argv);
}
