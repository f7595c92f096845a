#include "gt/placement/pricing.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "gt/placement/solver/label_problem.h"
#include "gt/sim/type_sizes.h"

namespace gt::placement {
namespace {

// AutoParallel's device: an H100. Times in microseconds.
namespace upstream {

constexpr double kReached = 0.70;
constexpr double kMemoryBytesPerUs = 3.35 * 1024 * 1024 * 1024 * 1024 / 1e6;
constexpr double kShortestUs = 7;
constexpr double kTransitionUs = 1;

double MemoryUs(double bytes) {
  return std::max(bytes / kMemoryBytesPerUs / kReached, kShortestUs);
}

double FlopsPerUs(DType dtype) {
  const double tflops = dtype == DType::kFloat64 ? 67 : ItemSize(dtype) >= 4 ? 494 : 989;
  return tflops * 1e6;
}

// Of all operands and results, expanded dimensions at their full size.
double LogicalBytes(const Node& node, SymbolValues symbols, const NodeShard& shard) {
  auto bytes = [&](const TensorType& type, double part) {
    return type.defined()
               ? part * static_cast<double>(ElementsOf(type, symbols)) * ItemSize(type.dtype)
               : 0;
  };
  double all = 0;
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    all += bytes(node.operand(i)->type(), shard.operands[static_cast<size_t>(i)]);
  }
  for (int32_t i = 0; i < node.result_count(); ++i) {
    all += bytes(node.result(i)->type(), shard.results[static_cast<size_t>(i)]);
  }
  return all;
}

bool CountsFlops(const Operator& op) {
  return op.work == Work::kProduct || op.work == Work::kGroupedProduct ||
         op.work == Work::kAttention;
}

double KernelUs(const Node& node, SymbolValues symbols, const NodeShard& shard) {
  if (node.op().is_view() || node.op().aliasing == Aliasing::kAlways) return 0;
  const double memory = MemoryUs(LogicalBytes(node, symbols, shard));
  if (!CountsFlops(node.op()) || node.operand_count() == 0) return memory;
  const double rate = kReached * FlopsPerUs(node.operand(0)->type().dtype);
  return std::max(ArithmeticOf(node, symbols, shard) / rate, memory);
}

// Ranks before an axis are as far apart as all axes after it together.
int64_t RanksAfter(const DeviceMesh& mesh, int axis) {
  int64_t ranks = 1;
  for (int after = axis + 1; after < mesh.axes(); ++after) ranks *= mesh.size(after);
  return ranks;
}

// Nodes are rounded down where they do not divide an axis.
GroupSpan SpanOf(const DeviceMesh& mesh, int axis, int64_t gpus_per_node) {
  const int64_t size = mesh.size(axis);
  const int64_t per_node =
      std::clamp<int64_t>(gpus_per_node / RanksAfter(mesh, axis), 1, std::max<int64_t>(1, size));
  return {.nodes = size / per_node, .ranks_per_node = per_node};
}

// Of ranks that do not fill their nodes, of which nothing is known: rings, as PyTorch prices them.
double UnknownClusterUs(Collective kind, double bytes, const DeviceMesh& mesh, int axis,
                        int64_t gpus_per_node) {
  constexpr double kBaseUs = 6.6, kNodeHopUs = 0.6, kNetworkHopUs = 2.7, kNetworkShare = 0.22;
  constexpr double kNodeBytesPerUs = 87.7 * 1024 * 1024 * 1024 / 1e6;
  constexpr double kAllToAllFactor = 5;
  const int64_t ranks = mesh.size(axis);
  const bool network = ranks * RanksAfter(mesh, axis) > gpus_per_node;
  const auto hops = static_cast<double>((kind == Collective::kAllReduce ? 2 : 1) * (ranks - 1));
  const double us =
      kBaseUs + hops * (network ? kNetworkHopUs : kNodeHopUs) +
      bytes * hops / static_cast<double>(ranks) / (kNodeBytesPerUs * (network ? kNetworkShare : 1));
  return kind == Collective::kAllToAll ? kAllToAllFactor * us : us;
}

}  // namespace upstream

// Shards of it follow each other in memory: nothing in front of it is longer than 1.
bool IsOutermost(const Moved& tensor, ShardState piece) {
  for (int32_t i = 0; i < piece; ++i) {
    if (tensor.pieces[static_cast<size_t>(i)].size > 1) return false;
  }
  return true;
}

// Whether some of these axes cut what does not follow each other in memory.
bool Rearranges(const Moved& tensor, const Layout& cut, AxisMask axes) {
  for (int axis = 0; axis < kMaxAxes; ++axis) {
    if (((axes >> axis) & 1) != 0 && !IsOutermost(tensor, cut[axis])) return true;
  }
  return false;
}

constexpr AxisMask Bit(int axis) { return static_cast<AxisMask>(1 << axis); }

// Where several axes of a mesh cut the same piece, the first one cuts outermost. An axis that cuts a piece
// in `layout` alone, outside of another one that cuts it in both, begins or ends in the middle: shards
// have to change places among these axes.
AxisMask AxesOutOfOrder(const Layout& layout, const Layout& other, int axes) {
  AxisMask mask = 0;
  for (int axis = 0; axis < axes; ++axis) {
    const ShardState piece = layout[axis];
    if (piece < 0 || other[axis] == piece) continue;
    AxisMask inside = 0;
    bool stays = false;
    for (int inner = axis + 1; inner < axes; ++inner) {
      if (layout[inner] != piece) continue;
      inside |= Bit(inner);
      stays = stays || other[inner] == piece;
    }
    if (stays) mask |= Bit(axis) | inside;
  }
  return mask;
}

}  // namespace

