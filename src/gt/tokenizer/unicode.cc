#include "gt/tokenizer/unicode.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/utf8.h"
#include "gt/tokenizer/unicode_versions.h"

#ifdef GT_HAVE_UTF8PROC
#include <utf8proc.h>
#endif

namespace gt {

bool IsWhiteSpace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

#ifdef GT_HAVE_UTF8PROC
namespace {

utf8proc_category_t CategoryOf(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool IsWithin(utf8proc_category_t category, utf8proc_category_t first, utf8proc_category_t last) {
  return category >= first && category <= last;
}

struct CharacterRange {
  char32_t first, last;
};

// Characters that no normal form NFC changes, moves, or joins to what is before them (combining
// class 0, NFC_Quick_Check=Yes). Not all of them, but those of which most text consists, so that
// most text is copied.
constexpr CharacterRange kInertInNfc[] = {
    {0x0000, 0x02FF},   {0x0400, 0x0482},  {0x048A, 0x058F}, {0x0904, 0x0928}, {0x0E01, 0x0E30},
    {0x1E00, 0x1E99},   {0x1EA0, 0x1EFF},  {0x2010, 0x2027}, {0x2030, 0x205E}, {0x20A0, 0x20BF},
    {0x2190, 0x21FF},   {0x2200, 0x22FF},  {0x2500, 0x27BF}, {0x3000, 0x3029}, {0x3041, 0x3096},
    {0x30A0, 0x30FF},   {0x3400, 0x4DB5},  {0x4E00, 0x9FFC}, {0xAC00, 0xD7A3}, {0xFF01, 0xFFEE},
    {0x1F300, 0x1FAD6}, {0x20000, 0x2A6DD}};

bool IsInert(char32_t c, NormalForm form) {
  if (form != NormalForm::kNfc) return c < 0x80;
  if (c <= kInertInNfc[0].last) return true;
  const auto* behind = std::upper_bound(
      std::begin(kInertInNfc), std::end(kInertInNfc), c,
      [](char32_t value, const CharacterRange& candidate) { return value < candidate.first; });
  return c <= behind[-1].last;
}

enum class Role { kInert, kLeftAlone, kActive };

Role RoleOf(char32_t c, NormalForm form) {
  if (IsInert(c, form)) return Role::kInert;
  return IsLeftAloneByNormalForms(c) ? Role::kLeftAlone : Role::kActive;
}

utf8proc_option_t OptionsOf(NormalForm form) {
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatibility = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE |
                                        (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                        (compatibility ? UTF8PROC_COMPAT : 0));
}

// Normalizes one stretch of characters that do not interact with what is around it.
class StretchNormalizer {
 public:
  explicit StretchNormalizer(NormalForm form) : options_(OptionsOf(form)) {}

  void Append(std::string_view stretch, std::string& out) {
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(stretch.data());
    const auto size = static_cast<utf8proc_ssize_t>(stretch.size());
    utf8proc_ssize_t count = Decompose(bytes, size);
    if (count > static_cast<utf8proc_ssize_t>(buffer_.size())) {
      buffer_.resize(static_cast<std::size_t>(count));
      count = Decompose(bytes, size);
    }
    if (count > 0) count = utf8proc_normalize_utf32(buffer_.data(), count, options_);
    GT_CHECK(count >= 0, "utf8proc: {}", utf8proc_errmsg(count));
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      AppendUtf8(static_cast<char32_t>(buffer_[static_cast<std::size_t>(i)]), out);
    }
  }

 private:
  utf8proc_ssize_t Decompose(const utf8proc_uint8_t* bytes, utf8proc_ssize_t size) {
    return utf8proc_decompose(bytes, size, buffer_.data(),
                              static_cast<utf8proc_ssize_t>(buffer_.size()), options_);
  }

  utf8proc_option_t options_;
  std::vector<utf8proc_int32_t> buffer_ = std::vector<utf8proc_int32_t>(64);
};

}  // namespace

void RequireUnicodeTables(std::string_view) {}

bool IsNumeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  if (const std::optional<bool> exception = NumericException(c)) return *exception;
  return IsWithin(CategoryOf(c), UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  if (const std::optional<bool> exception = PunctuationException(c)) return *exception;
  return IsWithin(CategoryOf(c), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

bool IsMark(char32_t c) {
  if (c < 0x300) return false;
  if (const std::optional<bool> exception = MarkException(c)) return *exception;
  return IsWithin(CategoryOf(c), UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

// An inert character ends whatever came before it, so that the text falls into stretches that start
// with one and go on with others. Stretches of a single inert character are copied. Characters that
// are left alone end a stretch and belong to none.
void AppendNormalized(std::string_view text, NormalForm form, std::string& out) {
  StretchNormalizer normalizer(form);
  std::size_t copied = 0;   // everything before it is in `out`
  std::size_t stretch = 0;  // where the stretch at hand begins
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    const Role role = RoleOf(NextCharacter(text, i), form);
    if (role != Role::kActive) {
      stretch = role == Role::kInert ? begin : i;
      continue;
    }
    while (i < text.size()) {
      std::size_t next = i;
      if (RoleOf(NextCharacter(text, next), form) != Role::kActive) break;
      i = next;
    }
    out += text.substr(copied, stretch - copied);
    normalizer.Append(text.substr(stretch, i - stretch), out);
    copied = stretch = i;
  }
  out += text.substr(copied);
}

void AppendLowercase(std::string_view text, std::string& out) {
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = NextCharacter(text, i);
    if (c == 0x130) {
      out += "i\xCC\x87";  // the one character whose lower case is two: i and a combining dot
    } else if (const std::optional<char32_t> exception = LowercaseException(c)) {
      AppendUtf8(*exception, out);
    } else {
      AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
    }
  }
}

#else

void RequireUnicodeTables(std::string_view part) {
  Fail(ErrorCode::kBadTokenizer,
       "{} needs Unicode tables, but this gt was built without utf8proc; install libutf8proc-dev "
       "and build it again",
       part);
}

bool IsNumeric(char32_t) {
  RequireUnicodeTables("a tokenizer that asks for numbers");
  return false;
}
bool IsPunctuation(char32_t) {
  RequireUnicodeTables("a tokenizer that asks for punctuation");
  return false;
}
bool IsMark(char32_t) {
  RequireUnicodeTables("a tokenizer that asks for accents");
  return false;
}
void AppendNormalized(std::string_view, NormalForm, std::string&) {
  RequireUnicodeTables("a normal form");
}
void AppendLowercase(std::string_view, std::string&) { RequireUnicodeTables("lower case"); }

#endif

}  // namespace gt
