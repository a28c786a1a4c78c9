#include "dispatch.hpp"

#include <cstdlib>
#include <cstring>

namespace exattn {

namespace {

struct LaneKind {
  const char *name;
  std::int32_t width;
  const char *needs;   // of CPU and operating system
  const char *no_fast; // what is in place of a fast flavour; null: there is one
};

constexpr const char *kAvx512Needs = "AVX-512 F, CD, DQ, BW and VL, AVX2 and FMA3";

// Indexed by EXATTN_LANES_*.
constexpr std::array<LaneKind, EXATTN_LANES_COUNT> kLaneKinds = {{
    {"auto", 0, "", nullptr},
    {"scalar", 1, "nothing", nullptr},
    {"sse2", 4, "SSE2", "no fused multiply-add, so no fast flavour: use the exact flavour or other lanes"},
    {"avx2", 8, "AVX2", nullptr},
    {"avx512", 16, kAvx512Needs, nullptr},
    {"neon64", 4, "the arm64 architecture", nullptr},
    {"avx512n", 16, kAvx512Needs, "no fast flavour: use the exact flavour, or lanes avx512, which have both"},
}};

constexpr const char *kNames = "auto, scalar, sse2, avx2, avx512, neon64, avx512n";

constexpr std::int32_t kWidestFirst[] = {EXATTN_LANES_AVX512N, EXATTN_LANES_AVX512, EXATTN_LANES_AVX2,
                                         EXATTN_LANES_NEON64,  EXATTN_LANES_SSE2,   EXATTN_LANES_SCALAR};

bool is_lane_kind(std::int32_t lanes) {
  return lanes > EXATTN_LANES_AUTO && lanes < EXATTN_LANES_COUNT;
}

const char *name_of(std::int32_t lanes) {
  return kLaneKinds[static_cast<std::size_t>(lanes)].name;
}

bool find_lanes(const char *name, std::int32_t &lanes) {
  for (std::int32_t candidate = 0; candidate < EXATTN_LANES_COUNT; ++candidate) {
    if (std::strcmp(name, name_of(candidate)) == 0) {
      lanes = candidate;
      return true;
    }
  }
  return false;
}

// Whether a call that names no lane kind may get this one.
bool is_automatic(std::int32_t lanes, std::int32_t flavour, const CpuFeatures &features) {
  switch (lanes) {
  case EXATTN_LANES_SCALAR: // emulates the fast flavour, slower by orders of magnitude: only for who asks by name
    return flavour == EXATTN_EXACT;
  case EXATTN_LANES_AVX512N:
    return features.broadcast_multiplies;
  default:
    return true;
  }
}

exattn_status choose_named(std::int32_t lanes, std::int32_t flavour, const CpuFeatures &features,
                           const KernelTable &kernels, Choice &choice, Message &message) {
  const LaneKind &kind = kLaneKinds[static_cast<std::size_t>(lanes)];
  const LaneSupport support = lane_support(lanes, features, kernels);
  if (!support.built) {
    return message.fail(EXATTN_ERROR_LANES_UNSUPPORTED, "lanes %s are not in this build", kind.name);
  }
  if (!support.cpu) {
    return message.fail(EXATTN_ERROR_LANES_UNSUPPORTED, "lanes %s need %s, which this CPU does not have", kind.name,
                        kind.needs);
  }
  if (!support.os) {
    return message.fail(EXATTN_ERROR_LANES_UNSUPPORTED,
                        "lanes %s: this operating system does not save the registers that they use", kind.name);
  }
  const KernelPair &pair = kernels[static_cast<std::size_t>(lanes)];
  const Kernel *kernel = flavour == EXATTN_EXACT ? pair.exact : (support.fast ? pair.fast : nullptr);
  if (kernel == nullptr) {
    if (kind.no_fast != nullptr) {
      return message.fail(EXATTN_ERROR_FLAVOUR_UNSUPPORTED, "lanes %s have %s", kind.name, kind.no_fast);
    }
    return message.fail(EXATTN_ERROR_FLAVOUR_UNSUPPORTED,
                        "lanes %s: the fast flavour needs FMA3, which this CPU does not have; the exact flavour runs "
                        "here, and lanes scalar emulate the fused multiply-add slowly",
                        kind.name);
  }
  choice.kernel = kernel;
  choice.lanes = lanes;
  return EXATTN_OK;
}

exattn_status choose_widest(std::int32_t flavour, const CpuFeatures &features, const KernelTable &kernels,
                            Choice &choice, Message &message) {
  for (const std::int32_t lanes : kWidestFirst) {
    const LaneSupport support = lane_support(lanes, features, kernels);
    const bool usable = flavour == EXATTN_FAST ? support.fast : support.exact;
    if (usable && is_automatic(lanes, flavour, features)) {
      return choose_named(lanes, flavour, features, kernels, choice, message);
    }
  }
  // The scalar lane kind is always built, so this is the fast flavour.
  const bool cpu_fuses = (features.fma && features.ymm_state) || features.neon64;
  return message.fail(EXATTN_ERROR_FLAVOUR_UNSUPPORTED,
                      "%s; the exact flavour runs here, and lanes scalar, asked for by name, emulate the fast flavour "
                      "slowly",
                      cpu_fuses ? "fast: this build has no lane kind that uses this CPU's fused multiply-add"
                                : "fast: this CPU has no fused multiply-add that a lane kind could use");
}

} // namespace

const KernelTable &built_kernels() noexcept {
  static constexpr KernelTable kernels = {{
      {},
      {&exattn_kernel_scalar_exact, &exattn_kernel_scalar_fast},
#if defined(EXATTN_HAVE_SSE2)
      {&exattn_kernel_sse2_exact, nullptr},
#else
      {},
#endif
#if defined(EXATTN_HAVE_AVX2)
      {&exattn_kernel_avx2_exact, &exattn_kernel_avx2_fast},
#else
      {},
#endif
#if defined(EXATTN_HAVE_AVX512)
      {&exattn_kernel_avx512_exact, &exattn_kernel_avx512_fast},
#else
      {},
#endif
#if defined(EXATTN_HAVE_NEON64)
      {&exattn_kernel_neon64_exact, &exattn_kernel_neon64_fast},
#else
      {},
#endif
#if defined(EXATTN_HAVE_AVX512N)
      {&exattn_kernel_avx512n_exact, nullptr},
#else
      {},
#endif
  }};
  return kernels;
}

LaneSupport lane_support(std::int32_t lanes, const CpuFeatures &features, const KernelTable &kernels) noexcept {
  LaneSupport support;
  bool fuses = true; // has what the fast flavour needs beyond the exact one
  switch (lanes) {
  case EXATTN_LANES_SCALAR:
    support.cpu = true;
    support.os = true;
    break;
  case EXATTN_LANES_SSE2:
    support.cpu = features.sse2;
    support.os = features.sse2; // every system that runs this code saves XMM
    break;
  case EXATTN_LANES_AVX2:
    support.cpu = features.avx2;
    support.os = features.ymm_state;
    fuses = features.fma;
    break;
  case EXATTN_LANES_AVX512: // compiled with AVX2 and FMA3 enabled, in both flavours
  case EXATTN_LANES_AVX512N:
    support.cpu = features.avx512 && features.avx2 && features.fma;
    support.os = features.zmm_state;
    break;
  case EXATTN_LANES_NEON64:
    support.cpu = features.neon64;
    support.os = features.neon64;
    break;
  default:
    return support;
  }
  const KernelPair &pair = kernels[static_cast<std::size_t>(lanes)];
  const bool usable = support.cpu && support.os;
  support.built = pair.exact != nullptr;
  support.exact = usable && pair.exact != nullptr;
  support.fast = usable && pair.fast != nullptr && fuses;
  return support;
}

exattn_status choose_kernel(std::int32_t lanes, std::int32_t flavour, const char *environment,
                            const CpuFeatures &features, const KernelTable &kernels, Choice &choice,
                            Message &message) noexcept {
  if (flavour != EXATTN_EXACT && flavour != EXATTN_FAST) {
    return message.fail(EXATTN_ERROR_ENUM, "flavour is %d, must be EXATTN_EXACT (%d) or EXATTN_FAST (%d)", flavour,
                        EXATTN_EXACT, EXATTN_FAST);
  }
  if (lanes < 0 || lanes >= EXATTN_LANES_COUNT) {
    return message.fail(EXATTN_ERROR_LANES_UNKNOWN, "lanes is %d, must be one of EXATTN_LANES_*, 0 to %d (%s)", lanes,
                        EXATTN_LANES_COUNT - 1, kNames);
  }
  if (lanes == EXATTN_LANES_AUTO && environment != nullptr && environment[0] != '\0' &&
      !find_lanes(environment, lanes)) {
    return message.fail(EXATTN_ERROR_LANES_UNKNOWN, "EXATTN_LANES of the environment is \"%.40s\", must be one of %s",
                        environment, kNames);
  }
  if (is_lane_kind(lanes)) {
    return choose_named(lanes, flavour, features, kernels, choice, message);
  }
  return choose_widest(flavour, features, kernels, choice, message);
}

exattn_status choose_kernel(std::int32_t lanes, std::int32_t flavour, Choice &choice, Message &message) noexcept {
  return choose_kernel(lanes, flavour, std::getenv("EXATTN_LANES"), cpu_features(), built_kernels(), choice, message);
}

} // namespace exattn

