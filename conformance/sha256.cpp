#include "sha256.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>

namespace exattn {
namespace {

void check(int result) {
  if (result != 1) {
    throw std::runtime_error("SHA-256 is not available from OpenSSL");
  }
}

} // namespace

void Sha256::Free::operator()(evp_md_ctx_st *pointer) const {
  EVP_MD_CTX_free(pointer);
}

Sha256::Sha256() : context(EVP_MD_CTX_new()) {
  check(context != nullptr ? EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) : 0);
}

Sha256::~Sha256() = default;

void Sha256::update(const void *bytes, std::size_t size) {
  if (size > 0) {
    check(EVP_DigestUpdate(context.get(), bytes, size));
  }
}

void Sha256::update(std::span<const float> values) {
  if constexpr (std::endian::native == std::endian::little) {
    update(values.data(), values.size_bytes());
  } else {
    std::array<unsigned char, 16384> chunk;
    while (!values.empty()) {
      const std::size_t count = std::min(values.size(), chunk.size() / 4);
      for (std::size_t i = 0; i < count; ++i) {
        std::uint32_t bits;
        std::memcpy(&bits, &values[i], sizeof bits);
        for (std::size_t byte = 0; byte < 4; ++byte) {
          chunk[4 * i + byte] = static_cast<unsigned char>(bits >> (8 * byte));
        }
      }
      update(chunk.data(), 4 * count);
      values = values.subspan(count);
    }
  }
}

std::string Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  check(EVP_DigestFinal_ex(context.get(), digest.data(), &size));
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex += kDigits[digest[i] >> 4];
    hex += kDigits[digest[i] & 15];
  }
  return hex;
}

std::string sha256_of(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes.data(), bytes.size());
  return hash.finish();
}

std::string sha256_of(std::span<const float> values) {
  Sha256 hash;
  hash.update(values);
  return hash.finish();
}

} // namespace exattn
