#include "gt/base/name.h"

#include <array>
#include <deque>
#include <mutex>
#include <vector>

namespace gt {
namespace {

// The texts whose hashes fall to this shard. Threads that capture at the same time seldom meet in
// one.
class Shard {
 public:
  // Null: not there.
  const std::string* Find(std::string_view text, size_t hash) {
    std::lock_guard lock(mutex_);
    return slots_.empty() ? nullptr : SlotFor(text, hash).text;
  }
  const std::string* FindOrAdd(std::string_view text, size_t hash) {
    std::lock_guard lock(mutex_);
    if (texts_.size() * 2 >= slots_.size()) Grow();
    Slot& slot = SlotFor(text, hash);
    if (slot.text == nullptr) slot = {hash, &texts_.emplace_back(text)};
    return slot.text;
  }

 private:
  struct Slot {
    size_t hash = 0;
    const std::string* text = nullptr;
  };
  // Where the text is, or the free slot where it belongs.
  Slot& SlotFor(std::string_view text, size_t hash) {
    for (size_t i = hash;; ++i) {
      Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.text == nullptr || (slot.hash == hash && *slot.text == text)) return slot;
    }
  }
  void Grow() {
    std::vector<Slot> before(slots_.empty() ? 64 : 2 * slots_.size());
    slots_.swap(before);
    for (const Slot& slot : before) {
      if (slot.text != nullptr) SlotFor(*slot.text, slot.hash) = slot;
    }
  }

  std::mutex mutex_;
  std::deque<std::string> texts_;  // their addresses never change
  std::vector<Slot> slots_;        // open addressing; a power of two of them
};

Shard& ShardOf(size_t hash) {
  // Never destroyed: names may be read while static objects go down.
  static auto& shards = *new std::array<Shard, 16>;
  return shards[hash >> 60];
}

}  // namespace

const std::string& Name::Empty() {
  static const std::string& empty = *new std::string;
  return empty;
}

Name::Name(std::string_view text) {
  if (text.empty()) {
    text_ = &Empty();
    return;
  }
  const size_t hash = std::hash<std::string_view>()(text);
  text_ = ShardOf(hash).FindOrAdd(text, hash);
}

std::optional<Name> Name::Find(std::string_view text) {
  if (text.empty()) return Name();
  const size_t hash = std::hash<std::string_view>()(text);
  const std::string* found = ShardOf(hash).Find(text, hash);
  return found == nullptr ? std::nullopt : std::optional<Name>(Name(found));
}

}  // namespace gt
