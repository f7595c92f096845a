// What a line of the table of placed numerics is, and what one rank computes for it.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "gt/compile/placed_step_test_util.h"
#include "gt/testing/temp_folder.h"
#include "gt/train/job_test_util.h"

namespace gt::placed_numerics_test {

using placed_step_test::WholeStep;

inline constexpr int64_t kLength = 16, kSteps = 20;

struct Case {
  std::string model, flavor, mesh, plan;
  bool flex = false, bfloat16 = false;
  bool balanced = false;  // tokens go to all experts in turn, whatever routers say

  const char* attention() const { return flex ? "flex" : "sdpa"; }
  const char* type() const { return bfloat16 ? "bf16" : "fp32"; }
  int64_t ranks() const { return placement::DeviceMesh::Parse(mesh).ranks(); }
  int64_t rows() const { return ranks() % 3 == 0 ? 6 : 8; }
  Case InFloat32() const {
    Case other = *this;
    other.bfloat16 = false;
    return other;
  }
  Case Balanced() const {
    Case other = *this;
    other.balanced = true;
    return other;
  }
  // Whether one rank computes the same for both: meshes and plans do not matter to it.
  bool IsAlikeOnOneRank(const Case& other) const {
    const auto facts = [](const Case& of) {
      return std::tuple(of.model, of.flavor, of.flex, of.bfloat16, of.balanced, of.rows(),
                        of.layers());
    };
    return facts(*this) == facts(other);
  }

  // 0: all. Equal layers are placed alike, so that of debug flavors two of them are enough, after DeepSeek's
  // dense one: a line then takes a minute or two of one core. Two lines of each flavor have all its layers, but
  // for the mixture of experts of qwen3, whose 315 million parameters take too long.
  int64_t layers() const {
    const bool deep = mesh == "2x2" && plan == "sharded" && !flex && flavor != "debugmodel_moe";
    if (deep || !flavor.starts_with("debugmodel")) return 0;
    return model == "deepseek_v3" ? 3 : 2;
  }

  // Meshes of three ranks have shards of different lengths everywhere.
  void Change(Config& config) const {
    if (ranks() % 3 == 0) config.model.vocab_size = 259;
    // At the usual rate of 8e-4 the training of these multiplies rounding errors: one rank that only adds
    // up its gradients in another order is 1e-4 off after 20 steps, since the norm of the gradient leaps
    // from 2 to 19.
    if (model == "qwen3" && flavor.starts_with("debugmodel")) config.optimizer.lr = 1e-4;
    config.model.n_layers = layers();
    if (balanced) config.debug.moe_load = "balanced";
    if (flex) config.model.attn = AttentionBackend::kFlex;
    if (bfloat16) config.training.mixed_precision_param = ComputeDtype::kBfloat16;
  }
  WholeStep Whole() const {
    return WholeStep({.model = model,
                      .flavor = flavor,
                      .mesh = mesh,
                      .batch = rows(),
                      .length = kLength,
                      .change = [this](Config& config) { Change(config); }});
  }
  friend void PrintTo(const Case& which, std::ostream* out) {
    *out << fmt::format("{:<12}{:<15}{:<7}{:<6}{:<5}{:<8}", which.model, which.flavor, which.mesh,
                        which.attention(), which.type(), which.plan);
  }
};

// A folder with rows to learn from, in which each job has a folder of its own.
class JobFolder {
 public:
  JobFolder() { WriteLearnableRows(folder_ / "rows.npy", 4096, kLength); }

  // What one rank computes is the better part of the time of large models. It gets what OMP_NUM_THREADS says
  // is this process's share: threads that wait for each other on cores that others use as well are ten times
  // slower than one.
  static int64_t Threads() {
    static const int64_t share = std::clamp<int64_t>(at::get_num_threads(), 1, 4);
    return share;  // jobs set the number of threads
  }

  Config Job(const Case& which, int64_t ranks) {
    Config config;
    config.model.name = which.model;
    config.model.flavor = which.flavor;
    config.device = DeviceChoice::kCpu;
    config.ranks = ranks;
    config.threads = ranks == 1 ? Threads() : 1;
    config.training.seq_len = kLength;
    config.training.local_batch_size = which.rows() / ranks;
    config.training.steps = kSteps;
    config.training.dataset_path = {(folder_ / "rows.npy").string()};
    config.lr_scheduler.warmup_steps = 0;
    config.metrics.hashes = true;
    config.checkpoint.last_save_in_hf = false;
    config.dump_folder = (folder_ / fmt::format("job{}", jobs_++)).string();
    config.training.loss_chunks = 2;  // as the step whose gradients are compared
    which.Change(config);
    return config;
  }

 private:
  testing::TempFolder folder_;
  int jobs_ = 0;
};

// How many choices of experts differ from those of one device, as far as the experts' numbers of tokens
// tell.
inline int64_t OtherChoices(const WholeStep& whole, const std::vector<at::Tensor>& results) {
  double moved = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!whole.captured.graph->outputs()[i]->name.ends_with("tokens_per_expert")) continue;
    moved += (results[i] - whole.expected[i]).abs().sum().item<double>() / 2;
  }
  return std::llround(moved);
}

// A gradient in float32, and how far rounded ones are from it.
class ExactGradient {
 public:
  ExactGradient(std::string name, at::Tensor right)
      : name_(std::move(name)),
        right_(std::move(right)),
        norm_(right_.norm().item<double>()),
        scale_(std::max(norm_, placed_step_test::kSmallestScale)) {}

