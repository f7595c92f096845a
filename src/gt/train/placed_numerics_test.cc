// How far placed jobs are from one rank: a table of models, meshes, attention and types. Each case has two
// plans: the one that a job finds, which for small models leaves much whole, and one that cuts whatever
// can be cut.
//
// One test for each line of the table, so that they can run side by side, such as
// GT_HOME=... gt_torch_tests --gtest_filter='*PlacedNumerics*deepseek_v3*'. Lines for all meshes in one
// process share what one rank computes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <span>

#include "gt/base/error.h"
#include "gt/compile/find_placement.h"
#include "gt/placement/sending_rows.h"
#include "gt/sim/cluster_path.h"
#include "gt/sim/node_cost.h"
#include "gt/storage/file_writer.h"
#include "gt/train/placed_numerics_test_util.h"

namespace gt::placed_numerics_test {
namespace {

struct Numbers {
  double first_loss = 0, gradients = 0, losses = 0;
};
constexpr Numbers kBars = {1e-6, 1e-5, 1e-5};

// In bfloat16 no such bar fits. A sum of parts that are rounded is not the rounded sum, and how far one
// rank is from float32 is itself a matter of chance: of one gradient that is small against what it is
// computed from, another order of summation gives twice the error or half of it. So the bar is made of
// several results of one rank that are equally right (OneRank): a placed job is
// not much farther from float32 than the farthest of them.
//
// "Not much": one rank rounds a sum once, a plan each of its n parts as well. Parts of terms of either sign
// are 1/sqrt(n) of the sum, and the roundings of n such parts come together to that of the sum. Where every
// sum is made of parts the squared error doubles, and the error grows by sqrt(2).
constexpr double kMoreRounding = 1.5;
// Few roundings are not typical ones: the norm of n of them is off by 1/sqrt(2n) of itself, by chance three
// times that, which counts for gradients of a dozen elements and for the losses of twenty steps.
//
// A wrong factor of a percent hides in such distances, but not in their part along the gradient. Roundings
// of n elements cancel out there to 1/sqrt(n) of the distance, by chance to three times that; the rounding of
// a number that is a factor of all of them does not.
constexpr double kOneRounding = 1.0 / 512, kChance = 3;
// How much larger than its expectation the norm of so many roundings may be.
double ByChance(int64_t count) { return 1 + kChance / std::sqrt(2 * static_cast<double>(count)); }
// Rounding also decides between experts that are all but equal for a token. Each token that goes elsewhere
// changes the gradients of a router and two experts by all that the token adds to them, and the updates
// after them: that measures ties, not rounding. Gradients of single parameters are compared where all
// tokens go where they go on one rank, and losses up to the step in which the first one does not; with
// balanced loads, where no tie is to be decided, those of all steps.

// Distances from float32 on one rank.
struct Rounding {
  double one_rank = 0, placed = 0;  // that of one rank is the largest of equally right results
  // Distances below `scale` are none.
  double Ratio(double scale) const { return placed / std::max(one_rank, scale); }
  std::string ToString() const { return fmt::format("{:.1e} {:.1e}", one_rank, placed); }
};

class PlacedNumerics : public ::testing::TestWithParam<Case> {
 protected:
  Config Placed(const Case& which, const placement::Plan& plan, InductorCompilation policy) {
    Config config = folder_.Job(which, which.ranks());
    config.compile.enable_autoparallel = true;
    config.compile.inductor_compilation = policy;
    config.compile.autoparallel_plan = config.dump_folder + ".json";
    config.mesh = which.mesh;
    WriteFile(config.compile.autoparallel_plan, ToJson(plan));
    return config;
  }

  static placement::Plan Found(const WholeStep& whole) {
    const FoundPlacement found = FindPlacement({.config = whole.config,
                                                .step = *whole.captured.graph,
                                                .meshes = {whole.mesh},
                                                .batch = whole.config.training.local_batch_size});
    return MakePlan(*found.best->problem, found.best->placement, "found");
  }

  static int64_t CutNodes(const placement::Plan& plan) {
    return std::ranges::count_if(plan.nodes, [](const auto& node) {
      return std::ranges::any_of(node.second.results, [](const std::string& layout) {
        return layout.find_first_of("SE") != std::string::npos;
      });
    });
  }
  static bool CutsMuch(const placement::Plan& plan) {
    return 3 * CutNodes(plan) > static_cast<int64_t>(plan.nodes.size());
  }

