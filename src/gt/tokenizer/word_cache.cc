#include "gt/tokenizer/word_cache.h"

#include <algorithm>
#include <cstring>

namespace gt {
namespace {

std::size_t WordsOfBytes(std::size_t bytes) { return (bytes + 3) / 4; }

}  // namespace

// Eight bytes at a time. Words are short, so a hash with a long start-up would cost more than it
// saves.
uint64_t WordCache::HashOf(std::string_view word) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
  uint64_t hash = word.size() * kMultiplier;
  const auto mix = [&hash](uint64_t bits) {
    hash = (hash ^ bits) * kMultiplier;
    hash ^= hash >> 32;
  };
  while (word.size() >= 8) {
    uint64_t bits = 0;
    std::memcpy(&bits, word.data(), 8);
    mix(bits);
    word.remove_prefix(8);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, word.data(), word.size());
  mix(rest);
  return hash;
}

bool WordCache::Holds(const Slot& slot, uint64_t hash, std::string_view word) const {
  return slot.hash == hash && slot.word_size == word.size() &&
         std::memcmp(records_.data() + slot.record + slot.id_count, word.data(), word.size()) == 0;
}

std::optional<std::span<const int32_t>> WordCache::Find(std::string_view word) const {
  if (word.empty() || word.size() > kLongestWord) return std::nullopt;
  const uint64_t hash = HashOf(word);
  for (std::size_t i = hash % kSlots; slots_[i].word_size != 0; i = (i + 1) % kSlots) {
    const Slot& slot = slots_[i];
    if (Holds(slot, hash, word)) return std::span(records_.data() + slot.record, slot.id_count);
  }
  return std::nullopt;
}

void WordCache::Insert(std::string_view word, std::span<const int32_t> ids) {
  if (word.empty() || word.size() > kLongestWord || ids.size() > 2 * kLongestWord) return;
  if (words_ == kMostWords) {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    records_.clear();
    words_ = 0;
  }
  const uint64_t hash = HashOf(word);
  std::size_t i = hash % kSlots;
  while (slots_[i].word_size != 0) i = (i + 1) % kSlots;
  const std::size_t record = records_.size();
  records_.insert(records_.end(), ids.begin(), ids.end());
  records_.resize(records_.size() + WordsOfBytes(word.size()));
  std::memcpy(records_.data() + record + ids.size(), word.data(), word.size());
  slots_[i] = {hash, static_cast<uint32_t>(record), static_cast<uint16_t>(word.size()),
               static_cast<uint16_t>(ids.size())};
  ++words_;
}

}  // namespace gt
