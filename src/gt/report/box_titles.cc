#include "gt/report/box_titles.h"

#include <algorithm>
#include <string_view>
#include <variant>

#include "gt/base/text.h"
#include "gt/report/box_text.h"

namespace gt::boxes {
namespace {

// "all_gather" of all_gather_into_tensor: the kind, not the variant.
std::string CollectiveName(const Node& node) {
  std::string_view name = ShortName(CollectiveOf(node)->op());
  for (std::string_view kind : {"all_to_all", "all_gather", "reduce_scatter", "all_reduce"}) {
    if (name.starts_with(kind)) return std::string(kind);
  }
  return std::string(name);
}

std::string BufferTitle(const Box& box, const Region& region) {
  if (box.nodes.size() > 1) return fmt::format("update of {} buffers", box.nodes.size());
  return fmt::format("update {}", Below(region.root(), *region.BufferOf(*box.nodes.front())));
}

// "moe" of layers.1.moe; a number alone would say nothing, so all of layers.1.
std::string LastName(const std::string& module) {
  std::string last = module.substr(module.rfind('.') + 1);
  return last.find_first_not_of("0123456789") == last.npos ? module : last;
}

std::string PlaceText(const Likeness& like, const Region& region, PictureGroups groups) {
  const std::string& root = like.root.str();
  bool moves_tokens = like.ep_role == EpRole::kDispatch || like.ep_role == EpRole::kCombine;
  std::string text = like.part.str();
  if (text.empty() && !moves_tokens) text = LastName(root);
  if (groups == PictureGroups::kRole && like.ep_role == EpRole::kCompute)
    text = Spelling(like.ep_role);
  if (moves_tokens) text += (text.empty() ? "" : ", ") + std::string(Spelling(like.ep_role));
  if (like.exchange == TokenExchange::kExchange) text += ", tokens";
  if (like.exchange == TokenExchange::kCountExchange) text += ", counts";
  if (like.exchange == TokenExchange::kCountSync) text += ", sizes to host";
  return region.root().empty() ? fmt::format("{}: {}", root, text) : text;
}

}  // namespace

std::string TitleOf(const Box& box, const Likeness& like, const Region& region,
                    PictureGroups groups) {
  std::string place = PlaceText(like, region, groups);
  switch (box.kind) {
    case BoxKind::kAllToAll:
    case BoxKind::kAllGather:
    case BoxKind::kReduceScatter:
    case BoxKind::kOtherCollective:
      return fmt::format("{}: {}", CollectiveName(*box.nodes.front()), place);
    case BoxKind::kTransfer:
      return fmt::format("{}: {}", ShortName(box.nodes.front()->op()), place);
    case BoxKind::kSplit:
      return like.chunk_role == ChunkRole::kChunkInput ? "chunk input" : "split";
    case BoxKind::kJoin:
      return like.proof == ChunkProof::kNone ? "concatenate chunks" : "add chunks";
    case BoxKind::kBufferUpdate:
      return BufferTitle(box, region);
    default:
      return place;
  }
}

std::string DetailOf(const Box& box) {
  const Node* collective = CollectiveOf(*box.nodes.front());
  if (collective == nullptr || collective->op().group_arg < 0) return OperatorsText(box.nodes);
  const auto* group = std::get_if<std::string>(&collective->arg(collective->op().group_arg));
  auto starts = std::count_if(box.nodes.begin(), box.nodes.end(), [](const Node* node) {
    return node->op().collective != Collective::kNone && node->op().collective != Collective::kWait;
  });
  return fmt::format("{}group {}", starts > 1 ? fmt::format("{} times, ", starts) : "",
                     group != nullptr ? *group : "?");
}

}  // namespace gt::boxes