  // Batches are cut along every axis and rows sent to experts along the last one; dense models, and experts
  // that do not divide, are cut along the last of several axes themselves. Parameters are cut as finely as
  // can be.
  placement::Plan Sharded(const WholeStep& whole) const {
    Graph& step = *whole.captured.graph;
    const placement::Pricing pricing(whole.mesh, links_, SpeedOf("cpu"));
    placement::ProblemOptions by_axes;
    by_axes.finest_parameters = true;
    by_axes.axes.assign(static_cast<size_t>(whole.mesh.axes()), placement::AxisUse::kShard);
    if (whole.mesh.axes() > 1) by_axes.axes.back() = placement::AxisUse::kModel;
    std::string rows;
    for (placement::AxisUse use : by_axes.axes) {
      rows += use == placement::AxisUse::kShard ? "S(0)" : "R";
    }
    for (const char* input : {"tokens", "labels", "positions"}) {
      by_axes.pins.push_back({input, rows});
    }
    placement::ProblemOptions by_rows;
    by_rows.finest_parameters = true;
    by_rows.pins = placement::SendingRows(step, whole.mesh);
    const bool sparse = !step.modules().With(ModuleRole::kExperts).empty();
    for (const placement::ProblemOptions* options : {&by_rows, &by_axes}) {
      if (options == &by_rows && !sparse) continue;
      try {
        const placement::PlaceProblem problem(step, pricing, *options);
        const placement::Placement found = Search(problem, {.work_limit = 1e8});
        if (!found.feasible) continue;
        placement::Plan plan = MakePlan(problem, found, "sharded");
        if (CutsMuch(plan)) return plan;  // on three axes a search may end before it does
      } catch (const Error& error) {      // experts that do not divide
        if (error.code() != ErrorCode::kBadPin) throw;
      }
    }
    ADD_FAILURE() << "nothing can be cut";
    return {};
  }

  // Runs the plan's step on every rank and puts the results together. The one that is farthest
  // from that of one device, on any rank, goes to `numbers` and `worst`.
  static std::vector<at::Tensor> RunStep(const WholeStep& whole, const placement::Plan& plan,
                                         Numbers& numbers, std::string& worst) {
    std::vector<at::Tensor> results(whole.expected.size());
    for (size_t i = 0; i < results.size(); ++i) results[i] = at::zeros_like(whole.expected[i]);
    std::mutex mutex;
    World::Run(whole.config, [&](World& world) {
      const placed_step_test::RankRun run = RunPlaced(whole, plan, world);
      const placed_step_test::Distance off = DistanceOf(whole, run);
      const std::lock_guard lock(mutex);
      for (size_t i = 0; i < run.results.size(); ++i) {
        const Output& output = *run.graph->outputs()[i];
        const bool shared_out = output.role == OutputRole::kGradient;
        (shared_out ? placed_step_test::ViewOf(results[i], run.BoxOf(output)) : results[i])
            .copy_(run.results[i]);
      }
      if (off.gradients < numbers.gradients) return;
      numbers.gradients = off.gradients;
      worst = off.worst;
    });
    return results;
  }

  // The gradient that a plan moves most, as multiples of what one rank does.
  struct Worst {
    std::string name = {};
    Rounding rounding = {};
    double ratio = 0;
    void Note(const std::string& of, const Rounding& seen, double scale) {
      if (seen.Ratio(scale) <= ratio) return;
      *this = {of, seen, seen.Ratio(scale)};
    }
    std::string ToString() const { return fmt::format("{} {}", name, rounding.ToString()); }
  };
  struct RoundedGradients {
    Rounding all;           // as one vector
    Worst distance, along;  // of single ones: all of the distance, and its part along the gradient
  };
  static RoundedGradients RoundingOf(const ExactGradients& exact,
                                     const std::vector<at::Tensor>& placed) {
    RoundedGradients result;
    double squares = 0, off_squares = 0;
    for (size_t i = 0; i < placed.size(); ++i) {
      const std::optional<ExactGradient>& right = exact.of_outputs[i];
      if (!right) continue;
      const Rounding distance{right->one_rank_distance, right->Distance(placed[i])};
      const Rounding along{right->one_rank_along, right->Along(placed[i])};
      squares += std::pow(right->norm(), 2);
      off_squares += std::pow(right->scale() * distance.placed, 2);
      const double typical = distance.one_rank * ByChance(right->numel());
      result.distance.Note(right->name(), distance, std::max(kBars.gradients, typical));
      const double in_sum =
          distance.one_rank * kChance / std::sqrt(static_cast<double>(right->numel()));
      result.along.Note(right->name(), along, std::max(kOneRounding, in_sum));
    }
    result.all = {exact.one_rank_distance, std::sqrt(off_squares / squares)};
    return result;
  }

