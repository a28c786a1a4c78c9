// Which kernel serves a request for a lane kind and a flavour.
#pragma once

#include "cpu.hpp"
#include "kernel.hpp"
#include "message.hpp"

#include "exattn/exattn.h"

#include <array>
#include <cstdint>

namespace exattn {

// The kernels of one lane kind; null: not built.
struct KernelPair {
  const Kernel *exact = nullptr;
  const Kernel *fast = nullptr;
};

// Indexed by EXATTN_LANES_*; the entry of EXATTN_LANES_AUTO is empty.
using KernelTable = std::array<KernelPair, EXATTN_LANES_COUNT>;

// Those in this library.
const KernelTable &built_kernels() noexcept;

struct LaneSupport {
  bool built = false;
  bool cpu = false;
  bool os = false;
  bool exact = false;
  bool fast = false;
};

// For a lane kind other than EXATTN_LANES_AUTO.
LaneSupport lane_support(std::int32_t lanes, const CpuFeatures &features, const KernelTable &kernels) noexcept;

struct Choice {
  const Kernel *kernel = nullptr; // until a choice is made
  std::int32_t lanes = EXATTN_LANES_AUTO;
};

// Never replaces what was asked for by something else. `environment` is the value of the variable EXATTN_LANES, or
// null; it only speaks where `lanes` is EXATTN_LANES_AUTO.
exattn_status choose_kernel(std::int32_t lanes, std::int32_t flavour, const char *environment,
                            const CpuFeatures &features, const KernelTable &kernels, Choice &choice,
                            Message &message) noexcept;

// On this machine, in this process's environment.
exattn_status choose_kernel(std::int32_t lanes, std::int32_t flavour, Choice &choice, Message &message) noexcept;

} // namespace exattn
