// The step of one device with the batch of all ranks, from which the steps of a placed job's ranks are
// made. It is captured with numbers for sizes, and placed like that. Where chunks are wanted it is
// captured once more for a plan, with the dimension that they cut as a symbol: only the plan says
// among how many ranks that dimension is shared out, and so what a rank's part of it is.
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <tuple>

#include "gt/compile/step_request.h"
#include "gt/job/sections/compile.h"
#include "gt/placement/plan.h"
#include "gt/trace/capture.h"

namespace gt {

class SingleDeviceStep {
 public:
  // The request is used as long as this lives.
  explicit SingleDeviceStep(const StepRequest& request);

  // As it is placed: cleaned up, with the memory policy applied if that comes first, nodes numbered.
  Graph& graph() { return *plain_.graph; }

  // A copy that the plan can be applied to. Fails with ChunkExtent if the ranks' shards under this plan
  // do not have an element for every chunk.
  Captured For(const placement::Plan& plan, const EpOverlapSection& overlap);

 private:
  Captured Capture(const EpOverlapSection& overlap, int64_t shards) const;

  const StepRequest& request_;
  const int64_t ranks_;
  Captured plain_;
  using OpenDim = std::tuple<ChunkDim, int64_t, int64_t>;  // dimension, chunks, shards
  std::map<OpenDim, Captured> open_;
};

// Its graph alone, for a job that is only looked at. While it is, another thread verifies it.
class SingleDeviceGraph {
 public:
  // The configuration is used as long as this lives.
  SingleDeviceGraph(const Config& config, int64_t ranks);

  // To be read. What was found out from it counts once RequireVerified has returned.
  Graph& graph() { return *graph_; }
  void RequireVerified();

 private:
  const Config& config_;
  const int64_t ranks_;
  std::unique_ptr<Graph> graph_;
  std::future<bool> verified_;
};

// Into how many shards the plan cuts the batch, or the sequence, of the step's tokens at the most, in any
// value: each of its shards anywhere is a multiple of one of so many.
int64_t ShardsOf(ChunkDim dim, Graph& step, const placement::Plan& plan);

// One form of everything, so that a plan names nodes that are still there when it is applied.
void CleanForPlacement(Graph& graph);

}  // namespace gt
