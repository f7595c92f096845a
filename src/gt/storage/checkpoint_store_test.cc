#include "gt/storage/checkpoint_store.h"

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "gt/storage/checkpoint_manifest.h"
#include "gt/testing/temp_folder.h"

namespace gt::checkpoint_store_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ExpectError;
using testing::ReadText;
using testing::TempFolder;
using testing::WriteText;

// What a run of these tests saves at a step: the numbers follow from step and `variant`, so that a
// checkpoint that mixes two saves is noticed.
struct Contents {
  Contents(int64_t step, int variant) : weights(1000), moments(500) {
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = Number(step, variant, i);
    for (size_t i = 0; i < moments.size(); ++i) moments[i] = Number(step, variant, i + 7);
    state = {{"step", step}, {"variant", variant}, {"lr", 0.1 * static_cast<double>(step)}};
  }

  static double Number(int64_t step, int variant, size_t i) {
    return static_cast<double>(step) + 1000.0 * variant + 1e-3 * static_cast<double>(i);
  }

  std::vector<TensorSource> Sources() const {
    return {
        SourceOf("layers.0.weight", DType::kFloat64, {10, 100}, std::as_bytes(std::span(weights))),
        SourceOf("optimizer.layers.0.weight.m", DType::kFloat64, {500},
                 std::as_bytes(std::span(moments))),
        SourceOf("nothing", DType::kInt64, {0}, {})};
  }

  std::vector<double> weights;
  std::vector<double> moments;
  json state;
};

constexpr int64_t kShardBytes = 8500;  // weights and moments are in shards of their own
constexpr std::string_view kShard1 = "step-00000020/tensors-00001-of-00002.safetensors";
constexpr std::string_view kShard2 = "step-00000020/tensors-00002-of-00002.safetensors";

void Save(const CheckpointStore& store, int64_t step, int64_t keep_latest = 0, int variant = 0) {
  const Contents contents(step, variant);
  store.Save(step, contents.Sources(), contents.state, keep_latest);
}

template <typename T>
std::vector<T> ValuesOf(const TensorEntry* tensor) {
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

// Opens the step and compares everything; returns its variant.
int ExpectWhole(const CheckpointStore& store, int64_t step) {
  const CheckpointReader reader = store.Open(step);
  const int variant = reader.state().at("variant");
  const Contents expected(step, variant);
  EXPECT_EQ(reader.step(), step);
  EXPECT_EQ(reader.state(), expected.state);
  EXPECT_EQ(reader.tensors().size(), 3u);
  EXPECT_EQ(reader.Find("layers.0.weight")->sizes, (std::vector<int64_t>{10, 100}));
  EXPECT_EQ(ValuesOf<double>(reader.Find("layers.0.weight")), expected.weights);
  EXPECT_EQ(ValuesOf<double>(reader.Find("optimizer.layers.0.weight.m")), expected.moments);
  EXPECT_EQ(reader.Find("other"), nullptr);
  return variant;
}

// Names of work in progress.
std::vector<std::string> HiddenNames(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".") && name != ".lock") names.push_back(name);
  }
  return names;
}

class CheckpointStoreTest : public ::testing::Test {
 protected:
  fs::path At(std::string_view name) const { return store_.folder() / name; }

  void SaveThree() {
    for (const int64_t step : {10, 20, 30}) Save(store_, step);
  }

  void ExpectDamaged(std::initializer_list<std::string_view> parts) {
    ExpectError(ErrorCode::kCheckpointDamaged, parts, [this] { store_.Open(20); });
    ExpectError(ErrorCode::kCheckpointDamaged, {"step 20", "other steps that are there: 10, 30"},
                [this] { store_.Open(20); });
  }

  void FlipBit(std::string_view name, size_t position) {
    std::string text = ReadText(At(name));
    ASSERT_LT(position, text.size());
    text[position] ^= 4;
    WriteText(At(name), text);
  }

  TempFolder folder_;
  CheckpointStore store_{folder_ / "run/checkpoint", kShardBytes};
};

