#include "gt/passes/overlap/node_keys.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>

#include "gt/storage/checksum.h"

namespace gt {
namespace {

constexpr uint64_t kKeyMask = (uint64_t{1} << (4 * NodeKeys::kDigits)) - 1;

uint64_t KindOf(const Node& node) {
  Xxh64 digest;
  auto update = [&digest](std::string_view text) {
    digest.Update(std::as_bytes(std::span(text)));
    digest.Update(std::as_bytes(std::span("\n", 1)));
  };
  update(node.op().name.str());
  update(node.meta().module.str());
  update(Spelling(node.meta().phase));
  if (const auto& chunk = node.meta().chunk) {
    update(fmt::format("{} {} {}", chunk->id, chunk->region.str(), chunk->backward));
  }
  if (node.op().group_arg >= 0) update(std::get<std::string>(node.arg(node.op().group_arg)));
  return digest.Digest();
}

}  // namespace

uint64_t NodeKeys::Next(const Node& node) {
  const uint64_t kind = KindOf(node);
  return (kind ^ (++seen_[kind] * 0x9e3779b97f4a7c15)) & kKeyMask;
}

}  // namespace gt
