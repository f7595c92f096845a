// UTF-8, byte by byte. Everything after ToValidUtf8 may rely on valid text and need not
// recheck it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gt {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

// Bytes of the character that starts with `lead`; 1 for bytes that cannot start one.
inline std::size_t Utf8Length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  if (byte < 0xC0) return 1;
  return byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

inline bool IsUtf8Continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// Reads the character at `position` of valid text and moves past it.
inline char32_t NextCharacter(std::string_view text, std::size_t& position) {
  const auto at = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[position + i]));
  };
  const char32_t lead = at(0);
  const std::size_t length = Utf8Length(text[position]);
  char32_t character = lead;
  if (length == 2) character = (lead & 0x1F) << 6 | (at(1) & 0x3F);
  if (length == 3) character = (lead & 0x0F) << 12 | (at(1) & 0x3F) << 6 | (at(2) & 0x3F);
  if (length == 4) {
    character = (lead & 0x07) << 18 | (at(1) & 0x3F) << 12 | (at(2) & 0x3F) << 6 | (at(3) & 0x3F);
  }
  position += length;
  return character;
}

// Where the character that ends before `position` of valid text begins. `position` must not be 0.
inline std::size_t PreviousCharacter(std::string_view text, std::size_t position) {
  do --position;
  while (position > 0 && IsUtf8Continuation(text[position]));
  return position;
}

// The first place from `position` on that does not hold ASCII, or the end.
std::size_t SkipAscii(std::string_view text, std::size_t position);

void AppendUtf8(char32_t character, std::string& out);
std::string ToUtf8(char32_t character);

bool IsValidUtf8(std::string_view text);

// `text` with each maximal invalid sequence replaced by U+FFFD: a sequence that is cut short counts
// once, a byte that cannot be there counts by itself. This is what Python's errors="replace" and
// the Unicode standard (section 3.9, "substitution of maximal subparts") do.
std::string ToValidUtf8(std::string_view text);

}  // namespace gt
