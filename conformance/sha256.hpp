// SHA-256 of tensors: over the little-endian bytes of binary32 elements in C order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace exattn {

class Sha256 {
public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256 &) = delete;
  Sha256 &operator=(const Sha256 &) = delete;

  void update(const void *bytes, std::size_t size);
  // As little-endian bytes, whatever the byte order of this machine.
  void update(std::span<const float> values);

  // 64 lower-case hex digits. Call once.
  std::string finish();

private:
  struct Free {
    void operator()(evp_md_ctx_st *pointer) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context;
};

std::string sha256_of(std::string_view bytes);
std::string sha256_of(std::span<const float> values);

} // namespace exattn
