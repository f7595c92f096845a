#include "gt/ir/meta_parser.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <string_view>

namespace gt {
namespace {

// { key = value, ... } with each key at most once. `parse` gets a key and reads what follows it.
template <size_t kCount, typename Parse>
void ParseEntries(TokenReader& in, const std::string_view (&keys)[kCount], Parse&& parse) {
  uint32_t seen = 0;
  in.Expect('{');
  if (in.Accept('}')) return;
  do {
    const auto* key = in.token().kind == Token::Kind::kIdentifier
                          ? std::find(std::begin(keys), std::end(keys), in.token().text)
                          : std::end(keys);
    if (key == std::end(keys)) in.FailExpected(fmt::format("one of {}", fmt::join(keys, ", ")));
    const uint32_t bit = 1u << (key - std::begin(keys));
    if (seen & bit) in.FailHere(ErrorCode::kGtirSyntax, fmt::format("{} is given twice", *key));
    seen |= bit;
    in.Advance();
    parse(*key);
  } while (in.Accept(','));
  if (!in.Accept('}')) in.FailExpected("',' or '}'");
}

int32_t ParseChunkId(TokenReader& in) {
  const size_t offset = in.token().offset;
  const int64_t id = in.ExpectInteger("an integer");
  if (id < std::numeric_limits<int32_t>::min() || id > std::numeric_limits<int32_t>::max()) {
    in.FailAt(ErrorCode::kGtirNumberRange, offset, "a chunk id must fit into 32 bits");
  }
  return static_cast<int32_t>(id);
}

std::shared_ptr<const ChunkMeta> ParseChunk(TokenReader& in) {
  constexpr std::string_view kKeys[] = {"id",       "region",   "role", "producer",
                                        "backward", "original", "proof"};
  auto chunk = std::make_shared<ChunkMeta>();
  ParseEntries(in, kKeys, [&](std::string_view key) {
    if (key == "backward") {
      chunk->backward = true;
      return;
    }
    in.Expect('=');
    if (key == "id") {
      chunk->id = ParseChunkId(in);
    } else if (key == "region") {
      chunk->region = in.ExpectInterned("a module name in quotes");
    } else if (key == "role") {
      chunk->role = in.ExpectEnum("a role", ChunkRole::kMaterialization);
    } else if (key == "producer") {
      chunk->producer = in.ExpectEnum("a producer", ChunkProducer::kGraph);
    } else if (key == "original") {
      chunk->original = in.ExpectInterned("a value's name in quotes");
    } else {
      chunk->proof = in.ExpectEnum("a proof", ChunkProof::kBackwardPartialSum);
    }
  });
  return chunk;
}

}  // namespace

Meta ParseMeta(TokenReader& in) {
  constexpr std::string_view kKeys[] = {"module",   "phase",     "seq",    "source",    "ep",
                                        "exchange", "recompute", "bucket", "placement", "chunk"};
  Meta meta;
  ParseEntries(in, kKeys, [&](std::string_view key) {
    in.Expect('=');
    if (key == "module") {
      meta.module = in.ExpectInterned("a module name in quotes");
    } else if (key == "phase") {
      meta.phase = in.ExpectEnum("a phase", Phase::kBackward);
    } else if (key == "seq") {
      meta.sequence = in.ExpectInteger("an integer");
    } else if (key == "source") {
      meta.source = in.ExpectInterned("a source location in quotes");
    } else if (key == "ep") {
      meta.ep_role = in.ExpectEnum("a role", EpRole::kCombine);
    } else if (key == "exchange") {
      meta.exchange = in.ExpectEnum("a step", TokenExchange::kExchange);
    } else if (key == "recompute") {
      meta.recompute = in.ExpectEnum("a decision", Recompute::kOffload);
    } else if (key == "bucket") {
      meta.fsdp_bucket = in.ExpectInterned("a bucket name in quotes");
    } else if (key == "placement") {
      meta.placement = in.ExpectInterned("a placement in quotes");
    } else {
      meta.chunk = ParseChunk(in);
    }
  });
  return meta;
}

}  // namespace gt
