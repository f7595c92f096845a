// A hash table from addresses to values that are cheap to copy (pointers, numbers). Open addressing
// with linear probing: a lookup touches one or two cache lines, and copying the table copies one
// array. Interned names are addresses too (Name::id).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gt {

template <typename T>
class PointerMap {
 public:
  size_t size() const { return size_; }
  void Reserve(size_t count) {
    if (count * 4 <= slots_.size() * 3) return;
    size_t capacity = kSmallest;
    while (count * 4 > capacity * 3) capacity *= 2;
    Rehash(capacity);
  }

  bool contains(const void* key) const { return Find(key) != nullptr; }
  // Null: not there. Valid until the table changes, as everything that is returned here.
  const T* Find(const void* key) const {
    if (slots_.empty()) return nullptr;
    for (size_t i = Home(key);; i = Next(i)) {
      if (slots_[i].key == key) return &slots_[i].value;
      if (slots_[i].key == nullptr) return nullptr;
    }
  }
  // The value of the key, and whether it was added by this call. `key` is not null.
  std::pair<T*, bool> Insert(const void* key, T value) {
    Reserve(size_ + 1);
    for (size_t i = Home(key);; i = Next(i)) {
      if (slots_[i].key == key) return {&slots_[i].value, false};
      if (slots_[i].key != nullptr) continue;
      slots_[i] = {key, std::move(value)};
      ++size_;
      return {&slots_[i].value, true};
    }
  }
  void Erase(const void* key) {
    if (slots_.empty()) return;
    size_t hole = Home(key);
    while (slots_[hole].key != key) {
      if (slots_[hole].key == nullptr) return;
      hole = Next(hole);
    }
    --size_;
    // Whoever could not have its home because of the erased one moves up: no tombstones.
    for (size_t i = Next(hole); slots_[i].key != nullptr; i = Next(i)) {
      const size_t distance = (i - Home(slots_[i].key)) & (slots_.size() - 1);
      if (distance < ((i - hole) & (slots_.size() - 1))) continue;
      slots_[hole] = std::move(slots_[i]);
      hole = i;
    }
    slots_[hole] = {};
  }

 private:
  static constexpr size_t kSmallest = 16;  // a power of two, as all capacities
  struct Slot {
    const void* key = nullptr;
    T value{};
  };

  size_t Home(const void* key) const {
    constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;
    const uint64_t mixed = (reinterpret_cast<uintptr_t>(key) >> 3) * kGolden;
    return static_cast<size_t>(mixed >> 20) & (slots_.size() - 1);
  }
  size_t Next(size_t i) const { return (i + 1) & (slots_.size() - 1); }
  void Rehash(size_t capacity) {
    std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(capacity));
    for (Slot& slot : before) {
      if (slot.key == nullptr) continue;
      size_t i = Home(slot.key);
      while (slots_[i].key != nullptr) i = Next(i);
      slots_[i] = std::move(slot);
    }
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace gt