  const std::string& name() const { return name_; }
  double norm() const { return norm_; }
  double scale() const { return scale_; }  // what distances are relative to
  int64_t numel() const { return right_.numel(); }

  double Distance(const at::Tensor& gradient) const {
    return (gradient - right_).norm().item<double>() / scale_;
  }
  // The part of the distance along the gradient.
  double Along(const at::Tensor& gradient) const {
    if (norm_ == 0) return 0;
    return std::abs(((gradient - right_) * right_).sum().item<double>()) / (norm_ * scale_);
  }

  // The farthest of equally right results of one rank.
  double one_rank_distance = 0, one_rank_along = 0;

 private:
  std::string name_;
  at::Tensor right_;
  double norm_, scale_;
};

struct ExactGradients {
  std::vector<std::optional<ExactGradient>> of_outputs;  // nothing: the output is no gradient
  double one_rank_distance = 0;                          // as one vector, of the farthest result
};

// What one rank computes for a line of the table, and for all lines that differ from it in the mesh and the
// plan alone. Everything is computed when it is first asked for.
class OneRank {
 public:
  // The last one that was asked for is kept, since lines that are alike follow one another; so are balanced
  // loads beside it.
  static OneRank& Of(const Case& which) {
    static std::unique_ptr<OneRank> last, last_balanced;
    std::unique_ptr<OneRank>& kept = which.balanced ? last_balanced : last;
    if (kept == nullptr || !kept->which_.IsAlikeOnOneRank(which)) {
      kept.reset(new OneRank(which));
    }
    return *kept;
  }

  const JobOutcome& Job() { return JobsOf(1).front(); }
  // Jobs that differ in how many rows their gradients are summed over before they are rounded. The first has
  // all at once.
  const std::vector<JobOutcome>& EquallyRightJobs() { return JobsOf(3); }
  const JobOutcome& ExactJob() {
    if (!exact_job_) exact_job_ = RunJob(folder_.Job(which_.InFloat32(), 1));
    return *exact_job_;
  }

  const ExactGradients& Gradients() {
    if (!gradients_) gradients_ = CompareGradients(which_.InFloat32().Whole(), which_.Whole());
    return *gradients_;
  }

 private:
  explicit OneRank(const Case& which) : which_(which) {}

  const std::vector<JobOutcome>& JobsOf(size_t count) {
    const int64_t batches[] = {1, 2, which_.rows()};
    while (jobs_.size() < count) {
      const int64_t split = batches[jobs_.size()];
      Config config = folder_.Job(which_, 1);
      config.training.local_batch_size = which_.rows() / split;
      config.training.global_batch_size = which_.rows();
      jobs_.push_back(RunJob(config));
    }
    return jobs_;
  }

  // The step of one device again, with parameters that are an eighth of bfloat16's rounding away: what they
  // are rounded to differs here and there, and with it all that follows. Nudges that change choices of
  // experts do not count.
  template <typename Visit>
  static void ForEachEquallyRightStep(const WholeStep& whole, Visit visit) {
    constexpr int kNudges = 6;
    constexpr double kNudge = 1.0 / 4096;  // bfloat16 rounds by up to 1/512
    visit(whole.expected);
    at::manual_seed(11);
    for (int i = 0; i < kNudges; ++i) {
      std::vector<at::Tensor> inputs = whole.inputs;
      for (const auto& input : whole.captured.graph->inputs()) {
        if (input->role != InputRole::kParameter) continue;
        at::Tensor& parameter = inputs[static_cast<size_t>(input->value.index())];
        parameter = parameter * (1 + kNudge * (2 * at::rand_like(parameter) - 1));
      }
      GeneratorScope generator(at::kCPU);
      SeedGenerator(at::kCPU, 7);
      const std::vector<at::Tensor> results = Program(*whole.captured.graph).Run(inputs);
      if (OtherChoices(whole, results) == 0) visit(results);
    }
  }

  static ExactGradients CompareGradients(const WholeStep& exact, const WholeStep& rounded) {
    ExactGradients gradients;
    for (size_t i = 0; i < exact.expected.size(); ++i) {
      const Output& output = *exact.captured.graph->outputs()[i];
      EXPECT_EQ(output.name, rounded.captured.graph->outputs()[i]->name);
      gradients.of_outputs.emplace_back();
      if (output.role != OutputRole::kGradient) continue;
      gradients.of_outputs.back().emplace(output.name, exact.expected[i]);
    }
    ForEachEquallyRightStep(rounded, [&gradients](const std::vector<at::Tensor>& results) {
      double squares = 0, off_squares = 0;
      for (size_t i = 0; i < results.size(); ++i) {
        std::optional<ExactGradient>& right = gradients.of_outputs[i];
        if (!right) continue;
        const double distance = right->Distance(results[i]);
        squares += std::pow(right->norm(), 2);
        off_squares += std::pow(right->scale() * distance, 2);
        right->one_rank_distance = std::max(right->one_rank_distance, distance);
        right->one_rank_along = std::max(right->one_rank_along, right->Along(results[i]));
      }
      gradients.one_rank_distance =
          std::max(gradients.one_rank_distance, std::sqrt(off_squares / squares));
    });
    return gradients;
  }

  const Case which_;
  JobFolder folder_;
  std::vector<JobOutcome> jobs_;
  std::optional<JobOutcome> exact_job_;
  std::optional<ExactGradients> gradients_;
};

}  // namespace gt::placed_numerics_test
