#include "gt/sim/node_cost.h"

#include <algorithm>
#include <vector>

#include "gt/analysis/host_reads.h"
#include "gt/sim/type_sizes.h"

namespace gt {
namespace {

// One GB/s is a thousand bytes in a microsecond, one TFLOP/s a million operations.
double TransferUs(double bytes, double gb_per_s) {
  return gb_per_s > 0 ? bytes / (1e3 * gb_per_s) : 0;
}
double ArithmeticUs(double flops, double tflops) { return tflops > 0 ? flops / (1e6 * tflops) : 0; }

bool IsQueued(const Operator& op) {
  return op.collective != Collective::kNone || op.transfer != Transfer::kNone;
}

// Of the elements that exist in memory: those along an expanded dimension are one.
double BytesOf(const TensorType& type, SymbolValues symbols) {
  if (!type.defined()) return 0;
  double bytes = ItemSize(type.dtype);
  for (size_t i = 0; i < type.sizes.size(); ++i) {
    if (!type.strides[i].Is(0)) bytes *= static_cast<double>(SizeAt(type.sizes[i], symbols));
  }
  return bytes;
}

double PartOf(std::span<const double> parts, int32_t i) {
  return parts.empty() ? 1 : parts[static_cast<size_t>(i)];
}

double ResultBytes(const Node& node, SymbolValues symbols, const NodeShard& shard = {}) {
  double bytes = 0;
  for (int32_t i = 0; i < node.result_count(); ++i) {
    bytes += BytesOf(node.result(i)->type(), symbols) * PartOf(shard.results, i);
  }
  return bytes;
}

double OperandBytes(const Node& node, SymbolValues symbols, const NodeShard& shard = {}) {
  double bytes = 0;
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    bytes += BytesOf(node.operand(i)->type(), symbols) * PartOf(shard.operands, i);
  }
  return bytes;
}

// What the kernel reads and writes.
double TrafficOf(const Node& node, SymbolValues symbols, const NodeShard& shard) {
  double results = ResultBytes(node, symbols, shard);
  double traffic = results + OperandBytes(node, symbols, shard);
  const Work work = node.op().work;
  // Of a cast, too, as many bytes are taken to be read as are written.
  const bool selects = work == Work::kSelect || work == Work::kClone;
  if (!selects && work != Work::kFill) return traffic;
  const Value* first = node.op().schema.args.empty() ? nullptr : node.TensorArg(0);
  if (first == nullptr) return traffic;
  double whole = BytesOf(first->type(), symbols) * PartOf(shard.operands, 0);
  return traffic - whole + (selects ? std::min(whole, results) : 0);
}

double FlopsOf(const Node& node, SymbolValues symbols) {
  if (const CostRule rule = node.op().flops) {
    return static_cast<double>(std::max<int64_t>(CostOf(node, rule).Evaluate(symbols), 0));
  }
  double elements = 0;
  for (int32_t i = 0; i < node.result_count(); ++i) {
    const TensorType& result = node.result(i)->type();
    if (result.defined()) elements += static_cast<double>(SizeAt(result.numel(), symbols));
  }
  return elements;
}

// Of the rate of one large product: each group has an end that does not fill the device.
constexpr double kGroupedReached = 0.8;

bool IsHalf(DType dtype) { return IsFloating(dtype) && ItemSize(dtype) <= 2; }

// The flops of attention count every pair of a query and a key. A causal kernel skips half of them,
// and spends time on exponentials in which no product runs.
double AttentionFactor(const Node& node) {
  constexpr double kReached = 0.6;
  int causal = node.op().schema.Find("is_causal");
  bool skips = causal >= 0 && node.arg(causal) == Argument(true);
  return (skips ? 0.5 : 1.0) / kReached;
}

double KernelFlopsUs(const Node& node, SymbolValues symbols, const DeviceSpeed& device,
                     double part) {
  double flops = part * FlopsOf(node, symbols);
  const Work work = node.op().work;
  if (work != Work::kProduct && work != Work::kGroupedProduct && work != Work::kAttention) {
    return ArithmeticUs(flops, device.float_tflops);
  }
  bool half = node.operand_count() > 0 && IsHalf(node.operand(0)->type().dtype);
  double us = ArithmeticUs(flops, half ? device.half_tflops : device.float_tflops);
  if (work == Work::kAttention) us *= AttentionFactor(node);
  if (work == Work::kGroupedProduct) us /= kGroupedReached;
  // Products without enough tiles to fill the device reach less: half of the rate where they would
  // take as long as the shortest kernel.
  return us + device.kernel_us;
}

double CopyUs(const Node& node, SymbolValues symbols, const DeviceSpeed& device) {
  double us = TransferUs(OperandBytes(node, symbols), device.host_link_gb_per_s);
  return us + (FeedsHostRead(*node.result()) ? device.host_read_us : device.kernel_us);
}

}  // namespace

