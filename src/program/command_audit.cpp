#include "attention_call.hpp"
#include "audit_record.hpp"
#include "audit_run.hpp"
#include "comparison.hpp"
#include "hypotheses.hpp"

#include "conformance/runner.hpp"
#include "conformance/sha256.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>
#include <unordered_map>

namespace exattn::program {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMostShown = 8; // items in a text; JSON has all

// ---- What all three print: what differs, or that nothing does ----

class Findings {
public:
  void add(const std::string &line) { lines.push_back(line); }
  bool same() const { return lines.empty(); }

  void add_items(std::span<const AuditItem> all, const std::vector<std::size_t> &differing, const std::string &what) {
    std::string line =
        what + ": " + std::to_string(differing.size()) + " of " + std::to_string(all.size()) + " work items differ: ";
    for (std::size_t n = 0; n < std::min(differing.size(), kMostShown); ++n) {
      line += (n == 0 ? "" : "; ") + describe(all[differing[n]]);
    }
    if (differing.size() > kMostShown) {
      line += "; and " + std::to_string(differing.size() - kMostShown) + " more";
    }
    for (const std::size_t n : differing) {
      items.push_back({{"b", all[n].b}, {"h", all[n].h}, {"row", all[n].row}, {"rows", all[n].rows}});
    }
    add(line);
  }

