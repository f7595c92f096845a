// Tokens that are cut out of the text before anything else happens to it, such as <|end_of_text|>.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gt/tokenizer/json_part.h"
#include "gt/tokenizer/normalizer.h"
#include "gt/tokenizer/regex.h"
#include "gt/tokenizer/vocabulary.h"

namespace gt {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  std::string normalized_content;       // what stands for it in normalized text
  bool single_word = false;             // not inside of a word
  bool lstrip = false, rstrip = false;  // takes the white space on that side
  bool normalized = true;               // looked for in normalized text
  bool special = false;                 // left out when decoding
};

// Finds the longest of some patterns at a place. Trie walks start only where the first byte fits.
class PatternTrie {
 public:
  // The patterns must be different and not empty.
  explicit PatternTrie(std::map<std::string, std::size_t> patterns);
  PatternTrie() = default;

  bool empty() const { return nodes_.empty(); }

  struct Found {
    std::size_t begin = 0, end = 0;
    std::size_t value = 0;
  };
  // The leftmost place from `from` on where a pattern matches, and the longest one there.
  std::optional<Found> Search(std::string_view text, std::size_t from) const;

 private:
  struct Node {
    std::size_t first_edge = 0, edge_count = 0;
    std::optional<std::size_t> value;
  };
  struct Edge {
    unsigned char byte;
    std::size_t node;
  };

  const Node* Follow(const Node& node, char byte) const;

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;  // those of a node are adjacent, by byte
  std::array<bool, 256> starts_ = {};
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // `part` is the field `added_tokens`. Ids are given out as the `tokenizers` package does: the
  // vocabulary's own where it has the token, the next free one otherwise. Errors: BadTokenizer.
  AddedTokens(const JsonPart& part, const Vocabulary& vocabulary, const Normalizer& normalizer);

  // A stretch of text: an added token, or what is between them.
  struct Stretch {
    std::size_t begin = 0, end = 0;
    const AddedToken* token = nullptr;
  };

  // Cuts `text` into stretches at the tokens that are looked for in text as it is, or in normalized
  // text. A stretch without a token may be left out where it would be empty.
  void Cut(std::string_view text, bool normalized, RegexScratch& regex,
           std::vector<Stretch>& stretches) const;

  const AddedToken* Find(std::string_view content) const;
  const AddedToken* Find(int32_t id) const;
  bool IsSpecial(std::string_view content) const {
    return specials_.contains(std::string(content));
  }
  int64_t id_limit() const { return id_limit_; }

 private:
  bool IsInsideWord(std::string_view text, std::size_t begin, std::size_t end,
                    RegexScratch& regex) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, std::size_t> by_content_;
  std::unordered_map<int32_t, std::size_t> by_id_;
  std::unordered_set<std::string> specials_;
  PatternTrie plain_, normalized_;
  std::optional<Regex> word_;  // one character of a word; only where a token asks for it
  int64_t id_limit_ = 0;
};

}  // namespace gt
