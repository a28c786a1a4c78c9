// JSON that is read strictly: a key that occurs twice, one that is missing and one that nobody asked for are errors.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace exattn {

struct FormatError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

bool is_hex(const std::string &text, std::size_t digits); // so many lower-case hex digits

// Refuses a key that occurs twice in one object, which the JSON library would not notice, and what lies too deep.
// Throws FormatError.
nlohmann::json parse_strictly(std::string_view text);

// A JSON object of which every member must be asked for. Its functions throw FormatError.
class StrictObject {
public:
  StrictObject(const nlohmann::json &object, std::string name);

  [[noreturn]] void fail(const std::string &problem) const;
  bool has(const char *key) const { return value.contains(key); }
  const nlohmann::json &member(const char *key);
  StrictObject object(const char *key);
  std::string text(const char *key);                                   // may be empty
  std::string string(const char *key);                                 // not empty
  bool choice(const char *key, const char *first, const char *second); // one of two words: true for the second
  bool boolean(const char *key);
  std::int64_t integer(const char *key, std::int64_t least, std::int64_t most);
  std::vector<std::int64_t> integers(const char *key, std::int64_t least, std::int64_t most);
  std::string hex(const char *key, std::size_t digits);
  std::vector<std::string> hashes(const char *key, std::size_t count);
  void nothing_else() const;

  const nlohmann::json &whole() const { return value; }

private:
  std::int64_t to_integer(const char *key, const nlohmann::json &number, std::int64_t least, std::int64_t most) const;

  const nlohmann::json &value;
  std::string where;
  std::set<std::string> asked;
};

} // namespace exattn
