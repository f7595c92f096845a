// Joins the text of tokens.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "gt/tokenizer/json_part.h"
#include "gt/tokenizer/regex.h"

namespace gt {

class Decoder {
 public:
  // `part` is the field `decoder`, which may be null: then tokens are joined by spaces.
  // Errors: BadTokenizer.
  static Decoder FromJson(const JsonPart& part);

  // Valid UTF-8.
  std::string Decode(std::vector<std::string> tokens, RegexScratch& regex) const;

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Fuse {};
  struct Metaspace {
    char32_t replacement;
    bool was_prepended;
  };
  struct Strip {
    char32_t content;
    std::size_t start, stop;  // at most so many on each side
  };
  struct Replace {
    Regex pattern;
    std::string content;
  };
  struct WordSuffix {
    Regex suffix;
  };
  using Step = std::variant<ByteLevel, ByteFallback, Fuse, Metaspace, Strip, Replace, WordSuffix>;
  struct Runner;

  void Add(const JsonPart& part, int depth);

  bool present_ = false;
  std::vector<Step> steps_;
};

}  // namespace gt
