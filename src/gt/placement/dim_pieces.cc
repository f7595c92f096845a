#include "gt/placement/dim_pieces.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "gt/placement/expert_rows.h"
#include "gt/sim/type_sizes.h"

namespace gt::placement {
namespace {

using Sizes = std::vector<int64_t>;

Sizes SizesOf(const TensorType& type, SymbolValues symbols) {
  Sizes sizes;
  if (!type.defined()) return sizes;
  for (const Dim& size : type.sizes) sizes.push_back(SizeAt(size, symbols));
  return sizes;
}

bool Regroups(const FoldedClass& of) {
  return of.node != nullptr && of.node->op().order == DimOrder::kRegrouped &&
         of.node->operand_count() == 1;
}

std::vector<ShardingRow> RowsOf(const Node& node, SymbolValues symbols) {
  if (node.op().sharding == nullptr) return {};
  std::vector<const TensorType*> operands, results;
  for (int32_t i = 0; i < node.operand_count(); ++i) operands.push_back(&node.operand(i)->type());
  for (int32_t i = 0; i < node.result_count(); ++i) results.push_back(&node.result(i)->type());
  ShardingContext context(node.args(), operands, results, symbols);
  node.op().sharding(context);
  return std::move(context.rows());
}

// The dimensions of all classes' results, those that must be cut alike joined to one.
class Dimensions {
 public:
  Dimensions(const Folding& folding, SymbolValues symbols) {
    for (const FoldedClass& of : folding.classes) {
      first_.emplace_back();
      for (int32_t i = 0; i < of.result_count(); ++i) {
        first_.back().push_back(static_cast<int32_t>(sizes_.size()));
        for (int64_t size : SizesOf(of.result_type(i), symbols)) sizes_.push_back(size);
      }
    }
    parent_.resize(sizes_.size());
    std::iota(parent_.begin(), parent_.end(), 0);
    cuts_.resize(sizes_.size());
  }

  // Dimension `dim` of a result.
  int32_t Of(int32_t class_index, int32_t result, int64_t dim) const {
    return first_[static_cast<size_t>(class_index)][static_cast<size_t>(result)] +
           static_cast<int32_t>(dim);
  }
  int64_t size(int32_t dimension) const { return sizes_[static_cast<size_t>(dimension)]; }

  void Join(int32_t a, int32_t b) {
    if (size(a) != size(b)) return;
    a = Find(a);
    b = Find(b);
    if (a == b) return;
    parent_[static_cast<size_t>(b)] = a;
    for (int64_t cut : cuts_[static_cast<size_t>(b)]) AddCut(a, cut);
  }

  // Whether it is new. Cuts that do not divide each other cannot both be: the first one stays.
  bool AddCut(int32_t dimension, int64_t stride) {
    const auto root = static_cast<size_t>(Find(dimension));
    if (stride <= 1 || stride >= sizes_[root] || sizes_[root] % stride != 0) return false;
    Sizes& cuts = cuts_[root];
    for (int64_t cut : cuts) {
      if (cut == stride || (cut % stride != 0 && stride % cut != 0)) return false;
    }
    cuts.insert(std::upper_bound(cuts.begin(), cuts.end(), stride), stride);
    return true;
  }
  int32_t Root(int32_t dimension) { return Find(dimension); }
  // Strides at which pieces begin, ascending.
  const Sizes& CutsOf(int32_t dimension) { return cuts_[static_cast<size_t>(Find(dimension))]; }

 private:
  int32_t Find(int32_t dimension) {
    while (parent_[static_cast<size_t>(dimension)] != dimension) {
      int32_t& parent = parent_[static_cast<size_t>(dimension)];
      parent = parent_[static_cast<size_t>(parent)];
      dimension = parent;
    }
    return dimension;
  }

