// The alphabet of byte-level vocabularies: each byte is written as one printable character, so that
// tokens are text. A space is U+0120, a newline U+010A.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gt {

// Appends the characters that stand for the bytes of `bytes`.
void AppendByteCharacters(std::string_view bytes, std::string& out);

// Appends the bytes that the characters of `text` (valid UTF-8) stand for, or `text` itself where
// one of them stands for no byte.
void AppendBytesOrSame(std::string_view text, std::string& out);

// The byte that a character stands for.
std::optional<unsigned char> ByteOfCharacter(char32_t character);

// The character that stands for a byte, in UTF-8.
std::string_view CharacterOfByte(unsigned char byte);

}  // namespace gt
