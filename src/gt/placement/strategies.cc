#include "gt/placement/strategies.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "gt/placement/way_limit.h"
#include "gt/sim/type_sizes.h"

namespace gt::placement {
namespace {

class Enumerator {
 public:
  Enumerator(const Node& node, const ClassPieces& pieces, SymbolValues symbols,
             const Pricing& pricing, const RowFilter& allows)
      : node_(node),
        pieces_(pieces),
        symbols_(symbols),
        pricing_(pricing),
        allows_(allows),
        limit_(pieces.rows.size(), pricing.mesh().axes()) {
    numbers_.resize(static_cast<size_t>(mesh().axes()));
    chosen_.resize(static_cast<size_t>(mesh().axes()));
    Strategy all;
    all.operands.resize(pieces.operands.size());
    all.results.resize(pieces.results.size());
    Choose(0, all);
  }
  std::vector<Strategy> Take() { return std::move(strategies_); }

 private:
  const DeviceMesh& mesh() const { return pricing_.mesh(); }

  void Choose(int axis, const Strategy& before) {
    if (axis == mesh().axes()) {
      Add(before);
      return;
    }
    for (size_t number = 0; number < pieces_.rows.size(); ++number) {
      const PieceRow& row = pieces_.rows[number];
      if (allows_ && !allows_(row, axis)) continue;
      numbers_[static_cast<size_t>(axis)] = number;
      if (!limit_.Allows(std::span(numbers_).first(static_cast<size_t>(axis) + 1))) continue;
      Strategy strategy = before;
      if (!Apply(row, axis, strategy)) continue;
      chosen_[static_cast<size_t>(axis)] = &row;
      Choose(axis + 1, strategy);
    }
  }

  // Whether the row is possible along this axis beside what is chosen along those before it.
  bool Apply(const PieceRow& row, int axis, Strategy& strategy) const {
    if (row.multiple > 0 && row.multiple % mesh().size(axis) != 0) return false;
    auto set = [&](std::vector<Layout>& layouts, const std::vector<Pieces>& pieces,
                   const std::vector<ShardState>& states) {
      for (size_t i = 0; i < states.size(); ++i) {
        layouts[i][axis] = states[i];
        if (states[i] < 0) continue;
        // A row of experts may name a piece that a result of another shape does not have.
        if (static_cast<size_t>(states[i]) >= pieces[i].size()) return false;
        const Piece& piece = pieces[i][static_cast<size_t>(states[i])];
        const int64_t ways = WaysOf(layouts[i], pieces[i], mesh())[static_cast<size_t>(states[i])];
        if (piece.limit() < ways || (row.multiple > 0 && row.multiple % ways != 0)) return false;
      }
      return true;
    };
    return set(strategy.operands, pieces_.operands, row.operands) &&
           set(strategy.results, pieces_.results, row.results);
  }

  bool Fits(const Strategy& strategy) const {
    for (size_t i = 0; i < strategy.operands.size(); ++i) {
      if (!placement::Fits(strategy.operands[i], pieces_.operands[i], mesh())) return false;
    }
    for (size_t i = 0; i < strategy.results.size(); ++i) {
      if (!placement::Fits(strategy.results[i], pieces_.results[i], mesh())) return false;
    }
    return true;
  }

  void Add(Strategy strategy) {
    if (!Fits(strategy)) return;
    std::vector<double> operands, results;
    for (size_t i = 0; i < strategy.operands.size(); ++i) {
      operands.push_back(PartOf(strategy.operands[i], pieces_.operands[i]));
    }
    for (size_t i = 0; i < strategy.results.size(); ++i) {
      results.push_back(PartOf(strategy.results[i], pieces_.results[i]));
    }
    NodeShard shard{.work = WorkOf() * SkewOf(strategy), .operands = operands, .results = results};
    if (DrawsAll()) shard = {};
    strategy.kernel_us = pricing_.KernelUs(node_, symbols_, shard);
    strategy.collective_us = StatisticsUs(strategy) + ExchangeUs(operands, results);
    Keep(std::move(strategy));
  }

  // Every rank draws the numbers of the whole tensor, and keeps those of its shard.
  bool DrawsAll() const {
    return std::any_of(chosen_.begin(), chosen_.end(), [](const PieceRow* row) {
      return row != nullptr && row->method == ShardMethod::kRandom;
    });
  }

  // The busiest rank's rows are more than its even share.
  double SkewOf(const Strategy& strategy) const {
    for (size_t axis = 0; axis < static_cast<size_t>(mesh().axes()); ++axis) {
      if (strategy.IsRouted(axis)) return pricing_.expert_skew();
    }
    return 1;
  }
  double PartOf(const Layout& layout, const Pieces& pieces) const {
    const double part = LocalFraction(layout, pieces, mesh());
    const bool routed = std::any_of(layout.axes.begin(), layout.axes.end(), IsRouted);
    return routed ? std::min(1.0, part * pricing_.expert_skew()) : part;
  }

