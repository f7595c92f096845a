#include "gt/ir/meta.h"

#include <array>

namespace gt {
namespace {

template <typename Enum>
struct Spellings;

template <>
struct Spellings<Phase> {
  static constexpr std::array<std::string_view, 3> kAll = {"forward", "loss", "backward"};
};
template <>
struct Spellings<EpRole> {
  static constexpr std::array<std::string_view, 4> kAll = {"none", "compute", "dispatch",
                                                           "combine"};
};
template <>
struct Spellings<TokenExchange> {
  static constexpr std::array<std::string_view, 4> kAll = {"none", "count_exchange", "count_sync",
                                                           "exchange"};
};
template <>
struct Spellings<Recompute> {
  static constexpr std::array<std::string_view, 5> kAll = {"none", "must_save", "prefer_recompute",
                                                           "must_recompute", "offload"};
};
template <>
struct Spellings<ChunkRole> {
  static constexpr std::array<std::string_view, 5> kAll = {"none", "split_boundary", "chunk_input",
                                                           "body", "materialization"};
};
template <>
struct Spellings<ChunkProducer> {
  static constexpr std::array<std::string_view, 2> kAll = {"eager", "graph"};
};
template <>
struct Spellings<ChunkProof> {
  static constexpr std::array<std::string_view, 4> kAll = {
      "none", "symbolic_size", "output_partial_sum", "backward_partial_sum"};
};

template <typename Enum>
std::string_view SpellingOf(Enum value) {
  return Spellings<Enum>::kAll[static_cast<size_t>(value)];
}

}  // namespace

std::string_view Spelling(Phase value) { return SpellingOf(value); }
std::string_view Spelling(EpRole value) { return SpellingOf(value); }
std::string_view Spelling(TokenExchange value) { return SpellingOf(value); }
std::string_view Spelling(Recompute value) { return SpellingOf(value); }
std::string_view Spelling(ChunkRole value) { return SpellingOf(value); }
std::string_view Spelling(ChunkProducer value) { return SpellingOf(value); }
std::string_view Spelling(ChunkProof value) { return SpellingOf(value); }

template <typename Enum>
std::optional<Enum> FromSpelling(std::string_view text) {
  const auto& all = Spellings<Enum>::kAll;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

template std::optional<Phase> FromSpelling<Phase>(std::string_view);
template std::optional<EpRole> FromSpelling<EpRole>(std::string_view);
template std::optional<TokenExchange> FromSpelling<TokenExchange>(std::string_view);
template std::optional<Recompute> FromSpelling<Recompute>(std::string_view);
template std::optional<ChunkRole> FromSpelling<ChunkRole>(std::string_view);
template std::optional<ChunkProducer> FromSpelling<ChunkProducer>(std::string_view);
template std::optional<ChunkProof> FromSpelling<ChunkProof>(std::string_view);

bool Meta::operator==(const Meta& other) const {
  bool same_chunk = chunk == other.chunk || (chunk && other.chunk && *chunk == *other.chunk);
  return same_chunk && module == other.module && source == other.source &&
         sequence == other.sequence && phase == other.phase && ep_role == other.ep_role &&
         exchange == other.exchange && recompute == other.recompute &&
         fsdp_bucket == other.fsdp_bucket && placement == other.placement;
}

}  // namespace gt
