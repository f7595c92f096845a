// Checkpoints that several ranks write together, and read under another layout.
#include "gt/storage/checkpoint_parts.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "gt/storage/checkpoint_store.h"
#include "gt/testing/temp_folder.h"

namespace gt::checkpoint_parts_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ExpectError;
using testing::ReadText;
using testing::TempFolder;
using testing::WriteText;
using Sizes = std::vector<int64_t>;

constexpr int64_t kRanks = 4;

// The values of a box of the tensor whose elements are first, first + 1, ...
std::vector<int32_t> ValuesOf(const TensorBox& box, int32_t first) {
  std::vector<int32_t> all(static_cast<size_t>(TensorBox::All(box.whole).elements()));
  std::iota(all.begin(), all.end(), first);
  std::vector<int32_t> values(static_cast<size_t>(box.elements()));
  CopyBox(TensorBox::All(box.whole), std::as_bytes(std::span(all)), box,
          std::as_writable_bytes(std::span(values)), sizeof(int32_t));
  return values;
}

TensorPart PartOf(std::string name, TensorBox box, int32_t first = 0) {
  const auto values = std::make_shared<std::vector<int32_t>>(ValuesOf(box, first));
  TensorSource source{
      .name = std::move(name), .dtype = DType::kInt32, .sizes = box.sizes, .write = nullptr};
  source.write = [values](const ByteSink& sink) { sink(std::as_bytes(std::span(*values))); };
  return {std::move(source), std::move(box)};
}

std::vector<int32_t> ReadBox(const CheckpointReader& reader, const std::string& name,
                             const TensorBox& box) {
  std::vector<int32_t> values(static_cast<size_t>(box.elements()), -1);
  reader.Read(name, box, std::as_writable_bytes(std::span(values)));
  return values;
}

// Part `index` of `count` of a dimension, as FSDP cuts: the last ones are shorter or empty.
void Cut(TensorBox& box, size_t dim, int64_t index, int64_t count) {
  const int64_t length = box.sizes[dim];
  const int64_t chunk = (length + count - 1) / count;
  const int64_t begin = std::min(index * chunk, length);
  box.offset[dim] += begin;
  box.sizes[dim] = std::min(chunk, length - begin);
}

// Ways to shard a tensor of two dimensions over the ranks.
struct Layout {
  const char* name;
  std::function<TensorBox(TensorBox, int64_t rank)> box;
};

const std::vector<Layout>& Layouts() {
  static const std::vector<Layout> layouts = {
      {"fsdp4",
       [](TensorBox box, int64_t rank) {
         Cut(box, 0, rank, kRanks);
         return box;
       }},
      {"tp4",
       [](TensorBox box, int64_t rank) {
         Cut(box, 1, rank, kRanks);
         return box;
       }},
      {"tp2 x fsdp2",
       [](TensorBox box, int64_t rank) {
         Cut(box, 1, rank % 2, 2);
         Cut(box, 0, rank / 2, 2);
         return box;
       }},
      // Both cut the same dimension.
      {"row-wise tp2 x fsdp2",
       [](TensorBox box, int64_t rank) {
         Cut(box, 0, rank % 2, 2);
         Cut(box, 0, rank / 2, 2);
         return box;
       }},
      {"replicated", [](TensorBox box, int64_t) { return box; }},
      {"one rank",
       [](TensorBox box, int64_t rank) {
         if (rank > 0) box.sizes[0] = 0;
         return box;
       }},
  };
  return layouts;
}

std::vector<std::string> HiddenNames(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".") && name != ".lock") names.push_back(name);
  }
  return names;
}

class CheckpointPartsTest : public ::testing::Test {
 protected:
  using PartsOfRank = std::function<std::vector<TensorPart>(int64_t rank)>;

  // Each rank in a thread, with a store of its own, as in a process of its own.
  std::vector<std::string> WriteParts(const std::string& temporary, const PartsOfRank& parts) {
    std::vector<std::string> texts(kRanks);
    std::vector<std::exception_ptr> errors(kRanks);
    {
      std::vector<std::jthread> ranks;
      for (int64_t rank = 0; rank < kRanks; ++rank) {
        ranks.emplace_back([&, rank] {
          const auto i = static_cast<size_t>(rank);
          try {
            const CheckpointStore mine(store_.folder(), kShardBytes);
            texts[i] = mine.WritePart(temporary, rank, kRanks, parts(rank));
          } catch (...) {
            errors[i] = std::current_exception();
          }
        });
      }
    }
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
    return texts;
  }

