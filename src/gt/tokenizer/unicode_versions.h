// The stages of the `tokenizers` package follow different versions of Unicode: its patterns version
// 16, its normal forms and accents about version 9, its punctuation version 8. PCRE2 and utf8proc
// follow whichever version they were built with. Equal ids for every character, also for an emoji
// of last year, take a list of where they differ.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gt {

// What to match patterns against in the place of a character that PCRE2 may not know: an older one
// of the same category, with as many bytes. Most characters stand for themselves.
char32_t StandInFor(char32_t character);

// `text` (valid UTF-8), or a copy of it in `buffer` in which such characters are exchanged. Places
// are the same in both.
std::string_view WithStandIns(std::string_view text, std::string& buffer);

// Whether all normal forms keep the character where and as it is.
bool IsLeftAloneByNormalForms(char32_t character);

// What holds in the place of what the tables of utf8proc say, if anything.
std::optional<bool> MarkException(char32_t character);
std::optional<bool> PunctuationException(char32_t character);
std::optional<bool> NumericException(char32_t character);
std::optional<char32_t> LowercaseException(char32_t character);

}  // namespace gt
