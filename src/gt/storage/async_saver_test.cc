#include "gt/storage/async_saver.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "gt/testing/temp_folder.h"

namespace gt::async_saver_test {
namespace {

using testing::ExpectError;
using testing::TempFolder;
using testing::WriteText;

class AsyncSaverTest : public ::testing::Test {
 protected:
  // One tensor whose bytes come when `gate` is opened.
  static std::vector<TensorSource> Gated(const std::shared_future<void>& gate) {
    TensorSource source{.name = "a", .dtype = DType::kUInt8, .sizes = {3}, .write = nullptr};
    source.write = [gate](const ByteSink& sink) {
      gate.wait();
      sink(std::as_bytes(std::span(std::string_view("xyz"))));
    };
    return {source};
  }

  static std::vector<TensorSource> Ready() {
    std::promise<void> gate;
    gate.set_value();
    return Gated(gate.get_future().share());
  }

  TempFolder folder_;
  CheckpointStore store_{folder_ / "checkpoint"};
};

TEST_F(AsyncSaverTest, SavesInTheBackground) {
  AsyncSaver saver(store_);
  EXPECT_FALSE(saver.busy());
  std::promise<void> gate;
  saver.Start(1, Gated(gate.get_future().share()), {{"step", 1}}, 0);
  EXPECT_TRUE(saver.busy());
  EXPECT_TRUE(store_.CompleteSteps().empty());
  gate.set_value();
  saver.Wait();
  EXPECT_FALSE(saver.busy());
  EXPECT_EQ(store_.Open(1).state().at("step"), 1);
  saver.Wait();  // nothing to wait for
}

// What a rank does of a save by many is a function to this class.
TEST_F(AsyncSaverTest, RunsSavesOfOtherForms) {
  AsyncSaver saver(store_);
  std::promise<void> gate;
  auto owned = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = owned;
  saver.Start([this, opened = gate.get_future().share(), mine = std::move(owned)] {
    opened.wait();
    const std::string temporary = store_.Begin(1);
    const TensorPart part = WholePart(Ready().front());
    const std::string text = store_.WritePart(temporary, 0, 1, {&part, 1});
    store_.Commit(1, temporary, {&text, 1}, {}, 0);
  });
  EXPECT_TRUE(saver.busy());
  EXPECT_FALSE(watched.expired());
  gate.set_value();
  saver.Wait();
  EXPECT_TRUE(watched.expired());
  EXPECT_NE(store_.Open(1).Find("a"), nullptr);
  saver.Start([] { Fail(ErrorCode::kCannotWrite, "a rank has failed"); });
  ExpectError(ErrorCode::kCannotWrite, {"a rank has failed"}, [&] { saver.Wait(); });
}

TEST_F(AsyncSaverTest, OneSaveAtATime) {
  AsyncSaver saver(store_);
  std::promise<void> gate;
  saver.Start(1, Gated(gate.get_future().share()), {}, 0);
  const auto begin = std::chrono::steady_clock::now();
  const auto opener = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    gate.set_value();
  });
  const double waited = saver.Start(2, Ready(), {}, 0);
  EXPECT_EQ(store_.CompleteSteps().front(), 1);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(waited, 0);
  EXPECT_LE(waited, elapsed.count());
  saver.Wait();
  EXPECT_EQ(store_.CompleteSteps(), (std::vector<int64_t>{1, 2}));
}

TEST_F(AsyncSaverTest, TheDestructorWaits) {
  AsyncSaver(store_).Start(1, Ready(), {}, 0);
  EXPECT_EQ(store_.CompleteSteps(), std::vector<int64_t>{1});
}

// The copies that training made for the save are freed when it is done, not when the next begins.
TEST_F(AsyncSaverTest, SourcesAreFreedWhenTheSaveIsDone) {
  AsyncSaver saver(store_);
  auto sources = Ready();
  auto copy = std::make_shared<int>();
  const std::weak_ptr<int> watched = copy;
  sources[0].write = [copy = std::move(copy), write = sources[0].write](const ByteSink& sink) {
    write(sink);
  };
  saver.Start(1, std::move(sources), {}, 0);
  while (saver.busy()) std::this_thread::yield();
  EXPECT_TRUE(watched.expired());
}

TEST_F(AsyncSaverTest, ErrorsSurfaceAtTheNextCall) {
  AsyncSaver saver(store_);
  WriteText(store_.folder(), "a file where the folder should be");
  saver.Start(1, Ready(), {}, 0);
  ExpectError(ErrorCode::kCannotWrite, {"checkpoint"}, [&] { saver.Start(2, Ready(), {}, 0); });
  saver.Wait();  // the error was reported, and the second save not started
  saver.Start(3, Ready(), {}, 0);
  ExpectError(ErrorCode::kCannotWrite, {"checkpoint"}, [&] { saver.Wait(); });
  saver.Wait();
  std::filesystem::remove(store_.folder());
  saver.Start(4, Ready(), {}, 0);
  saver.Wait();
  EXPECT_EQ(store_.CompleteSteps(), std::vector<int64_t>{4});
}

}  // namespace
}  // namespace gt::async_saver_test