TEST_F(CheckpointStoreTest, WhatIsSavedIsRead) {
  EXPECT_TRUE(store_.CompleteSteps().empty());
  SaveThree();
  EXPECT_EQ(store_.CompleteSteps(), (std::vector<int64_t>{10, 20, 30}));
  for (const int64_t step : store_.CompleteSteps()) ExpectWhole(store_, step);
  EXPECT_EQ(HiddenNames(store_.folder()), std::vector<std::string>());
  // Any tool can read the tensors.
  EXPECT_NE(SafetensorsFile(At(kShard1)).Find("layers.0.weight"), nullptr);
  EXPECT_NE(SafetensorsFile(At(kShard2)).Find("optimizer.layers.0.weight.m"), nullptr);
}

TEST_F(CheckpointStoreTest, ALongRunHasLongerNames) {
  Save(store_, 123456789012);
  EXPECT_EQ(store_.CompleteSteps(), std::vector<int64_t>{123456789012});
  ExpectWhole(store_, 123456789012);
}

TEST_F(CheckpointStoreTest, ATensorlessCheckpointIsOne) {
  store_.Save(1, {}, {{"a", 1}}, 0);
  EXPECT_EQ(store_.Open(1).state(), json({{"a", 1}}));
  EXPECT_TRUE(store_.Open(1).tensors().empty());
}

TEST_F(CheckpointStoreTest, StepsThatAreNotThereAreErrors) {
  ExpectError(ErrorCode::kCheckpointDamaged, {"no checkpoint of step 5", "no other checkpoint"},
              [this] { store_.Open(5); });
  SaveThree();
  ExpectError(ErrorCode::kCheckpointDamaged, {"no checkpoint of step 5", "10, 20, 30"},
              [this] { store_.Open(5); });
}

// JSON has no such numbers; they would come back as null.
TEST_F(CheckpointStoreTest, StateThatJsonCannotHoldIsRefused) {
  const json nan = {{"loss", std::numeric_limits<double>::quiet_NaN()}};
  ExpectError(ErrorCode::kInternal, {"changes when it is written"},
              [&] { store_.Save(1, {}, nan, 0); });
  const json bytes = {{"text", "\xff"}};
  ExpectError(ErrorCode::kInternal, {"cannot be written as JSON"},
              [&] { store_.Save(1, {}, bytes, 0); });
  EXPECT_EQ(HiddenNames(store_.folder()), std::vector<std::string>());
}

