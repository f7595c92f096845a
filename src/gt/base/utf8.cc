#include "gt/base/utf8.h"

#include <cstring>

namespace gt {
namespace {

struct Sequence {
  std::size_t length = 1;  // bytes of the character, or of the maximal invalid sequence
  bool valid = false;
};

// The bytes that may follow a lead byte depend on it only in the second place: E0, ED, F0 and F4
// narrow it so that overlong forms, surrogates and numbers above 10FFFF do not exist.
Sequence ReadSequence(std::string_view text, std::size_t position) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  unsigned char low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (std::size_t i = 1; i < length; ++i) {
    if (position + i >= text.size() || at(i) < low || at(i) > high) return {i, false};
    low = 0x80, high = 0xBF;
  }
  return {length, true};
}

}  // namespace

// Eight bytes at a time: most text is mostly ASCII.
std::size_t SkipAscii(std::string_view text, std::size_t position) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080u;
  while (position + 8 <= text.size()) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + position, 8);
    if ((word & kHighBits) != 0) break;
    position += 8;
  }
  while (position < text.size() && static_cast<unsigned char>(text[position]) < 0x80) ++position;
  return position;
}

void AppendUtf8(char32_t character, std::string& out) {
  const auto put = [&out](char32_t byte) { out += static_cast<char>(byte); };
  if (character < 0x80) {
    put(character);
  } else if (character < 0x800) {
    put(0xC0 | (character >> 6));
    put(0x80 | (character & 0x3F));
  } else if (character < 0x10000) {
    put(0xE0 | (character >> 12));
    put(0x80 | ((character >> 6) & 0x3F));
    put(0x80 | (character & 0x3F));
  } else {
    put(0xF0 | (character >> 18));
    put(0x80 | ((character >> 12) & 0x3F));
    put(0x80 | ((character >> 6) & 0x3F));
    put(0x80 | (character & 0x3F));
  }
}

std::string ToUtf8(char32_t character) {
  std::string out;
  AppendUtf8(character, out);
  return out;
}

bool IsValidUtf8(std::string_view text) {
  for (std::size_t i = SkipAscii(text, 0); i < text.size(); i = SkipAscii(text, i)) {
    const Sequence sequence = ReadSequence(text, i);
    if (!sequence.valid) return false;
    i += sequence.length;
  }
  return true;
}

std::string ToValidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Sequence sequence = ReadSequence(text, i);
    out += sequence.valid ? text.substr(i, sequence.length) : kReplacementUtf8;
    i += sequence.length;
  }
  return out;
}

}  // namespace gt
