// Remembers the tokens of words, because text consists of few words that occur often.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace gt {

// Not thread safe.
class WordCache {
 public:
  // Longer words hardly occur twice.
  static constexpr std::size_t kLongestWord = 128;

  // The tokens of `word`, or nothing. They are valid until the next Insert.
  std::optional<std::span<const int32_t>> Find(std::string_view word) const;

  // `word` must not be in the cache yet. Words that are too long or have too many tokens are not
  // kept. When the cache is full it starts anew: the words of the text at hand return soon.
  void Insert(std::string_view word, std::span<const int32_t> ids);

 private:
  // The tokens and then the bytes of a word are at `record` in `records_`.
  struct Slot {
    uint64_t hash = 0;
    uint32_t record = 0;
    uint16_t word_size = 0;  // 0: the slot is free
    uint16_t id_count = 0;
  };

  static uint64_t HashOf(std::string_view word);
  bool Holds(const Slot& slot, uint64_t hash, std::string_view word) const;

  static constexpr std::size_t kSlots = std::size_t{1} << 16;
  static constexpr std::size_t kMostWords = kSlots / 2;

  std::vector<Slot> slots_ = std::vector<Slot>(kSlots);
  std::vector<int32_t> records_;
  std::size_t words_ = 0;
};

}  // namespace gt
