#include "gt/placement/expert_rows.h"

#include <algorithm>
#include <utility>

namespace gt::placement {
namespace {

constexpr int32_t kTokenPieces = 2;  // batch and sequence

bool IsLookup(const Node& node) {
  return node.op().order == DimOrder::kLookedUp && node.operand_count() == 2;
}
bool IsSort(const Node& node) {
  return node.op().order == DimOrder::kReordered && node.operand_count() == 1 &&
         node.operand(0)->type().rank() == 1;
}
bool IsScatter(const Node& node) { return node.op().order == DimOrder::kWritten; }
bool IsGrouped(const Node& node) { return node.op().work == Work::kGroupedProduct; }

// A product of rows with rows: the gradient of the experts' matrices.
bool SumsRows(const Node& node) {
  return IsGrouped(node) && node.operand(0)->type().rank() == 2 &&
         node.operand(1)->type().rank() == 2;
}

bool IsInside(const Node& node) {
  return node.meta().ep_role == EpRole::kDispatch || node.meta().ep_role == EpRole::kCombine;
}

// How many pieces two dimensions have in common from the outermost on, at most those of tokens.
int32_t CommonPieces(const Pieces& a, int32_t dim_a, const Pieces& b, int32_t dim_b) {
  auto of = [](const Pieces& pieces, int32_t dim) {
    std::vector<int64_t> sizes;
    for (const Piece& piece : pieces) {
      if (piece.dim == dim) sizes.push_back(piece.size);
    }
    return sizes;
  };
  const std::vector<int64_t> one = of(a, dim_a), two = of(b, dim_b);
  int32_t common = 0;
  while (common < kTokenPieces && static_cast<size_t>(common) < std::min(one.size(), two.size()) &&
         one[static_cast<size_t>(common)] == two[static_cast<size_t>(common)]) {
    ++common;
  }
  return common;
}

ShardState PieceOf(const Pieces& pieces, int32_t dim, int32_t place) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].dim == dim) return static_cast<ShardState>(static_cast<int32_t>(i) + place);
  }
  return kWhole;
}

class ExpertRows {
 public:
  ExpertRows(const Node& node, const ExpertClass& expert, ClassPieces& pieces)
      : node_(node), expert_(expert), pieces_(pieces) {}

  void Add() {
    Erase();
    if (IsInside(node_) && IsLookup(node_)) {
      AddLookup();
    } else if (IsInside(node_) && (IsSort(node_) || IsScatter(node_))) {
      AddLocal();
    } else if (IsGrouped(node_)) {
      AddProduct();
    } else if (expert_.all_routed && !node_.op().reads_data) {
      AddElsewhere();
    }
  }

 private:
  // A shard of what says where rows are is about a rank's own rows. Where an operator's rule would cut it,
  // it would be a shard of what is about all rows, which is something else.
  void Erase() {
    if (!IsInside(node_)) return;
    auto cuts = [](ShardState state) { return state >= 0; };
    std::erase_if(pieces_.rows, [&](const PieceRow& row) {
      if (IsLookup(node_)) return expert_.operands[1] && cuts(row.operands[1]);
      if (!IsSort(node_) && !IsScatter(node_)) return false;
      return std::any_of(row.operands.begin(), row.operands.end(), cuts) ||
             std::any_of(row.results.begin(), row.results.end(), cuts);
    });
  }

  PieceRow Row() const {
    PieceRow row;
    row.operands.assign(pieces_.operands.size(), kWhole);
    row.results.assign(pieces_.results.size(), kWhole);
    return row;
  }
  ShardState Operand(size_t i, int32_t dim, int32_t piece) const {
    return PieceOf(pieces_.operands[i], dim, piece);
  }
  ShardState Result(int32_t dim, int32_t piece) const {
    return PieceOf(pieces_.results[0], dim, piece);
  }
  int64_t SizeAt(size_t operand, ShardState piece) const {
    return pieces_.operands[operand][static_cast<size_t>(piece)].size;
  }
  void Push(PieceRow row) { pieces_.rows.push_back(std::move(row)); }

  // Each rank looks up rows of its own tokens; or the rows travel, to their experts or back.
  void AddLookup() {
    const int32_t common = std::min(CommonPieces(pieces_.operands[0], 0, pieces_.operands[1], 0),
                                    CommonPieces(pieces_.operands[1], 0, pieces_.results[0], 0));
    for (int32_t j = 0; j < common; ++j) {
      PieceRow local = Row();
      local.operands = {Operand(0, 0, j), Operand(1, 0, j)};
      local.results[0] = Result(0, j);
      local.multiple = SizeAt(0, local.operands[0]);
      PieceRow travel = local;
      if (expert_.takes_routed) {
        travel.operands[0] = RoutedBy(j);
        travel.exchanged = 0;
      } else {
        travel.results[0] = RoutedBy(j);
        travel.exchanged = -1;
      }
      Push(std::move(local));
      Push(std::move(travel));
    }
  }

  // Sorting, and finding out where sorted rows came from: of the rank's own rows.
  void AddLocal() {
    for (int32_t j = 0; j < kTokenPieces; ++j) {
      PieceRow row = Row();
      for (size_t i = 0; i < row.operands.size(); ++i) {
        if (pieces_.operands[i].size() <= static_cast<size_t>(j)) return;
        row.operands[i] = Operand(i, 0, j);
      }
      row.results.assign(row.results.size(), Result(0, j));
      row.multiple = SizeAt(0, row.operands[0]);
      Push(std::move(row));
    }
  }