  // The part of the arithmetic that the busiest rank does.
  double WorkOf() const {
    std::map<std::pair<const Pieces*, ShardState>, int64_t> ways;
    for (int axis = 0; axis < mesh().axes(); ++axis) {
      const PieceRow& row = *chosen_[static_cast<size_t>(axis)];
      if (!row.divides) continue;
      auto [pieces, piece] = CutBy(row);
      if (static_cast<size_t>(piece) >= pieces->size()) continue;  // a number: nothing to divide
      ways.try_emplace({pieces, piece}, 1).first->second *= mesh().size(axis);
    }
    double work = 1;
    for (const auto& [cut, shards] : ways) {
      const int64_t extent = (*cut.first)[static_cast<size_t>(cut.second)].limit();
      const int64_t longest = (extent + shards - 1) / shards;
      work *= static_cast<double>(longest) / static_cast<double>(extent);
    }
    return work;
  }

  // A tensor that the row cuts, and the piece.
  std::pair<const Pieces*, ShardState> CutBy(const PieceRow& row) const {
    for (size_t i = 0; i < row.operands.size(); ++i) {
      if (row.operands[i] >= 0) return {&pieces_.operands[i], row.operands[i]};
    }
    for (size_t i = 0; i < row.results.size(); ++i) {
      if (row.results[i] >= 0) return {&pieces_.results[i], row.results[i]};
    }
    return {&pieces_.results[0], 0};
  }

  double StatisticsUs(const Strategy& strategy) const {
    double us = 0;
    for (int axis = 0; axis < mesh().axes(); ++axis) {
      const PieceRow& row = *chosen_[static_cast<size_t>(axis)];
      if (row.statistics == 0 || strategy.results.empty()) continue;
      const Pieces& pieces = pieces_.results[0];
      const ShardState cut = row.results[0];
      double elements = LocalFraction(strategy.results[0], pieces, mesh());
      for (size_t i = 0; i < pieces.size(); ++i) {
        const bool reduced = cut >= 0 && pieces[i].dim == pieces[static_cast<size_t>(cut)].dim;
        if (!reduced) elements *= static_cast<double>(pieces[i].size);
      }
      constexpr double kStatisticBytes = 4;
      us +=
          row.statistics * pricing_.CollectiveUs(Collective::kAllReduce, elements * kStatisticBytes,
                                                 static_cast<AxisMask>(1 << axis));
    }
    return us;
  }

  // Rows that travel, and before them how many each rank will get.
  double ExchangeUs(const std::vector<double>& operands, const std::vector<double>& results) const {
    double us = 0;
    for (int axis = 0; axis < mesh().axes(); ++axis) {
      const int32_t side = chosen_[static_cast<size_t>(axis)]->exchanged;
      if (side == PieceRow::kNothing) continue;
      const TensorType& type = side < 0 ? node_.result()->type() : node_.operand(side)->type();
      const double part = side < 0 ? results[0] : operands[static_cast<size_t>(side)];
      const double bytes =
          part * static_cast<double>(ElementsOf(type, symbols_)) * ItemSize(type.dtype);
      constexpr double kCountBytes = 8;
      const auto axes = static_cast<AxisMask>(1 << axis);
      us += pricing_.CollectiveUs(Collective::kAllToAll, bytes, axes) +
            pricing_.CollectiveUs(Collective::kAllToAll,
                                  kCountBytes * static_cast<double>(mesh().size(axis)), axes);
    }
    return us;
  }

  // Of those with the same layouts the cheapest is enough.
  void Keep(Strategy strategy) {
    auto [place, is_new] =
        known_.try_emplace({strategy.operands, strategy.results}, strategies_.size());
    if (is_new) {
      strategies_.push_back(std::move(strategy));
      return;
    }
    Strategy& other = strategies_[place->second];
    if (strategy.kernel_us + strategy.collective_us < other.kernel_us + other.collective_us) {
      other = std::move(strategy);
    }
  }

  const Node& node_;
  const ClassPieces& pieces_;
  SymbolValues symbols_;
  const Pricing& pricing_;
  const RowFilter& allows_;
  const WayLimit limit_;
  std::vector<size_t> numbers_;  // of the rows chosen, by axis
  std::vector<const PieceRow*> chosen_;
  std::vector<Strategy> strategies_;
  std::map<std::pair<std::vector<Layout>, std::vector<Layout>>, size_t> known_;
};

}  // namespace

bool Strategy::IsRouted(size_t axis) const {
  auto routed = [axis](const Layout& layout) { return placement::IsRouted(layout.axes[axis]); };
  return std::any_of(operands.begin(), operands.end(), routed) ||
         std::any_of(results.begin(), results.end(), routed);
}

std::vector<Strategy> StrategiesOf(const Node& node, const ClassPieces& pieces,
                                   SymbolValues symbols, const Pricing& pricing,
                                   const RowFilter& allows) {
  return Enumerator(node, pieces, symbols, pricing, allows).Take();
}

// Whether a rank has a range of every dimension, as what is stored or read must be.
static bool IsBox(const Layout& layout, const Pieces& pieces) {
  return std::all_of(layout.axes.begin(), layout.axes.end(), [&](ShardState state) {
    return state < 0 || pieces[static_cast<size_t>(state)].first;
  });
}

std::vector<Strategy> InputStrategies(const Pieces& pieces, const DeviceMesh& mesh) {
  // Of plans that take the same time the one that stores less is better.
  constexpr double kStorageUs = 1e-4;
  std::vector<Strategy> strategies;
  for (const Layout& layout : LayoutsOf(pieces, mesh)) {
    if (!IsBox(layout, pieces)) continue;
    strategies.push_back({.operands = {},
                          .results = {layout},
                          .collective_us = kStorageUs * LocalFraction(layout, pieces, mesh)});
  }
  return strategies;
}

}  // namespace gt::placement
