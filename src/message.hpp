// The caller's message buffer.
#pragma once

#include "exattn/exattn.h"

#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace exattn {

// Keeps one sentence, cut to fit and always zero-terminated. Without a buffer nothing is kept.
class Message {
public:
  Message() noexcept = default;
  Message(char *buffer, std::size_t buffer_size) noexcept : text(buffer), size(buffer == nullptr ? 0 : buffer_size) {
    if (size != 0) {
      text[0] = '\0';
    }
  }

  // Says what was wrong and what is allowed; gives the status back, so that a check can return it.
  __attribute__((format(printf, 3, 4))) exattn_status fail(exattn_status status, const char *format, ...) noexcept {
    if (size != 0) {
      std::va_list values;
      va_start(values, format);
      std::vsnprintf(text, size, format, values);
      va_end(values);
    }
    return status;
  }

private:
  char *text = nullptr;
  std::size_t size = 0;
};

} // namespace exattn