  void SaveByAll(int64_t step, const PartsOfRank& parts) {
    const std::string temporary = store_.Begin(step);
    store_.Commit(step, temporary, WriteParts(temporary, parts), {{"step", step}}, 0);
  }

  // Rows of a tensor of 10 x 4 and a whole one, which rank 1 has.
  static std::vector<TensorPart> Example(int64_t rank) {
    TensorBox box = TensorBox::All({10, 4});
    Cut(box, 0, rank, kRanks);
    std::vector<TensorPart> parts = {PartOf("x", box)};
    if (rank == 1) parts.push_back(PartOf("scale", TensorBox::All({})));
    return parts;
  }

  // The step is whole, and there is nothing else.
  void ExpectExample(int64_t step) {
    const CheckpointReader reader = store_.Open(step);
    EXPECT_EQ(reader.state(), json({{"step", step}}));
    const TensorBox all = TensorBox::All({10, 4});
    EXPECT_EQ(ReadBox(reader, "x", all), ValuesOf(all, 0));
    EXPECT_TRUE(HiddenNames(store_.folder()).empty());
  }

  fs::path At(std::string_view name) const { return store_.folder() / name; }

  static constexpr int64_t kShardBytes = 4096;
  TempFolder folder_;
  CheckpointStore store_{folder_ / "checkpoint", kShardBytes};
};

TEST_F(CheckpointPartsTest, AnyLayoutReadsAnyOther) {
  const std::vector<Sizes> shapes = {{8, 8}, {10, 3}, {3, 9}, {1, 5}, {0, 4}};
  const auto name = [](size_t i) { return "tensor." + std::to_string(i); };
  const auto first = [](size_t i) { return static_cast<int32_t>(1000 * i); };
  for (size_t step = 0; step < Layouts().size(); ++step) {
    const Layout& written = Layouts()[step];
    SaveByAll(static_cast<int64_t>(step), [&](int64_t rank) {
      std::vector<TensorPart> parts;
      for (size_t i = 0; i < shapes.size(); ++i) {
        const TensorBox box = written.box(TensorBox::All(shapes[i]), rank);
        parts.push_back(PartOf(name(i), box, first(i)));
      }
      return parts;
    });
    const CheckpointReader reader = store_.Open(static_cast<int64_t>(step));
    for (const Layout& layout : Layouts()) {
      SCOPED_TRACE(fmt::format("written as {}, read as {}", written.name, layout.name));
      for (size_t i = 0; i < shapes.size(); ++i) {
        ASSERT_NE(reader.Info(name(i)), nullptr) << name(i);
        EXPECT_EQ(*reader.Info(name(i)), (TensorInfo{DType::kInt32, shapes[i]}));
        for (int64_t rank = 0; rank < kRanks; ++rank) {
          const TensorBox box = layout.box(TensorBox::All(shapes[i]), rank);
          EXPECT_EQ(ReadBox(reader, name(i), box), ValuesOf(box, first(i))) << BoxText(box);
        }
      }
    }
  }
}

// Grids of random cuts in one to three dimensions, dealt out to the ranks, some cells to two.
TEST_F(CheckpointPartsTest, AnyBoxOfAnyGridIsRead) {
  std::mt19937 random(7);
  const auto number = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  const auto halves = [&](const TensorBox& box) {
    const auto dim = static_cast<size_t>(number(0, static_cast<int64_t>(box.sizes.size()) - 1));
    TensorBox low = box;
    low.sizes[dim] = number(0, box.sizes[dim]);
    std::vector<TensorBox> result = box.Without(low);
    if (low.elements() > 0) result.push_back(std::move(low));
    return result;
  };
  for (int64_t step = 0; step < 8; ++step) {
    Sizes whole(static_cast<size_t>(number(1, 3)));
    for (int64_t& size : whole) size = number(1, 20);
    std::vector<TensorBox> boxes = {TensorBox::All(whole)};
    for (int cut = 0; cut < 12; ++cut) {
      const TensorBox box = boxes.back();
      boxes.pop_back();
      for (TensorBox& half : halves(box)) boxes.push_back(std::move(half));
      std::shuffle(boxes.begin(), boxes.end(), random);
    }
    std::vector<std::vector<TensorPart>> parts(kRanks);
    for (const TensorBox& box : boxes) {
      const auto owner = static_cast<size_t>(number(0, kRanks - 1));
      parts[owner].push_back(PartOf("x", box));
      if (number(0, 3) == 0) parts[(owner + 1) % kRanks].push_back(PartOf("x", box));
    }
    SaveByAll(step, [&](int64_t rank) { return parts[static_cast<size_t>(rank)]; });
    const CheckpointReader reader = store_.Open(step);
    for (int i = 0; i < 50; ++i) {
      TensorBox box = TensorBox::All(whole);
      for (size_t dim = 0; dim < whole.size(); ++dim) {
        box.offset[dim] = number(0, whole[dim]);
        box.sizes[dim] = number(0, whole[dim] - box.offset[dim]);
      }
      ASSERT_EQ(ReadBox(reader, "x", box), ValuesOf(box, 0)) << BoxText(box);
    }
  }
}