  std::vector<std::vector<int32_t>> first_;
  Sizes sizes_;
  std::vector<int32_t> parent_;
  std::vector<Sizes> cuts_;
};

// Where an operand of a class comes from. There may be several places: the first layer takes what the
// embedding made.
struct Port {
  int32_t from = 0;
  int32_t result = 0;
};

class PieceFinder {
 public:
  PieceFinder(const Folding& folding, SymbolValues symbols)
      : folding_(folding), symbols_(symbols), dimensions_(folding, symbols) {
    ports_.resize(folding.classes.size());
    for (size_t i = 0; i < folding.classes.size(); ++i) {
      const Node* node = folding.classes[i].node;
      if (node != nullptr) ports_[i].resize(static_cast<size_t>(node->operand_count()));
    }
    for (const FoldedEdge& edge : folding.edges) {
      ports_[static_cast<size_t>(edge.to)][static_cast<size_t>(edge.operand)].push_back(
          {edge.from, edge.result});
    }
    rows_.resize(folding.classes.size());
    experts_ = FindExpertClasses(folding);
    for (size_t i = 0; i < folding.classes.size(); ++i) JoinDimensions(static_cast<int32_t>(i));
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < folding.classes.size(); ++i) {
        if (Regroups(folding.classes[i])) changed |= CarryCuts(static_cast<int32_t>(i));
      }
    }
  }

  std::vector<ClassPieces> Take() {
    std::vector<ClassPieces> all;
    for (size_t i = 0; i < folding_.classes.size(); ++i) {
      all.push_back(PiecesOfClass(static_cast<int32_t>(i)));
    }
    for (ClassPieces& of : all) {
      for (auto* side : {&of.operands, &of.results}) {
        for (Pieces& pieces : *side) {
          for (Piece& piece : pieces) piece.id = FindId(piece.id);
        }
      }
    }
    return all;
  }

 private:
  const FoldedClass& At(int32_t i) const { return folding_.classes[static_cast<size_t>(i)]; }
  const std::vector<Port>& PortsOf(int32_t i, int32_t operand) const {
    return ports_[static_cast<size_t>(i)][static_cast<size_t>(operand)];
  }
  const Port& PortOf(int32_t i, int32_t operand) const { return PortsOf(i, operand).front(); }

  // All that arrive at one operand are cut alike, and so is what a row shards together.
  void JoinDimensions(int32_t i) {
    const Node* node = At(i).node;
    if (node == nullptr) return;
    for (int32_t operand = 0; operand < node->operand_count(); ++operand) {
      const Port& first = PortOf(i, operand);
      const int64_t rank = node->operand(operand)->type().rank();
      for (const Port& other : PortsOf(i, operand)) {
        for (int64_t dim = 0; dim < rank; ++dim) {
          dimensions_.Join(dimensions_.Of(first.from, first.result, dim),
                           dimensions_.Of(other.from, other.result, dim));
        }
      }
    }
    if (Regroups(At(i))) return;
    rows_[static_cast<size_t>(i)] = RowsOf(*node, symbols_);
    std::vector<ShardingRow> joined_rows = rows_[static_cast<size_t>(i)];
    if (std::optional<ShardingRow> row = TokenRow(*node, experts_[static_cast<size_t>(i)])) {
      joined_rows.push_back(std::move(*row));
    }
    for (const ShardingRow& row : joined_rows) {
      int32_t joined = -1;
      auto join = [&](int32_t dimension) {
        if (joined < 0 || dimensions_.size(joined) != dimensions_.size(dimension)) {
          joined = dimension;
        } else {
          dimensions_.Join(joined, dimension);
        }
      };
      for (size_t k = 0; k < row.operands.size(); ++k) {
        if (row.operands[k] < 0) continue;
        const Port& port = PortOf(i, static_cast<int32_t>(k));
        join(dimensions_.Of(port.from, port.result, row.operands[k]));
      }
      for (size_t k = 0; k < row.results.size(); ++k) {
        if (row.results[k] >= 0) {
          join(dimensions_.Of(i, static_cast<int32_t>(k), row.results[k]));
        }
      }
    }
  }

  // Where the dimensions of a tensor and their pieces begin, as strides of the elements in row-major
  // order.
  Sizes Boundaries(int32_t from, int32_t result, const Sizes& sizes) {
    Sizes all;
    int64_t inner = 1;
    for (size_t dim = sizes.size(); dim-- > 0;) {
      all.push_back(inner);
      for (int64_t cut :
           dimensions_.CutsOf(dimensions_.Of(from, result, static_cast<int64_t>(dim)))) {
        all.push_back(inner * cut);
      }
      inner *= sizes[dim];
    }
    all.push_back(inner);
    return all;
  }

