#include "gt/tokenizer/regex_syntax.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/base/utf8.h"

namespace gt {
namespace {

// Sets as written inside of brackets. PCRE2's own \s has U+180E, and its \w lacks marks. A set
// ends with a property or a range, so that a hyphen after it is a plain character, as in [\s-].
constexpr std::string_view kSpaceSet = "\\t-\\r \\x{85}\\p{Z}";
constexpr std::string_view kWordSet = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
// Outside of brackets, \w has superscripts and fractions of Latin-1 as well.
constexpr std::string_view kWordSetAlone =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xb2\\xb3\\xb9\\xbc-\\xbe";
constexpr std::string_view kHexDigitSet = "0-9a-fA-F";
constexpr std::string_view kAnyCharacter = "(?s:.)";

std::optional<std::string_view> SetOfPosixClass(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kSets = {{
      {"alpha", "\\p{Alphabetic}"},
      {"digit", "\\p{Nd}"},
      {"alnum", "\\p{Alphabetic}\\p{Nd}"},
      {"upper", "\\p{Uppercase}"},
      {"lower", "\\p{Lowercase}"},
      {"space", kSpaceSet},
      {"word", kWordSet},
      {"xdigit", kHexDigitSet},
      {"blank", "\\p{Zs}\\t"},
      {"cntrl", "\\p{Cc}"},
      {"punct", "\\p{P}\\p{S}"},
      {"ascii", "\\x00-\\x7f"},
  }};
  for (const auto& [known, set] : kSets) {
    if (known == name) return set;
  }
  return std::nullopt;
}

// Names are compared without case, spaces, hyphens and underscores.
std::string PlainName(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return plain;
}

// Oniguruma takes long names of categories, PCRE2 only the short ones. What is neither a category
// nor one of the usual yes-or-no properties is a script; there PCRE2 would also match characters
// that the script shares with others.
std::string PropertyForPcre2(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kCategories = {{
      {"letter", "L"},
      {"uppercaseletter", "Lu"},
      {"lowercaseletter", "Ll"},
      {"titlecaseletter", "Lt"},
      {"modifierletter", "Lm"},
      {"otherletter", "Lo"},
      {"mark", "M"},
      {"nonspacingmark", "Mn"},
      {"spacingmark", "Mc"},
      {"number", "N"},
      {"decimalnumber", "Nd"},
      {"punctuation", "P"},
      {"symbol", "S"},
      {"separator", "Z"},
      {"other", "C"},
  }};
  constexpr std::array<std::string_view, 16> kYesOrNo = {"any",
                                                         "ascii",
                                                         "alphabetic",
                                                         "uppercase",
                                                         "lowercase",
                                                         "whitespace",
                                                         "ideographic",
                                                         "unifiedideograph",
                                                         "emoji",
                                                         "math",
                                                         "emojipresentation",
                                                         "emojimodifier",
                                                         "emojicomponent",
                                                         "extendedpictographic",
                                                         "diacritic",
                                                         "dash"};
  const std::string plain = PlainName(name);
  for (const auto& [known, brief] : kCategories) {
    if (known == plain) return std::string(brief);
  }
  const bool is_category = plain.size() <= 2;
  const bool is_yes_or_no = std::find(kYesOrNo.begin(), kYesOrNo.end(), plain) != kYesOrNo.end();
  return is_category || is_yes_or_no ? std::string(name) : fmt::format("sc:{}", name);
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// A repetition as written in the pattern: *, +, ? or {low,high}.
struct Quantifier {
  std::string text;  // for PCRE2
  bool is_interval = false;
  bool is_fixed = false;  // {n}
};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string Run() {
    while (!AtEnd()) ReadAlternative();
    return std::move(out_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void Refuse(fmt::format_string<Args...> format, Args&&... args) const {
    Fail(ErrorCode::kBadTokenizer, "{} in the pattern {}",
         fmt::format(format, std::forward<Args>(args)...), Quoted(pattern_));
  }

  bool AtEnd() const { return position_ >= pattern_.size(); }
  char Peek(std::size_t ahead = 0) const {
    return position_ + ahead < pattern_.size() ? pattern_[position_ + ahead] : '\0';
  }
  bool Looking(std::string_view at) const { return pattern_.substr(position_).starts_with(at); }
  bool Take(std::string_view text) {
    if (!Looking(text)) return false;
    position_ += text.size();
    return true;
  }

  // The character at the cursor with all of its bytes.
  std::string_view TakeCharacter() {
    const std::string_view character = pattern_.substr(position_, Utf8Length(Peek()));
    position_ += character.size();
    return character;
  }

  // One step: an atom with its repetitions, or something between atoms.
  void ReadAlternative() {
    const char c = Peek();
    if (c == '(') {
      OpenGroup();
    } else if (c == ')') {
      CloseGroup();
    } else if (c == '|' || c == '^' || c == '$') {
      out_ += TakeCharacter();
    } else {
      const std::size_t begin = out_.size();
      if (c == '[') {
        ++position_;
        out_ += ReadClass(0);
      } else if (c == '\\') {
        ReadEscape();
      } else {
        out_ += TakeCharacter();
      }
      ReadQuantifiers(begin);
    }
  }

  void OpenGroup() {
    group_begins_.push_back(out_.size());
    ++position_;
    out_ += '(';
    if (!Take("?")) return;
    if (Take("#")) {  // a comment: nothing of it goes on
      out_.resize(group_begins_.back());
      group_begins_.pop_back();
      SkipComment();
      return;
    }
    out_ += '?';
    ReadOptions();
  }

  void SkipComment() {
    while (!AtEnd() && Peek() != ')') {
      Take("\\");  // what is escaped does not end the comment
      ++position_;
    }
    if (!Take(")")) Refuse("a comment is not closed");
  }

  // Options such as (?i:...) or (?m-i). What Oniguruma calls m is s in PCRE2.
  void ReadOptions() {
    std::size_t end = position_;
    while (end < pattern_.size() &&
           std::string_view("imsxWDSP-").find(pattern_[end]) != std::string_view::npos) {
      ++end;
    }
    const bool are_options =
        end > position_ && end < pattern_.size() && (pattern_[end] == ':' || pattern_[end] == ')');
    if (!are_options) return;  // (?=, (?!, (?<=, (?>, (?<name>: the same in both
    for (; position_ < end; ++position_) {
      if (Peek() == 'i' || Peek() == '-') {
        out_ += Peek();
      } else if (Peek() == 'm') {
        out_ += 's';
      } else {
        Refuse("the option {} is not supported", Peek());
      }
    }
  }

  void CloseGroup() {
    ++position_;
    out_ += ')';
    if (group_begins_.empty()) return;  // PCRE2 says what is wrong
    const std::size_t begin = group_begins_.back();
    group_begins_.pop_back();
    ReadQuantifiers(begin);
  }

  // `atom` is where the repeated atom begins in the output.
  void ReadQuantifiers(std::size_t atom) {
    while (const std::optional<Quantifier> quantifier = TakeQuantifier()) {
      out_ += quantifier->text;
      // x{2,3}+ repeats x{2,3} in Oniguruma, and x{2}? makes it optional; in PCRE2 the first would
      // be possessive and the second lazy.
      const bool wrapped =
          quantifier->is_interval && (Peek() == '+' || (Peek() == '?' && quantifier->is_fixed));
      if (wrapped) {
        out_.insert(atom, "(?:");
        out_ += ')';
      } else if (Peek() == '?' || (Peek() == '+' && !quantifier->is_interval)) {
        out_ += TakeCharacter();
      }
    }
  }

  std::optional<Quantifier> TakeQuantifier() {
    const char c = Peek();
    if (!AtEnd() && (c == '*' || c == '+' || c == '?')) {
      ++position_;
      return Quantifier{.text = std::string(1, c)};
    }
    if (c != '{') return std::nullopt;
    std::size_t i = position_ + 1;
    const auto take_number = [&] {
      const std::size_t begin = i;
      while (i < pattern_.size() && IsDigit(pattern_[i])) ++i;
      return pattern_.substr(begin, i - begin);
    };
    const std::string_view low = take_number();
    const bool has_comma = i < pattern_.size() && pattern_[i] == ',';
    if (has_comma) ++i;
    const std::string_view high = has_comma ? take_number() : low;
    const bool is_interval =
        i < pattern_.size() && pattern_[i] == '}' && !(low.empty() && high.empty());
    if (!is_interval) return std::nullopt;  // a brace that stands for itself
    position_ = i + 1;
    const std::string from(low.empty() ? "0" : low);
    return Quantifier{
        .text = has_comma ? fmt::format("{{{},{}}}", from, high) : fmt::format("{{{}}}", from),
        .is_interval = true,
        .is_fixed = !has_comma};
  }

  // Outside of brackets.
  void ReadEscape() {
    if (position_ + 1 >= pattern_.size()) Refuse("a backslash stands at the end");
    const char c = Peek(1);
    if (c == 'b' || c == 'B') {
      position_ += 2;
      const std::string edge = c == 'b' ? "(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))"
                                        : "(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))";
      out_ += fmt::format(fmt::runtime(edge), kWordSetAlone);
      return;
    }
    if (const std::optional<Set> set = TakeSet(kWordSetAlone)) {
      out_ += fmt::format("[{}{}]", set->negated ? "^" : "", set->items);
      return;
    }
    out_ += TakeLiteralEscape();
  }

  struct Set {
    std::string items;  // as written inside of brackets
    bool negated = false;
  };

  // \s, \S, \w, \p{..} and the like, where the cursor is at one.
  std::optional<Set> TakeSet(std::string_view word_set) {
    switch (Peek(1)) {
      case 's':
      case 'S':
        return TakeNamedSet(kSpaceSet, 'S');
      case 'w':
      case 'W':
        return TakeNamedSet(word_set, 'W');
      case 'd':
      case 'D':
        return TakeNamedSet("\\p{Nd}", 'D');
      case 'h':
      case 'H':
        return TakeNamedSet(kHexDigitSet, 'H');
      case 'p':
      case 'P':
        return TakeProperty();
      default:
        return std::nullopt;
    }
  }

  Set TakeNamedSet(std::string_view items, char negative) {
    const bool negated = Peek(1) == negative;
    position_ += 2;
    return {std::string(items), negated};
  }

  Set TakeProperty() {
    bool negated = Peek(1) == 'P';
    position_ += 2;
    if (!Take("{")) Refuse("\\p needs the name of a property in braces");
    if (Take("^")) negated = !negated;
    const std::size_t end = pattern_.find('}', position_);
    if (end == std::string_view::npos) Refuse("the name of a property is not closed");
    const std::string_view name = pattern_.substr(position_, end - position_);
    position_ = end + 1;
    return {fmt::format("\\p{{{}}}", PropertyForPcre2(name)), negated};
  }

  // An escape for one character, or an anchor that both know by the same name.
  std::string TakeLiteralEscape() {
    ++position_;
    const char c = Peek();
    if (c == 'v') {  // a character in Oniguruma, a class in PCRE2
      ++position_;
      return "\\x0b";
    }
    if (c == 'u') {
      const std::string_view digits = pattern_.substr(position_ + 1, 4);
      if (digits.size() != 4) Refuse("\\u needs four hexadecimal digits");
      position_ += 5;
      return fmt::format("\\x{{{}}}", digits);
    }
    if (std::string_view("QEXKGRONyYkgC").find(c) != std::string_view::npos) {
      Refuse("\\{} is not supported", c);
    }
    return "\\" + std::string(TakeCharacter());
  }

  // A class, from after its opening bracket to after its closing one, as an expression that
  // matches one character. Unions of plain items stay one class; intersections, nested and negative
  // sets become lookaheads before it.
  std::string ReadClass(int depth) {
    constexpr int kDeepest = 16;
    if (depth > kDeepest) Refuse("classes are nested too deeply");
    const bool negated = Take("^");
    std::vector<std::string> operands;
    do operands.push_back(ReadUnion(depth));
    while (Take("&&"));
    Take("]");
    if (operands.size() == 1 && operands[0].starts_with('[')) {
      return negated ? "[^" + operands[0].substr(1) : operands[0];
    }
    std::string all;  // every operand must match here
    for (std::size_t i = 0; i + 1 < operands.size(); ++i) {
      all += fmt::format("(?={})", operands[i]);
    }
    all += operands.back();
    return negated ? fmt::format("(?:(?!{}){})", all, kAnyCharacter) : fmt::format("(?:{})", all);
  }

  // The items of a class up to its end or to `&&`.
  std::string ReadUnion(int depth) {
    std::string items;
    std::vector<std::string> others;
    bool first = true;
    while (first || (Peek() != ']' && !Looking("&&"))) {
      if (AtEnd()) Refuse("a class is not closed");
      if (first && Peek() == ']') {
        items += "\\]";
        ++position_;
      } else if (Looking("[:")) {
        ReadPosixClass(items, others);
      } else if (Take("[")) {
        const std::string nested = ReadClass(depth + 1);
        const bool plain = nested.starts_with('[') && !nested.starts_with("[^");
        if (plain) items += nested.substr(1, nested.size() - 2);
        if (!plain) others.push_back(nested);
      } else if (Peek() == '\\') {
        ReadEscapeInClass(items, others);
      } else {
        items += TakeCharacter();
      }
      first = false;
    }
    if (others.empty()) return "[" + items + "]";
    std::string any = items.empty() ? "" : "[" + items + "]";
    for (const std::string& other : others) any += (any.empty() ? "" : "|") + other;
    return "(?:" + any + ")";
  }

  void ReadEscapeInClass(std::string& items, std::vector<std::string>& others) {
    if (position_ + 1 >= pattern_.size()) Refuse("a class is not closed");
    const std::optional<Set> set = TakeSet(kWordSet);
    if (!set) {
      items += TakeLiteralEscape();
    } else if (set->negated) {
      others.push_back("[^" + set->items + "]");
    } else {
      items += set->items;
    }
  }

  void ReadPosixClass(std::string& items, std::vector<std::string>& others) {
    position_ += 2;
    const bool negated = Take("^");
    const std::size_t end = pattern_.find(":]", position_);
    if (end == std::string_view::npos) Refuse("[: is not closed");
    const std::string_view name = pattern_.substr(position_, end - position_);
    const std::optional<std::string_view> set = SetOfPosixClass(name);
    if (!set) Refuse("[:{}:] is not supported", name);
    position_ = end + 2;
    if (negated) others.push_back(fmt::format("[^{}]", *set));
    if (!negated) items += *set;
  }

  std::string_view pattern_;
  std::size_t position_ = 0;
  std::string out_;
  std::vector<std::size_t> group_begins_;  // where each open group begins in the output
};

}  // namespace

std::string PatternFromOniguruma(std::string_view pattern) { return Translator(pattern).Run(); }

}  // namespace gt
