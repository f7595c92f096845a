// XXH64 (Yann Collet's xxHash): a checksum of 64 bits at about the speed of memory, with the same
// result on every machine and from every other implementation (`xxhsum -H1` prints it too). It
// finds accidents, not attacks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gt {

class Xxh64 {
 public:
  Xxh64();
  void Update(std::span<const std::byte> bytes);
  // Of all bytes so far; more may follow.
  uint64_t Digest() const;

 private:
  static constexpr size_t kBlock = 32;

  std::array<uint64_t, 4> lanes_;
  std::array<std::byte, kBlock> pending_;  // the last total_ % kBlock bytes
  uint64_t total_ = 0;
};

uint64_t Xxh64Of(std::span<const std::byte> bytes);
uint64_t Xxh64Of(std::string_view text);

// Sixteen hexadecimal digits: JSON readers that hold numbers as doubles would round 64 bits.
std::string ChecksumText(uint64_t checksum);

}  // namespace gt
