// An implementation that is not this library, asked by messages (docs/protocol.md). How they are carried is left to
// others: nothing here knows of processes.
#pragma once

#include "runner.hpp"

#include <cstddef>
#include <functional>
#include <string>

namespace exattn::conformance {

inline constexpr const char *kProtocol = "exattn-protocol-1";

// Sends a line and gives the line that is the answer, both without the line feed. An answer of more than `most` bytes
// is refused. Throws ForeignError.
using Exchange = std::function<std::string(const std::string &line, std::size_t most)>;

// Exchanges the first message. Calls of what it gives throw what Implementation allows: ForeignError where an answer
// isn't as the protocol says.
Implementation foreign_implementation(Exchange exchange);

} // namespace exattn::conformance
