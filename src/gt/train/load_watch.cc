#include "gt/train/load_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gt/base/error.h"

namespace gt {
namespace {

double MeanOfLargest(const RoutingLoads& loads) {
  double sum = 0;
  for (const auto& [fqn, load] : loads.modules) sum += load.max;
  return loads.modules.empty() ? 1.0 : sum / static_cast<double>(loads.modules.size());
}

}  // namespace

std::string LoadWatch::Agreement::Describe() const {
  const auto fullest =
      std::max_element(loads.modules.begin(), loads.modules.end(),
                       [](const auto& a, const auto& b) { return a.second.max < b.second.max; });
  return fmt::format(
      "experts of the fullest rank get {:.2f} x the even share of rows{}; the step was planned for "
      "{:.2f} x",
      MeanOfLargest(loads),
      fullest == loads.modules.end()
          ? ""
          : fmt::format(" ({} {:.2f} x)", fullest->first, fullest->second.max),
      MeanOfLargest(planned));
}

LoadWatch::LoadWatch(World& world, int64_t interval, int64_t first_step)
    : world_(world), interval_(interval), first_step_(first_step) {}

void LoadWatch::SetPlan(const Graph& graph, RoutingLoads loads) {
  planned_ = std::move(loads);
  reads_.emplace(graph);
  sums_.assign(reads_->modules().size(), 0.0);
  runs_ = 0;
}

void LoadWatch::Add(SymbolValues values) {
  GT_CHECK(reads_.has_value(), "loads of a step without a plan");
  if (interval_ == 0) return;
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += LoadIn(reads_->modules()[i], values);
  ++runs_;
}

bool LoadWatch::IsDue(int64_t step) const {
  const int64_t done = step - first_step_ + 1;
  // Twice early on: kernels and caches are warm after the second step, and a router that is being
  // trained from scratch changes fastest at the start.
  return interval_ > 0 && done > 0 && (done == 2 || done == 4 || done % interval_ == 0);
}

std::optional<LoadWatch::Agreement> LoadWatch::AfterStep(int64_t step) {
  if (!IsDue(step) || sums_.empty() || runs_ == 0) return std::nullopt;
  std::vector<double> own = std::move(sums_);
  for (double& load : own) load /= static_cast<double>(runs_);
  sums_.assign(own.size(), 0.0);
  runs_ = 0;
  const std::vector<double> largest = world_.Max(own), sums = world_.Sum(std::move(own));
  const double ranks = world_.pretended() ? 1.0 : static_cast<double>(world_.size());
  Agreement agreement;
  for (size_t i = 0; i < sums.size(); ++i) {
    agreement.loads.modules[reads_->modules()[i].fqn] = {sums[i] / ranks, largest[i]};
  }
  agreement.planned = planned_;
  agreement.drift = LoadDrift(planned_, agreement.loads);
  agreement.renew = agreement.drift > kTolerance;
  agreement.imbalance = Imbalance(agreement.loads);
  return agreement;
}

}  // namespace gt