Pricing::Pricing(const DeviceMesh& mesh, const LinkModel& links, DeviceSpeed device,
                 CostFormulas formulas)
    : mesh_(mesh),
      links_(formulas == CostFormulas::kAutoparallel
                 ? LinkModel(WithPublishedFormulas(links.cluster()))
                 : links),
      device_(std::move(device)),
      formulas_(formulas),
      share_taken_(links_.cluster().ComputeShareTaken(Collective::kAllGather)) {
  for (int axes = 0; axes < 1 << mesh.axes(); ++axes) {
    spans_[static_cast<size_t>(axes)] = SpanOf(static_cast<AxisMask>(axes));
  }
}

GroupSpan Pricing::SpanOf(AxisMask axes) const {
  const int64_t gpus_per_node = links_.cluster().gpus_per_node;
  if (formulas_ == CostFormulas::kAutoparallel && std::has_single_bit(axes)) {
    return upstream::SpanOf(mesh_, std::countr_zero(axes), gpus_per_node);
  }
  return mesh_.Span(axes, gpus_per_node);
}

double Pricing::KernelUs(const Node& node, SymbolValues symbols, const NodeShard& shard) const {
  if (formulas_ == CostFormulas::kAutoparallel) return upstream::KernelUs(node, symbols, shard);
  if (!TakesTime(node, symbols)) return 0;
  return EstimateNode(node, symbols, device_, shard).us;
}

double Pricing::CollectiveUs(Collective kind, double bytes, AxisMask axes) const {
  const int64_t gpus_per_node = links_.cluster().gpus_per_node;
  if (formulas_ == CostFormulas::kAutoparallel && mesh_.ranks() % gpus_per_node != 0) {
    return upstream::UnknownClusterUs(kind, bytes, mesh_, std::countr_zero(axes), gpus_per_node);
  }
  return links_.Microseconds(kind, static_cast<int64_t>(bytes), spans_[axes]);
}

double Pricing::CopyUs(double bytes) const {
  if (formulas_ == CostFormulas::kAutoparallel) return upstream::MemoryUs(2 * bytes);
  return 2 * bytes / (1e3 * device_.memory_gb_per_s) + device_.kernel_us;
}

void Pricing::AddStep(Move& move, Collective kind, AxisMask axes, double bytes) const {
  const double us = CollectiveUs(kind, bytes, axes);
  move.steps[static_cast<size_t>(move.count++)] = {kind, axes, bytes, us};
  move.us += us;
}

Move Pricing::MoveOf(const Moved& tensor, const Layout& from, const Layout& to) const {
  if (from == to) return {};
  for (int axis = 0; axis < mesh_.axes(); ++axis) {
    // Only an exchange of rows, which is part of an operator, leads to experts and back.
    if ((IsRouted(from[axis]) || IsRouted(to[axis])) && from[axis] != to[axis]) {
      return {.us = kForbidden};
    }
    if (to[axis] != kPartial || from[axis] == kPartial) continue;
    // A rank may contribute what all have and the others nothing. AutoParallel has it as averages of
    // partial sums, which cost nothing to convert.
    if (formulas_ == CostFormulas::kSimulated || from[axis] != kWhole) return {.us = kForbidden};
  }
  if (formulas_ == CostFormulas::kAutoparallel) return MoveAxisByAxis(tensor, from, to);
  Move move = MoveTogether(tensor, from, to);
  if (tensor.any_order && packed_ > 1) move.us -= (1 - 1 / packed_) * LatencyUs(move);
  return move;
}

double Pricing::LatencyUs(const Move& move) const {
  double us = 0;
  for (int i = 0; i < move.count; ++i) {
    const Step& step = move.steps[static_cast<size_t>(i)];
    us += links_.Time(step.kind, static_cast<int64_t>(step.bytes), spans_[step.axes]).latency_us;
  }
  return us;
}

