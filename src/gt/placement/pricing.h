// What placements cost: kernels on their shards, and moving a tensor from one layout to another.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "gt/base/text.h"
#include "gt/ir/graph.h"
#include "gt/placement/layout.h"
#include "gt/sim/link_model.h"
#include "gt/sim/node_cost.h"

namespace gt::placement {

// Which formulas costs come from: those of gt's simulator, or those of AutoParallel (a fixed share of
// the peak, at least 7 us for a kernel, moves axis by axis), for comparison with its plans.
enum class CostFormulas { kSimulated, kAutoparallel };

// A tensor that is to be moved.
struct Moved {
  const Pieces& pieces;
  double bytes = 0;        // of the whole tensor
  bool contiguous = true;  // in row-major order
  // Where several axes cut a piece, any of them may be the outermost one, whatever suits the move:
  // parameters and gradients are stored as they are gathered.
  bool any_order = false;
};

// One collective of a move.
struct Step {
  Collective kind = Collective::kNone;
  AxisMask axes = 0;
  double bytes = 0;  // as link_model.h counts them
  double us = 0;
};
// What a move is made of. At most one step for each axis, and two that put shards in order.
struct Move {
  std::array<Step, kMaxAxes + 2> steps = {};
  int count = 0;
  double copy_us = 0;  // rearranging elements before and after
  double us = 0;       // all together; kForbidden if it cannot be done
};

class Pricing {
 public:
  Pricing(const DeviceMesh& mesh, const LinkModel& links, DeviceSpeed device,
          CostFormulas formulas = CostFormulas::kSimulated);

  // How many rows the busiest rank's experts get, as a multiple of an even share; at least 1.
  void set_expert_skew(double skew) { expert_skew_ = skew; }
  double expert_skew() const { return expert_skew_; }

  // The part of compute that moves beside kernels take away from them while they are under way; 0: such
  // moves slow nothing down. That of the cluster, unless it is set.
  void set_share_taken(double share) { share_taken_ = share; }
  double share_taken() const { return share_taken_; }

  // How many parameters, or gradients, travel in one collective on average: they share its latency. Default 1.
  void set_packed(double parameters) { packed_ = parameters; }

  const DeviceMesh& mesh() const { return mesh_; }
  CostFormulas formulas() const { return formulas_; }

  double KernelUs(const Node& node, SymbolValues symbols, const NodeShard& shard) const;
  double CollectiveUs(Collective kind, double bytes, AxisMask axes) const;
  Move MoveOf(const Moved& tensor, const Layout& from, const Layout& to) const;

 private:
  GroupSpan SpanOf(AxisMask axes) const;
  double CopyUs(double bytes) const;  // read and write them
  Move MoveAxisByAxis(const Moved& tensor, const Layout& from, const Layout& to) const;
  Move MoveTogether(const Moved& tensor, const Layout& from, const Layout& to) const;
  void AddStep(Move& move, Collective kind, AxisMask axes, double bytes) const;
  double LatencyUs(const Move& move) const;

  const DeviceMesh mesh_;
  const LinkModel links_;
  const DeviceSpeed device_;
  const CostFormulas formulas_;
  double expert_skew_ = 1;
  double share_taken_;
  double packed_ = 1;
  std::array<GroupSpan, 1 << kMaxAxes> spans_;  // by axes
};

}  // namespace gt::placement

template <>
inline constexpr std::array<std::string_view, 2> gt::kEnumNames<gt::placement::CostFormulas> = {
    "simulated", "autoparallel"};