TEST_F(CheckpointPartsTest, FilesAreReadableByAnyTool) {
  SaveByAll(10, Example);
  ExpectExample(10);
  const SafetensorsFile file(
      At("step-00000010/tensors-part00002-of-00004-00001-of-00001.safetensors"));
  ASSERT_NE(file.Find("x@3,0"), nullptr);
  EXPECT_EQ(file.Find("x@3,0")->sizes, (Sizes{3, 4}));
  const CheckpointReader reader = store_.Open(10);
  EXPECT_EQ(reader.tensors().size(), 1u);
  EXPECT_NE(reader.Find("scale"), nullptr);
  EXPECT_EQ(reader.Find("x"), nullptr);
  EXPECT_EQ(reader.Info("x@3,0"), nullptr);
}

TEST_F(CheckpointPartsTest, ARankMayHoldNothingOrMoreThanAFile) {
  SaveByAll(10, [](int64_t rank) {
    std::vector<TensorPart> parts;
    if (rank != 2) return parts;
    for (const char* name : {"a", "b", "c"}) parts.push_back(PartOf(name, TensorBox::All({900})));
    return parts;
  });
  EXPECT_TRUE(
      fs::exists(At("step-00000010/tensors-part00003-of-00004-00003-of-00003.safetensors")));
  const CheckpointReader reader = store_.Open(10);
  EXPECT_EQ(reader.tensors().size(), 3u);
  EXPECT_EQ(ReadBox(reader, "b", {{900}, {10}, {2}}), (std::vector<int32_t>{10, 11}));
  // Nothing is in pieces, so that earlier versions of the program can read it too.
  EXPECT_TRUE(ReadManifest(At("step-00000010")).tensors.empty());
}

TEST_F(CheckpointPartsTest, EmptyBoxesAreSkipped) {
  SaveByAll(10, [](int64_t rank) {
    TensorBox box = TensorBox::All({2, 3});
    Cut(box, 0, rank, kRanks);
    return std::vector<TensorPart>{PartOf("x", box)};
  });
  const Manifest manifest = ReadManifest(At("step-00000010"));
  EXPECT_EQ(manifest.files.size(), 3u) << "two files of tensors and the state";
  const TensorBox all = TensorBox::All({2, 3});
  EXPECT_EQ(ReadBox(store_.Open(10), "x", all), ValuesOf(all, 0));
}

