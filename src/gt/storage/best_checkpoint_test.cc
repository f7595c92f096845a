#include "gt/storage/best_checkpoint.h"

#include <gtest/gtest.h>

#include "gt/base/error.h"
#include "gt/storage/checkpoint_store.h"
#include "gt/testing/temp_folder.h"

namespace gt::best_checkpoint_test {
namespace {

namespace fs = std::filesystem;
using Steps = std::vector<int64_t>;
using testing::TempFolder;
using testing::WriteText;

BestCheckpoint Best(int64_t step, bool saved_for_this) {
  return {.step = step, .validation_loss = 1.5, .saved_for_this = saved_for_this};
}

TEST(StepsToRemove, TheNewestStay) {
  EXPECT_EQ(StepsToRemove(Steps{10, 20, 30, 40}, 40, 2, {}), (Steps{10, 20}));
  EXPECT_EQ(StepsToRemove(Steps{10, 20, 30, 40}, 40, 0, {}), Steps{});
  EXPECT_EQ(StepsToRemove(Steps{10, 20, 30, 40}, 30, 1, {}), (Steps{10, 20}));  // 40 is beyond it
}

TEST(StepsToRemove, TheBestStaysBesideThem) {
  EXPECT_EQ(StepsToRemove(Steps{10, 20, 30, 40}, 40, {2, Best(10, false)}, Best(10, false)),
            Steps{20});
  EXPECT_EQ(StepsToRemove(Steps{10, 20, 30, 40}, 40, {2, Best(30, false)}, Best(30, false)),
            (Steps{10, 20}));
}

// One that was saved for nothing else takes no place of the newest, and goes when it is outdone.
TEST(StepsToRemove, SavedForThisAloneItIsExtra) {
  EXPECT_EQ(StepsToRemove(Steps{10, 20, 23, 30}, 30, {2, Best(23, false)}, Best(23, true)),
            Steps{10});
  EXPECT_EQ(StepsToRemove(Steps{10, 20, 23, 27}, 27, {2, Best(27, true)}, Best(23, true)),
            Steps{23});
  EXPECT_EQ(StepsToRemove(Steps{10, 20, 23, 30}, 30, {2, Best(30, false)}, Best(23, true)),
            (Steps{10, 23}));
  // Also in a run that keeps all.
  EXPECT_EQ(StepsToRemove(Steps{10, 23, 27}, 27, {0, Best(27, true)}, Best(23, true)), Steps{23});
  // It is saved again because the run ends: now it counts.
  EXPECT_EQ(StepsToRemove(Steps{10, 20, 23}, 23, {2, Best(23, false)}, Best(23, true)), Steps{10});
}

// After going back to an earlier step, what a run left that went further is not touched.
TEST(StepsToRemove, ABestOneBeyondIsLeftAlone) {
  EXPECT_EQ(StepsToRemove(Steps{10, 20, 37, 40}, 20, {1, Best(20, false)}, Best(37, true)),
            Steps{10});
}

// The choice was given up: nothing is protected any more.
TEST(StepsToRemove, WithoutAChoiceAllCountAlike) {
  EXPECT_EQ(StepsToRemove(Steps{10, 23, 30, 40}, 40, 2, Best(23, true)), (Steps{10, 23}));
}

TEST(BestFile, IsReadAsItWasWritten) {
  const TempFolder folder;
  EXPECT_EQ(ReadBest(folder.path()), std::nullopt);
  const BestCheckpoint best = {.step = 40, .validation_loss = 2.1300000000000003};
  WriteBest(folder.path(), best);
  EXPECT_EQ(ReadBest(folder.path()), best);
  EXPECT_NE(testing::ReadText(folder / "best.json").find("\"step-00000040\""), std::string::npos);
  for (const char* damaged : {"", "{}", "[]", "{\"step\": 1.5, \"validation_loss\": 1}"}) {
    WriteText(folder / "best.json", damaged);
    EXPECT_EQ(ReadBest(folder.path()), std::nullopt) << damaged;
  }
}

class BestInStore : public ::testing::Test {
 protected:
  void Save(int64_t step, const Retention& retention) { store_.Save(step, {}, {}, retention); }

  TempFolder folder_;
  CheckpointStore store_ = CheckpointStore(folder_ / "checkpoints");
};

TEST_F(BestInStore, IsNamedAndKeptUntilABetterOneIsComplete) {
  Save(5, {1, Best(5, true)});
  Save(10, {1, Best(5, true)});
  Save(20, {1, Best(5, true)});
  EXPECT_EQ(store_.CompleteSteps(), (Steps{5, 20}));
  EXPECT_EQ(ReadBest(store_.folder()), Best(5, true));
  Save(25, {1, Best(25, true)});
  EXPECT_EQ(store_.CompleteSteps(), (Steps{20, 25}));
  EXPECT_EQ(ReadBest(store_.folder()), Best(25, true));
  Save(30, {1, Best(30, false)});
  EXPECT_EQ(store_.CompleteSteps(), Steps{30});
  Save(40, {1, Best(30, false)});
  EXPECT_EQ(store_.CompleteSteps(), (Steps{30, 40}));
  EXPECT_EQ(ReadBest(store_.folder()), Best(30, false));
}

// A name that cannot be written must not cost the checkpoint that it would replace.
TEST_F(BestInStore, WithoutANameNothingIsRemoved) {
  Save(5, {1, Best(5, true)});
  fs::remove(store_.folder() / "best.json");
  fs::create_directories(store_.folder() / "best.json" / "x");
  Save(10, {1, Best(10, false)});
  EXPECT_EQ(store_.CompleteSteps(), (Steps{5, 10}));
}

TEST_F(BestInStore, TheNameGoesWithItsCheckpoint) {
  Save(5, {1, Best(5, false)});
  Save(10, 1);
  EXPECT_EQ(store_.CompleteSteps(), Steps{10});
  EXPECT_FALSE(fs::exists(store_.folder() / "best.json"));
}

// The number of the newest, and the best one, and the one that is being written.
TEST_F(BestInStore, TakesOnePlaceMore) {
  for (int64_t step = 1; step <= 12; ++step) {
    const int64_t best = step - step % 5;
    Save(step, {3, best == 0 ? std::nullopt : std::optional(Best(best, false))});
    EXPECT_LE(store_.CompleteSteps().size(), 4u) << step;
  }
}

}  // namespace
}  // namespace gt::best_checkpoint_test
