// Byte pair encoding: a word starts as single characters, and the two neighbours whose merge is
// first in the list of merges become one token, until no neighbours can be merged.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/tokenizer/json_part.h"
#include "gt/tokenizer/vocabulary.h"
#include "gt/tokenizer/word_cache.h"

namespace gt {

// Which merge two neighbours make, by their ids. A table of its own because this is where encoding
// spends its time.
class MergeTable {
 public:
  struct Merge {
    int32_t rank;
    int32_t id;
  };

  void Reserve(std::size_t count);
  void Set(int32_t left, int32_t right, Merge merge);  // a later one takes the place of an earlier
  const Merge* Find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t key = kFree;
    Merge merge = {};
  };
  static constexpr uint64_t kFree = ~uint64_t{0};  // no pair of ids, which are not negative

  static uint64_t KeyOf(int32_t left, int32_t right);
  std::size_t SlotOf(uint64_t key) const;

  std::vector<Slot> slots_ = std::vector<Slot>(2);
  int shift_ = 63;
};

// What encoding a word needs to write to. One for each thread.
struct BpeScratch {
  WordCache cache;
  std::vector<int32_t> ids;
  std::vector<int32_t> ranks;
  std::string characters;
  std::string symbol;

  // A word as a linked list, with the merges that are possible in it.
  struct Symbol {
    int32_t id;
    uint32_t previous, next;
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t> queue;
};

class BpeModel {
 public:
  // `part` is the field `model`. With `takes_bytes`, words are bytes that stand for characters of
  // the byte-level alphabet. Errors: BadTokenizer.
  static BpeModel FromJson(const JsonPart& part, bool takes_bytes);

  // Appends the tokens of a word.
  void Encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  void ReadMerges(const JsonPart& part);
  void PrepareBytes();
  void PrepareCuts();

  void EncodeCached(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  void EncodeWord(std::string_view word, BpeScratch& scratch) const;
  std::optional<int32_t> WholeWord(std::string_view word, BpeScratch& scratch) const;
  bool SymbolsOfBytes(std::string_view word, BpeScratch& scratch) const;
  void SymbolsOfCharacters(std::string_view word, BpeScratch& scratch) const;
  bool FallBackToBytes(std::string_view symbol, BpeScratch& scratch) const;
  int32_t UnknownId() const;
  void MergeShort(BpeScratch& scratch) const;
  void MergeLong(BpeScratch& scratch) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::string file_;
  std::optional<std::string> unknown_;
  std::string continuing_prefix_, word_suffix_;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  bool takes_bytes_ = false;
  std::vector<int32_t> byte_ids_;      // of the characters that stand for bytes; -1: none
  std::vector<int32_t> fallback_ids_;  // of <0x00> to <0xFF>; -1: none
  bool cuts_at_spaces_ = false;        // see PrepareCuts
  bool inner_space_ = false;           // some merge has ▁ after another character
};

}  // namespace gt
