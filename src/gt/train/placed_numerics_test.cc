// How far placed jobs are from one rank: a table of models, meshes, attention and types. Each case has two
// plans: the one that a job finds, which for small models leaves much whole, and one that cuts whatever
// can be cut.
//
// One test for each model, attention and type, so that pieces of the table can run at the same time, such as
// GT_HOME=... gt_torch_tests --gtest_filter='*PlacedNumerics*deepseek_v3*'. Every case is a line.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "gt/base/error.h"
#include "gt/compile/find_placement.h"
#include "gt/compile/placed_step_test_util.h"
#include "gt/sim/cluster_path.h"
#include "gt/sim/node_cost.h"
#include "gt/storage/file_writer.h"
#include "gt/testing/sending_rows.h"
#include "gt/testing/temp_folder.h"
#include "gt/train/job_test_util.h"

namespace gt::placed_numerics_test {
namespace {

using placed_step_test::WholeStep;
using placement::DeviceMesh;

constexpr int64_t kLength = 16, kSteps = 20;

struct Bars {
  double first_loss, gradients, losses;
};
// What sums of rounded parts allow: a bfloat16 has 8 bits, and a gradient is a sum of products of them
// in another order.
constexpr Bars kFloat32 = {1e-6, 1e-5, 1e-5}, kBfloat16 = {1e-3, 5e-2, 2e-2};

struct Numbers {
  double first_loss = 0, gradients = 0, losses = 0;
  std::string worst_gradient;
};

// A row of the table but for the mesh.
struct Kind {
  std::string model, flavor;
  bool flex = false, bfloat16 = false;
  std::string Name() const {
    return fmt::format("{}_{}_{}_{}", model, flavor, flex ? "flex" : "sdpa",
                       bfloat16 ? "bf16" : "fp32");
  }
  friend void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.Name(); }
};

class PlacedNumerics : public ::testing::TestWithParam<Kind> {
 protected:
  PlacedNumerics() { WriteLearnableRows(Path("rows.npy"), 4096, kLength); }

  std::string Path(const std::string& name) const { return (folder_.path() / name).string(); }

  struct Case : Kind {
    std::string mesh;
    std::string ToString() const {
      return fmt::format("{:<12}{:<15}{:<7}{:<6}{:<5}", model, flavor, mesh, flex ? "flex" : "sdpa",
                         bfloat16 ? "bf16" : "fp32");
    }
    int64_t ranks() const { return DeviceMesh::Parse(mesh).ranks(); }
    int64_t rows() const { return ranks() % 3 == 0 ? 6 : 8; }
    // Meshes of three ranks have shards of different lengths everywhere.
    void Change(Config& config) const {
      if (ranks() % 3 == 0) config.model.vocab_size = 259;
      if (flex) config.model.attn = AttentionBackend::kFlex;
      if (bfloat16) config.training.mixed_precision_param = ComputeDtype::kBfloat16;
    }
  };