  int print(bool json, const std::string &same_text, const ordered_json &more) const {
    if (json) {
      ordered_json document = {{"same", same()}, {"differences", lines}};
      if (!items.empty()) {
        document["items"] = items;
      }
      document.update(more);
      std::cout << document.dump(2) << "\n";
    } else if (same()) {
      std::cout << same_text << "\n";
    } else {
      std::cout << "not the same\n";
      for (const std::string &line : lines) {
        std::cout << "  " << line << "\n";
      }
    }
    return same() ? kExitSame : kExitDiffers;
  }

private:
  std::vector<std::string> lines;
  ordered_json items = ordered_json::array();
};

void compare_tensors(const AuditTensors &recorded, const AuditTensors &here, const char *kind,
                     const std::array<const char *, 2> &sides, Findings &findings) {
  for (const auto &[name, tensor] : recorded) {
    const AuditTensor *other = find(here, name);
    const std::string what = std::string(kind) + " " + name;
    if (other == nullptr) {
      findings.add(what + ": there is none " + sides[1]);
    } else if (tensor.dtype != other->dtype || tensor.shape != other->shape) {
      findings.add(what + ": " + tensor.dtype + " " + shape_text(tensor.shape) + " " + sides[0] + ", " + other->dtype +
                   " " + shape_text(other->shape) + " " + sides[1]);
    } else if (tensor.sha256 != other->sha256) {
      findings.add(what + ": sha256 " + tensor.sha256 + " " + sides[0] + ", " + other->sha256 + " " + sides[1]);
    }
  }
  for (const auto &[name, tensor] : here) {
    if (find(recorded, name) == nullptr) {
      findings.add(std::string(kind) + " " + name + ": there is none " + sides[0]);
    }
  }
}

void compare_options(const AuditOptions &recorded, const AuditOptions &here, const std::array<const char *, 2> &sides,
                     Findings &findings) {
  if (recorded.flavour != here.flavour) {
    findings.add(std::string("flavour: ") + exattn_flavour_name(recorded.flavour) + " " + sides[0] + ", " +
                 exattn_flavour_name(here.flavour) + " " + sides[1]);
  }
  const ordered_json a = to_json(recorded), b = to_json(here);
  for (const auto &[key, value] : a.items()) {
    if (value != b[key]) {
      findings.add("option " + key + ": " + value.dump() + " " + sides[0] + ", " + b[key].dump() + " " + sides[1]);
    }
  }
}

std::string machine_text() {
  struct utsname system {};
  uname(&system);
  std::ifstream file("/proc/cpuinfo");
  std::string line, processor;
  while (processor.empty() && std::getline(file, line)) {
    if (line.starts_with("model name")) {
      processor = line.substr(std::min(line.size(), line.find(": ") + 2)) + ", ";
    }
  }
  return processor + system.machine + ", " + system.sysname + " " + system.release;
}

ordered_json run_information(const AuditOutputs &outputs, const Pool &pool) {
  return {{"version", exattn_version()},
          {"kernel", outputs.kernel},
          {"threads", pool.threads()},
          {"machine", machine_text()},
          {"compiler", std::string(
#if defined(__clang__)
                           "Clang " __clang_version__
#else
                           "GCC " __VERSION__
#endif
                           )}};
}

AuditTensors audit_outputs(const AttentionCall &call, const AuditOutputs &outputs) {
  AuditTensors tensors = {
      {"out", {"f32", call.out_shape(), "", exattn::sha256_of(std::span(outputs.out.data(), outputs.out_count))}},
      {"lse", {"f32", call.lse_shape(), "", exattn::sha256_of(std::span(outputs.lse.data(), outputs.lse_count))}}};
  if (!outputs.state.empty()) {
    const std::string_view bytes(reinterpret_cast<const char *>(outputs.state.data()), outputs.state.size());
    tensors.emplace_back("state",
                         AuditTensor{"bytes", {static_cast<std::int64_t>(bytes.size())}, "", exattn::sha256_of(bytes)});
  }
  return tensors;
}

std::vector<AuditLeaf> leaves_of(const AuditOptions &options, std::span<const AuditItem> items,
                                 const AuditOutputs &outputs) {
  std::vector<AuditLeaf> leaves(items.size());
  std::transform(items.begin(), items.end(), leaves.begin(),
                 [&](const AuditItem &item) { return leaf_of(options, item, outputs); });
  return leaves;
}

// ---- record ----

struct RecordOptions : AttentionOptions {
  std::string record;
};

int record(const RecordOptions &options) {
  AttentionCall call;
  const std::int32_t threads = parse_threads(options.threads);
  std::vector<NamedFile> files;
  read_call(call, options, files);
  if (count_items(audit_options(call)) < 0) {
    throw InputError("there would be more than 2^40 work items");
  }
  const auto open = [&](const char *option, const std::string &path) {
    return path.empty() ? std::unique_ptr<OutputFile>() : std::make_unique<OutputFile>(NamedFile{option, path}, files);
  };
  const std::unique_ptr<OutputFile> record_file = open("--record", options.record),
                                    leaves_file = open("--record", leaves_path(options.record)),
                                    out_file = open("--out", options.out), lse_file = open("--lse-out", options.lse);
  std::optional<OutputFile> state_file;
  if (!options.state_out.empty()) {
    state_file.emplace(NamedFile{"--state-out", options.state_out}, files);
  }
  const Pool pool(threads);
  const AuditOutputs outputs = compute_all(call, state_file.has_value(), pool);
  AuditRecord made;
  made.options = audit_options(call);
  made.inputs = audit_inputs(call);
  made.outputs = audit_outputs(call, outputs);
  const std::vector<AuditItem> items = audit_items(made.options);
  const std::vector<AuditLeaf> leaves = leaves_of(made.options, items, outputs);
  made.items = static_cast<std::int64_t>(items.size());
  made.root = tree_root(leaves);
  made.run = run_information(outputs, pool);

  record_file->write(record_text(made));
  leaves_file->write(leaves_text(leaves));
  if (out_file) {
    write_npy(*out_file, call.out_shape(), std::span(outputs.out.data(), outputs.out_count));
  }
  if (lse_file) {
    write_npy(*lse_file, call.lse_shape(), std::span(outputs.lse.data(), outputs.lse_count));
  }
  if (state_file) {
    state_file->write(outputs.state.data(), outputs.state.size());
    state_file->finish();
  }
  for (const auto *file : {&out_file, &lse_file, &leaves_file, &record_file}) {
    if (*file) {
      (*file)->finish();
    }
  }
  if (state_file) {
    state_file->commit();
  }
  for (const auto *file : {&out_file, &lse_file, &leaves_file, &record_file}) { // the record last: it names the others
    if (*file) {
      (*file)->commit();
    }
  }
  if (options.json) {
    std::cout << record_text(made);
  } else {
    std::cout << "record " << record_hash(made) << "\nroot " << made.root << " of " << made.items << " work items\n";
    for (const auto &[name, tensor] : made.outputs) {
      std::cout << (name == "out" ? "sha256" : "sha256-" + name) << " " << tensor.sha256 << " "
                << shape_text(tensor.shape) << "\n";
    }
  }
  return kExitSame;
}

// ---- verify ----

struct VerifyOptions : AttentionOptions {
  std::string record, sample, output;
  std::string seed = "0";
};

std::string list_text(const std::vector<std::int64_t> &list) {
  std::string text;
  for (const std::int64_t number : list) {
    text += (text.empty() ? "" : ",") + std::to_string(number);
  }
  return text;
}

// What the record says is computed, of the files that the command line names.
AttentionOptions recorded_options(const AuditRecord &record, const AttentionOptions &given) {
  AttentionOptions options = given;
  const AuditOptions &said = record.options;
  options.flavour = exattn_flavour_name(said.flavour);
  options.scale = "0x" + conformance::hex_bits(said.scale_bits);
  options.softcap = said.softcap_bits ? "0x" + conformance::hex_bits(*said.softcap_bits) : "";
  options.causal = said.causal;
  options.window = std::to_string(said.window);
  options.q_offset = list_text(said.q_offsets);
  options.kv_len = said.kv_lens ? list_text(*said.kv_lens) : "";
  options.q_starts = said.q_starts ? list_text(*said.q_starts) : "";
  options.kv_starts = said.kv_starts ? list_text(*said.kv_starts) : "";
  options.page_size = said.page_size ? std::to_string(*said.page_size) : "";
  options.kv_offset = std::to_string(said.kv_offset);
  options.fully_masked = said.fully_masked_zero ? "zero" : "nan";
  return options;
}

// bfloat16 has no name of its own in .npy files: the record knows which tensors hold it.
void name_bfloat16(const AuditRecord &record, AttentionOptions &options) {
  for (const auto &[name, path] : {std::pair{"q", options.q}, {"k", options.k}, {"v", options.v}}) {
    if (find(record.inputs, name)->dtype == "bf16" && path.find(".safetensors:") == std::string::npos) {
      options.bf16 += (options.bf16.empty() ? "" : ",") + std::string(name);
    }
  }
}

void require_files(const AuditRecord &record, const AttentionOptions &options) {
  const std::array<std::pair<const char *, std::pair<const char *, const std::string *>>, 9> inputs = {
      {{"q", {"--q", &options.q}},
       {"k", {"--k", &options.k}},
       {"v", {"--v", &options.v}},
       {"mask", {"--mask", &options.mask}},
       {"mask_bool", {"--mask-bool", &options.mask_bool}},
       {"sinks", {"--sinks", &options.sinks}},
       {"alibi", {"--alibi", &options.alibi}},
       {"page_table", {"--page-table", &options.page_table}},
       {"state", {"--state-in", &options.state_in}}}};
  for (const auto &[name, option] : inputs) {
    const bool recorded = find(record.inputs, name) != nullptr;
    if (recorded && option.second->empty()) {
      throw InputError(std::string("the record has the input ") + name + ": name its file by " + option.first);
    }
    if (!recorded && !option.second->empty()) {
      throw InputError(std::string(option.first) + ": the record has no input " + name);
    }
  }
}

// N of so many items, each set of N as likely as any other: SplitMix64 from the seed, and Floyd's algorithm's idea of
// exchanging within a list that is mostly not there.
std::vector<std::size_t> sample(std::size_t count, std::size_t wanted, std::uint64_t seed) {
  std::uint64_t state = seed;
  const auto next = [&] {
    state += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  };
  const auto below = [&](std::uint64_t bound) { // without bias: what is left over of 2^64 is drawn again
    const std::uint64_t limit = ~std::uint64_t{0} - ~std::uint64_t{0} % bound;
    std::uint64_t drawn = next();
    while (drawn >= limit) {
      drawn = next();
    }
    return drawn % bound;
  };
  std::unordered_map<std::size_t, std::size_t> moved; // places that no longer hold their own number
  const auto at = [&](std::size_t place) {
    const auto found = moved.find(place);
    return found == moved.end() ? place : found->second;
  };
  std::vector<std::size_t> chosen;
  for (std::size_t n = 0; n < wanted; ++n) {
    const std::size_t place = n + static_cast<std::size_t>(below(count - n));
    const std::size_t number = at(place);
    moved[place] = at(n);
    chosen.push_back(number);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

// A stored output against the record: nothing is computed.
int verify_stored(const VerifyOptions &options, const AuditRecord &record, std::span<const AuditItem> items,
                  std::span<const AuditLeaf> leaves) {
  Findings findings;
  std::string checked;
  for (const auto &[name, path] : {std::pair{"out", &options.output}, {"lse", &options.lse}}) {
    if (path->empty()) {
      continue;
    }
    const AuditTensor &said = *find(record.outputs, name);
    const NpyArray array = read_tensor(*path);
    if (array.shape != said.shape) {
      throw InputError(array.name + ": its shape is " + shape_text(array.shape) + "; the record's " + name + " has " +
                       shape_text(said.shape));
    }
    checked += (checked.empty() ? "" : " and ") + std::string(name);
    if (const std::string hash = sha256_of(array); hash != said.sha256) {
      findings.add(std::string("output ") + name + ": sha256 " + said.sha256 + " in the record, " + hash + " stored");
      if (array.strides != c_strides(array.shape)) {
        continue; // its rows do not lie side by side
      }
      const bool is_out = std::string_view(name) == "out";
      std::vector<std::size_t> differing;
      for (std::size_t n = 0; n < items.size(); ++n) {
        const std::string here =
            rows_hash(record.options, items[n], array.floats(), is_out ? record.options.value_dim : 1);
        if (here != (is_out ? leaves[n].out : leaves[n].lse)) {
          differing.push_back(n);
        }
      }
      findings.add_items(items, differing, std::string("output ") + name);
    }
  }
  return findings.print(options.json, "same bits as recorded: " + checked + " as stored, nothing recomputed",
                        {{"recomputed", 0}, {"of", record.items}});
}

int verify(const VerifyOptions &given) {
  const AuditRecord record = read_record(given.record);
  const std::vector<AuditLeaf> leaves = read_leaves(given.record, record);
  const std::vector<AuditItem> items = audit_items(record.options);
  if (!given.output.empty() || !given.lse.empty()) {
    if (!given.q.empty() || !given.k.empty() || !given.v.empty() || !given.sample.empty()) {
      throw InputError("--output and --lse check stored outputs and compute nothing; leave out --q, --k, --v and "
                       "--sample, or run a second verify");
    }
    return verify_stored(given, record, items, leaves);
  }
  require_files(record, given);
  AttentionOptions options = recorded_options(record, given);
  name_bfloat16(record, options);
  std::optional<std::size_t> wanted;
  if (!given.sample.empty()) {
    wanted = static_cast<std::size_t>(parse_integer(given.sample, "--sample", 1));
    if (find(record.inputs, "state") != nullptr || find(record.outputs, "state") != nullptr) {
      throw InputError("--sample: work items of a call that goes on from a state, or leaves one, can't be recomputed "
                       "alone; verify the whole");
    }
  }
  const auto seed = static_cast<std::uint64_t>(parse_integer(given.seed, "--seed", 0));
  AttentionCall call;
  std::vector<NamedFile> files;
  read_call(call, options, files);
  Findings findings;
  const std::array<const char *, 2> sides = {"in the record", "here"};
  compare_options(record.options, audit_options(call), sides, findings);
  compare_tensors(record.inputs, audit_inputs(call), "input", sides, findings);
  if (!findings.same()) { // of other inputs, other bits are no news
    return findings.print(given.json, "", {{"recomputed", 0}, {"of", record.items}});
  }
  const Pool pool(parse_threads(given.threads));
  ordered_json more;
  std::string same;
  if (wanted) {
    const std::vector<std::size_t> chosen = sample(items.size(), std::min(*wanted, items.size()), seed);
    std::vector<std::size_t> differing;
    const Progress progress("recomputing work items");
    for (std::size_t n = 0; n < chosen.size(); ++n) {
      progress.at(static_cast<std::int64_t>(n), static_cast<std::int64_t>(chosen.size()));
      const ItemOutputs outputs = compute_item(call, items[chosen[n]], record.options.flavour, pool.get());
      if (leaf_of(outputs) != leaves[chosen[n]]) {
        differing.push_back(chosen[n]);
      }
    }
    if (!differing.empty()) {
      findings.add_items(items, differing, "sample of " + std::to_string(chosen.size()));
    }
    more = {{"recomputed", chosen.size()}, {"of", record.items}, {"seed", seed}};
    same = "same bits in " + std::to_string(chosen.size()) + " of " + std::to_string(items.size()) +
           " work items, chosen by seed " + std::to_string(seed);
  } else {
    const AuditOutputs outputs = compute_all(call, find(record.outputs, "state") != nullptr, pool);
    compare_tensors(record.outputs, audit_outputs(call, outputs), "output", sides, findings);
    const std::vector<AuditLeaf> here = leaves_of(record.options, items, outputs);
    std::vector<std::size_t> differing;
    for (std::size_t n = 0; n < items.size(); ++n) {
      if (here[n] != leaves[n]) {
        differing.push_back(n);
      }
    }
    if (!differing.empty()) {
      findings.add_items(items, differing, "recomputed");
    }
    more = {{"recomputed", record.items}, {"of", record.items}, {"kernel", outputs.kernel}};
    same = "same bits: all " + std::to_string(items.size()) + " work items, recomputed by " + outputs.kernel + " on " +
           std::to_string(pool.threads()) + (pool.threads() == 1 ? " thread" : " threads");
  }
  return findings.print(given.json, same, more);
}

// ---- diff ----

struct DiffOptions : AttentionOptions {
  std::string a, b, a_out, b_out;
};

void compare_outputs(const DiffOptions &options, Findings &findings, ordered_json &more) {
  const NpyArray a = read_tensor(options.a_out), b = read_tensor(options.b_out);
  if (a.shape != b.shape) {
    findings.add("stored outputs: shape " + shape_text(a.shape) + " in a, " + shape_text(b.shape) + " in b");
    return;
  }
  const Comparison result = compare_arrays(a, b);
  more["elements"] = result.elements;
  more["differing"] = result.differing;
  if (result.differing == 0) {
    return;
  }
  std::array<char, 64> largest{};
  std::snprintf(largest.data(), largest.size(), "%.6g", result.max_abs);
  const std::string bits[2] = {conformance::hex_bits(result.first_bits[0]),
                               conformance::hex_bits(result.first_bits[1])};
  findings.add("stored outputs: " + std::to_string(result.differing) + " of " + std::to_string(result.elements) +
               " elements differ, first at " + index_text(result.first_index) + ": " + bits[0] + " in a, " + bits[1] +
               " in b, " + ulps_text(result.first_bits[0], result.first_bits[1]) + " apart; largest difference " +
               largest.data() + " at " + index_text(result.worst_index));
  more["first"] = {{"index", result.first_index}, {"bits", {bits[0], bits[1]}}};
  more["max_abs"] = std::isfinite(result.max_abs) ? ordered_json(result.max_abs) : ordered_json(nullptr);
}

// With a's inputs at hand: which way of computing gives b's bits in the first item that differs.
void explain(const DiffOptions &given, const AuditRecord &a, const AuditItem &item, const AuditLeaf &leaf_a,
             const AuditLeaf &leaf_b, Findings &findings, ordered_json &more) {
  require_files(a, given);
  AttentionOptions options = recorded_options(a, given);
  name_bfloat16(a, options);
  AttentionCall call;
  std::vector<NamedFile> files;
  read_call(call, options, files);
  Findings inputs;
  compare_tensors(a.inputs, audit_inputs(call), "input", {"in a", "here"}, inputs);
  if (!inputs.same()) {
    throw InputError("--q, --k, --v and what else is named must be a's inputs; they have other hashes");
  }
  if (a.options.kv_offset != 0 || find(a.inputs, "state") != nullptr) {
    findings.add("explanation: none is looked for in calls that go on from a state");
    return;
  }
  const std::vector<Explanation> explanations = explanations_of(call, item, leaf_a, leaf_b);
  ordered_json list = ordered_json::array();
  for (const Explanation &one : explanations) {
    findings.add("explanation, in " + describe(item) + ": " + one.text);
    list.push_back({{"side", one.is_a ? "a" : "b"}, {"how", one.how}});
  }
  if (explanations.empty()) {
    findings.add("explanation: none found; neither a nor b has in " + describe(item) + " the bits of " +
                 hypotheses_text());
  }
  more["explanations"] = list;
}

int diff(const DiffOptions &options) {
  const AuditRecord a = read_record(options.a), b = read_record(options.b);
  const std::vector<AuditLeaf> leaves_a = read_leaves(options.a, a), leaves_b = read_leaves(options.b, b);
  if (options.a_out.empty() != options.b_out.empty()) {
    throw InputError("--a-out and --b-out go together: one output is compared with the other");
  }
  Findings findings;
  ordered_json more = ordered_json::object();
  const std::array<const char *, 2> sides = {"in a", "in b"};
  compare_options(a.options, b.options, sides, findings);
  compare_tensors(a.inputs, b.inputs, "input", sides, findings);
  compare_tensors(a.outputs, b.outputs, "output", sides, findings);
  const std::vector<AuditItem> items = audit_items(a.options);
  std::vector<std::size_t> differing;
  if (leaves_a.size() == leaves_b.size() && a.options.q_starts == b.options.q_starts &&
      a.options.heads == b.options.heads && a.options.batch == b.options.batch) {
    for (std::size_t n = 0; n < items.size(); ++n) {
      if (leaves_a[n] != leaves_b[n]) {
        differing.push_back(n);
      }
    }
    if (!differing.empty()) {
      findings.add_items(items, differing, "tree");
    }
  }
  if (!options.a_out.empty()) {
    compare_outputs(options, findings, more);
  }
  if (!options.q.empty()) {
    if (!differing.empty()) {
      explain(options, a, items[differing[0]], leaves_a[differing[0]], leaves_b[differing[0]], findings, more);
    }
  }
  return findings.print(
      options.json, "the same: options, inputs, outputs and all " + std::to_string(items.size()) + " work items", more);
}

void add_machine_options(CLI::App &command, AttentionOptions &options) {
  command.add_option("--lanes", options.lanes, "Lane kind; never changes a bit")->type_name("NAME");
  command.add_option("--threads", options.threads, "Number of threads, or all; never changes a bit")->type_name("N");
}

// --q, --k and --v are needed for some of what a command does, not for all.
void make_optional(CLI::App &command) {
  for (const char *name : {"--q", "--k", "--v"}) {
    command.get_option(name)->required(false);
  }
}

} // namespace

void add_audit(CLI::App &app, int &exit_code) {
  CLI::App *command = app.add_subcommand("audit", "Record what was computed, verify it elsewhere, find what differs");
  command->require_subcommand(1);
  command->footer("docs/audit.md has the format of records and a tour.\n\n"
                  "Example:\n  exattn audit verify run.exattn.json --q q.npy --k k.npy --v v.npy --sample 50");

  auto record_options = std::make_shared<RecordOptions>();
  CLI::App *record_command = command->add_subcommand("record", "Compute attention and write a record of it");
  add_tensor_options(*record_command, *record_options);
  add_meaning_options(*record_command, *record_options);
  add_run_options(*record_command, *record_options);
  record_command->add_option("--lse-out,--lse", record_options->lse, "Write the log-sum-exp to this .npy file")
      ->type_name("FILE");
  record_command
      ->add_option("--state-out", record_options->state_out, "Write the state, which is then recorded as well")
      ->type_name("FILE");
  record_command->add_option("-o,--record", record_options->record, "The record, NAME.json; NAME.leaves goes beside it")
      ->type_name("FILE")
      ->required();
  record_command->footer("Example:\n  exattn audit record --q q.npy --k k.npy --v v.npy -o run.exattn.json");
  record_command->callback([record_options, &exit_code] { exit_code = record(*record_options); });

  auto verify_options = std::make_shared<VerifyOptions>();
  CLI::App *verify_command = command->add_subcommand("verify", "Recompute a record, all of it or a sample");
  verify_command->add_option("record", verify_options->record, "The record; its .leaves lies beside it")->required();
  add_tensor_options(*verify_command, *verify_options);
  make_optional(*verify_command);
  add_machine_options(*verify_command, *verify_options);
  verify_command->add_option("--sample", verify_options->sample, "Recompute only so many work items")->type_name("N");
  verify_command->add_option("--seed", verify_options->seed, "Which ones")->type_name("S")->capture_default_str();
  verify_command->add_option("--output", verify_options->output, "Check this stored output, and compute nothing")
      ->type_name("FILE");
  verify_command->add_option("--lse", verify_options->lse, "Likewise a stored log-sum-exp")->type_name("FILE");
  verify_command->add_flag("--json", verify_options->json, "Print JSON")->disable_flag_override();
  verify_command->footer("Exit code 0: the same bits, 1: something differs, and what it is.\n\n"
                         "Example:\n  exattn audit verify run.exattn.json --q q.npy --k k.npy --v v.npy");
  verify_command->callback([verify_options, &exit_code] { exit_code = verify(*verify_options); });

  auto diff_options = std::make_shared<DiffOptions>();
  CLI::App *diff_command = command->add_subcommand("diff", "Say in what two records differ");
  diff_command->add_option("a", diff_options->a, "The one record")->required();
  diff_command->add_option("b", diff_options->b, "The other")->required();
  diff_command->add_option("--a-out", diff_options->a_out, "The one's stored output")->type_name("FILE");
  diff_command->add_option("--b-out", diff_options->b_out, "The other's")->type_name("FILE");
  add_tensor_options(*diff_command, *diff_options);
  make_optional(*diff_command);
  add_machine_options(*diff_command, *diff_options);
  diff_command->add_flag("--json", diff_options->json, "Print JSON")->disable_flag_override();
  diff_command->footer("With a's inputs (--q, --k, --v, ...) it also looks for a way of computing that explains the "
                       "first work item that differs.\n\n"
                       "Example:\n  exattn audit diff a.exattn.json b.exattn.json --a-out a.npy --b-out b.npy");
  diff_command->callback([diff_options, &exit_code] { exit_code = diff(*diff_options); });
}

} // namespace exattn::program
