// Which kernel a request gets: on made-up CPUs, on this one, by name and by environment.
#include "cpu.hpp"
#include "dispatch.hpp"

#include "exattn/exattn.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

using exattn::Choice;
using exattn::choose_kernel;
using exattn::CpuFeatures;
using exattn::features_of;
using exattn::Kernel;
using exattn::KernelPair;
using exattn::KernelTable;
using exattn::lane_support;
using exattn::LaneSupport;
using exattn::Message;
using exattn::X86Identity;

namespace {

// Bits as Intel's manual numbers them.
constexpr std::uint32_t kSse2 = 1U << 26;    // leaf 1, edx
constexpr std::uint32_t kFma = 1U << 12;     // leaf 1, ecx
constexpr std::uint32_t kOsxsave = 1U << 27; // leaf 1, ecx
constexpr std::uint32_t kAvx = 1U << 28;     // leaf 1, ecx
constexpr std::uint32_t kAvx2 = 1U << 5;     // leaf 7, ebx
constexpr std::uint32_t kAvx512f = 1U << 16;
constexpr std::uint32_t kAvx512dq = 1U << 17;
constexpr std::uint32_t kAvx512cd = 1U << 28;
constexpr std::uint32_t kAvx512bw = 1U << 30;
constexpr std::uint32_t kAvx512vl = 1U << 31;
constexpr std::uint32_t kAllAvx512 = kAvx512f | kAvx512dq | kAvx512cd | kAvx512bw | kAvx512vl;

// Like a server CPU of 2017, everything saved.
X86Identity skylake_server() {
  X86Identity identity;
  identity.max_leaf = 0x16;
  std::strcpy(identity.vendor, "GenuineIntel");
  identity.leaf_1_eax = 0x00050654;
  identity.leaf_1_ecx = kFma | kOsxsave | kAvx;
  identity.leaf_1_edx = kSse2;
  identity.leaf_7_ebx = kAvx2 | kAllAvx512;
  identity.xcr0 = 0xE7; // x87, XMM, YMM, opmask, both parts of ZMM
  return identity;
}

X86Identity haswell() {
  X86Identity identity = skylake_server();
  identity.leaf_7_ebx = kAvx2;
  identity.xcr0 = 0x7;
  return identity;
}

// A server CPU with AVX-512 by its vendor and signature: the reserved bits 31-28, extended family 27-20, extended model
// 19-16, family 11-8, model 7-4, stepping 3-0.
X86Identity server(const char *vendor, std::uint32_t signature) {
  X86Identity identity = skylake_server();
  std::strcpy(identity.vendor, vendor);
  identity.leaf_1_eax = signature;
  return identity;
}

X86Identity nehalem() {
  X86Identity identity;
  identity.max_leaf = 0xB;
  identity.leaf_1_edx = kSse2;
  return identity;
}

// A table that holds a kernel, known by its name, wherever one can be.
constexpr Kernel named(const char *name) {
  return {name, nullptr, nullptr, nullptr};
}
constexpr Kernel kScalarExact = named("scalar/exact");
constexpr Kernel kScalarFast = named("scalar/fast");
constexpr Kernel kSse2Exact = named("sse2/exact");
constexpr Kernel kAvx2Exact = named("avx2/exact");
constexpr Kernel kAvx2Fast = named("avx2/fast");
constexpr Kernel kAvx512Exact = named("avx512/exact");
constexpr Kernel kAvx512Fast = named("avx512/fast");
constexpr Kernel kAvx512nExact = named("avx512n/exact");
constexpr Kernel kNeonExact = named("neon64/exact");
constexpr Kernel kNeonFast = named("neon64/fast");

constexpr KernelTable kX86 = {{{},
                               {&kScalarExact, &kScalarFast},
                               {&kSse2Exact, nullptr},
                               {&kAvx2Exact, &kAvx2Fast},
                               {&kAvx512Exact, &kAvx512Fast},
                               {},
                               {&kAvx512nExact, nullptr}}};
constexpr KernelTable kArm = {{{}, {&kScalarExact, &kScalarFast}, {}, {}, {}, {&kNeonExact, &kNeonFast}, {}}};
constexpr KernelTable kScalarOnly = {{{}, {&kScalarExact, &kScalarFast}, {}, {}, {}, {}, {}}};

struct Answer {
  exattn_status status;
  std::string kernel;
  std::int32_t lanes;
  std::string message;
};

Answer ask(std::int32_t lanes, std::int32_t flavour, const CpuFeatures &features, const KernelTable &kernels,
           const char *environment = nullptr) {
  std::array<char, 300> text{};
  Message message(text.data(), text.size());
  Choice choice;
  const exattn_status status = choose_kernel(lanes, flavour, environment, features, kernels, choice, message);
  return {status, choice.kernel == nullptr ? "" : choice.kernel->name, choice.lanes, text.data()};
}

std::string kernel_for(std::int32_t lanes, std::int32_t flavour, const CpuFeatures &features,
                       const KernelTable &kernels = kX86, const char *environment = nullptr) {
  const Answer answer = ask(lanes, flavour, features, kernels, environment);
  return answer.status == EXATTN_OK ? answer.kernel : exattn_status_name(answer.status);
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

// Sets EXATTN_LANES for as long as it lives.
class Environment {
public:
  explicit Environment(const char *value) {
    if (const char *old = std::getenv("EXATTN_LANES")) {
      had = true;
      before = old;
    }
    if (value == nullptr) {
      unsetenv("EXATTN_LANES");
    } else {
      setenv("EXATTN_LANES", value, 1);
    }
  }
  ~Environment() {
    if (had) {
      setenv("EXATTN_LANES", before.c_str(), 1);
    } else {
      unsetenv("EXATTN_LANES");
    }
  }
  Environment(const Environment &) = delete;
  Environment &operator=(const Environment &) = delete;

private:
  bool had = false;
  std::string before;
};

} // namespace

TEST_CASE("features: whole generations") {
  const CpuFeatures skylake = features_of(skylake_server());
  CHECK(skylake.sse2);
  CHECK(skylake.avx2);
  CHECK(skylake.fma);
  CHECK(skylake.avx512);
  CHECK(skylake.ymm_state);
  CHECK(skylake.zmm_state);
  CHECK_FALSE(skylake.neon64);

  const CpuFeatures older = features_of(haswell());
  CHECK(older.avx2);
  CHECK(older.fma);
  CHECK_FALSE(older.avx512);
  CHECK(older.ymm_state);
  CHECK_FALSE(older.zmm_state);

  const CpuFeatures oldest = features_of(nehalem());
  CHECK(oldest.sse2);
  CHECK_FALSE(oldest.avx2);
  CHECK_FALSE(oldest.fma);
  CHECK_FALSE(oldest.avx512);
  CHECK_FALSE(oldest.ymm_state);
}

TEST_CASE("features: register state comes from the operating system") {
  X86Identity identity = skylake_server();
  identity.leaf_1_ecx &= ~kOsxsave; // XGETBV is not there: what is in xcr0 means nothing
  CHECK_FALSE(features_of(identity).ymm_state);
  CHECK_FALSE(features_of(identity).zmm_state);

  identity = skylake_server();
  for (const std::uint64_t xcr0 : {0x00U, 0x01U, 0x03U, 0x05U}) { // nothing, x87, XMM without YMM, YMM without XMM
    identity.xcr0 = xcr0;
    CHECK_FALSE(features_of(identity).ymm_state);
    CHECK_FALSE(features_of(identity).zmm_state);
  }
  for (const std::uint64_t xcr0 : {0x07U, 0x27U, 0x67U, 0xA7U, 0xC7U}) { // ZMM state in part
    identity.xcr0 = xcr0;
    CHECK(features_of(identity).ymm_state);
    CHECK_FALSE(features_of(identity).zmm_state);
  }
  identity.xcr0 = 0xE1; // ZMM without XMM and YMM
  CHECK_FALSE(features_of(identity).zmm_state);
  identity.xcr0 = 0x600E7; // AMX as well
  CHECK(features_of(identity).zmm_state);
}

TEST_CASE("features: AVX-512 needs each of its parts, and nothing is read from a leaf that is not there") {
  for (const std::uint32_t part : {kAvx512f, kAvx512dq, kAvx512cd, kAvx512bw, kAvx512vl}) {
    X86Identity identity = skylake_server();
    identity.leaf_7_ebx &= ~part;
    CHECK_FALSE(features_of(identity).avx512);
    CHECK(features_of(identity).avx2);
  }
  X86Identity identity = skylake_server();
  identity.max_leaf = 6;
  CHECK_FALSE(features_of(identity).avx2);
  CHECK_FALSE(features_of(identity).avx512);
  identity.max_leaf = 0;
  CHECK_FALSE(features_of(identity).sse2);

  identity = skylake_server();
  identity.leaf_1_ecx &= ~kAvx; // a hypervisor that hides AVX alone
  CHECK_FALSE(features_of(identity).avx2);
  CHECK_FALSE(features_of(identity).fma);
}

TEST_CASE("auto takes the widest that CPU and system support") {
  const std::int32_t any = EXATTN_LANES_AUTO;
  CHECK(kernel_for(any, EXATTN_EXACT, features_of(skylake_server())) == "avx512/exact");
  CHECK(kernel_for(any, EXATTN_FAST, features_of(skylake_server())) == "avx512/fast");
  CHECK(kernel_for(any, EXATTN_EXACT, features_of(haswell())) == "avx2/exact");
  CHECK(kernel_for(any, EXATTN_FAST, features_of(haswell())) == "avx2/fast");
  CHECK(kernel_for(any, EXATTN_EXACT, features_of(nehalem())) == "sse2/exact");

  X86Identity no_zmm = skylake_server();
  no_zmm.xcr0 = 0x7;
  CHECK(kernel_for(any, EXATTN_EXACT, features_of(no_zmm)) == "avx2/exact");
  CHECK(kernel_for(any, EXATTN_FAST, features_of(no_zmm)) == "avx2/fast");

  X86Identity no_ymm = skylake_server();
  no_ymm.xcr0 = 0x3;
  CHECK(kernel_for(any, EXATTN_EXACT, features_of(no_ymm)) == "sse2/exact");

  X86Identity no_fma = haswell(); // VIA made such CPUs
  no_fma.leaf_1_ecx &= ~kFma;
  CHECK(kernel_for(any, EXATTN_EXACT, features_of(no_fma)) == "avx2/exact");

  CpuFeatures arm;
  arm.neon64 = true;
  CHECK(kernel_for(any, EXATTN_EXACT, arm, kArm) == "neon64/exact");
  CHECK(kernel_for(any, EXATTN_FAST, arm, kArm) == "neon64/fast");
  CHECK(kernel_for(any, EXATTN_EXACT, {}, kScalarOnly) == "scalar/exact");
  CHECK(ask(any, EXATTN_EXACT, features_of(haswell()), kX86).lanes == EXATTN_LANES_AVX2);
}

TEST_CASE("auto takes narrow tiles for exact where a broadcast costs a multiplication, and there alone") {
  const std::int32_t any = EXATTN_LANES_AUTO;
  // Raphael, Genoa and Bergamo, which are all Zen 4: family 0x19 = 0xF + 0xA.
  for (const std::uint32_t signature : {0x00A60F12U, 0x00A10F11U, 0x00AA0F02U}) {
    const CpuFeatures zen4 = features_of(server("AuthenticAMD", signature));
    CHECK(zen4.broadcast_multiplies);
    CHECK(kernel_for(any, EXATTN_EXACT, zen4) == "avx512n/exact");
    CHECK(kernel_for(any, EXATTN_FAST, zen4) == "avx512/fast");
    CHECK(ask(any, EXATTN_EXACT, zen4, kX86).lanes == EXATTN_LANES_AVX512N);
    CHECK(ask(any, EXATTN_FAST, zen4, kX86).lanes == EXATTN_LANES_AVX512);
    CHECK(kernel_for(EXATTN_LANES_AVX512, EXATTN_EXACT, zen4) == "avx512/exact");
    CHECK(kernel_for(any, EXATTN_EXACT, zen4, kX86, "avx512") == "avx512/exact");
  }
  const struct {
    const char *vendor;
    std::uint32_t signature;
  } others[] = {
      {"AuthenticAMD", 0x00B00F21}, // Turin, Zen 5: family 0x1A
      {"AuthenticAMD", 0x00B40F40}, // Granite Ridge, Zen 5
      {"AuthenticAMD", 0x00900F11}, // family 0x18
      {"AuthenticAMD", 0x01010911}, // family 9: 0x10 in the extended family counts with family 0xF alone
      {"AuthenticAMD", 0x00001911}, // family 9 and a bit beyond it
      {"GenuineIntel", 0x00050654}, // Skylake-X
      {"GenuineIntel", 0x000806F8}, // Sapphire Rapids
      {"GenuineIntel", 0x00A10F11}, // the signature of Genoa with another vendor
      {"", 0x00A10F11},
  };
  for (const auto &other : others) {
    CAPTURE(other.vendor);
    CAPTURE(other.signature);
    const CpuFeatures features = features_of(server(other.vendor, other.signature));
    CHECK_FALSE(features.broadcast_multiplies);
    CHECK(kernel_for(any, EXATTN_EXACT, features) == "avx512/exact");
    CHECK(kernel_for(any, EXATTN_FAST, features) == "avx512/fast");
    CHECK(kernel_for(EXATTN_LANES_AVX512N, EXATTN_EXACT, features) == "avx512n/exact"); // by name it is there
    CHECK(kernel_for(any, EXATTN_EXACT, features, kX86, "avx512n") == "avx512n/exact");
  }
  // Zen 3 is of the same family, without AVX-512; and Zen 4 where the system saves no ZMM, or without the kernel.
  X86Identity zen3 = haswell();
  std::strcpy(zen3.vendor, "AuthenticAMD");
  zen3.leaf_1_eax = 0x00A20F10;
  CHECK(kernel_for(any, EXATTN_EXACT, features_of(zen3)) == "avx2/exact");
  CHECK(kernel_for(any, EXATTN_FAST, features_of(zen3)) == "avx2/fast");
  X86Identity no_zmm = server("AuthenticAMD", 0x00A10F11);
  no_zmm.xcr0 = 0x7;
  CHECK(kernel_for(any, EXATTN_EXACT, features_of(no_zmm)) == "avx2/exact");
  KernelTable without = kX86;
  without[EXATTN_LANES_AVX512N] = {};
  CHECK(kernel_for(any, EXATTN_EXACT, features_of(server("AuthenticAMD", 0x00A10F11)), without) == "avx512/exact");
}

TEST_CASE("auto never takes the slow emulation for the fast flavour") {
  X86Identity no_fma = haswell();
  no_fma.leaf_1_ecx &= ~kFma;
  X86Identity no_ymm = haswell();
  no_ymm.xcr0 = 0x3;
  for (const X86Identity &identity : {nehalem(), no_fma, no_ymm}) {
    const Answer answer = ask(EXATTN_LANES_AUTO, EXATTN_FAST, features_of(identity), kX86);
    CHECK(answer.status == EXATTN_ERROR_FLAVOUR_UNSUPPORTED);
    CHECK(contains(answer.message, "this CPU has no fused multiply-add"));
    CHECK(contains(answer.message, "scalar"));
    CHECK(contains(answer.message, "slowly"));
  }
  const Answer answer = ask(EXATTN_LANES_AUTO, EXATTN_FAST, features_of(haswell()), kScalarOnly);
  CHECK(answer.status == EXATTN_ERROR_FLAVOUR_UNSUPPORTED);
  CHECK(contains(answer.message, "this build has no lane kind"));
  // By name it is there.
  CHECK(kernel_for(EXATTN_LANES_SCALAR, EXATTN_FAST, features_of(nehalem())) == "scalar/fast");
  CHECK(kernel_for(EXATTN_LANES_AUTO, EXATTN_FAST, features_of(nehalem()), kX86, "scalar") == "scalar/fast");
}

TEST_CASE("a lane kind asked for by name is taken or refused, never replaced") {
  const CpuFeatures skylake = features_of(skylake_server());
  CHECK(kernel_for(EXATTN_LANES_SCALAR, EXATTN_EXACT, skylake) == "scalar/exact");
  CHECK(kernel_for(EXATTN_LANES_SSE2, EXATTN_EXACT, skylake) == "sse2/exact");
  CHECK(kernel_for(EXATTN_LANES_AVX2, EXATTN_EXACT, skylake) == "avx2/exact");
  CHECK(kernel_for(EXATTN_LANES_AVX2, EXATTN_FAST, skylake) == "avx2/fast");
  CHECK(kernel_for(EXATTN_LANES_AVX512, EXATTN_FAST, skylake) == "avx512/fast");

  Answer answer = ask(EXATTN_LANES_SSE2, EXATTN_FAST, skylake, kX86);
  CHECK(answer.status == EXATTN_ERROR_FLAVOUR_UNSUPPORTED);
  CHECK(answer.message ==
        "lanes sse2 have no fused multiply-add, so no fast flavour: use the exact flavour or other lanes");
  CHECK(answer.kernel.empty());

  answer = ask(EXATTN_LANES_AVX512N, EXATTN_FAST, skylake, kX86);
  CHECK(answer.status == EXATTN_ERROR_FLAVOUR_UNSUPPORTED);
  CHECK(answer.message ==
        "lanes avx512n have no fast flavour: use the exact flavour, or lanes avx512, which have both");
  CHECK(answer.kernel.empty());

  answer = ask(EXATTN_LANES_NEON64, EXATTN_EXACT, skylake, kX86);
  CHECK(answer.status == EXATTN_ERROR_LANES_UNSUPPORTED);
  CHECK(contains(answer.message, "neon64 are not in this build"));

  answer = ask(EXATTN_LANES_AVX512, EXATTN_EXACT, features_of(haswell()), kX86);
  CHECK(answer.status == EXATTN_ERROR_LANES_UNSUPPORTED);
  CHECK(contains(answer.message, "avx512 need AVX-512 F"));
  answer = ask(EXATTN_LANES_AVX512N, EXATTN_EXACT, features_of(haswell()), kX86);
  CHECK(answer.status == EXATTN_ERROR_LANES_UNSUPPORTED);
  CHECK(contains(answer.message, "avx512n need AVX-512 F"));

  X86Identity no_zmm = skylake_server();
  no_zmm.xcr0 = 0x7;
  for (const std::int32_t lanes : {EXATTN_LANES_AVX512, EXATTN_LANES_AVX512N}) {
    answer = ask(lanes, EXATTN_EXACT, features_of(no_zmm), kX86);
    CHECK(answer.status == EXATTN_ERROR_LANES_UNSUPPORTED);
    CHECK(contains(answer.message, "operating system does not save"));
  }

  X86Identity no_fma = haswell();
  no_fma.leaf_1_ecx &= ~kFma;
  answer = ask(EXATTN_LANES_AVX2, EXATTN_FAST, features_of(no_fma), kX86);
  CHECK(answer.status == EXATTN_ERROR_FLAVOUR_UNSUPPORTED);
  CHECK(contains(answer.message, "FMA3"));
  CHECK(kernel_for(EXATTN_LANES_AVX2, EXATTN_EXACT, features_of(no_fma)) == "avx2/exact");
  // The AVX-512 kernels may hold AVX2 and FMA3 instructions as well.
  no_fma = skylake_server();
  no_fma.leaf_1_ecx &= ~kFma;
  CHECK(kernel_for(EXATTN_LANES_AVX512, EXATTN_EXACT, features_of(no_fma)) == "EXATTN_ERROR_LANES_UNSUPPORTED");
  CHECK(kernel_for(EXATTN_LANES_AVX512N, EXATTN_EXACT, features_of(no_fma)) == "EXATTN_ERROR_LANES_UNSUPPORTED");

  for (const std::int32_t lanes : {-1, EXATTN_LANES_COUNT, 1000, INT32_MIN, INT32_MAX}) {
    CHECK(ask(lanes, EXATTN_EXACT, skylake, kX86).status == EXATTN_ERROR_LANES_UNKNOWN);
  }
  for (const std::int32_t flavour : {-1, 2, INT32_MIN, INT32_MAX}) {
    CHECK(ask(EXATTN_LANES_SCALAR, flavour, skylake, kX86).status == EXATTN_ERROR_ENUM);
  }
}

TEST_CASE("the environment speaks for auto only") {
  const CpuFeatures skylake = features_of(skylake_server());
  const std::int32_t any = EXATTN_LANES_AUTO;
  CHECK(kernel_for(any, EXATTN_EXACT, skylake, kX86, "sse2") == "sse2/exact");
  CHECK(kernel_for(any, EXATTN_FAST, skylake, kX86, "avx2") == "avx2/fast");
  CHECK(kernel_for(any, EXATTN_EXACT, skylake, kX86, "auto") == "avx512/exact");
  CHECK(kernel_for(any, EXATTN_EXACT, skylake, kX86, "") == "avx512/exact");
  CHECK(kernel_for(EXATTN_LANES_SCALAR, EXATTN_EXACT, skylake, kX86, "sse2") == "scalar/exact");
  CHECK(kernel_for(EXATTN_LANES_SCALAR, EXATTN_EXACT, skylake, kX86, "nonsense") == "scalar/exact");
  CHECK(kernel_for(any, EXATTN_EXACT, features_of(haswell()), kX86, "avx512") == "EXATTN_ERROR_LANES_UNSUPPORTED");
  CHECK(kernel_for(any, EXATTN_EXACT, skylake, kX86, "neon64") == "EXATTN_ERROR_LANES_UNSUPPORTED");
  CHECK(kernel_for(any, EXATTN_FAST, skylake, kX86, "sse2") == "EXATTN_ERROR_FLAVOUR_UNSUPPORTED");
  for (const char *name : {"AVX2", "avx", " avx2", "avx2 ", "3"}) {
    const Answer answer = ask(any, EXATTN_EXACT, skylake, kX86, name);
    CHECK(answer.status == EXATTN_ERROR_LANES_UNKNOWN);
    CHECK(contains(answer.message, std::string("\"") + name + "\""));
    CHECK(contains(answer.message, "auto, scalar, sse2, avx2, avx512, neon64, avx512n"));
  }
}

TEST_CASE("lane_support says what is missing") {
  X86Identity no_zmm = skylake_server();
  no_zmm.xcr0 = 0x7;
  LaneSupport support = lane_support(EXATTN_LANES_AVX512, features_of(no_zmm), kX86);
  CHECK(support.built);
  CHECK(support.cpu);
  CHECK_FALSE(support.os);
  CHECK_FALSE(support.exact);
  CHECK_FALSE(support.fast);
  support = lane_support(EXATTN_LANES_AVX2, features_of(no_zmm), kScalarOnly);
  CHECK_FALSE(support.built);
  CHECK(support.cpu);
  CHECK(support.os);
  CHECK_FALSE(support.exact);
  CHECK_FALSE(support.fast);
  support = lane_support(EXATTN_LANES_SSE2, features_of(no_zmm), kX86);
  CHECK(support.exact);
  CHECK_FALSE(support.fast);
  support = lane_support(EXATTN_LANES_AVX512N, features_of(skylake_server()), kX86);
  CHECK(support.built);
  CHECK(support.exact);
  CHECK_FALSE(support.fast);
  support = lane_support(EXATTN_LANES_SCALAR, {}, kScalarOnly);
  CHECK(support.exact);
  CHECK(support.fast);
}

TEST_CASE("names of lane kinds and flavours") {
  const char *names[] = {"auto", "scalar", "sse2", "avx2", "avx512", "neon64", "avx512n"};
  for (std::int32_t lanes = 0; lanes < EXATTN_LANES_COUNT; ++lanes) {
    CHECK(std::string(exattn_lanes_name(lanes)) == names[lanes]);
    std::int32_t found = -1;
    CHECK(exattn_lanes_from_name(names[lanes], &found) == EXATTN_OK);
    CHECK(found == lanes);
  }
  CHECK(exattn_lanes_name(-1) == nullptr);
  CHECK(exattn_lanes_name(EXATTN_LANES_COUNT) == nullptr);
  std::int32_t found = 77;
  CHECK(exattn_lanes_from_name("avx1024", &found) == EXATTN_ERROR_LANES_UNKNOWN);
  CHECK(exattn_lanes_from_name("", &found) == EXATTN_ERROR_LANES_UNKNOWN);
  CHECK(exattn_lanes_from_name(nullptr, &found) == EXATTN_ERROR_NULL);
  CHECK(exattn_lanes_from_name("avx2", nullptr) == EXATTN_ERROR_NULL);
  CHECK(found == 77);
  CHECK(std::string(exattn_flavour_name(EXATTN_EXACT)) == "exact");
  CHECK(std::string(exattn_flavour_name(EXATTN_FAST)) == "fast");
  CHECK(exattn_flavour_name(2) == nullptr);
  CHECK(exattn_flavour_name(-1) == nullptr);
}

TEST_CASE("this machine: the query agrees with the compiler's own detection") {
  exattn_lanes_info info{};
  CHECK(exattn_lanes_query(EXATTN_LANES_SCALAR, &info) == EXATTN_ERROR_STRUCT_SIZE);
  info.struct_size = sizeof(info);
  CHECK(exattn_lanes_query(EXATTN_LANES_SCALAR, nullptr) == EXATTN_ERROR_NULL);
  CHECK(exattn_lanes_query(EXATTN_LANES_AUTO, &info) == EXATTN_ERROR_LANES_UNKNOWN);
  CHECK(exattn_lanes_query(EXATTN_LANES_COUNT, &info) == EXATTN_ERROR_LANES_UNKNOWN);

  const int widths[] = {0, 1, 4, 8, 16, 4, 16};
  for (std::int32_t lanes = 1; lanes < EXATTN_LANES_COUNT; ++lanes) {
    CHECK(exattn_lanes_query(lanes, &info) == EXATTN_OK);
    CHECK(info.width == widths[lanes]);
    CHECK(info.exact == (info.built & info.cpu & info.os));
    CHECK((info.fast == 0 || info.exact == 1));
  }

  CHECK(exattn_lanes_query(EXATTN_LANES_SCALAR, &info) == EXATTN_OK);
  CHECK(info.exact == 1);
  CHECK(info.fast == 1);
#if defined(__x86_64__)
  // GCC's runtime looks at the operating system's state as well.
  const bool avx2 = __builtin_cpu_supports("avx2");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl");
  CHECK(exattn_lanes_query(EXATTN_LANES_SSE2, &info) == EXATTN_OK);
  CHECK(info.cpu == 1);
  CHECK(info.fast == 0);
  CHECK(exattn_lanes_query(EXATTN_LANES_AVX2, &info) == EXATTN_OK);
  CHECK((info.cpu & info.os) == (avx2 ? 1 : 0));
  CHECK(info.fast == (info.built == 1 && avx2 && __builtin_cpu_supports("fma") ? 1 : 0));
  for (const std::int32_t lanes : {EXATTN_LANES_AVX512, EXATTN_LANES_AVX512N}) {
    CHECK(exattn_lanes_query(lanes, &info) == EXATTN_OK);
    CHECK((info.cpu & info.os) == (avx512 ? 1 : 0));
    CHECK(info.fast == (lanes == EXATTN_LANES_AVX512 ? info.exact : 0));
  }
  CHECK(exattn_lanes_query(EXATTN_LANES_NEON64, &info) == EXATTN_OK);
  CHECK(info.cpu == 0);
#elif defined(__aarch64__)
  CHECK(exattn_lanes_query(EXATTN_LANES_NEON64, &info) == EXATTN_OK);
  CHECK(info.cpu == 1);
  CHECK(info.os == 1);
  CHECK(exattn_lanes_query(EXATTN_LANES_AVX2, &info) == EXATTN_OK);
  CHECK(info.cpu == 0);
#endif
}

TEST_CASE("this machine: resolve gives what the query promises, and the kernel names itself") {
  const Environment unset(nullptr);
  std::int32_t widest = EXATTN_LANES_SCALAR;
  int widest_width = 0;
  for (std::int32_t lanes = 1; lanes < EXATTN_LANES_COUNT; ++lanes) {
    exattn_lanes_info info{};
    info.struct_size = sizeof(info);
    REQUIRE(exattn_lanes_query(lanes, &info) == EXATTN_OK);
    if (info.exact == 1 && info.width > widest_width) {
      widest = lanes;
      widest_width = info.width;
    }
    for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
      const bool usable = (flavour == EXATTN_EXACT ? info.exact : info.fast) == 1;
      const exattn_status refusal = info.exact == 1 ? EXATTN_ERROR_FLAVOUR_UNSUPPORTED : EXATTN_ERROR_LANES_UNSUPPORTED;
      const std::string name = std::string(exattn_lanes_name(lanes)) + "/" + exattn_flavour_name(flavour);
      INFO(name);
      std::int32_t resolved = -1;
      const char *kernel = nullptr;
      CHECK(exattn_lanes_resolve(lanes, flavour, &resolved, &kernel) == (usable ? EXATTN_OK : refusal));
      if (usable) {
        CHECK(resolved == lanes);
        CHECK(std::string(kernel) == name);
        CHECK(exattn_lanes_resolve(lanes, flavour, &resolved, nullptr) == EXATTN_OK);
      } else {
        CHECK(resolved == -1);
        CHECK(kernel == nullptr);
      }
      const Environment chosen(exattn_lanes_name(lanes));
      resolved = -1;
      CHECK(exattn_lanes_resolve(EXATTN_LANES_AUTO, flavour, &resolved, &kernel) == (usable ? EXATTN_OK : refusal));
      CHECK(resolved == (usable ? lanes : -1));
    }
  }
#if defined(__x86_64__)
  if (widest == EXATTN_LANES_AVX512 && __builtin_cpu_is("amdfam19h")) {
    widest = EXATTN_LANES_AVX512N; // as wide, and faster there
  }
#endif
  std::int32_t resolved = -1;
  CHECK(exattn_lanes_resolve(EXATTN_LANES_AUTO, EXATTN_EXACT, &resolved, nullptr) == EXATTN_OK);
  CHECK(resolved == widest);
  CHECK(exattn_lanes_resolve(EXATTN_LANES_AUTO, EXATTN_EXACT, nullptr, nullptr) == EXATTN_ERROR_NULL);
  CHECK(exattn_lanes_resolve(EXATTN_LANES_AUTO, 2, &resolved, nullptr) == EXATTN_ERROR_ENUM);
  CHECK(exattn_lanes_resolve(EXATTN_LANES_COUNT, EXATTN_EXACT, &resolved, nullptr) == EXATTN_ERROR_LANES_UNKNOWN);
  const Environment unknown("mmx");
  CHECK(exattn_lanes_resolve(EXATTN_LANES_AUTO, EXATTN_EXACT, &resolved, nullptr) == EXATTN_ERROR_LANES_UNKNOWN);
  CHECK(exattn_lanes_resolve(EXATTN_LANES_SCALAR, EXATTN_EXACT, &resolved, nullptr) == EXATTN_OK);
  CHECK(resolved == EXATTN_LANES_SCALAR);
}
