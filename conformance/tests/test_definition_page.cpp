// docs/definition.md and the code state the same constants, and the constants are what the page says that they are.
#include "exact/constants.hpp"
#include "src/kernel.hpp"

#include "test_files.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <regex>
#include <string>

namespace {

using exattn::tests::read_file;

std::string source_file(const char *name) {
  return read_file(std::filesystem::path(EXATTN_SOURCE_DIR) / name);
}

std::map<std::string, std::uint32_t> all_matches(const std::string &text, const char *pattern) {
  std::map<std::string, std::uint32_t> constants;
  const std::regex expression(pattern);
  for (auto found = std::sregex_iterator(text.begin(), text.end(), expression); found != std::sregex_iterator();
       ++found) {
    const auto bits = static_cast<std::uint32_t>(std::stoul((*found)[2].str(), nullptr, 16));
    const auto added = constants.emplace((*found)[1].str(), bits);
    INFO("constant: " << (*found)[1].str());
    CHECK(added.first->second == bits); // the page gives some of them twice
  }
  return constants;
}

std::int64_t number_after(const std::string &text, const char *pattern) {
  std::smatch found;
  REQUIRE(std::regex_search(text, found, std::regex(pattern)));
  return std::stoll(found[1].str());
}

} // namespace

TEST_CASE("the page's constants are those of the code, and none is missing on either side") {
  std::map<std::string, std::uint32_t> page =
      all_matches(source_file("docs/definition.md"), R"(\| (k[A-Z]\w*) \| ([0-9A-F]{8}) \|)");
  const std::map<std::string, std::uint32_t> code =
      all_matches(source_file("exact/constants.hpp"), R"(float (k[A-Z]\w*) =[^;]*0x([0-9A-F]{8})u)");
  CHECK(code.size() == 26);
  // The one that is a whole number, which the generator has no part in.
  REQUIRE(page.count("kRound") == 1);
  CHECK(std::bit_cast<float>(page["kRound"]) == 3.0F * 4194304.0F + 127.0F);
  page.erase("kRound");
  for (const auto &constant : code) { // not a structured binding: Clang 14 lets no lambda, so no INFO, use its names
    INFO("constant: " << constant.first);
    REQUIRE(page.count(constant.first) == 1);
    CHECK(page[constant.first] == constant.second);
  }
  for (const auto &constant : page) {
    INFO("constant: " << constant.first);
    CHECK(code.count(constant.first) == 1);
  }
}

TEST_CASE("the page's constants are what it says") {
  using namespace exattn::constants;
  const double ln2 = std::log(2.0);
  CHECK(kLog2E == static_cast<float>(1 / ln2));
  CHECK((std::bit_cast<std::uint32_t>(kLn2High) & 0xFF) == 0); // 16 bits
  CHECK(std::abs(static_cast<double>(kLn2High) - ln2) <= 0x1p-17);
  CHECK(kLn2Low == static_cast<float>(ln2 - static_cast<double>(kLn2High)));
  CHECK(kSqrtHalf == static_cast<float>(std::sqrt(0.5)));
  CHECK(kTanhSmall == 13.0F / 16.0F);
  CHECK(kTanhOne == 10.0F);
  CHECK(std::exp(static_cast<double>(kExpCut)) >= 0x1p-126);
  CHECK(std::exp(static_cast<double>(std::nextafter(kExpCut, -std::numeric_limits<float>::infinity()))) < 0x1p-126);
}

TEST_CASE("the polynomial of the hyperbolic tangent is near it, to 1 part in 2^27") {
  using namespace exattn::constants;
  for (int n = 1; n <= 1000; ++n) {
    const double a = static_cast<double>(kTanhSmall) * n / 1000;
    double g = 0;
    for (const float coefficient : {kTanh13, kTanh11, kTanh9, kTanh7, kTanh5, kTanh3}) {
      g = g * a * a + static_cast<double>(coefficient);
    }
    CHECK(std::abs((a + a * a * a * g) / std::tanh(a) - 1) < 0x1p-27);
  }
}

TEST_CASE("the page's blocks are those of the kernels") {
  const std::string page = source_file("docs/definition.md");
  CHECK(number_after(page, R"(Keys are taken in \*\*blocks of (\d+)\*\*)") == exattn::kBlockKeys);
  CHECK(number_after(page, R"(Query rows are grouped in \*\*blocks of (\d+)\*\*)") == exattn::kTileRows);
}
