#include "gt/data/loader.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "gt/data/loader_test_util.h"

namespace gt::loader_test {
namespace {

using namespace loader_test_util;
using testing::ErrorOf;
using testing::ExpectError;

TEST(LoaderTest, PacksDocumentsWithoutGaps) {
  DataFolder folder;
  Loader loader(WithSpecials(Options(folder.Write("a.jsonl", Jsonl({"abc", "d", "ef"})), 2, 4)));
  const TokenBatch first = loader.Next();
  EXPECT_EQ(first.rows, 2);
  EXPECT_EQ(first.length, 4);
  EXPECT_EQ(first.valid_tokens, 8);
  EXPECT_EQ(Spelled(first.tokens), "<abc><d>");
  EXPECT_EQ(Spelled(first.labels), "abc><d><");
  EXPECT_EQ(first.positions, (Numbers{0, 1, 2, 3, 0, 0, 1, 2}));
  // The epoch goes over into the next one like documents into each other.
  const TokenBatch second = loader.Next();
  EXPECT_EQ(Spelled(second.tokens), "<ef><abc");
  EXPECT_EQ(Spelled(second.labels), "ef><abc>");
  EXPECT_EQ(second.positions, (Numbers{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(Spelled(loader.Next().tokens), "><d><ef>");
}

TEST(LoaderTest, SpecialTokensAreLeftOutWhereThereAreNone) {
  DataFolder folder;
  LoaderOptions options = Options(folder.Write("a.jsonl", Jsonl({"abc", "d", "ef"})), 1, 6);
  TokenBatch batch = Loader(options).Next();
  EXPECT_EQ(Spelled(batch.tokens), "abcdef");
  EXPECT_EQ(batch.positions, (Numbers{0, 1, 2, 0, 0, 1}));
  options.eos_id = kEos;
  batch = Loader(options).Next();
  EXPECT_EQ(Spelled(batch.tokens), "abc>d>");
  EXPECT_EQ(batch.positions, (Numbers{0, 1, 2, 3, 0, 1}));
}

TEST(LoaderTest, EmptyDocumentsLeaveNoTrace) {
  DataFolder folder;
  Loader loader(WithSpecials(Options(folder.Write("a.jsonl", Jsonl({"", "a", "", "b"})), 1, 6)));
  EXPECT_EQ(Spelled(loader.Next().tokens), "<a><b>");
}

// A text file in order is one document, however many pieces it is read in.
TEST(LoaderTest, TextReadInOrderIsOneDocument) {
  DataFolder folder;
  std::string text;
  while (text.size() < 20'000) text += "a line of text\n";
  Loader loader(WithSpecials(Options(folder.Write("a.txt", text), 1, 30'000)));
  const TokenBatch batch = loader.Next();
  const std::string once = "<" + text + ">";
  EXPECT_EQ(Spelled(batch.tokens), (once + once).substr(0, 30'000));
  EXPECT_EQ(batch.positions[once.size() - 1], std::ssize(once) - 1);
  EXPECT_EQ(batch.positions[once.size()], 0);
}

TEST(LoaderTest, DataSmallerThanARowRepeats) {
  DataFolder folder;
  Loader text(Options(folder.Write("a.txt", "ab"), 1, 7));
  EXPECT_EQ(Spelled(text.Next().tokens), "abababa");
  const TokenBatch second = text.Next();
  EXPECT_EQ(Spelled(second.tokens), "bababab");
  EXPECT_EQ(second.positions, (Numbers{0, 0, 1, 0, 1, 0, 1}));
  Loader stream(
      Options(folder.Write("a.npy", Npy("<u2", "(2,)", RawBytes<uint16_t>({'a', 'b'}))), 1, 7));
  EXPECT_EQ(Spelled(stream.Next().tokens), "abababa");
  EXPECT_EQ(Spelled(stream.Next().tokens), "bababab");
}

TEST(LoaderTest, RowsComeInOrderAndRepeat) {
  DataFolder folder;
  const std::string data = RawBytes<uint16_t>({0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23});
  LoaderOptions options =
      WithSpecials(Options(folder.Write("a.npy", Npy("<u2", "(3, 4)", data)), 2, 3));
  options.shuffle = LoaderShuffle::kAuto;
  options.eos_id = 11;  // rows are one document each, whatever they contain
  Loader loader(options);
  TokenBatch batch = loader.Next();
  EXPECT_EQ(batch.tokens, (Numbers{0, 1, 2, 10, 11, 12}));
  EXPECT_EQ(batch.labels, (Numbers{1, 2, 3, 11, 12, 13}));
  EXPECT_EQ(batch.positions, (Numbers{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(loader.Next().tokens, (Numbers{20, 21, 22, 0, 1, 2}));
}

TEST(LoaderTest, RowsAreDealtToRanksByBatch) {
  DataFolder folder;
  std::vector<uint16_t> tokens;
  for (uint16_t row = 0; row < 10; ++row) tokens.insert(tokens.end(), {row, 100});
  LoaderOptions options =
      Options(folder.Write("a.npy", Npy("<u2", "(10, 2)", RawBytes(tokens))), 2, 1);
  options.world = 2;
  options.shuffle = LoaderShuffle::kAuto;
  Loader first(options);
  options.rank = 1;
  Loader second(options);
  EXPECT_EQ(first.Next().tokens, (Numbers{0, 1}));
  EXPECT_EQ(second.Next().tokens, (Numbers{2, 3}));
  EXPECT_EQ(first.Next().tokens, (Numbers{4, 5}));
  EXPECT_EQ(second.Next().tokens, (Numbers{6, 7}));
  EXPECT_EQ(first.Next().tokens, (Numbers{8, 9}));
  EXPECT_EQ(second.Next().tokens, (Numbers{0, 1}));
}

TEST(LoaderTest, ShuffledRowsAreAllThereInEveryEpoch) {
  DataFolder folder;
  std::vector<uint16_t> tokens;
  for (uint16_t row = 0; row < 10; ++row) tokens.insert(tokens.end(), {row, 100});
  LoaderOptions options =
      Options(folder.Write("a.npy", Npy("<u2", "(10, 2)", RawBytes(tokens))), 5, 1);
  options.shuffle = LoaderShuffle::kOn;
  Loader loader(options);
  std::set<Numbers> orders;
  for (int epoch = 0; epoch < 5; ++epoch) {
    Numbers order = loader.Next().tokens;
    const Numbers rest = loader.Next().tokens;
    order.insert(order.end(), rest.begin(), rest.end());
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 10u);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 5u);
}

TEST(LoaderTest, StreamsGoOnAcrossFilesAndTheEnd) {
  DataFolder folder;
  folder.Write("a.npy", Npy("<u2", "(3,)", RawBytes<uint16_t>({1, 2, 3})));
  folder.Write("b.npy", Npy("<i8", "(4,)", RawBytes<int64_t>({4, 5, 6, 7})));
  LoaderOptions options = Options(folder.path(), 1, 5);
  options.eos_id = 5;
  Loader loader(options);
  TokenBatch batch = loader.Next();
  EXPECT_EQ(batch.tokens, (Numbers{1, 2, 3, 4, 5}));
  EXPECT_EQ(batch.labels, (Numbers{2, 3, 4, 5, 6}));
  EXPECT_EQ(batch.positions, (Numbers{0, 1, 2, 0, 1}));  // a file is a document of its own
  batch = loader.Next();
  EXPECT_EQ(batch.tokens, (Numbers{6, 7, 1, 2, 3}));
  EXPECT_EQ(batch.positions, (Numbers{0, 1, 0, 1, 2}));
  batch = loader.Next();
  EXPECT_EQ(batch.tokens, (Numbers{4, 5, 6, 7, 1}));
  EXPECT_EQ(batch.positions, (Numbers{0, 1, 0, 1, 0}));  // after eos, and at the file's beginning
}

TEST(LoaderTest, ShuffledStreamsHaveEveryTokenAsALabel) {
  DataFolder folder;
  LoaderOptions options =
      Options(folder.Write("a.npy", Npy("<i8", "(98,)", RawBytes(CountFrom(0, 98)))), 10, 10);
  options.shuffle = LoaderShuffle::kAuto;
  const TokenBatch batch = Loader(options).Next();  // 10 windows are an epoch
  std::set<int64_t> labels(batch.labels.begin(), batch.labels.end());
  for (int64_t token = 1; token < 98; ++token) EXPECT_TRUE(labels.contains(token)) << token;
  EXPECT_NE(batch.tokens[0] + 10, batch.tokens[10]);
}

TEST(LoaderTest, ResumesExactlyAtEveryPlace) {
  constexpr int kBatches = 24;  // several epochs of each case
  ForEachCase([](const LoaderOptions& options) {
    Loader whole(options);
    std::vector<TokenBatch> batches;
    std::vector<std::string> states = {whole.State().dump()};
    for (int i = 0; i < kBatches; ++i) {
      batches.push_back(whole.Next());
      states.push_back(whole.State().dump());
      EXPECT_LT(states.back().size(), 400u);
    }
    Loader restored(options);
    restored.Next();
    restored.Rewind();
    EXPECT_EQ(restored.State().dump(), states[0]);
    ASSERT_TRUE(restored.Next() == batches[0]);
    for (int start = kBatches - 2; start >= 0; --start) {
      restored.Restore(nlohmann::json::parse(states[start]));
      EXPECT_EQ(restored.State().dump(), states[start]);
      for (int i = start; i < start + 2; ++i) {
        ASSERT_TRUE(restored.Next() == batches[i])
            << "batch " << i << " after a start at " << start;
        ASSERT_EQ(restored.State().dump(), states[i + 1]);
      }
    }
  });
}

TEST(LoaderTest, TheBackgroundThreadChangesNothing) {
  ForEachCase([](LoaderOptions options) {
    Loader direct(options);
    options.prefetch = 3;
    Loader ahead(options);
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(ahead.Next() == direct.Next());
      ASSERT_EQ(ahead.State(), direct.State());  // of what was handed out, not of what was made
    }
    const nlohmann::json middle = ahead.State();
    const TokenBatch next = ahead.Next();
    ahead.Next();
    ahead.Restore(middle);
    EXPECT_TRUE(ahead.Next() == next);
  });
}

TEST(LoaderTest, TheSeedDecidesTheOrder) {
  ForEachCase([](LoaderOptions options) {
    if (options.shuffle == LoaderShuffle::kOff) return;
    const auto tokens = [&options] {
      Loader loader(options);
      Numbers all;
      for (int i = 0; i < 4; ++i) {
        const Numbers batch = loader.Next().tokens;
        all.insert(all.end(), batch.begin(), batch.end());
      }
      return all;
    };
    const Numbers first = tokens();
    EXPECT_EQ(tokens(), first);
    options.seed = 12;
    EXPECT_NE(tokens(), first);
  });
}

TEST(LoaderTest, RefusesTheStateOfAnotherJob) {
  DataFolder folder;
  LoaderOptions options = Options(folder.Write("a.jsonl", Jsonl({"abc", "de", "fg"})), 2, 4);
  options.world = 2;
  Loader loader(options);
  loader.Next();
  const nlohmann::json state = loader.State();
  const auto refused = [&](const auto& change, const std::string& part) {
    LoaderOptions changed = options;
    change(changed);
    Loader other(changed);
    ExpectError(ErrorOf([&] { other.Restore(state); }), ErrorCode::kCheckpointMismatch, {part});
  };
  refused([](LoaderOptions& o) { o.length = 5; }, "--training.seq_len was 4 and is 5 now");
  refused([](LoaderOptions& o) { o.rows = 1; }, "--training.local_batch_size was 2 and is 1 now");
  refused([](LoaderOptions& o) { o.seed = 1; }, "--training.seed was 0 and is 1 now");
  refused([](LoaderOptions& o) { o.shuffle = LoaderShuffle::kOn; }, "--training.shuffle was false");
  refused([](LoaderOptions& o) { o.eos_id = 0; },
          "eos_id of --model.tokenizer_path was null and is 0 now");
  refused([](LoaderOptions& o) { o.rank = 1; }, "rank was 0 and is 1 now (a place in the data");
  refused([](LoaderOptions& o) { o.world = 3; }, "world was 2 and is 3 now (a place in the data");
  refused(
      [&](LoaderOptions& o) {
        o.paths = {folder.Write("b.jsonl", Jsonl({"abc", "de", "fg"}))};
      },
      "names or sizes differ");
  refused([](LoaderOptions& o) { o.split = kTrainingPart; }, "--validation.split was nothing");
  refused([](LoaderOptions& o) { o.text_field = "text"; }, "text_field was nothing");
  // And the other way round.
  options.world = 1;
  options.split = kTrainingPart;
  const nlohmann::json divided = Loader(options).State();
  options.split = {};
  Loader whole(options);
  ExpectError(ErrorOf([&] { whole.Restore(divided); }), ErrorCode::kCheckpointMismatch,
              {"--validation.split was 0.3 and is nothing now"});
}

// When the number of ranks changes, places mean nothing, but the data must be the same.
TEST(LoaderTest, RefusesOtherDataOnAnyNumberOfRanks) {
  DataFolder folder;
  LoaderOptions options = Options(folder.Write("a.jsonl", Jsonl({"abc", "de", "fg"})), 2, 4);
  const nlohmann::json state = Loader(options).State();
  options.world = 2;
  options.rank = 1;
  options.rows = 1;
  EXPECT_NO_THROW(Loader(options).RequireSameData(state));
  options.seed = 5;
  ExpectError(ErrorOf([&] { Loader(options).RequireSameData(state); }),
              ErrorCode::kCheckpointMismatch, {"--training.seed was 0 and is 5 now"});
}

TEST(LoaderTest, RefusesDamagedStates) {
  ForEachCase([](const LoaderOptions& options) {
    Loader loader(options);
    loader.Next();
    const nlohmann::json state = loader.State();
    std::vector<nlohmann::json> damaged = {
        nullptr, 3, nlohmann::json::object(), {{"job", state["job"]}}, {{"place", state["place"]}}};
    for (const auto& [key, value] : state["place"].items()) {
      for (const nlohmann::json& bad :
           {nlohmann::json("x"), nlohmann::json(-1), nlohmann::json(1.5),
            nlohmann::json(1ull << 63), nlohmann::json((1ull << 63) - 1)}) {
        // An epoch may be any number.
        if (key == "epoch" && bad == nlohmann::json((1ull << 63) - 1)) continue;
        damaged.push_back(state);
        damaged.back()["place"][key] = bad;
      }
    }
    for (const nlohmann::json& bad : damaged) {
      // Plain files have no use for the keys that say how to enter compressed ones.
      const std::string error = ErrorOf([&] { loader.Restore(bad); });
      if (!error.empty()) ExpectError(error, ErrorCode::kCheckpointMismatch, {});
    }
    ExpectError(ErrorOf([&] { loader.Restore(damaged[0]); }), ErrorCode::kCheckpointMismatch, {});
    loader.Restore(state);
    loader.Next();
  });
}

TEST(LoaderTest, ANewTokenizerIsNoticed) {
  DataFolder folder;
  LoaderOptions options = Options(folder.Write("a.jsonl", Jsonl({"abcdefgh"})), 1, 6);
  Loader loader(options);
  loader.Next();
  options.encode = [](std::string_view, std::vector<int32_t>& append) { append.push_back(1); };
  Loader other(options);
  ExpectError(ErrorOf([&] { other.Restore(loader.State()); }), ErrorCode::kCheckpointMismatch,
              {"token 6", "a.jsonl:1", "tokenizer"});
}

TEST(LoaderTest, IdsOutsideOfTheVocabularyAreNamed) {
  DataFolder folder;
  LoaderOptions options = Options(folder.Write("a.jsonl", Jsonl({"abc", "aZz"})), 1, 4);
  options.vocab_size = 'c' + 1;
  ExpectError(ErrorOf([&] { Loader(options).Next(); }), ErrorCode::kTokenOutOfVocabulary,
              {"a.jsonl:2", "token 2", "id 122", "100 entries"});
  options.eos_id = 100;
  ExpectError(ErrorOf([&] { Loader loader(options); }), ErrorCode::kTokenOutOfVocabulary,
              {"eos", "100"});
  // Before the first text has such an id, if it is known that some will.
  options.tokenizer_size = 101;
  ExpectError(ErrorOf([&] { Loader loader(options); }), ErrorCode::kTokenOutOfVocabulary,
              {"the tokenizer makes ids up to 100, but the model's vocabulary has 100 entries"});
  options =
      Options(folder.Write("a.npy", Npy("<u2", "(3,)", RawBytes<uint16_t>({1, 2, 300}))), 1, 2);
  ExpectError(ErrorOf([&] { Loader(options).Next(); }), ErrorCode::kTokenOutOfVocabulary,
              {"a.npy: token 2 has the id 300"});
}

TEST(LoaderTest, TooLittleDataIsAnError) {
  DataFolder folder;
  const auto refused = [&](const std::string& file, const std::string& bytes,
                           const std::string& part, int64_t world = 1) {
    LoaderOptions options = Options(folder.Write(file, bytes), 1, 4);
    options.world = world;
    ExpectError(ErrorOf([&] { Loader(options).Next(); }), ErrorCode::kDataUnreadable, {part});
  };
  refused("a.txt", "", "empty");
  refused("a.txt", "x", "1 token(s)");
  refused("a.jsonl", Jsonl({"", ""}), "0 token(s)");
  refused("a.txt", "abc", "1 pieces of text, too few for 3 ranks", 3);
  refused("a.npy", Npy("<u2", "(0,)", ""), "no tokens");
  refused("a.npy", Npy("<u2", "(1,)", "ab"), "1 token,");
  refused("a.npy", Npy("|u1", "(2, 5)", "abcdefghij"), "2 rows of 5 tokens, too few for 3 ranks",
          3);
  refused("a.bin", "", "no tokens");
}

TEST(LoaderTest, RowsOfAnotherLengthAreRefusedWithBothNumbers) {
  DataFolder folder;
  const std::string path = folder.Write("a.npy", Npy("|u1", "(2, 5)", "abcdefghij"));
  ExpectError(ErrorOf([&] { Loader loader(Options(path, 1, 5)); }), ErrorCode::kBadData,
              {"rows have 5 tokens", "rows of 6", "sequence length to 4"});
  folder.Write("b.npy", Npy("|u1", "(5,)", "abcde"));
  ExpectError(ErrorOf([&] { Loader loader(Options(folder.path(), 1, 4)); }), ErrorCode::kBadData,
              {"partly rows and partly streams", "a.npy", "b.npy"});
}

TEST(LoaderTest, ErrorsOfTheBackgroundThreadSurfaceInOrder) {
  DataFolder folder;
  // So many files that not all of them are looked at beforehand.
  for (int i = 10; i < 74; ++i) folder.Write(fmt::format("{}.jsonl", i), Jsonl({""}));
  folder.Write("10.jsonl", Jsonl({"abcd", "efgh"}));
  folder.Write("74.jsonl", Jsonl({""}) + "\nbroken\n");
  LoaderOptions options = Options(folder.path(), 1, 3);
  for (const int64_t prefetch : {0, 1, 8}) {
    options.prefetch = prefetch;
    Loader loader(options);
    EXPECT_EQ(Spelled(loader.Next().tokens), "abc");
    EXPECT_EQ(Spelled(loader.Next().tokens), "def");
    for (int again = 0; again < 2; ++again) {
      ExpectError(ErrorOf([&] { loader.Next(); }), ErrorCode::kBadData, {"74.jsonl:3", "not JSON"});
      if (prefetch == 0) break;
    }
  }
}

TEST(LoaderTest, CanBeDroppedWhileItWorks) {
  DataFolder folder;
  LoaderOptions options = Options(folder.Write("a.jsonl", Jsonl({"abcd", "efgh"})), 1, 3);
  options.prefetch = 2;
  for (int taken = 0; taken < 3; ++taken) {
    Loader loader(options);
    for (int i = 0; i < taken; ++i) loader.Next();
  }
}

TEST(LoaderTest, CountsTheTimeItWaits) {
  DataFolder folder;
  LoaderOptions options = Options(folder.Write("a.jsonl", Jsonl({"abcd", "efgh"})), 1, 3);
  options.encode = [](std::string_view text, std::vector<int32_t>& append) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    testing::EncodeBytes(text, append);
  };
  for (const int64_t prefetch : {0, 2}) {
    options.prefetch = prefetch;
    Loader loader(options);
    EXPECT_EQ(loader.waited_seconds(), 0);
    loader.Next();
    EXPECT_GE(loader.waited_seconds(), 0.004);
  }
}

TEST(LoaderTest, DescribesItself) {
  DataFolder folder;
  const auto describe = [](const std::string& path, int64_t length) {
    return Loader(Options(path, 1, length)).Describe();
  };
  EXPECT_EQ(describe(folder.Write("a.txt", std::string(434'000, 'x')), 4),
            "a.txt: 1 file, text, 434 KB");
  folder.Write("lines/a.jsonl", Jsonl({"abc"}));
  folder.Write("lines/b.jsonl", Jsonl({"abc"}));
  EXPECT_EQ(describe(folder.path() + "/lines", 4), "lines: 2 files, JSON lines, 32 bytes");
  EXPECT_EQ(describe(folder.Write("a.npy", Npy("|u1", "(2, 5)", "abcdefghij")), 4),
            "a.npy: 1 file, 2 rows of 5 tokens (uint8), 138 bytes");
  EXPECT_EQ(describe(folder.Write("a.bin", "abcdefghij"), 4),
            "a.bin: 1 file, a stream of 5 tokens (uint16), 10 bytes");
}

}  // namespace
}  // namespace gt::loader_test
