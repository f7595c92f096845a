// What a node knows about where it came from. Typed, so that a pass cannot misspell a key, and
// small, because every node carries one. Passes copy the Meta of the node they replace; nothing
// here affects what a node computes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "gt/base/name.h"

namespace gt {

enum class Phase : uint8_t { kForward, kLoss, kBackward };

// Part of a mixture-of-experts layer a node belongs to.
enum class EpRole : uint8_t { kNone, kCompute, kDispatch, kCombine };

// The three steps in which tokens find their experts' ranks.
enum class TokenExchange : uint8_t { kNone, kCountExchange, kCountSync, kExchange };

// What the memory policy decided for a forward value.
enum class Recompute : uint8_t { kNone, kMustSave, kPreferRecompute, kMustRecompute, kOffload };

enum class ChunkRole : uint8_t { kNone, kSplitBoundary, kChunkInput, kBody, kMaterialization };
enum class ChunkProducer : uint8_t { kEager, kGraph };
// Why adding the chunks' results gives the whole result.
enum class ChunkProof : uint8_t { kNone, kSymbolicSize, kOutputPartialSum, kBackwardPartialSum };

struct ChunkMeta {
  int32_t id = -1;  // -1: belongs to all chunks (split boundaries, materializations)
  Name region;      // FQN of the chunked root
  ChunkRole role = ChunkRole::kNone;
  ChunkProducer producer = ChunkProducer::kGraph;
  bool backward = false;
  Name original;  // the value this is a copy of
  ChunkProof proof = ChunkProof::kNone;
  friend bool operator==(const ChunkMeta&, const ChunkMeta&) = default;
};

struct Meta {
  Name module;  // FQN of the innermost module; empty for the root
  Name source;  // "llama3.cc:120"
  // Autograd's sequence number: a backward node carries that of the forward operation it
  // differentiates. -1: none.
  int64_t sequence = -1;
  Phase phase = Phase::kForward;
  EpRole ep_role = EpRole::kNone;
  TokenExchange exchange = TokenExchange::kNone;
  Recompute recompute = Recompute::kNone;
  Name fsdp_bucket;
  // Of a step that a plan was applied to: where the first result is on the mesh, as in "S(0)R".
  Name placement;
  std::shared_ptr<const ChunkMeta> chunk;  // null: not part of a chunked region

  bool is_backward() const { return phase == Phase::kBackward; }
  bool operator==(const Meta& other) const;
};

// Spellings of the text form, one table per enum, used by printer and parser alike.
std::string_view Spelling(Phase value);
std::string_view Spelling(EpRole value);
std::string_view Spelling(TokenExchange value);
std::string_view Spelling(Recompute value);
std::string_view Spelling(ChunkRole value);
std::string_view Spelling(ChunkProducer value);
std::string_view Spelling(ChunkProof value);
// The value whose spelling this is; Enum is one of the above.
template <typename Enum>
std::optional<Enum> FromSpelling(std::string_view text);

}  // namespace gt
