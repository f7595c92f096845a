// Parts of the data, the field of its text, and the size of an epoch.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "gt/data/loader.h"
#include "gt/data/loader_test_util.h"

namespace gt::loader_parts_test {
namespace {

using namespace loader_test_util;
using testing::ErrorOf;
using testing::ExpectError;

// Each token or piece is on one side, whatever the number of ranks, the order and the seed.
TEST(LoaderParts, PartsAreDisjointAndTogetherTheWhole) {
  for (const Case& c : Cases()) {
    DataFolder folder;
    SCOPED_TRACE(fmt::format("{}, {}", c.name, c.shuffle == LoaderShuffle::kOn));
    const bool is_rows = c.name == "rows";
    LoaderOptions options = Options(folder.Write(c.file, c.bytes), 1, is_rows ? 7 : 1);
    options.shuffle = c.shuffle;
    options.encode = [](std::string_view text, std::vector<int32_t>& append) {
      // One token for each unit, twice: enough to tell units apart.
      append.insert(append.end(), 2,
                    static_cast<int32_t>(std::hash<std::string_view>()(text) % 1'000'003));
    };
    options.vocab_size = 1'000'003;
    const auto labels_of = [&](const DataSplit& split, int64_t world, uint64_t seed) {
      std::set<int64_t> labels;
      options.split = split;
      options.world = world;
      options.seed = seed;
      for (options.rank = 0; options.rank < world; ++options.rank) {
        Loader loader(options);
        const auto batches = static_cast<int>(loader.MeasureEpoch().sequences) + 2;
        for (int i = 0; i < batches; ++i) {
          const Numbers part = loader.Next().labels;
          labels.insert(part.begin(), part.end());
        }
      }
      return labels;
    };
    const auto all = labels_of({}, 1, 0), training = labels_of(kTrainingPart, 1, 0),
               held_out = labels_of(kHeldOutPart, 1, 0);
    for (const int64_t label : held_out) EXPECT_FALSE(training.contains(label)) << label;
    auto both = training;
    both.insert(held_out.begin(), held_out.end());
    // The first token of a stream is a label only where it goes on across the end.
    if (c.name != "raw" && c.name != "stream") EXPECT_EQ(both, all);
    if (c.name == "raw" || c.name == "stream") EXPECT_GE(both.size() + 1, all.size());
    EXPECT_LT(held_out.size(), training.size());
    EXPECT_GT(held_out.size(), 0u);
    EXPECT_EQ(labels_of(kTrainingPart, 2, 0), training);
    EXPECT_EQ(labels_of(kHeldOutPart, 1, 9), held_out);
  }
}

TEST(LoaderParts, EmptyPartsAreErrorsThatSayWhatToDo) {
  DataFolder folder;
  std::vector<std::string> files = {folder.Write("a.txt", "a short text"),
                                    folder.Write("a.jsonl", Jsonl({"abc", "def"})),
                                    folder.Write("a.npy", Npy("|u1", "(2, 5)", "abcdefghij"))};
#ifdef GT_HAVE_ZLIB
  files.push_back(folder.Write("a.jsonl.gz", testing::Gzip(Jsonl({"abc", "def"}))));
#endif
  for (const std::string& file : files) {
    LoaderOptions options = Options(file, 1, 4);
    options.split = {.held_out = 1e-6, .part = DataPart::kHeldOut};
    ExpectError(ErrorOf([&] { Loader loader(options); }), ErrorCode::kDataUnreadable,
                {"--validation.split 1e-06 holds out none of the ", "raise it"});
    options.split = {.held_out = 0.999999, .part = DataPart::kTraining};
    ExpectError(ErrorOf([&] { Loader loader(options); }), ErrorCode::kDataUnreadable,
                {"--validation.split 0.999999 leaves none of the ", "to train on; lower it"});
    options.split = {.held_out = 1e-6, .part = DataPart::kTraining};
    options.world = 3;
    ExpectError(ErrorOf([&] { Loader loader(options); }), ErrorCode::kDataUnreadable,
                {"too few for 3 ranks"});
  }
}

TEST(LoaderParts, TheFieldOfTheTextMayBeNamed) {
  DataFolder folder;
  LoaderOptions options =
      Options(folder.Write("a.jsonl", R"({"text": "no", "body": "abc"})"), 1, 3);
  options.text_field = "body";
  EXPECT_EQ(Spelled(Loader(options).Next().tokens), "abc");
  options.text_field = "boby";
  ExpectError(ErrorOf([&] { Loader loader(options); }), ErrorCode::kBadData,
              {"a.jsonl:1: the line has no field \"boby\"",
               "its fields are \"text\" (a string), \"body\" (a string)", "--training.text_field"});
}

// Before anything else is done with the data.
TEST(LoaderParts, LinesWithoutATextAreFoundAtOnce) {
  DataFolder folder;
  folder.Write("a.jsonl", Jsonl({"x", "y"}));
  folder.Write("b.jsonl", "\n" + Jsonl({"x"}) + "{\"title\": \"z\"}\n{}\n");
  ExpectError(ErrorOf([&] { Loader loader(Options(folder.path(), 1, 3)); }), ErrorCode::kBadData,
              {"b.jsonl:3: the line has neither", "\"title\" (a string)"});
#ifdef GT_HAVE_ZLIB
  const std::string packed =
      folder.Write("c.jsonl.gz", testing::Gzip(Jsonl({"x"}) + "{\"title\": \"z\"}\n"));
  ExpectError(ErrorOf([&] { Loader loader(Options(packed, 1, 3)); }), ErrorCode::kBadData,
              {"c.jsonl.gz:2: the line has neither"});
#endif
}

TEST(LoaderParts, CountsAnEpoch) {
  ForEachCase([](LoaderOptions options) {
    const auto is_first_epoch = [](const nlohmann::json& state) {
      return state["place"].value("epoch", 0) == 0;
    };
    options.rows = options.length = 1;
    if (options.paths[0].ends_with("npy")) options.length = 7;
    Loader loader(options);
    const EpochSize size = loader.MeasureEpoch();
    EXPECT_TRUE(size.samples_are_counted);
    EXPECT_NEAR(size.sequences * static_cast<double>(options.length), size.tokens, 1);
    // Documents are what one rank reads until the epoch is over.
    if (loader.has_tokens() || options.world > 1 || size.what != "documents") return;
    EXPECT_TRUE(size.tokens_are_counted);
    double tokens = 0;
    while (is_first_epoch(loader.State())) {
      loader.Next();
      tokens += 1;
    }
    EXPECT_EQ(size.tokens, tokens);
  });
}

TEST(LoaderParts, EstimatesALargeEpoch) {
  DataFolder folder;
  std::string lines, text;
  for (int i = 0; i < 20'000; ++i) {
    const std::string words(10 + i * 7919 % 300, static_cast<char>('a' + i % 26));
    lines += "{\"id\": 7, \"text\": \"" + words + "\"}\n";
    text += words + "\n";
  }
  const auto near = [](double value, double expected) {
    EXPECT_GT(value, expected * 0.9);
    EXPECT_LT(value, expected * 1.1);
  };
  const double letters = static_cast<double>(text.size()) - 20'000;
  LoaderOptions options = WithSpecials(Options(folder.Write("a.jsonl", lines), 1, 10));
  EpochSize size = Loader(options).MeasureEpoch();
  EXPECT_EQ(size.samples, 20'000);
  EXPECT_TRUE(size.samples_are_counted && !size.tokens_are_counted);
  EXPECT_EQ(size.what, "documents");
  near(size.tokens, letters + 40'000);
  near(size.sequences, (letters + 40'000) / 10);
  options.split = kHeldOutPart;
  size = Loader(options).MeasureEpoch();
  near(size.samples, 6'000);
  near(size.tokens, (letters + 40'000) * 0.3);
  size = Loader(Options(folder.Write("a.txt", text), 1, 10)).MeasureEpoch();
  EXPECT_EQ(size.what, "pieces of text");
  near(size.samples, static_cast<double>(text.size()) / 8200);
  near(size.tokens, static_cast<double>(text.size()));
#ifdef GT_HAVE_ZLIB
  options = WithSpecials(Options(folder.Write("b.jsonl.gz", testing::Gzip(lines)), 1, 10));
  size = Loader(options).MeasureEpoch();
  EXPECT_FALSE(size.samples_are_counted);
  near(size.samples, 20'000);
  near(size.tokens, letters + 40'000);
#endif
}

}  // namespace
}  // namespace gt::loader_parts_test
