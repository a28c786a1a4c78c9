#include "strict_json.hpp"

#include <algorithm>
#include <limits>

namespace exattn {

using nlohmann::json;

bool is_hex(const std::string &text, std::size_t digits) {
  return text.size() == digits &&
         std::all_of(text.begin(), text.end(), [](char c) { return ('0' <= c && c <= '9') || ('a' <= c && c <= 'f'); });
}

json parse_strictly(std::string_view text) {
  constexpr int kDeepest = 32;
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, json::parse_event_t event, const json &parsed) {
    if (depth > kDeepest) {
      throw FormatError("objects or lists lie too deep");
    }
    if (event == json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw FormatError("key \"" + parsed.get<std::string>() + "\" occurs twice in one object");
    }
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception &error) {
    throw FormatError(std::string("not valid JSON: ") + error.what());
  }
}

StrictObject::StrictObject(const json &object, std::string name) : value(object), where(std::move(name)) {
  if (!value.is_object()) {
    throw FormatError(where + ": must be an object");
  }
}

void StrictObject::fail(const std::string &problem) const {
  throw FormatError(where + ": " + problem);
}

const json &StrictObject::member(const char *key) {
  const auto found = value.find(key);
  if (found == value.end()) {
    fail(std::string("\"") + key + "\" is missing");
  }
  asked.insert(key);
  return *found;
}

StrictObject StrictObject::object(const char *key) {
  return StrictObject(member(key), where + ": " + key);
}

std::string StrictObject::text(const char *key) {
  const json &found = member(key);
  if (!found.is_string()) {
    fail(std::string("\"") + key + "\" must be a string");
  }
  return found.get<std::string>();
}

std::string StrictObject::string(const char *key) {
  const json &found = member(key);
  if (!found.is_string() || found.get<std::string>().empty()) {
    fail(std::string("\"") + key + "\" must be a string that is not empty");
  }
  return found.get<std::string>();
}

bool StrictObject::choice(const char *key, const char *first, const char *second) {
  const std::string found = string(key);
  if (found != first && found != second) {
    fail(std::string("\"") + key + "\" must be \"" + first + "\" or \"" + second + "\"");
  }
  return found == second;
}

bool StrictObject::boolean(const char *key) {
  const json &found = member(key);
  if (!found.is_boolean()) {
    fail(std::string("\"") + key + "\" must be true or false");
  }
  return found.get<bool>();
}

std::int64_t StrictObject::integer(const char *key, std::int64_t least, std::int64_t most) {
  return to_integer(key, member(key), least, most);
}

std::vector<std::int64_t> StrictObject::integers(const char *key, std::int64_t least, std::int64_t most) {
  const json &found = member(key);
  if (!found.is_array()) {
    fail(std::string("\"") + key + "\" must be a list of integers");
  }
  std::vector<std::int64_t> result;
  for (const json &item : found) {
    result.push_back(to_integer(key, item, least, most));
  }
  return result;
}

std::string StrictObject::hex(const char *key, std::size_t digits) {
  std::string found = string(key);
  if (!is_hex(found, digits)) {
    fail(std::string("\"") + key + "\" must be " + std::to_string(digits) + " lower-case hex digits");
  }
  return found;
}

std::vector<std::string> StrictObject::hashes(const char *key, std::size_t count) {
  const json &found = member(key);
  std::vector<std::string> result;
  for (const json &item : found.is_array() ? found : json::array()) {
    result.push_back(item.is_string() ? item.get<std::string>() : "");
  }
  if (result.size() != count ||
      !std::all_of(result.begin(), result.end(), [](const std::string &hash) { return is_hex(hash, 64); })) {
    fail(std::string("\"") + key + "\" must be a list of " + std::to_string(count) +
         " hashes, each of 64 lower-case hex digits");
  }
  return result;
}

void StrictObject::nothing_else() const {
  for (const auto &item : value.items()) {
    if (asked.count(item.key()) == 0) {
      fail("unknown key \"" + item.key() + "\"");
    }
  }
}

std::int64_t StrictObject::to_integer(const char *key, const json &number, std::int64_t least,
                                      std::int64_t most) const {
  const bool fits =
      number.is_number_unsigned()
          ? number.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())
          : number.is_number_integer();
  if (!fits || number.get<std::int64_t>() < least || number.get<std::int64_t>() > most) {
    fail(std::string("\"") + key + "\" must be an integer from " + std::to_string(least) + " to " +
         std::to_string(most));
  }
  return number.get<std::int64_t>();
}

} // namespace exattn
