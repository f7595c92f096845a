// Splits normalized text into the words that the model sees one by one.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gt/tokenizer/json_part.h"
#include "gt/tokenizer/piece.h"
#include "gt/tokenizer/regex.h"

namespace gt {

// What to do with the matches of a splitting pattern. For "the-final--countdown" split at "-":
enum class SplitBehavior {
  kRemoved,             // the final countdown
  kIsolated,            // the - final - - countdown
  kMergedWithPrevious,  // the- final- - countdown
  kMergedWithNext,      // the -final - -countdown
  kContiguous,          // the - final -- countdown
};

class WordSink {
 public:
  virtual void Add(std::string_view word) = 0;

 protected:
  ~WordSink() = default;
};

class PreTokenizer {
 public:
  // `part` is the field `pre_tokenizer`, which may be null: then all text is one word.
  // Errors: BadTokenizer.
  static PreTokenizer FromJson(const JsonPart& part);

  // Whether words are meant to be written in the byte-level alphabet. They come out as plain bytes
  // nevertheless: the model takes them as they are and saves the detour.
  bool gives_bytes() const { return gives_bytes_; }

  // What Run needs to write to. One for each thread.
  struct Scratch {
    std::deque<std::string> texts;  // by step, for those that rewrite text; never moved
  };

  void Run(Piece piece, Scratch& scratch, RegexScratch& regex, WordSink& sink) const;

 private:
  struct SplitAtPattern {
    Regex pattern;
    SplitBehavior behavior;
    bool invert;
  };
  struct SplitAtCharacters {
    bool (*matches)(char32_t);
    SplitBehavior behavior;
  };
  struct PrefixSpace {};     // a space before a piece that has none
  struct ByteCharacters {};  // rewrites text in the byte-level alphabet
  enum class PrependScheme { kAlways, kFirst, kNever };
  struct Metaspace {
    std::string replacement;
    PrependScheme scheme;
  };
  using Step =
      std::variant<SplitAtPattern, SplitAtCharacters, PrefixSpace, ByteCharacters, Metaspace>;
  struct Runner;

  void Add(const JsonPart& part, int depth);
  void AddByteLevel(const JsonPart& part);
  void AddMetaspace(const JsonPart& part);

  std::vector<Step> steps_;
  bool gives_bytes_ = false;
};

}  // namespace gt
