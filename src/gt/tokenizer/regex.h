// Patterns of a tokenizer.json, matched as Oniguruma would. Only this file and its source know
// PCRE2; in a build without it, patterns fail with BadTokenizer, and literals still work.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gt/tokenizer/unicode_versions.h"

namespace gt {

// What matching needs to write to. One for each thread.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct Data;
  std::unique_ptr<Data> data_;
};

struct Match {
  std::size_t begin = 0;
  std::size_t end = 0;
};

class Regex {
 public:
  // A pattern in Oniguruma's syntax. Errors: BadTokenizer.
  static Regex FromPattern(std::string_view pattern);
  // Matches `text` itself.
  static Regex FromLiteral(std::string_view text);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // The first match in `text` (valid UTF-8) that begins at `from` or later. Text before `from` is
  // seen by lookbehinds. Fails with BadTokenizer where the pattern takes too many steps.
  std::optional<Match> Search(std::string_view text, std::size_t from, RegexScratch& scratch) const;

  // Calls visit(begin, end, is_match) for all of `text` in order: for each match, and for what is
  // between matches where that is not empty. An empty match right after another one does not
  // count.
  template <typename Visit>
  void Cut(std::string_view text, RegexScratch& scratch, Visit&& visit) const {
    std::string buffer;
    const std::string_view subject = WithStandIns(text, buffer);
    std::size_t done = 0;
    std::size_t from = 0;
    bool any = false;
    while (from <= text.size()) {
      const std::optional<Match> match = Search(subject, from, scratch);
      if (!match) break;
      if (match->begin == match->end && any && match->end == done) {
        from = AfterCharacter(text, from);
        continue;
      }
      if (done != match->begin) visit(done, match->begin, false);
      visit(match->begin, match->end, true);
      done = from = match->end;
      any = true;
    }
    if (done != text.size()) visit(done, text.size(), false);
  }

 private:
  struct Data;
  explicit Regex(std::unique_ptr<Data> data);
  std::optional<Match> SearchPattern(std::string_view text, std::size_t from,
                                     RegexScratch& scratch) const;
  static std::size_t AfterCharacter(std::string_view text, std::size_t position);

  std::unique_ptr<Data> data_;
};

}  // namespace gt