  bool AddCuts(int32_t to, int32_t result, const Sizes& sizes, const Sizes& boundaries) {
    bool changed = false;
    int64_t inner = 1;
    for (size_t dim = sizes.size(); dim-- > 0;) {
      const int32_t dimension = dimensions_.Of(to, result, static_cast<int64_t>(dim));
      for (int64_t boundary : boundaries) {
        if (boundary > inner && boundary < inner * sizes[dim] && boundary % inner == 0) {
          changed |= dimensions_.AddCut(dimension, boundary / inner);
        }
      }
      inner *= sizes[dim];
    }
    return changed;
  }

  bool CarryCuts(int32_t i) {
    const Node& node = *At(i).node;
    const Sizes in = SizesOf(node.operand(0)->type(), symbols_);
    const Sizes out = SizesOf(node.result()->type(), symbols_);
    const Port& port = PortOf(i, 0);
    // Both before either is changed.
    const Sizes from = Boundaries(port.from, port.result, in);
    const Sizes to = Boundaries(i, 0, out);
    const bool forward = AddCuts(i, 0, out, from);
    return AddCuts(port.from, port.result, in, to) || forward;
  }

  // Pieces of one dimension are numbered; views say which pieces of different ones are the same.
  int32_t IdOf(int32_t dimension, int32_t piece) {
    const auto key = std::pair(dimensions_.Root(dimension), piece);
    auto [found, is_new] = ids_.try_emplace(key, static_cast<int32_t>(same_as_.size()));
    if (is_new) same_as_.push_back(found->second);
    return FindId(found->second);
  }
  int32_t FindId(int32_t id) const {
    while (same_as_[static_cast<size_t>(id)] != id) id = same_as_[static_cast<size_t>(id)];
    return id;
  }
  void JoinIds(int32_t a, int32_t b) {
    a = FindId(a);
    b = FindId(b);
    same_as_[static_cast<size_t>(std::max(a, b))] = std::min(a, b);
  }

