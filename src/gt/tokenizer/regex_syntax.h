// The patterns of a tokenizer.json are written for Oniguruma, in whose syntax many things mean
// something else than in PCRE2: `$` ends a line, `\h` is a hexadecimal digit, `x{2}+` repeats,
// classes nest, and `\s` and `\w` follow other Unicode properties.
#pragma once

#include <string>
#include <string_view>

namespace gt {

// The pattern for PCRE2 (to be compiled with UTF, UCP and MULTILINE, newline is LF) that matches
// what `pattern` matches in Oniguruma. Errors (BadTokenizer) name what has no counterpart; mistakes
// that PCRE2 will find itself are left to it.
std::string PatternFromOniguruma(std::string_view pattern);

}  // namespace gt
