// Ways of computing a work item that are not the definition's, to find one that explains a difference.
#pragma once

#include "audit_run.hpp"

#include <string>
#include <vector>

namespace exattn::program {

struct Explanation {
  bool is_a = false;
  std::string how;  // "the exact flavour, subnormal numbers flushed to zero"
  std::string text; // for people
};

// For each side the first way that gives its bits. Not for calls with states.
std::vector<Explanation> explanations_of(const AttentionCall &call, const AuditItem &item, const AuditLeaf &a,
                                         const AuditLeaf &b);

std::string hypotheses_text(); // all ways that are tried

} // namespace exattn::program
