// What happens to text before it is split: Unicode normal forms, lower case, replacements.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "gt/tokenizer/json_part.h"
#include "gt/tokenizer/piece.h"
#include "gt/tokenizer/regex.h"
#include "gt/tokenizer/unicode.h"

namespace gt {

// Where a normalizer leaves its text. One for each thread.
struct NormalizerScratch {
  std::string now, next;
};

class Normalizer {
 public:
  // `part` is the field `normalizer`, which may be null. Errors: BadTokenizer.
  static Normalizer FromJson(const JsonPart& part);

  bool IsIdentity() const { return steps_.empty(); }

  // The result refers to `scratch`, or is `piece` itself where there is nothing to do.
  Piece Apply(Piece piece, NormalizerScratch& scratch, RegexScratch& regex) const;

 private:
  struct Lowercase {};
  struct StripAccents {};
  struct Prepend {
    std::string text;
  };
  struct Strip {
    bool left, right;
  };
  struct Replace {
    Regex pattern;
    std::string content;
  };
  using Step = std::variant<NormalForm, Lowercase, StripAccents, Prepend, Strip, Replace>;
  struct Runner;

  void Add(const JsonPart& part, int depth);

  std::vector<Step> steps_;
};

// The field `pattern` of a part, {"String": ...} or {"Regex": ...}.
Regex PatternOf(const JsonPart& part);

}  // namespace gt
