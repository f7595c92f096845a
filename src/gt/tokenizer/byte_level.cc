#include "gt/tokenizer/byte_level.h"

#include <array>

#include "gt/base/utf8.h"

namespace gt {
namespace {

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, 512> bytes;  // by character; -1 where it stands for none

  // Printable bytes of Latin-1 stand for themselves; the others follow from U+0100 on in order.
  Alphabet() {
    bytes.fill(-1);
    char32_t next = 256;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t character = printable ? byte : next++;
      characters[byte] = ToUtf8(character);
      bytes[character] = static_cast<int>(byte);
    }
  }
};

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

}  // namespace

std::string_view CharacterOfByte(unsigned char byte) { return TheAlphabet().characters[byte]; }

std::optional<unsigned char> ByteOfCharacter(char32_t character) {
  if (character >= 512 || TheAlphabet().bytes[character] < 0) return std::nullopt;
  return static_cast<unsigned char>(TheAlphabet().bytes[character]);
}

void AppendByteCharacters(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) out += CharacterOfByte(static_cast<unsigned char>(byte));
}

void AppendBytesOrSame(std::string_view text, std::string& out) {
  const std::size_t before = out.size();
  for (std::size_t i = 0; i < text.size();) {
    const std::optional<unsigned char> byte = ByteOfCharacter(NextCharacter(text, i));
    if (!byte) {
      out.resize(before);
      out += text;
      return;
    }
    out += static_cast<char>(*byte);
  }
}

}  // namespace gt
