// What an audit computes: hashes of inputs, and work items of a call, all of them or some.
#pragma once

#include "attention_call.hpp"
#include "audit_record.hpp"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace exattn::program {

// Says how far a long run is: "computing", 3 of 40 parts. On a terminal alone.
class Progress {
public:
  explicit Progress(std::string text);
  ~Progress();
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;
  void at(std::int64_t done, std::int64_t all) const;

private:
  std::string what;
  bool shown;
};

// Of a call that was read.
AuditOptions audit_options(const AttentionCall &call);
AuditTensors audit_inputs(const AttentionCall &call);
// The hash of an array in C order, whatever its strides.
std::string sha256_of(const NpyArray &array);

// Both outputs of a call, whole, contiguous; and the state, if it is wanted.
struct AuditOutputs {
  std::vector<float> out, lse;
  std::size_t out_count = 0, lse_count = 0; // elements that count
  std::vector<unsigned char> state;
  std::string kernel;
};

// Computes the whole call, in parts if it is long.
AuditOutputs compute_all(AttentionCall &call, bool state, const Pool &pool);

// One item alone, with any flavour: the same bits as in the whole.
struct ItemOutputs {
  std::vector<float> out, lse; // [rows, Dv], [rows]
};
ItemOutputs compute_item(const AttentionCall &call, const AuditItem &item, std::int32_t flavour, exattn_pool *pool);

// Hashes of an item's rows, of whole outputs or its own.
AuditLeaf leaf_of(const AuditOptions &options, const AuditItem &item, const AuditOutputs &outputs);
AuditLeaf leaf_of(const ItemOutputs &outputs);
// Of a whole output in a file, [.., rows, Dv] or [.., rows].
std::string rows_hash(const AuditOptions &options, const AuditItem &item, const float *data, std::int64_t width);

} // namespace exattn::program
