// What the stages of a tokenizer ask about characters, and the Unicode normal forms. Only this file
// and its source know utf8proc; in a build without it, what needs it fails with BadTokenizer.
#pragma once

#include <string>
#include <string_view>

namespace gt {

// Throws BadTokenizer unless the program was built with utf8proc. Parts of a tokenizer that need it
// call this while they are read, so that the error comes before any work. `part` names them.
void RequireUnicodeTables(std::string_view part);

// The property White_Space.
bool IsWhiteSpace(char32_t character);

// The general categories N*, P* (or punctuation of ASCII), M*.
bool IsNumeric(char32_t character);
bool IsPunctuation(char32_t character);
bool IsMark(char32_t character);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Appends `text`, which is valid UTF-8, in the normal form.
void AppendNormalized(std::string_view text, NormalForm form, std::string& out);

// Appends the lower case of each character by itself: sigma at the end of a word is not special.
void AppendLowercase(std::string_view text, std::string& out);

}  // namespace gt