// The rank that began dies at any point before the end: what was there stays, and its lock and its
// files are in nobody's way.
TEST_F(CheckpointPartsTest, ACrashBetweenTheStepsLeavesWhatWasThere) {
  SaveByAll(10, Example);
  for (int64_t written = 0; written <= kRanks; ++written) {
    const pid_t child = fork();
    if (child == 0) {
      const std::string temporary = store_.Begin(10);
      for (int64_t rank = 0; rank < written; ++rank) {
        store_.WritePart(temporary, rank, kRanks, Example(rank));
      }
      _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
    EXPECT_EQ(HiddenNames(store_.folder()).size(), 1u);
    EXPECT_EQ(store_.CompleteSteps(), std::vector<int64_t>{10});
    store_.Prepare(0);
    ExpectExample(10);
  }
  SaveByAll(20, Example);
  ExpectExample(20);
}

TEST_F(CheckpointPartsTest, AbandonLeavesNothing) {
  SaveByAll(10, Example);
  const std::string temporary = store_.Begin(10);
  const auto texts = WriteParts(temporary, Example);
  store_.Abandon(temporary);
  EXPECT_TRUE(HiddenNames(store_.folder()).empty());
  store_.Abandon(temporary);
  ExpectError(ErrorCode::kInternal, {temporary, "has ended"},
              [&] { store_.Commit(10, temporary, texts, {}, 0); });
  ExpectError(ErrorCode::kCannotWrite, {temporary, "No such file"},
              [&] { store_.WritePart(temporary, 0, kRanks, Example(0)); });
  ExpectExample(10);
  SaveByAll(20, Example);
  ExpectExample(20);
}

// It would wait for itself for ever.
TEST_F(CheckpointPartsTest, OneSaveAtATime) {
  const std::string temporary = store_.Begin(10);
  const CheckpointStore copy = store_;
  ExpectError(ErrorCode::kInternal, {temporary, "neither committed nor abandoned"},
              [&] { copy.Begin(20); });
  copy.Abandon(temporary);
  SaveByAll(20, Example);
  ExpectExample(20);
}

// Another writer in the same folder waits, and does not take the files for leftovers.
TEST_F(CheckpointPartsTest, OtherWritersWait) {
  const std::string temporary = store_.Begin(10);
  std::atomic<bool> has_prepared = false;
  std::jthread other([&] {
    CheckpointStore(store_.folder()).Prepare(0);
    has_prepared = true;
  });
  const auto texts = WriteParts(temporary, Example);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(has_prepared);
  store_.Commit(10, temporary, texts, {{"step", 10}}, 0);
  other.join();
  ExpectExample(10);
}

TEST_F(CheckpointPartsTest, RefusesPartsThatDoNotBelongTogether) {
  SaveByAll(10, Example);
  // What the ranks have written is changed before it is committed.
  const auto expect_refused = [&](std::initializer_list<std::string_view> parts,
                                  const std::function<void(std::vector<std::string>&)>& change) {
    const std::string temporary = store_.Begin(10);
    auto texts = WriteParts(temporary, Example);
    change(texts);
    ExpectError(ErrorCode::kCannotWrite, parts,
                [&] { store_.Commit(10, temporary, texts, {}, 0); });
    ExpectExample(10);
  };
  const auto changed = [](const std::string& text, const std::function<void(PartRecord&)>& change) {
    PartRecord part = ParsePart(text);
    change(part);
    return PartText(part);
  };

  expect_refused({"step 10", "3 of the 4 parts", "none of part 2"},
                 [](auto& texts) { texts.erase(texts.begin() + 2); });
  expect_refused({"no description of any part"}, [](auto& texts) { texts.clear(); });
  expect_refused({"part 1 is there twice"}, [](auto& texts) { texts[2] = texts[1]; });
  expect_refused({"description", "checksum"}, [](auto& texts) { texts[3].replace(50, 1, "#"); });
  expect_refused({"description"}, [](auto& texts) { texts[3].clear(); });
  expect_refused({"part 1 of 5", "with 4 parts"}, [&](auto& texts) {
    texts[1] = changed(texts[1], [](PartRecord& part) { part.parts = 5; });
  });
  expect_refused({".tmp-other"}, [&](auto& texts) {
    texts[1] = changed(texts[1], [](PartRecord& part) { part.temporary = ".tmp-other"; });
  });
  expect_refused({"part 4 of 4"}, [&](auto& texts) {
    texts[1] = changed(texts[1], [](PartRecord& part) { part.part = 4; });
  });
  expect_refused({"tensor \"x\" is i32 [12, 4] in part 2, but i32 [10, 4]"}, [&](auto& texts) {
    texts[2] = changed(texts[2], [](PartRecord& part) { part.tensors["x"].sizes[0] = 12; });
  });
  expect_refused({"tensor \"x\" is f32 [10, 4] in part 3"}, [&](auto& texts) {
    texts[3] =
        changed(texts[3], [](PartRecord& part) { part.tensors["x"].dtype = DType::kFloat32; });
  });
  // On another machine's disk.
  expect_refused(
      {"tensors-part00003-of-00004-00001-of-00001.safetensors: cannot be read", "the same folder"},
      [this](auto&) {
        fs::remove(At(HiddenNames(store_.folder()).front()) /
                   "tensors-part00003-of-00004-00001-of-00001.safetensors");
      });
}

TEST_F(CheckpointPartsTest, RefusesHoles) {
  SaveByAll(10, Example);
  const std::string temporary = store_.Begin(20);
  const auto texts = WriteParts(temporary, [](int64_t rank) {
    return rank == 2 ? std::vector<TensorPart>{} : Example(rank);
  });
  ExpectError(ErrorCode::kCannotWrite,
              {"step 20", "tensor \"x\", i32 [10, 4]: no file has the range [6:9, 0:4]"},
              [&] { store_.Commit(20, temporary, texts, {}, 0); });
  ExpectExample(10);
  EXPECT_EQ(store_.CompleteSteps(), std::vector<int64_t>{10});
}

TEST_F(CheckpointPartsTest, RefusesWrongUse) {
  const std::string temporary = store_.Begin(10);
  const auto expect_internal = [&](std::initializer_list<std::string_view> parts,
                                   const std::vector<TensorPart>& tensors) {
    ExpectError(ErrorCode::kInternal, parts,
                [&] { store_.WritePart(temporary, 0, kRanks, tensors); });
  };
  TensorPart outside = PartOf("x", TensorBox::All({4}));
  outside.box.offset = {1};
  expect_internal({"\"x\"", "[1:5]"}, {outside});
  TensorPart other_sizes = PartOf("x", TensorBox::All({4}));
  other_sizes.source.sizes = {3};
  expect_internal({"\"x\"", "[3]", "[0:4]"}, {other_sizes});
  expect_internal({"\"x@1,0\""}, {PartOf("x@1,0", TensorBox::All({4}))});
  expect_internal({"i32 [4] and also i32 [5]"},
                  {PartOf("x", {{4}, {0}, {1}}), PartOf("x", {{5}, {1}, {1}})});
  ExpectError(ErrorCode::kInternal, {"part 4 of 4"},
              [&] { store_.WritePart(temporary, 4, 4, {}); });
  ExpectError(ErrorCode::kInternal, {"../other"}, [&] { store_.WritePart("../other", 0, 1, {}); });
  ExpectError(ErrorCode::kInternal, {"not of step 11"},
              [&] { store_.Commit(11, temporary, {}, {}, 0); });
  ExpectError(ErrorCode::kInternal, {"share 2 of 2"}, [&] {
    CheckpointContents contents;
    VerifyCheckpoint(store_.folder(), 10, {.index = 2, .count = 2}, contents);
  });
}

// Each rank reads the bytes of its share; damage in the structure is seen by all.
TEST_F(CheckpointPartsTest, VerificationIsShared) {
  SaveByAll(10, Example);
  const std::string damaged = "tensors-part00003-of-00004-00001-of-00001.safetensors";
  const fs::path path = At("step-00000010") / damaged;
  const std::string right = ReadText(path);
  std::string wrong = right;
  wrong.back() ^= 1;
  WriteText(path, wrong);
  ExpectError(ErrorCode::kCheckpointDamaged,
              {damaged + ": the checksum of tensor \"x@6,0\" is wrong"}, [&] { store_.Open(10); });
  EXPECT_NO_THROW(store_.Open(10, VerifyShare::None()));
  for (const int64_t count : {2, 4, 7}) {
    int found = 0;
    for (int64_t index = 0; index < count; ++index) {
      try {
        store_.Open(10, {.index = index, .count = count});
      } catch (const Error& error) {
        EXPECT_NE(error.message().find(damaged), std::string::npos) << error.what();
        ++found;
      }
    }
    EXPECT_EQ(found, 1) << "of " << count;
  }
  WriteText(path, right.substr(0, right.size() - 1));
  for (const int64_t index : {0, 1, 2, 3}) {
    ExpectError(ErrorCode::kCheckpointDamaged, {damaged + ": has"},
                [&] { store_.Open(10, {.index = index, .count = 4}); });
  }
}

// A manifest with a right checksum that does not fit its files.
TEST_F(CheckpointPartsTest, NoticesAManifestOfOtherTensors) {
  SaveByAll(10, Example);
  const fs::path path = At("step-00000010") / kManifestFile;
  const Manifest right = ReadManifest(path.parent_path());
  ASSERT_EQ(right.tensors.size(), 2u);
  const auto expect_damaged = [&](std::initializer_list<std::string_view> parts,
                                  const std::function<void(TensorIndex&)>& change) {
    Manifest manifest = right;
    change(manifest.tensors);
    WriteText(path, ManifestText(manifest));
    ExpectError(ErrorCode::kCheckpointDamaged, parts, [&] { store_.Open(10); });
  };
  expect_damaged({"tensors-part00004-of-00004", "\"x@9,0\" is i32 [1, 4], which is no piece of"},
                 [](TensorIndex& tensors) {
                   tensors["x"].sizes = {9, 4};
                 });
  expect_damaged({"\"x@0,0\" is i32 [3, 4], which is no piece of i64 [10, 4]"},
                 [](TensorIndex& tensors) { tensors["x"].dtype = DType::kInt64; });
  expect_damaged({"\"x\", i32 [11, 4]: no file has the range [10:11, 0:4]"},
                 [](TensorIndex& tensors) {
                   tensors["x"].sizes = {11, 4};
                 });
  expect_damaged({"\"x@0,0\" is a piece of no tensor"},
                 [](TensorIndex& tensors) { tensors.erase("x"); });
  expect_damaged({"\"y\", i32 [1]: no file has the range [0:1]"}, [](TensorIndex& tensors) {
    tensors["y"] = {DType::kInt32, {1}};
  });
}

}  // namespace
}  // namespace gt::checkpoint_parts_test