  void AddProduct() {
    const bool sums = SumsRows(node_);
    const int32_t rows_dim = sums ? 1 : 0;
    if (node_.operand(0)->type().rank() != 2) return;
    for (int32_t j = 0; j < kTokenPieces; ++j) {
      const ShardState rows = Operand(0, rows_dim, j);
      const bool has_piece = rows >= 0 && static_cast<size_t>(rows) < pieces_.operands[0].size() &&
                             pieces_.operands[0][static_cast<size_t>(rows)].dim == rows_dim;
      if (!has_piece) return;
      PieceRow all_experts = Row();
      all_experts.operands[0] = rows;
      if (sums) all_experts.operands[1] = Operand(1, 0, j);
      all_experts.results[0] = sums ? kPartial : Result(0, j);
      all_experts.multiple = SizeAt(0, rows);
      Push(std::move(all_experts));
      PieceRow own_experts = Row();
      own_experts.operands[0] = RoutedBy(j);
      own_experts.operands[1] = sums ? RoutedBy(j) : Operand(1, 0, 0);
      own_experts.results[0] = sums ? Result(0, 0) : RoutedBy(j);
      own_experts.multiple =
          sums ? pieces_.results[0][0].dim_size : pieces_.operands[1][0].dim_size;
      Push(std::move(own_experts));
    }
  }

  // What is done to rows is done where they are. Only numbers that the host reads must be those of all rows:
  // ranks would have graphs of other sizes.
  void AddElsewhere() {
    for (int32_t j = 0; j < kTokenPieces; ++j) {
      PieceRow row = Row();
      for (size_t i = 0; i < row.operands.size(); ++i) {
        if (expert_.operands[i]) row.operands[i] = RoutedBy(j);
      }
      row.results.assign(row.results.size(), RoutedBy(j));
      Push(std::move(row));
    }
  }

  const Node& node_;
  const ExpertClass& expert_;
  ClassPieces& pieces_;
};

}  // namespace

std::vector<ExpertClass> FindExpertClasses(const Folding& folding) {
  std::vector<ExpertClass> experts(folding.classes.size());
  std::vector<bool> parameter(folding.classes.size(), false);
  for (size_t i = 0; i < folding.classes.size(); ++i) {
    const FoldedClass& of = folding.classes[i];
    parameter[i] = of.input != nullptr && of.input->role == InputRole::kParameter;
    if (of.node != nullptr) {
      experts[i].operands.assign(static_cast<size_t>(of.node->operand_count()), false);
    }
  }
  size_t edge = 0;  // edges are grouped by the class they lead to, in order
  for (size_t i = 0; i < folding.classes.size(); ++i) {
    const Node* node = folding.classes[i].node;
    if (node == nullptr) continue;
    ExpertClass& expert = experts[i];
    bool any = false, all = true, all_parameters = node->operand_count() > 0;
    for (; edge < folding.edges.size() && folding.edges[edge].to == static_cast<int32_t>(i);
         ++edge) {
      const FoldedEdge& from = folding.edges[edge];
      auto source = static_cast<size_t>(from.from);
      const bool routed = experts[source].routed;
      expert.operands[static_cast<size_t>(from.operand)] = routed;
      any = any || routed;
      all = all && (routed || parameter[source]);
      all_parameters = all_parameters && parameter[source];
      if (from.operand == 0) expert.takes_routed = routed;
    }
    parameter[i] = all_parameters;
    expert.inside = IsInside(*node) || any;
    const bool back = IsInside(*node) && IsLookup(*node) && expert.takes_routed;
    expert.routed = ((IsInside(*node) && IsSort(*node)) || any) && !back && !SumsRows(*node);
    expert.all_routed = any && all && !parameter[i];
  }
  return experts;
}

std::optional<ShardingRow> TokenRow(const Node& node, const ExpertClass& expert) {
  ShardingRow row;
  row.operands.assign(static_cast<size_t>(node.operand_count()), kWhole);
  row.results.assign(static_cast<size_t>(node.result_count()), kWhole);
  if (IsInside(node) && IsLookup(node)) {
    row.operands[0] = 0;  // of tokens; or of rows, which are then as many as indices
    row.operands[1] = 0;
    row.results[0] = 0;
    return row;
  }
  if (IsInside(node) && (IsSort(node) || IsScatter(node))) {
    std::fill(row.operands.begin(), row.operands.end(), ShardState{0});
    std::fill(row.results.begin(), row.results.end(), ShardState{0});
    return row;
  }
  if (!IsGrouped(node) || !expert.takes_routed) return std::nullopt;
  if (SumsRows(node)) {
    row.operands[0] = 1;
    row.operands[1] = 0;
  } else {
    row.operands[0] = 0;
    row.results[0] = 0;
  }
  return row;
}

void AddExpertRows(const Node& node, const ExpertClass& expert, ClassPieces& pieces) {
  pieces.routed = expert.routed;
  if (expert.inside) ExpertRows(node, expert, pieces).Add();
}

}  // namespace gt::placement