DeviceSpeed SpeedOf(std::string_view generation) {
  if (generation == "cpu") {
    return {.name = "cpu",
            .half_tflops = 0.05,
            .float_tflops = 0.05,
            .memory_gb_per_s = 8,
            .kernel_us = 2,
            .launch_us = 0,
            .host_read_us = 0,
            .host_link_gb_per_s = 8};
  }
  if (generation == "blackwell") {
    return {.name = "blackwell",
            .peak_tflops = 2250,
            .half_tflops = 1400,
            .float_tflops = 65,
            .memory_gb_per_s = 6200,
            .kernel_us = 3,
            .launch_us = 5,
            .host_read_us = 25,
            .host_link_gb_per_s = 50};
  }
  // Products of a step as three H200s ran them, hot and on random numbers: 600 to 810 TFLOP/s by shape and
  // machine, grouped ones and attention as much less as is said above.
  return {.name = "hopper",
          .peak_tflops = 989.4,
          .half_tflops = 700,
          .float_tflops = 50,
          .memory_gb_per_s = 2600,
          .kernel_us = 3,
          .launch_us = 5,
          .host_read_us = 25,
          .host_link_gb_per_s = 50};
}

DeviceSpeed SpeedOf(const Cluster& cluster) {
  return cluster.device ? *cluster.device : SpeedOf(cluster.generation);
}

bool TakesTime(const Node& node, SymbolValues symbols) {
  const Operator& op = node.op();
  if (op.work == Work::kHost || op.work == Work::kAllocate) return false;
  switch (op.aliasing) {
    case Aliasing::kAlways:
      return false;
    case Aliasing::kNone:
      return true;
    case Aliasing::kMayAlias:
      break;
  }
  const TensorType& from = node.operand(0)->type();
  const TensorType& to = node.result()->type();
  bool looks_into = from.dtype == to.dtype && from.device == to.device &&
                    (from == to || IsRowMajor(from, symbols));
  return !looks_into;
}

int64_t MovedBytes(const Node& node, SymbolValues symbols) {
  const Operator& op = node.op();
  double moved = 0;
  if (op.collective == Collective::kAllGather) {
    moved = ResultBytes(node, symbols);
  } else if (op.collective == Collective::kAllToAll) {
    moved = std::max(OperandBytes(node, symbols), ResultBytes(node, symbols));
  } else if (IsQueued(op) && op.collective != Collective::kWait && op.transfer != Transfer::kWait) {
    moved = OperandBytes(node, symbols);
  }
  return static_cast<int64_t>(moved);
}

NodeCost EstimateNode(const Node& node, SymbolValues symbols, const DeviceSpeed& device,
                      const NodeShard& shard) {
  if (node.op().transfer != Transfer::kNone) {
    const double us = CopyUs(node, symbols, device);
    return {.us = us, .link = {.transfer_us = us}};
  }
  const double memory = TransferUs(TrafficOf(node, symbols, shard), device.memory_gb_per_s);
  const double arithmetic = KernelFlopsUs(node, symbols, device, shard.work);
  return {.us = std::max(memory, arithmetic) + device.kernel_us, .arithmetic_us = arithmetic};
}

double ArithmeticOf(const Node& node, SymbolValues symbols, const NodeShard& shard) {
  return shard.work * FlopsOf(node, symbols);
}

double BytesOf(const Node& node, SymbolValues symbols, const NodeShard& shard) {
  return OperandBytes(node, symbols, shard) + ResultBytes(node, symbols, shard);
}

}  // namespace gt