const char *exattn_lanes_name(int32_t lanes) {
  return lanes >= 0 && lanes < EXATTN_LANES_COUNT ? exattn::name_of(lanes) : nullptr;
}

exattn_status exattn_lanes_from_name(const char *name, int32_t *lanes) {
  if (name == nullptr || lanes == nullptr) {
    return EXATTN_ERROR_NULL;
  }
  return exattn::find_lanes(name, *lanes) ? EXATTN_OK : EXATTN_ERROR_LANES_UNKNOWN;
}

exattn_status exattn_lanes_query(int32_t lanes, exattn_lanes_info *info) {
  if (info == nullptr) {
    return EXATTN_ERROR_NULL;
  }
  if (info->struct_size != sizeof(exattn_lanes_info)) {
    return EXATTN_ERROR_STRUCT_SIZE;
  }
  if (!exattn::is_lane_kind(lanes)) {
    return EXATTN_ERROR_LANES_UNKNOWN;
  }
  const exattn::LaneSupport support = exattn::lane_support(lanes, exattn::cpu_features(), exattn::built_kernels());
  info->built = support.built ? 1 : 0;
  info->cpu = support.cpu ? 1 : 0;
  info->os = support.os ? 1 : 0;
  info->exact = support.exact ? 1 : 0;
  info->fast = support.fast ? 1 : 0;
  info->width = exattn::kLaneKinds[static_cast<std::size_t>(lanes)].width;
  return EXATTN_OK;
}

exattn_status exattn_lanes_resolve(int32_t lanes, int32_t flavour, int32_t *resolved, const char **kernel) {
  if (resolved == nullptr) {
    return EXATTN_ERROR_NULL;
  }
  exattn::Choice choice;
  exattn::Message unheard;
  const exattn_status status = exattn::choose_kernel(lanes, flavour, choice, unheard);
  if (choice.kernel == nullptr) {
    return status;
  }
  *resolved = choice.lanes;
  if (kernel != nullptr) {
    *kernel = choice.kernel->name;
  }
  return EXATTN_OK;
}