  // How far each loss is from the right one.
  static std::vector<double> Off(const JobOutcome& job, const JobOutcome& right) {
    std::vector<double> off;
    for (size_t i = 0; i < right.losses.size(); ++i) {
      off.push_back(std::abs(job.losses.at(i) - right.losses[i]) / right.losses[i]);
    }
    return off;
  }

  // For how many steps two jobs have chosen the same experts.
  static size_t SameChoices(const JobOutcome& a, const JobOutcome& b) {
    const auto parted = std::ranges::mismatch(a.experts, b.experts).in1;
    return parted == a.experts.end() ? a.losses.size()
                                     : static_cast<size_t>(parted - a.experts.begin());
  }

  placement::Plan PlanOf(const Case& which, const WholeStep& whole) const {
    return which.plan == "found" ? Found(whole) : Sharded(whole);
  }

  void Compare(const Case& which) {
    const WholeStep whole = which.Whole();
    const placement::Plan plan = PlanOf(which, whole);
    if (plan.nodes.empty()) return;
    const std::string name = ::testing::PrintToString(which);
    SCOPED_TRACE(name);
    Numbers numbers;
    std::string worst;
    const std::vector<at::Tensor> results = RunStep(whole, plan, numbers, worst);
    const JobOutcome& one_rank = OneRank::Of(which).Job();
    const JobOutcome native = RunJob(Placed(which, plan, InductorCompilation::kRegional));
    const JobOutcome backend =
        RunJob(Placed(which, plan, InductorCompilation::kAutoparallelBackend));
    ASSERT_EQ(one_rank.losses.size(), native.losses.size());
    const std::vector<double> off = Off(native, one_rank);
    numbers.first_loss = off[0];
    // A token for which two experts are all but equal goes to the one or the other by the last bit, and an
    // expert that gets another token has another update.
    const size_t same = SameChoices(one_rank, native);
    numbers.losses = std::ranges::max(std::span(off).first(std::max<size_t>(same, 1)));
    const std::string modes = Difference(native, backend);
    fmt::print("{} loss {:.1e}  gradients {:.1e}  {} steps {:.1e}  modes {}  {} of {} nodes cut\n",
               name, numbers.first_loss, numbers.gradients, same, numbers.losses,
               modes.empty() ? "equal" : "differ", CutNodes(plan), plan.nodes.size());
    std::fflush(stdout);
    EXPECT_EQ(modes, "");
    if (which.plan == "sharded") EXPECT_TRUE(CutsMuch(plan));
    if (which.bfloat16) {
      CompareRoundedGradients(which, whole, results);
      CompareRoundedLosses(which, native);
      return;
    }
    EXPECT_LE(numbers.first_loss, kBars.first_loss);
    EXPECT_LE(numbers.gradients, kBars.gradients) << worst;
    EXPECT_LE(numbers.losses, kBars.losses);
    if (same < off.size()) CompareBalanced(which, off, same);
  }

  // The same with nothing that a last bit decides.
  void CompareBalanced(const Case& skewed, const std::vector<double>& off, size_t same) {
    const Case which = skewed.Balanced();
    const double balanced = std::ranges::max(Off(RunPlacedJob(which), OneRank::Of(which).Job()));
    fmt::print("{} other choices from step {} on: {:.1e}; with balanced loads {} steps {:.1e}\n",
               ::testing::PrintToString(which), same + 1, std::ranges::max(off), kSteps, balanced);
    std::fflush(stdout);
    EXPECT_GT(same, 0u);  // the first step has the same weights
    EXPECT_LE(balanced, kBars.losses);
  }

  JobOutcome RunPlacedJob(const Case& which) {
    const placement::Plan plan = PlanOf(which, which.Whole());
    return RunJob(Placed(which, plan, InductorCompilation::kRegional));
  }

