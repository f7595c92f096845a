#include "gt/storage/checksum.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace gt {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5;

static_assert(std::endian::native == std::endian::little,
              "checksums and tensors are defined on little-endian bytes");

template <typename T>
uint64_t Load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

uint64_t Round(uint64_t lane, uint64_t input) {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

uint64_t MergeLane(uint64_t hash, uint64_t lane) {
  return (hash ^ Round(0, lane)) * kPrime1 + kPrime4;
}

void MixBlock(std::array<uint64_t, 4>& lanes, const std::byte* block) {
  for (size_t i = 0; i < lanes.size(); ++i)
    lanes[i] = Round(lanes[i], Load<uint64_t>(block + 8 * i));
}

// What is left over after the blocks: fewer than 32 bytes.
uint64_t MixTail(uint64_t hash, std::span<const std::byte> tail) {
  for (; tail.size() >= 8; tail = tail.subspan(8)) {
    hash = std::rotl(hash ^ Round(0, Load<uint64_t>(tail.data())), 27) * kPrime1 + kPrime4;
  }
  if (tail.size() >= 4) {
    hash = std::rotl(hash ^ (Load<uint32_t>(tail.data()) * kPrime1), 23) * kPrime2 + kPrime3;
    tail = tail.subspan(4);
  }
  for (const std::byte byte : tail) {
    hash = std::rotl(hash ^ (std::to_integer<uint64_t>(byte) * kPrime5), 11) * kPrime1;
  }
  return hash;
}

uint64_t Avalanche(uint64_t hash) {
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace

Xxh64::Xxh64() : lanes_{kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1}, pending_{} {}

void Xxh64::Update(std::span<const std::byte> bytes) {
  const size_t pending = total_ % kBlock;
  total_ += bytes.size();
  if (pending > 0) {
    const size_t taken = std::min(kBlock - pending, bytes.size());
    std::copy_n(bytes.begin(), taken, pending_.begin() + static_cast<ptrdiff_t>(pending));
    bytes = bytes.subspan(taken);
    if (pending + taken < kBlock) return;
    MixBlock(lanes_, pending_.data());
  }
  // A local copy stays in registers; a member might be aliased by the bytes, as far as the compiler
  // knows.
  std::array<uint64_t, 4> lanes = lanes_;
  for (; bytes.size() >= kBlock; bytes = bytes.subspan(kBlock)) MixBlock(lanes, bytes.data());
  lanes_ = lanes;
  std::copy(bytes.begin(), bytes.end(), pending_.begin());
}

uint64_t Xxh64::Digest() const {
  uint64_t hash = kPrime5;  // the seed, 0, plus this
  if (total_ >= kBlock) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (const uint64_t lane : lanes_) hash = MergeLane(hash, lane);
  }
  hash += total_;
  return Avalanche(MixTail(hash, std::span(pending_).first(total_ % kBlock)));
}

uint64_t Xxh64Of(std::span<const std::byte> bytes) {
  Xxh64 hash;
  hash.Update(bytes);
  return hash.Digest();
}

uint64_t Xxh64Of(std::string_view text) { return Xxh64Of(std::as_bytes(std::span(text))); }

std::string ChecksumText(uint64_t checksum) { return fmt::format("{:016x}", checksum); }

}  // namespace gt