TEST_F(CheckpointStoreTest, KeepsTheLatest) {
  for (int64_t step = 1; step <= 5; ++step) Save(store_, step, 2);
  EXPECT_EQ(store_.CompleteSteps(), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(HiddenNames(store_.folder()), std::vector<std::string>());
}

// A run that continues from an older step must not lose what it has just saved.
// Counted on the disk, with the one that is being written.
TEST_F(CheckpointStoreTest, MostThatAreThereAtOneTimeAreForeseen) {
  int64_t most = 0;
  auto count = [&](const fs::path& store) {
    most = std::max<int64_t>(most, std::distance(fs::directory_iterator(store), {}) - 1);  // .lock
  };
  for (const int64_t existing : {0, 1, 2, 4}) {
    for (const int64_t keep : {1, 3}) {
      for (const int64_t saves : {0, 1, 2, 6}) {
        const CheckpointStore store(folder_ / fmt::format("{}-{}-{}", existing, keep, saves));
        TensorSource counts = {.name = "t", .dtype = DType::kUInt8, .sizes = {1}, .write = nullptr};
        counts.write = [&](const ByteSink& sink) {
          count(store.folder());
          sink(std::as_bytes(std::span("x", 1)));
        };
        for (int64_t i = 0; i < existing; ++i) store.Save(i, {&counts, 1}, {}, 0);
        most = existing;
        for (int64_t i = 0; i < saves; ++i) store.Save(existing + i, {&counts, 1}, {}, keep);
        EXPECT_EQ(MostAdded(existing, saves, keep), most - existing)
            << existing << " there, " << saves << " saves, " << keep << " kept";
      }
    }
  }
}

TEST_F(CheckpointStoreTest, KeepsWhatItSavedAndWhatLiesBeyond) {
  SaveThree();
  Save(store_, 15, 1);
  EXPECT_EQ(store_.CompleteSteps(), (std::vector<int64_t>{15, 20, 30}));
}

TEST_F(CheckpointStoreTest, ReplacesAStep) {
  SaveThree();
  Save(store_, 20, 0, /*variant=*/1);
  EXPECT_EQ(store_.CompleteSteps(), (std::vector<int64_t>{10, 20, 30}));
  EXPECT_EQ(ExpectWhole(store_, 20), 1);
  EXPECT_EQ(HiddenNames(store_.folder()), std::vector<std::string>());
}

// The writer died after the old checkpoint had been renamed away and before the new one was there.
TEST_F(CheckpointStoreTest, RecoversAHalfReplacedStep) {
  SaveThree();
  fs::rename(At("step-00000020"), At(".old-step-00000020"));
  EXPECT_EQ(store_.CompleteSteps(), (std::vector<int64_t>{10, 20, 30}));
  ExpectWhole(store_, 20);
  Save(store_, 40);
  EXPECT_TRUE(fs::exists(At("step-00000020")));
  ExpectWhole(store_, 20);
  EXPECT_EQ(HiddenNames(store_.folder()), std::vector<std::string>());
}

// The writer died after the replacement was in place.
TEST_F(CheckpointStoreTest, RemovesWhatWasReplaced) {
  SaveThree();
  fs::copy(At("step-00000010"), At(".old-step-00000020"), fs::copy_options::recursive);
  EXPECT_EQ(ExpectWhole(store_, 20), 0);
  Save(store_, 40);
  ExpectWhole(store_, 20);
  EXPECT_EQ(HiddenNames(store_.folder()), std::vector<std::string>());
}

TEST_F(CheckpointStoreTest, OnlyItsOwnNamesCount) {
  SaveThree();
  for (const char* name : {"step-40", "step-", "step-0000004x", "step--0000040", "other"}) {
    fs::copy(At("step-00000010"), At(name));
  }
  fs::create_directories(At("step-00000050"));  // no manifest: a copy under way
  EXPECT_EQ(store_.CompleteSteps(), (std::vector<int64_t>{10, 20, 30}));
  Save(store_, 60, 1);
  EXPECT_EQ(store_.CompleteSteps(), std::vector<int64_t>{60});
  for (const char* name : {"step-40", "other", "step-00000050"}) EXPECT_TRUE(fs::exists(At(name)));
}

TEST_F(CheckpointStoreTest, NoticesDamage) {
  SaveThree();
  const fs::path step = At("step-00000020");
  const fs::path backup = folder_ / "backup";
  fs::copy(step, backup);
  const auto restore = [&] {
    fs::remove_all(step);
    fs::copy(backup, step);
    ExpectWhole(store_, 20);
  };

  fs::resize_file(At(kShard1), fs::file_size(At(kShard1)) - 1);
  ExpectDamaged({"tensors-00001-of-00002.safetensors: has 8119 bytes in place of 8120"});
  restore();
  FlipBit(kShard1, fs::file_size(At(kShard1)) - 5);
  ExpectDamaged({"tensors-00001-of-00002.safetensors: the checksum of tensor \"layers.0.weight\""});
  restore();
  // In the middle of a name, so that the header is still well-formed.
  FlipBit(kShard2, ReadText(At(kShard2)).find("optimizer"));
  ExpectDamaged({"tensors-00002-of-00002.safetensors: the checksum of the header"});
  restore();
  FlipBit(kShard2, 7);
  ExpectDamaged({"tensors-00002-of-00002.safetensors", "no safetensors file"});
  restore();
  FlipBit("step-00000020/state.json", 15);
  ExpectDamaged({"state.json: the checksum is wrong"});
  restore();
  fs::remove(At("step-00000020/state.json"));
  ExpectDamaged({"state.json: cannot be read", "No such file"});
  restore();
  fs::remove(At(kShard2));
  fs::resize_file(At(kShard1), 3);
  ExpectDamaged({"tensors-00002-of-00002.safetensors: cannot be read", "has 3 bytes"});
  restore();
  fs::remove(step / kManifestFile);
  ExpectError(ErrorCode::kCheckpointDamaged, {"manifest.json", "No such file", "10, 30"},
              [this] { store_.Open(20); });
  restore();
  WriteText(step / kManifestFile, ReadText(At("step-00000010/manifest.json")));
  ExpectDamaged({"manifest.json says that it is of step 10"});
  restore();

  WriteText(step / "notes.txt", "files that are not in the manifest do not matter");
  ExpectWhole(store_, 20);
}

// Every bit of the manifest counts, since everything else is judged by it.
TEST_F(CheckpointStoreTest, NoticesAnyDamageOfTheManifest) {
  SaveThree();
  const fs::path path = At("step-00000020") / kManifestFile;
  const std::string right = ReadText(path);
  for (size_t i = 0; i < right.size(); ++i) {
    std::string text = right;
    text[i] = static_cast<char>(text[i] ^ (1 << (i % 7)));
    WriteText(path, text);
    ExpectError(ErrorCode::kCheckpointDamaged, {"manifest.json"},
                [&] { ReadManifest(path.parent_path()); });
    WriteText(path, right.substr(0, i));
    ExpectError(ErrorCode::kCheckpointDamaged, {"manifest.json"},
                [&] { ReadManifest(path.parent_path()); });
  }
}

TEST_F(CheckpointStoreTest, PrepareCreatesAndCleans) {
  store_.Prepare(1000);
  EXPECT_TRUE(fs::is_directory(store_.folder()));
  fs::create_directories(At(".tmp-step-00000010-1"));
  WriteText(At(".tmp-step-00000010-1/.graphtrainer-unfinished"), "");
  WriteText(At(".tmp-step-00000010-1/x"), "left behind");
  fs::create_directories(At(".trash-step-00000010-1"));
  store_.Prepare(1000);
  EXPECT_EQ(HiddenNames(store_.folder()), std::vector<std::string>());
}

// A name proves nothing: what gt has not marked is the user's.
TEST_F(CheckpointStoreTest, OthersFoldersStayWhateverTheirNames) {
  SaveThree();
  std::set<std::string> theirs;
  for (const char* name : {".tmp-notes", ".tmp-step-00000010-1", ".trash-step-00000020-1",
                           ".trash-mine", ".old-step-00000030", ".old-step-00000070"}) {
    theirs.insert(name);
    fs::create_directories(At(name));
    WriteText(At(name) / "mine.txt", "not a checkpoint");
  }
  fs::create_directory_symlink(folder_.path(), At(".tmp-link"));
  WriteText(At(".tmp-file"), "mine");
  theirs.insert({".tmp-link", ".tmp-file"});
  store_.Prepare(1000);
  Save(store_, 40, 1);
  Save(store_, 50, 1);
  const auto hidden = HiddenNames(store_.folder());
  EXPECT_EQ(std::set<std::string>(hidden.begin(), hidden.end()), theirs);
  for (const std::string& name : theirs) {
    if (name.starts_with(".tmp-l") || name.starts_with(".tmp-f")) continue;
    EXPECT_EQ(ReadText(At(name) / "mine.txt"), "not a checkpoint") << name;
  }
}

TEST_F(CheckpointStoreTest, PrepareReportsWhatWouldFailLater) {
  ExpectError(ErrorCode::kCannotWrite,
              {"4.0 EiB (4611686018427387904 bytes) are needed, but only", "are free"},
              [this] { store_.Prepare(int64_t{1} << 62); });
  EXPECT_EQ(HiddenNames(store_.folder()), std::vector<std::string>());
  WriteText(folder_ / "file", "");
  const CheckpointStore below_a_file(folder_ / "file/checkpoint");
  ExpectError(ErrorCode::kCannotWrite, {"file/checkpoint", "Not a directory"},
              [&] { below_a_file.Prepare(1); });
  EXPECT_TRUE(below_a_file.CompleteSteps().empty());
}

// Runs `body` in a process of its own and returns its exit status; 1 if it threw.
int InChild(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      body();
      _exit(0);
    } catch (...) {
      _exit(1);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

// A limit on the size of files behaves like a disk that fills up in the middle of a write.
TEST_F(CheckpointStoreTest, AFullDiskLeavesOlderCheckpointsAlone) {
  SaveThree();
  const int status = InChild([this] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      Save(store_, 30, 1, /*variant=*/1);
    } catch (const Error& error) {
      const bool as_expected =
          error.code() == ErrorCode::kCannotWrite &&
          error.message().find("tensors-00001-of-00002.safetensors") != std::string::npos &&
          error.message().find("ulimit -f") != std::string::npos;
      if (as_expected) return;
    }
    throw std::runtime_error("not what was expected");
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(HiddenNames(store_.folder()), std::vector<std::string>());
  EXPECT_EQ(store_.CompleteSteps(), (std::vector<int64_t>{10, 20, 30}));
  for (const int64_t step : store_.CompleteSteps()) EXPECT_EQ(ExpectWhole(store_, step), 0);
}

TEST_F(CheckpointStoreTest, ASourceThatFailsLeavesNothingBehind) {
  SaveThree();
  const Contents contents(30, 1);
  std::vector<TensorSource> sources = contents.Sources();
  sources[1].write = [](const ByteSink&) { Fail(ErrorCode::kKernelFailed, "the device is gone"); };
  ExpectError(ErrorCode::kKernelFailed, {"the device is gone"},
              [&] { store_.Save(30, sources, {}, 1); });
  EXPECT_EQ(HiddenNames(store_.folder()), std::vector<std::string>());
  EXPECT_EQ(store_.CompleteSteps(), (std::vector<int64_t>{10, 20, 30}));
  EXPECT_EQ(ExpectWhole(store_, 30), 0);
}

// Another process is in the middle of a save: its files are not taken for leftovers, and both
// checkpoints are whole in the end.
TEST_F(CheckpointStoreTest, WaitsForALiveWriter) {
  int to_child[2];
  int to_parent[2];
  ASSERT_EQ(pipe(to_child), 0);
  ASSERT_EQ(pipe(to_parent), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Contents contents(10, 0);
    std::vector<TensorSource> sources = contents.Sources();
    const auto write = sources[1].write;
    sources[1].write = [&](const ByteSink& sink) {
      char byte = 0;
      if (::write(to_parent[1], &byte, 1) != 1 || ::read(to_child[0], &byte, 1) != 1) _exit(2);
      write(sink);
    };
    store_.Save(10, sources, contents.state, 0);
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(to_parent[0], &byte, 1), 1);
  std::jthread other_writer([this] { Save(store_, 20); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(HiddenNames(store_.folder()),
            std::vector<std::string>{".tmp-step-00000010-" + std::to_string(child)});
  ASSERT_EQ(write(to_child[1], &byte, 1), 1);
  other_writer.join();
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ExpectWhole(store_, 10);
  ExpectWhole(store_, 20);
  EXPECT_EQ(HiddenNames(store_.folder()), std::vector<std::string>());
  for (const int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) close(fd);
}

// Saves, each step twice, and reports every save that returned.
[[noreturn]] void SaveForever(const CheckpointStore& store, int64_t first_step, int report) {
  for (int64_t step = first_step;; ++step) {
    for (const int variant : {0, 1}) {
      Save(store, step, 2, variant);
      const int64_t saved[] = {step, variant};
      if (write(report, saved, sizeof(saved)) != sizeof(saved)) _exit(1);
    }
  }
}

// Killed at any instant, a writer leaves at least the last checkpoint whose Save had returned.
TEST_F(CheckpointStoreTest, SurvivesBeingKilledAtRandomInstants) {
  // The children live as long as a few saves take, however slow or busy the disk is.
  const auto begin = std::chrono::steady_clock::now();
  Save(store_, 1);
  const auto one_save = std::chrono::steady_clock::now() - begin;
  std::mt19937 random(42);
  std::uniform_real_distribution<double> fraction(0, 4);
  int64_t saved[] = {1, 0};  // step and variant that were reported last
  for (int round = 0; round < 30; ++round) {
    int report[2];
    ASSERT_EQ(pipe(report), 0);
    const pid_t child = fork();
    if (child == 0) SaveForever(store_, saved[0] + 1, report[1]);
    close(report[1]);
    std::this_thread::sleep_for(fraction(random) * one_save);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    int64_t message[2];
    while (read(report[0], message, sizeof(message)) == sizeof(message)) {
      std::copy_n(message, 2, saved);
    }
    close(report[0]);

    const auto steps = store_.CompleteSteps();
    ASSERT_FALSE(steps.empty());
    ASSERT_GE(steps.back(), saved[0]);
    for (const int64_t step : steps) {
      const int variant = ExpectWhole(store_, step);
      if (step == saved[0]) EXPECT_GE(variant, saved[1]);
    }
    saved[0] = steps.back();
    saved[1] = 0;
  }
  EXPECT_GT(saved[0], 1) << "no save was ever completed";
  Save(store_, saved[0] + 1, 2);
  EXPECT_EQ(HiddenNames(store_.folder()), std::vector<std::string>());
}

// System calls that change which files there are and what is in them.
bool ChangesFiles(uint64_t number) {
  constexpr auto kCalls = std::to_array<uint64_t>({
#ifdef SYS_rename  // newer architectures have the second form alone
      SYS_rename, SYS_unlink, SYS_rmdir, SYS_mkdir,
#endif
      SYS_renameat, SYS_renameat2, SYS_unlinkat, SYS_mkdirat, SYS_write});
  return std::find(kCalls.begin(), kCalls.end(), number) != kCalls.end();
}

enum class Outcome { kKilled, kFinished, kFailed, kCannotTrace };

// Runs `body` in a process of its own and kills that right before its call number `count` of those
// that change files.
Outcome KilledBeforeCall(int count, const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
    raise(SIGSTOP);
    try {
      body();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) return Outcome::kCannotTrace;
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  while (true) {
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) return WEXITSTATUS(status) == 0 ? Outcome::kFinished : Outcome::kFailed;
    constexpr int kSystemCall = SIGTRAP | 0x80;
    if (!WIFSTOPPED(status) || WSTOPSIG(status) != kSystemCall) break;  // it has crashed
    __ptrace_syscall_info info = {};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(info), &info) <= 0) break;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY && ChangesFiles(info.entry.nr) && count-- == 0) break;
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return count < 0 ? Outcome::kKilled : Outcome::kFailed;
}

// The same without luck: killed before each single call that changes files, while a save replaces a
// checkpoint and removes an older one.
TEST_F(CheckpointStoreTest, SurvivesBeingKilledAtEveryInstant) {
  const CheckpointStore original(folder_ / "original");
  for (const int64_t step : {10, 20}) Save(original, step);
  Outcome outcome = Outcome::kKilled;
  int calls = 0;
  for (; outcome == Outcome::kKilled; ++calls) {
    SCOPED_TRACE("killed before call " + std::to_string(calls));
    const CheckpointStore store(folder_ / std::to_string(calls));
    fs::copy(original.folder(), store.folder(), fs::copy_options::recursive);
    outcome = KilledBeforeCall(calls, [&] { Save(store, 20, 1, /*variant=*/1); });
    if (outcome == Outcome::kCannotTrace) GTEST_SKIP() << "processes cannot be traced here";
    const auto steps = store.CompleteSteps();
    ASSERT_FALSE(steps.empty());
    EXPECT_EQ(steps.back(), 20);
    for (const int64_t step : steps) ExpectWhole(store, step);
    store.Prepare(0);
    EXPECT_EQ(store.CompleteSteps(), steps);
    EXPECT_EQ(HiddenNames(store.folder()), std::vector<std::string>());
  }
  EXPECT_EQ(outcome, Outcome::kFinished);
  EXPECT_GT(calls, 15) << "too few calls were seen";
}

}  // namespace
}  // namespace gt::checkpoint_store_test