  Config Job(const Case& which, int64_t ranks) {
    Config config;
    config.model.name = which.model;
    config.model.flavor = which.flavor;
    config.device = DeviceChoice::kCpu;
    config.ranks = ranks;
    config.threads = 1;
    config.training.seq_len = kLength;
    config.training.local_batch_size = which.rows() / ranks;
    config.training.steps = kSteps;
    config.training.dataset_path = Path("rows.npy");
    config.lr_scheduler.warmup_steps = 0;
    config.metrics.hashes = true;
    config.checkpoint.last_save_in_hf = false;
    config.dump_folder = Path(fmt::format("job{}", jobs_++));
    config.training.loss_chunks = 2;  // as the step whose gradients are compared
    which.Change(config);
    return config;
  }
  Config Placed(const Case& which, const placement::Plan& plan, InductorCompilation policy) {
    Config config = Job(which, which.ranks());
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
    by_rows.pins = testing::SendingRows(step, whole.mesh);
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

  // The largest difference of a gradient from that of one device, of all ranks.
  static void CompareGradients(const WholeStep& whole, const placement::Plan& plan,
                               Numbers& numbers) {
    std::mutex mutex;
    World::Run(whole.config, [&](World& world) {
      const placed_step_test::Distance off = RunRank(whole, plan, world);
      const std::lock_guard lock(mutex);
      if (off.gradients < numbers.gradients) return;
      numbers.gradients = off.gradients;
      numbers.worst_gradient = off.worst;
    });
  }

  const JobOutcome& OneRank(const Case& which) {
    Case alone = which;
    alone.mesh = which.ranks() % 3 == 0 ? "3" : "4";  // what its rows depend on
    auto [found, is_new] = one_rank_.try_emplace(alone.ToString());
    if (is_new) found->second = RunJob(Job(which, 1));
    return found->second;
  }

  void Compare(const Case& which) {
    const WholeStep whole({.model = which.model,
                           .flavor = which.flavor,
                           .mesh = which.mesh,
                           .batch = which.rows(),
                           .length = kLength,
                           .change = [&](Config& c) { which.Change(c); }});
    ComparePlan(which, whole, Found(whole));
    const placement::Plan sharded = Sharded(whole);
    if (!sharded.nodes.empty()) ComparePlan(which, whole, sharded);
  }

  void ComparePlan(const Case& which, const WholeStep& whole, const placement::Plan& plan) {
    const std::string name = fmt::format("{}{:<8}", which.ToString(), plan.title);
    SCOPED_TRACE(name);
    Numbers numbers;
    CompareGradients(whole, plan, numbers);
    const JobOutcome& one = OneRank(which);
    const JobOutcome native = RunJob(Placed(which, plan, InductorCompilation::kRegional));
    const JobOutcome backend =
        RunJob(Placed(which, plan, InductorCompilation::kAutoparallelBackend));
    ASSERT_EQ(one.losses.size(), native.losses.size());
    for (size_t i = 0; i < one.losses.size(); ++i) {
      const double off = std::abs(native.losses[i] - one.losses[i]) / one.losses[i];
      if (i == 0) numbers.first_loss = off;
      numbers.losses = std::max(numbers.losses, off);
    }
    const std::string modes = Difference(native, backend);
    fmt::print("{} loss {:.1e}  gradients {:.1e}  {} steps {:.1e}  modes {}  {} of {} nodes cut\n",
               name, numbers.first_loss, numbers.gradients, kSteps, numbers.losses,
               modes.empty() ? "equal" : "differ", CutNodes(plan), plan.nodes.size());
    std::fflush(stdout);
    EXPECT_EQ(modes, "");
    if (plan.title == "sharded") EXPECT_TRUE(CutsMuch(plan));
    const Bars& bars = which.bfloat16 ? kBfloat16 : kFloat32;
    EXPECT_LE(numbers.first_loss, bars.first_loss);
    EXPECT_LE(numbers.gradients, bars.gradients) << numbers.worst_gradient;
    EXPECT_LE(numbers.losses, bars.losses);
  }

  testing::TempFolder folder_;
  LinkModel links_{ReadCluster(ClusterPath("h100"))};
  std::map<std::string, JobOutcome> one_rank_;
  int jobs_ = 0;
};

std::vector<Kind> Kinds() {
  std::vector<Kind> kinds;
  for (const auto& [model, flavor] :
       {std::pair{"llama3", "tiny"}, std::pair{"llama3", "debugmodel"}, std::pair{"qwen3", "tiny"},
        std::pair{"qwen3", "debugmodel"}, std::pair{"qwen3", "tiny_moe"},
        std::pair{"qwen3", "debugmodel_moe"}, std::pair{"deepseek_v3", "tiny"},
        std::pair{"deepseek_v3", "debugmodel"}}) {
    for (bool flex : {false, true}) {
      for (bool bfloat16 : {false, true}) kinds.push_back({model, flavor, flex, bfloat16});
    }
  }
  return kinds;
}

TEST_P(PlacedNumerics, EqualOneRank) {
  for (const char* mesh : {"4", "2x2", "8", "4x2", "2x2x2", "3", "3x2"}) {
    Compare({GetParam(), mesh});
  }
}

INSTANTIATE_TEST_SUITE_P(Table, PlacedNumerics, ::testing::ValuesIn(Kinds()),
                         [](const auto& info) { return info.param.Name() + "_slow"; });

}  // namespace
}  // namespace gt::placed_numerics_test
