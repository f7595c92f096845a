#include "gt/compile/plan_finder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <utility>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/find_placement.h"
#include "gt/compile/global_step.h"
#include "gt/compile/memory_capacity.h"
#include "gt/compile/placement_judge.h"
#include "gt/job/config.h"
#include "gt/placement/sending_rows.h"

namespace gt {
namespace {

using placement::Plan;
using Clock = std::chrono::steady_clock;

// Searches with another budget, at the most.
constexpr int kCorrections = 3;
// Other plans differ from the one that a budget was corrected by.
constexpr double kCaution = 0.99;
// A plan that does not fit, and takes so much less than the one that does, is worth another search.
constexpr double kMuchFaster = 0.99;
// For a search after one that took all the time.
constexpr double kLeastSeconds = 2;

}  // namespace

PlanFinder::PlanFinder(const StepRequest& request, SingleDeviceStep& whole, Kind kind)
    : request_(request),
      whole_(whole),
      kind_(kind),
      capacity_(MemoryCapacity(request.config, request.world, request.device)),
      budget_(capacity_),
      seconds_left_(request.config.compile.autoparallel_time_limit) {}

const std::vector<Plan>& PlanFinder::plans() {
  if (plans_.empty()) Search();
  return plans_;
}

void PlanFinder::Search() {
  const Config& config = request_.config;
  const int64_t ranks = request_.mesh.world_size();
  const Clock::time_point start = Clock::now();
  Graph& step = whole_.graph();
  PlacementRequest wanted{.config = config,
                          .step = step,
                          .meshes = MeshesOf(config, ranks),
                          .cluster = request_.cluster.cluster,
                          .memory_bytes = budget_,
                          .time_limit_s = std::max(seconds_left_, kLeastSeconds)};
  wanted.accumulates_gradients = config.training.global_batch_size > GlobalBatch(config, ranks);
  wanted.for_judging = true;
  wanted.split_batch = config.compile.autoparallel_split_batch;
  if (kind_ == Kind::kSendingRows) {
    wanted.pins = [&step](const placement::DeviceMesh& mesh) {
      return placement::SendingRows(step, mesh);
    };
    wanted.only_experts = true;
  }
  wanted.batch = GlobalBatch(config, ranks);
  const FoundPlacement found = FindPlacement(wanted);
  within_budget_ = found.fits;
  for (const FoundPlacement::Candidate& one : found.candidates) {
    plans_.push_back(MakePlan(*one.plan->problem, one.plan->placement, ModelTitle(config)));
    layouts_.push_back(one.layout);
  }
  seconds_left_ -= std::chrono::duration<double>(Clock::now() - start).count();
}

ChosenPlan PlanFinder::Fastest(const EpOverlapSection& overlap) {
  plans();
  rival_ = {};
  judged_ = 0;
  Judged judged = JudgeFrom(0, overlap);
  ChosenPlan best = judged.chosen;
  bool held_back = false;  // by memory, which one more search may mend
  for (int corrections = 0; corrections < kCorrections && !held_back; ++corrections) {
    const bool fits = judged.chosen.prediction.excess == 0;
    if (!fits && !within_budget_) break;  // nothing needs less
    if (fits && within_budget_) {
      held_back = judged.unlimited.prediction.microseconds <
                  kMuchFaster * judged.chosen.prediction.microseconds;
      if (!held_back) break;
      CorrectBudget(judged.unlimited);
    } else if (corrections + 1 < kCorrections) {
      CorrectBudget(judged.chosen);
    } else {
      budget_ = 1;  // for those that need least: what a refusal names is enough another time
    }
    const size_t known = plans_.size();
    try {
      Search();
      judged = JudgeFrom(known, overlap);
    } catch (const Error& error) {
      log::Debug("no other plan: {}", error.what());
      break;
    }
    if (judged.chosen.prediction.IsBetterThan(best.prediction)) best = judged.chosen;
  }
  if (best.prediction.excess > 0 && request_.config.training.check_memory) Refuse(best);
  return best;
}

PlanFinder::Judged PlanFinder::JudgeFrom(size_t first, const EpOverlapSection& overlap) {
  const std::span<const Plan> plans = std::span(plans_).subspan(first);
  const FastestOf fastest = FastestPlan(request_, overlap, whole_, plans);
  judged_ += static_cast<int64_t>(fastest.judged.size());
  for (const JudgedPlan& one : fastest.judged) {
    const std::string& layout = layouts_[first + one.index];
    if (layout.empty()) continue;
    if (rival_.name.empty() || one.prediction.IsBetterThan(rival_.prediction)) {
      rival_ = {layout, one.prediction};
    }
  }
  Judged judged{{plans[fastest.index], fastest.prediction, layouts_[first + fastest.index]},
                {plans[fastest.unlimited.index], fastest.unlimited.prediction,
                 layouts_[first + fastest.unlimited.index]}};
  // Judged is what the native policy makes of operators. What the step really needs is asked where that
  // matters; times stay those that plans are compared by.
  Prediction& prediction = judged.chosen.prediction;
  const bool differs =
      request_.config.compile.inductor_compilation == InductorCompilation::kAutoparallelBackend;
  if (prediction.excess > 0 || (differs && capacity_ > 0)) {
    const Prediction exact = PredictPlan(request_, overlap, whole_, judged.chosen.plan);
    prediction.peak = exact.peak;
    prediction.excess = exact.excess;
  }
  return judged;
}

void PlanFinder::CorrectBudget(const ChosenPlan& by) {
  const auto counted = static_cast<double>(by.plan.peak_bytes);
  const double ratio = counted / static_cast<double>(by.prediction.peak);
  const double corrected = kCaution * ratio * static_cast<double>(capacity_);
  // What needs least by placement's account fits; nothing smaller is there to be found.
  const double least = within_budget_ ? 1 : counted;
  budget_ = static_cast<int64_t>(std::ceil(std::max(corrected, least)));
  log::Debug(
      "the step of a plan needs {}, which placement counts as {}: plans are searched again that "
      "need {} by that account",
      ByteText(by.prediction.peak), ByteText(by.plan.peak_bytes), ByteText(budget_));
}

void PlanFinder::Refuse(const ChosenPlan& nearest) const {
  std::string where;
  for (const placement::DeviceMesh& mesh : MeshesOf(request_.config, request_.mesh.world_size())) {
    where += (where.empty() ? "mesh " : ", ") + mesh.ToString();
  }
  Fail(ErrorCode::kNoPlacement,
       "{}: no placement was found whose step fits into {} GiB of memory on each rank; one needs "
       "{} GiB (--training.memory_limit_gb). More ranks, a smaller batch or "
       "--compile.memory_policy need less; --training.check_memory=false takes it all the same",
       where, EnoughGibibytes(capacity_), EnoughGibibytes(nearest.prediction.peak));
}

}  // namespace gt