// As AutoParallel prices it: each axis on its own, from the first to the last.
Move Pricing::MoveAxisByAxis(const Moved& tensor, const Layout& from, const Layout& to) const {
  Move move;
  move.us = upstream::kTransitionUs;
  if (std::all_of(from.axes.begin(), from.axes.end(), [](ShardState s) { return s == kWhole; })) {
    return move;
  }
  double bytes = tensor.bytes;
  bool sums_to_shards = mesh_.axes() == 2;
  for (int axis = 0; axis < mesh_.axes(); ++axis) {
    if (from[axis] >= 0) bytes /= static_cast<double>(mesh_.size(axis));
    sums_to_shards = sums_to_shards && from[axis] == kPartial && to[axis] >= 0;
  }
  bool contiguous = tensor.contiguous;
  // Shards of anything but the first dimension are rearranged, whatever is in front of it.
  auto copy = [&] { move.copy_us += CopyUs(bytes); };
  for (int i = 0; i < mesh_.axes(); ++i) {
    const int axis = sums_to_shards ? mesh_.axes() - 1 - i : i;
    const ShardState source = from[axis], target = to[axis];
    if (source == target) continue;
    const auto ranks = static_cast<double>(mesh_.size(axis));
    if (!contiguous) {
      copy();
      contiguous = true;
    }
    if (source == kPartial && target == kWhole) {
      AddStep(move, Collective::kAllReduce, Bit(axis), bytes);
    } else if (source == kPartial) {
      AddStep(move, Collective::kReduceScatter, Bit(axis), bytes);
      if (target != 0) copy();
      bytes /= ranks;
    } else if (source >= 0 && target == kWhole) {
      bytes *= ranks;
      AddStep(move, Collective::kAllGather, Bit(axis), bytes);
      if (source != 0) copy();
    } else if (source >= 0) {
      AddStep(move, Collective::kAllToAll, Bit(axis), bytes);
      if (source != 0) copy();
      if (target != 0) copy();
    }
  }
  move.us += move.copy_us;
  return move;
}

// As gt would run it: first what makes the tensor smaller, last what makes it larger; one collective for
// all axes along which sums are scattered, one for those along which shards are gathered, and one
// exchange for those along which one piece gives way to the same other one. Shards of activations are in
// the order of the mesh, since all that meet in an operator must be in the same one.
Move Pricing::MoveTogether(const Moved& tensor, const Layout& from, const Layout& to) const {
  Move move;
  double bytes = tensor.bytes * LocalFraction(from, tensor.pieces, mesh_);
  AxisMask summed = 0;
  AxisMask done = 0;
  auto alike = [&](int first, auto&& same) {
    AxisMask axes = 0;
    for (int axis = first; axis < mesh_.axes(); ++axis) {
      if (((done >> axis) & 1) == 0 && same(axis)) axes |= Bit(axis);
    }
    done |= axes;
    return axes;
  };
  auto ranks = [&](AxisMask axes) { return static_cast<double>(mesh_.Size(axes)); };
  for (int axis = 0; axis < mesh_.axes(); ++axis) {  // each rank takes its shard of what it has
    if (from[axis] == kWhole && to[axis] >= 0) {
      bytes /= ranks(Bit(axis));
      done |= Bit(axis);
    }
  }
  if (const AxisMask axes = alike(0, [&](int a) { return from[a] == kPartial && to[a] >= 0; })) {
    if (Rearranges(tensor, to, axes)) move.copy_us += CopyUs(bytes);
    AddStep(move, Collective::kReduceScatter, axes, bytes);
    bytes /= ranks(axes);
  }
  auto put_in_order = [&](AxisMask axes) {
    if (axes != 0 && !tensor.any_order) AddStep(move, Collective::kAllToAll, axes, bytes);
  };
  put_in_order(AxesOutOfOrder(from, to, mesh_.axes()));
  for (int axis = 0; axis < mesh_.axes(); ++axis) {
    if (((done >> axis) & 1) != 0 || from[axis] < 0 || to[axis] < 0 || from[axis] == to[axis]) {
      continue;
    }
    const AxisMask axes =
        alike(axis, [&](int a) { return from[a] == from[axis] && to[a] == to[axis]; });
    if (!IsOutermost(tensor, to[axis])) move.copy_us += CopyUs(bytes);
    AddStep(move, Collective::kAllToAll, axes, bytes);
    if (!IsOutermost(tensor, from[axis])) move.copy_us += CopyUs(bytes);
  }
  for (int axis = 0; axis < mesh_.axes(); ++axis) {
    if (from[axis] == kPartial && to[axis] == kWhole) summed |= Bit(axis);
  }
  if (summed != 0) AddStep(move, Collective::kAllReduce, summed, bytes);
  if (const AxisMask axes = alike(0, [&](int a) { return from[a] >= 0 && to[a] == kWhole; })) {
    bytes *= ranks(axes);
    AddStep(move, Collective::kAllGather, axes, bytes);
    if (Rearranges(tensor, from, axes)) move.copy_us += CopyUs(bytes);
  }
  put_in_order(AxesOutOfOrder(to, from, mesh_.axes()));
  if (move.count > 0 && !tensor.contiguous) move.copy_us += CopyUs(bytes);
  move.us += move.copy_us;
  return move;
}

}  // namespace gt::placement
