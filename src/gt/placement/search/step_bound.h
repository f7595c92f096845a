// A lower bound on what a step takes when some variables may only have some of their labels: the largest
// minimum of weighted sums, found with cutting planes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gt/placement/search/small_lp.h"
#include "gt/placement/search/step_moments.h"
#include "gt/placement/search/step_problem.h"
#include "gt/placement/solver/deadline.h"
#include "gt/placement/solver/remembered_messages.h"

namespace gt::placement {

// What turns the step into a sum over labels.
struct StepPrices {
  ByPhase factors = {};
  std::map<int32_t, double> memory = {};  // microseconds for a byte, by moment
};

// A labelling that was met on the way.
struct StepPlan {
  std::vector<int32_t> labels;
  StepTime time;
  std::vector<int64_t> loads;  // bytes by moment
  int64_t over = 0;            // bytes above the limit at the fullest moment
  double cost = 0;             // infinite if it does not fit
};
using StepPlanPtr = std::shared_ptr<const StepPlan>;

// The labels that a variable may have.
struct LabelChoice {
  int32_t variable = 0;
  std::vector<bool> allowed;
};

// Cuts the labels of a variable in two. It means the same in every problem with that variable, whichever of
// its labels are there.
struct LabelCut {
  enum class By : uint8_t { kTime, kMemory, kName };
  int32_t variable = 0;
  By by = By::kName;
  double limit = 0;   // up to which a label is low: microseconds, or bytes
  int32_t label = 0;  // by name: the low one
  bool IsLow(const StepVariable& of, size_t at) const;
};

// By variable and label, what labellings with that label take at least.
using LabelBounds = std::vector<std::vector<double>>;

// Some of the labellings of a step.
struct StepRegion {
  std::vector<LabelChoice> choices = {};
  double bound = 0;        // none of them takes less
  StepPrices prices = {};  // at which the bound was found, or to begin with
  // Where to cut the region in two; nothing: the bound cannot be improved like that.
  std::optional<LabelCut> split = std::nullopt;
  LabelBounds label_bounds = {};  // of the region's labellings; empty: nothing is known
  // Of the last question about the region, or about the one that it was cut out of; null: none.
  std::shared_ptr<const RememberedMessages> messages = nullptr;
  bool exactly = false;  // nothing may be left to a solver's tolerance
};

struct BoundSettings {
  double over_price = kForbidden;
  double relative_gap = 1e-5;
  double ask_work = kForbidden;  // for each question to the solver
  double exact_ask_work = kForbidden;
  double first_radius = 0.3;  // of factors; of prices, in steps for a full memory
};

class StepBounder {
 public:
  // The problem and its moments must outlive it.
  StepBounder(const StepProblem& problem, const StepMoments& moments,
              const BoundSettings& settings);

  struct Outcome {
    StepRegion region;               // with its bound, prices and split
    std::vector<StepPlanPtr> found;  // new labellings
    // Variables and labels that looked best to the solver. Some of them may be in no labelling of those.
    std::vector<std::pair<int32_t, int32_t>> near;
    int asked = 0;  // questions
    double work = 0;
  };
  // Ends once the bound reaches `target`, prices do not improve it any more, or `asks` questions were
  // asked. No two of `known` are alike. `best` is what the best known labelling takes.
  Outcome Bound(StepRegion region, const std::vector<StepPlanPtr>& known, double best,
                double target, int asks, const Deadline& deadline);

  StepPlanPtr PlanOf(std::vector<int32_t> labels) const;

 private:
  struct Answer {
    double bound = 0;
    StepPlanPtr plan;          // null: none
    LabelBounds label_bounds;  // empty: nothing is known
  };
  // A linear program that mixes plans, and where its prices are.
  struct Mixture {
    LinearSolution solution;
    StepPrices prices;
    double value = 0;
  };

  void SetLabels(const StepRegion& region);
  // Keeps the best bounds on labels, from whichever prices they are.
  void Learn(LabelBounds bounds, StepRegion& region) const;
  // The label of each variable that labellings can cost least with.
  static void NoteNear(const Answer& answer, std::vector<std::pair<int32_t, int32_t>>& near);
  // Takes labels out of the region that nothing below the target has; whether there were any.
  bool Exclude(double target, StepRegion& region);
  Answer Ask(const StepPrices& prices, double gap, double cutoff, double enough, bool exactly,
             const Deadline& deadline);
  Mixture Mix(const std::vector<StepPlanPtr>& plans, const std::vector<int32_t>& moments,
              const StepPrices& center, double radius) const;
  std::optional<LabelCut> SplitOf(const std::vector<StepPlanPtr>& plans,
                                  const Mixture& mixture) const;
  std::optional<LabelCut> SplitByUsage(const StepPlan& plan) const;
  double PriceOfByte(size_t variable, const StepPrices& prices) const;
  double TimeUnit(const std::vector<StepPlanPtr>& plans) const;

  const StepProblem& problem_;
  const StepMoments& moments_;
  const BoundSettings settings_;
  LabelProblem sum_;  // of the last question
  std::vector<std::vector<bool>> allowed_;
  std::vector<int32_t> restricted_;  // variables that have not all their labels
  RememberedMessages messages_;
  double work_ = 0;
};

}  // namespace gt::placement