  void CompareRoundedGradients(const Case& which, const WholeStep& whole,
                               const std::vector<at::Tensor>& results) {
    const RoundedGradients rounded = RoundingOf(OneRank::Of(which).Gradients(), results);
    const int64_t others = OtherChoices(whole, results);
    fmt::print(
        "{} from fp32, one rank and placed: gradient {}  {}  along itself {}  {} other choices\n",
        ::testing::PrintToString(which), rounded.all.ToString(), rounded.distance.ToString(),
        rounded.along.ToString(), others);
    std::fflush(stdout);
    EXPECT_LE(rounded.all.Ratio(kBars.gradients), kMoreRounding);
    if (others > 0) return;
    EXPECT_LE(rounded.distance.ratio, kMoreRounding) << rounded.distance.name;
    EXPECT_LE(rounded.along.ratio, kMoreRounding) << rounded.along.name;
  }

  // Steps are compared in which the placed job and all of one rank choose the same experts. Where they
  // part, all steps are compared with balanced loads.
  void CompareRoundedLosses(const Case& which, const JobOutcome& placed) {
    const std::vector<JobOutcome>& one_rank = OneRank::Of(which).EquallyRightJobs();
    const JobOutcome& exact = OneRank::Of(which).ExactJob();
    size_t same = SameChoices(one_rank.front(), placed);
    for (const JobOutcome& job : one_rank) {
      same = std::min(same, SameChoices(one_rank.front(), job));
    }
    const size_t compared = std::max<size_t>(same, 1);
    const std::vector<double> by_plan = Off(placed, exact);
    Rounding losses{0, std::ranges::max(std::span(by_plan).first(compared))};
    double usual = 0;
    for (const JobOutcome& job : one_rank) {
      const std::vector<double> off = Off(job, exact);
      losses.one_rank = std::max(losses.one_rank, std::ranges::max(std::span(off).first(compared)));
      usual =
          std::max(usual, std::reduce(off.begin(), off.end()) / static_cast<double>(off.size()));
    }
    fmt::print(
        "{} from fp32, one rank and placed: {}{} steps {}{}\n", ::testing::PrintToString(which),
        which.balanced ? "with balanced loads " : "", compared, losses.ToString(),
        same == placed.losses.size() ? ""
                                     : fmt::format("; other choices from step {} on", same + 1));
    std::fflush(stdout);
    // Few losses can be right by chance, so that they are compared with the usual distance of all steps.
    const double typical = losses.one_rank * ByChance(static_cast<int64_t>(compared));
    EXPECT_LE(losses.Ratio(std::max({usual, typical, kBars.losses})), kMoreRounding);
    if (same == placed.losses.size()) return;
    ASSERT_FALSE(which.balanced) << "tokens went elsewhere although loads are balanced";
    CompareRoundedLosses(which.Balanced(), RunPlacedJob(which.Balanced()));
  }

  JobFolder folder_;
  LinkModel links_{ReadCluster(ClusterPath("h100"))};
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto& [model, flavor] :
       {std::pair{"llama3", "tiny"}, std::pair{"llama3", "debugmodel"}, std::pair{"qwen3", "tiny"},
        std::pair{"qwen3", "debugmodel"}, std::pair{"qwen3", "tiny_moe"},
        std::pair{"qwen3", "debugmodel_moe"}, std::pair{"deepseek_v3", "tiny"},
        std::pair{"deepseek_v3", "debugmodel"}}) {
    for (bool flex : {false, true}) {
      for (bool bfloat16 : {false, true}) {
        for (const char* mesh : {"4", "2x2", "8", "4x2", "2x2x2", "3", "3x2"}) {
          for (const char* plan : {"found", "sharded"}) {
            cases.push_back({model, flavor, mesh, plan, flex, bfloat16});
          }
        }
      }
    }
  }
  return cases;
}

TEST_P(PlacedNumerics, EqualOneRank) { Compare(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Table, PlacedNumerics, ::testing::ValuesIn(Cases()), [](const auto& info) {
  const Case& which = info.param;
  return fmt::format("{}_{}_{}_{}_{}_{}_slow", which.model, which.flavor, which.attention(),
                     which.type(), which.mesh, which.plan);
});

}  // namespace
}  // namespace gt::placed_numerics_test