  Pieces PiecesOf(int32_t from, int32_t result, const Sizes& sizes) {
    Pieces pieces;
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      const int32_t dimension = dimensions_.Of(from, result, static_cast<int64_t>(dim));
      const Sizes& cuts = dimensions_.CutsOf(dimension);
      const size_t begin = pieces.size();
      int64_t above = sizes[dim];
      bool first = true;
      auto add = [&](int64_t size) {
        const int32_t id = IdOf(dimension, static_cast<int32_t>(pieces.size() - begin));
        pieces.push_back({static_cast<int32_t>(dim), size, sizes[dim], first, id});
        first = false;
      };
      for (size_t k = cuts.size(); k-- > 0;) {
        add(above / cuts[k]);
        above = cuts[k];
      }
      add(above);
    }
    return pieces;
  }

  ClassPieces PiecesOfClass(int32_t i) {
    const FoldedClass& of = At(i);
    ClassPieces found;
    for (int32_t k = 0; k < of.result_count(); ++k) {
      found.results.push_back(PiecesOf(i, k, SizesOf(of.result_type(k), symbols_)));
    }
    if (of.node == nullptr) return found;
    for (int32_t k = 0; k < of.node->operand_count(); ++k) {
      const Port& port = PortOf(i, k);
      found.operands.push_back(
          PiecesOf(port.from, port.result, SizesOf(of.node->operand(k)->type(), symbols_)));
    }
    PieceRow whole;
    whole.operands.assign(found.operands.size(), kWhole);
    whole.results.assign(found.results.size(), kWhole);
    whole.divides = false;
    found.rows.push_back(whole);
    if (Regroups(of)) {
      AddRegroupingRows(found);
    } else {
      found.has_rule = of.node->op().sharding != nullptr;
      for (const ShardingRow& row : rows_[static_cast<size_t>(i)]) AddRows(row, found);
    }
    AddExpertRows(*of.node, experts_[static_cast<size_t>(i)], found);
    return found;
  }

  static int32_t FirstPiece(const Pieces& pieces, ShardState dim) {
    int32_t i = 0;
    while (pieces[static_cast<size_t>(i)].dim != dim) ++i;
    return i;
  }
  static int32_t PieceCount(const Pieces& pieces, ShardState dim) {
    return static_cast<int32_t>(
        std::count_if(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.dim == dim; }));
  }

  // One for each piece of the dimension that the row shards.
  static void AddRows(const ShardingRow& row, ClassPieces& found) {
    int32_t count = 0;
    bool equal = true, divides = false;
    int64_t smallest = 0;
    auto look = [&](const Pieces& pieces, ShardState state) {
      if (state < 0) return;
      divides = true;
      const int32_t own = PieceCount(pieces, state);
      equal = equal && (count == 0 || count == own);
      count = std::max(count, own);
      const int64_t size = pieces[static_cast<size_t>(FirstPiece(pieces, state))].dim_size;
      equal = equal && (smallest == 0 || smallest == size);
      smallest = smallest == 0 ? size : std::gcd(smallest, size);
    };
    for (size_t k = 0; k < row.operands.size(); ++k) look(found.operands[k], row.operands[k]);
    for (size_t k = 0; k < row.results.size(); ++k) look(found.results[k], row.results[k]);
    // Dimensions of different sizes that are sharded together (heads of queries and of keys) have only
    // their beginnings in common.
    const int32_t last = equal ? std::max(count, 1) : 1;
    for (int32_t piece = 0; piece < last; ++piece) {
      PieceRow out;
      auto shift = [&](const Pieces& pieces, ShardState state) {
        return state < 0 ? state : static_cast<ShardState>(FirstPiece(pieces, state) + piece);
      };
      for (size_t k = 0; k < row.operands.size(); ++k) {
        out.operands.push_back(shift(found.operands[k], row.operands[k]));
      }
      for (size_t k = 0; k < row.results.size(); ++k) {
        out.results.push_back(shift(found.results[k], row.results[k]));
      }
      out.method = row.method;
      out.statistics = row.statistics;
      out.divides = divides;
      if (divides && (row.even || !equal)) out.multiple = smallest;
      if (divides && row.multiple > 1) {
        out.multiple = smallest % row.multiple == 0 ? smallest / row.multiple : 1;
      }
      // Indices and statistics are about stretches of consecutive elements.
      if (piece > 0 && row.method != ShardMethod::kPlain) continue;
      found.rows.push_back(std::move(out));
    }
  }

  // Pieces that begin and end at the same strides on both sides.
  void AddRegroupingRows(ClassPieces& found) {
    struct Extent {
      int64_t low, high;
    };
    auto extents = [](const Pieces& pieces) {
      std::vector<Extent> all(pieces.size());
      int64_t inner = 1;
      for (size_t i = pieces.size(); i-- > 0;) {
        all[i] = {inner, inner * pieces[i].size};
        inner *= pieces[i].size;
      }
      return all;
    };
    const Pieces &in = found.operands[0], &out = found.results[0];
    const std::vector<Extent> from = extents(in), to = extents(out);
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i].size == 1) continue;
      for (size_t j = 0; j < out.size(); ++j) {
        if (from[i].low != to[j].low || from[i].high != to[j].high) continue;
        PieceRow row;
        row.operands = {static_cast<ShardState>(i)};
        row.results = {static_cast<ShardState>(j)};
        const bool same_dimension =
            in[i].first && out[j].first && in[i].dim_size == out[j].dim_size;
        if (!same_dimension) row.multiple = in[i].size;
        JoinIds(in[i].id, out[j].id);
        found.rows.push_back(std::move(row));
      }
    }
    PieceRow partial;
    partial.operands = {kPartial};
    partial.results = {kPartial};
    partial.divides = false;
    found.rows.push_back(std::move(partial));
  }

  const Folding& folding_;
  SymbolValues symbols_;
  Dimensions dimensions_;
  std::vector<std::vector<std::vector<Port>>> ports_;
  std::vector<std::vector<ShardingRow>> rows_;
  std::vector<ExpertClass> experts_;
  std::map<std::pair<int32_t, int32_t>, int32_t> ids_;  // by dimension and place in it
  std::vector<int32_t> same_as_;                        // by id
};

}  // namespace

std::vector<ClassPieces> FindPieces(const Folding& folding, SymbolValues symbols) {
  return PieceFinder(folding, symbols).Take();
}

FoldedStep FoldStep(Graph& graph, bool fold) {
  FoldedStep step{Fold(graph, fold), {}};
  step.pieces = FindPieces(step.folding, graph.shapes().Hints());
  return step;
}

}  // namespace gt::placement
