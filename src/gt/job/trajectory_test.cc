#include "gt/job/trajectory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "gt/job/config.h"

namespace gt::trajectory_test {
namespace {

std::set<std::string> NamesOf(const std::vector<OptionChange>& changes) {
  std::set<std::string> names;
  for (const OptionChange& change : changes) names.insert(change.name);
  return names;
}

TEST(Trajectory, WhatDecidesWhereTrainingGoesIsStated) {
  Config before, now;
  now.optimizer.lr = 1e-3;
  now.optimizer.beta2 = 0.99;
  now.training.global_batch_size = 64;
  now.training.mixed_precision_param = ComputeDtype::kBfloat16;
  now.model.dropout = 0.1;
  EXPECT_EQ(NamesOf(TrajectoryChanges(before, now)),
            (std::set<std::string>{"optimizer.lr", "optimizer.beta2", "training.global_batch_size",
                                   "training.mixed_precision_param", "model.dropout"}));
  const OptionChange lr = TrajectoryChanges(before, now).back();
  EXPECT_EQ(lr.name + " " + lr.before + " " + lr.now, "optimizer.beta2 0.95 0.99");
}

TEST(Trajectory, WhatChangesNoNumberIsNot) {
  Config before, now;
  now.dump_folder = "elsewhere";
  now.checkpoint.interval = 7;
  now.compile.memory_policy = MemoryPolicy::kFull;
  now.comm.init_timeout_seconds = 7;
  now.model.n_layers = 6;  // the architecture is compared instead
  EXPECT_TRUE(TrajectoryChanges(before, now).empty());
}

TEST(Trajectory, TheTableHasNoStaleEntries) {
  std::vector<std::string> paths;
  ForEachOption(Config(), [&](const Option& option) { paths.push_back(option.path()); });
  for (const OptionWithoutBearing& entry : OptionsWithoutBearing()) {
    const bool found = std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
      return NamesOption(entry.name, path);
    });
    EXPECT_TRUE(found) << entry.name;
    EXPECT_FALSE(entry.why.empty()) << entry.name;
  }
}

}  // namespace
}  // namespace gt::trajectory_test
