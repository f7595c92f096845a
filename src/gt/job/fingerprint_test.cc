#include "gt/job/fingerprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "gt/base/error.h"
#include "gt/job/config.h"
#include "gt/testing/temp_folder.h"

namespace gt::fingerprint_test {
namespace {

constexpr std::string_view kVersion = "libtorch 2.11.0, gt 0.1.0";

uint64_t FingerprintOf(const Config& config) { return ConfigFingerprint(config, kVersion); }

// Gives the option other values, one after another, until one is allowed.
struct Changer {
  const Option& option;

  bool IsAllowed() const {
    Problems problems;
    option.Check(option.path(), problems);
    return problems.empty();
  }
  template <typename Number>
  bool TryNumbers(Number* value, std::initializer_list<Number> others) const {
    for (Number other : others) {
      *value = other;
      if (IsAllowed()) return true;
    }
    return false;
  }
  bool operator()(bool* value) const { return *value = !*value, true; }
  bool operator()(int64_t* value) const { return TryNumbers(value, {*value + 1, *value - 1}); }
  bool operator()(double* value) const {
    return TryNumbers(value, {*value + 0.25, *value - 0.25, *value / 2});
  }
  bool operator()(std::string* value) const { return *value += "x", IsAllowed(); }
  bool operator()(StringList* value) const { return value->push_back("x"), IsAllowed(); }
  bool operator()(const EnumBinding& value) const {
    value.set((value.get() + 1) % value.names.size());
    return value.names.size() > 1;
  }
};

std::vector<Option> AllOptions(Config* config) {
  std::vector<Option> all;
  for (const OptionGroup& group : BindOptions(config)) {
    all.insert(all.end(), group.options.begin(), group.options.end());
  }
  return all;
}

// The whole configuration, option by option: each changes the fingerprint, or is in the table.
TEST(ConfigFingerprint, ChangesWithEveryOptionOutsideOfTheTable) {
  const uint64_t original = FingerprintOf(Config());
  std::set<uint64_t> seen = {original};
  size_t count = 0;
  Config unchanged;
  for (const Option& named : AllOptions(&unchanged)) {
    Config config;
    const std::vector<Option> options = AllOptions(&config);
    const Option& option = options.at(count++);
    ASSERT_EQ(option.path(), named.path());
    ASSERT_TRUE(std::visit(Changer{option}, option.binding())) << option.path();
    ASSERT_NE(config, Config()) << option.path();

    bool uncovered = false;
    for (const UncoveredOption& entry : OptionsOutsideFingerprint()) {
      uncovered |= NamesOption(entry.name, option.path());
    }
    if (uncovered) {
      EXPECT_EQ(FingerprintOf(config), original) << option.path();
    } else {
      EXPECT_TRUE(seen.insert(FingerprintOf(config)).second) << option.path();
    }
  }
  EXPECT_GT(seen.size(), 30u);
}

// What the table names must exist, or a renamed option would silently be covered again.
TEST(ConfigFingerprint, TheTableHasNoStaleEntries) {
  Config config;
  const std::vector<Option> options = AllOptions(&config);
  for (const UncoveredOption& entry : OptionsOutsideFingerprint()) {
    const bool found = std::any_of(options.begin(), options.end(), [&](const Option& option) {
      return NamesOption(entry.name, option.path());
    });
    EXPECT_TRUE(found) << entry.name;
    EXPECT_FALSE(entry.why.empty()) << entry.name;
  }
}

// The table says what is left out; this says what never may be.
TEST(ConfigFingerprint, CoversWhatShapesTheStep) {
  const auto is_covered = [](std::string_view path) {
    const auto table = OptionsOutsideFingerprint();
    return std::none_of(table.begin(), table.end(), [path](const UncoveredOption& entry) {
      return NamesOption(entry.name, path);
    });
  };
  Config config;
  std::set<std::string> left_out;
  for (const Option& option : AllOptions(&config)) {
    const std::string section = option.path().substr(0, option.path().find('.'));
    const bool shapes = section == "model" || section == "parallelism" || section == "compile";
    if (shapes && !is_covered(option.path())) left_out.insert(option.path());
  }
  EXPECT_EQ(left_out, (std::set<std::string>{"model.tokenizer_path", "compile.debug_graph_passes",
                                             "compile.debug_graph_passes_ranks"}));
  for (const char* path :
       {"device", "ranks", "training.seq_len", "training.local_batch_size", "training.dtype",
        "training.mixed_precision_param", "training.loss_chunks", "training.z_loss_coeff",
        "training.deterministic", "comm.backend", "comm.pretended_rank",
        "debug.moe_force_load_balance", "debug.moe_load", "debug.collectives_of_one"}) {
    EXPECT_TRUE(is_covered(path)) << path;
  }
}

TEST(ConfigFingerprint, ChangesWithTheLibrary) {
  EXPECT_NE(ConfigFingerprint(Config(), "libtorch 2.11.1, gt 0.1.0"), FingerprintOf(Config()));
  EXPECT_EQ(ConfigFingerprint(Config(), kVersion), FingerprintOf(Config()));
}

TEST(ConfigFingerprint, ChangesWithTheContentOfLoads) {
  const testing::TempFolder folder;
  Config config;
  config.debug.moe_load = (folder / "loads.json").string();
  std::set<uint64_t> seen = {FingerprintOf(config)};
  for (const char* text : {"[1, 2]", "[2, 1]"}) {
    testing::WriteText(config.debug.moe_load, text);
    EXPECT_TRUE(seen.insert(FingerprintOf(config)).second) << text;
  }
}

// The path alone says little about a model: its config.json may be edited, or come later.
TEST(ConfigFingerprint, ChangesWithTheContentOfTheModelsDescription) {
  const testing::TempFolder folder;
  Config config;
  config.model.hf_path = folder.path().string();
  std::set<uint64_t> seen = {FingerprintOf(Config()), FingerprintOf(config)};
  testing::WriteText(folder / "config.json", "");
  EXPECT_TRUE(seen.insert(FingerprintOf(config)).second);
  testing::WriteText(folder / "config.json", "{\"hidden_size\": 64}");
  const uint64_t small = FingerprintOf(config);
  EXPECT_TRUE(seen.insert(small).second);
  testing::WriteText(folder / "config.json", "{\"hidden_size\": 65}");
  EXPECT_TRUE(seen.insert(FingerprintOf(config)).second);
  testing::WriteText(folder / "config.json", "{\"hidden_size\": 64}");
  testing::WriteText(folder / "model.safetensors", "weights are no part of the step");
  EXPECT_EQ(FingerprintOf(config), small);
}

TEST(ConfigFingerprint, OneFolderHasOneSpelling) {
  const testing::TempFolder folder;
  testing::WriteText(folder / "config.json", "{}");
  std::set<uint64_t> seen;
  for (const char* end : {"", "/", "//", "/."}) {
    Config config;
    config.model.hf_path = folder.path().string() + end;
    seen.insert(FingerprintOf(config));
  }
  EXPECT_EQ(seen.size(), 1u);
}

TEST(ConfigFingerprint, ChangesWithTheContentOfTheCluster) {
  const testing::TempFolder folder;
  Config config;
  config.comm.cluster = (folder / "mine.toml").string();
  std::set<uint64_t> seen = {FingerprintOf(Config()), FingerprintOf(config)};
  testing::WriteText(folder / "mine.toml", "name = \"mine\"");
  const uint64_t first = FingerprintOf(config);
  EXPECT_TRUE(seen.insert(first).second);
  testing::WriteText(folder / "mine.toml", "name = \"yours\"");
  EXPECT_TRUE(seen.insert(FingerprintOf(config)).second);
  testing::WriteText(folder / "mine.toml", "name = \"mine\"");
  EXPECT_EQ(FingerprintOf(config), first);
}

// Names are looked up where the cost model looks them up.
TEST(ConfigFingerprint, ChangesWithTheContentOfANamedCluster) {
  const testing::TempFolder home;
  const char* before = std::getenv("GT_HOME");
  const std::string kept = before == nullptr ? "" : before;
  std::filesystem::create_directories(home / "configs/clusters");
  testing::WriteText(home / "configs/clusters/ours.toml", "name = \"ours\"");
  setenv("GT_HOME", home.path().c_str(), 1);
  Config config;
  config.comm.cluster = "ours";
  const uint64_t first = FingerprintOf(config);
  testing::WriteText(home / "configs/clusters/ours.toml", "name = \"faster\"");
  const uint64_t second = FingerprintOf(config);
  if (before == nullptr) {
    unsetenv("GT_HOME");
  } else {
    setenv("GT_HOME", kept.c_str(), 1);
  }
  EXPECT_NE(first, second);
  // A name that nobody has given: what needs no cluster goes on.
  EXPECT_NE(FingerprintOf(config), second);
}

TEST(ConfigFingerprint, ChangesWithTheContentOfCosts) {
  const testing::TempFolder folder;
  Config config;
  config.dump_folder = folder.path().string();
  testing::WriteText(folder / "costs.json", "{}");
  // Nobody reads them.
  EXPECT_EQ(FingerprintOf(config), FingerprintOf(Config()));
  const auto with_other_content = [&](Config reads, const char* name) {
    std::set<uint64_t> seen;
    for (const char* content : {"{}", "{\"aten::mm\": 3}"}) {
      testing::WriteText(folder / name, content);
      seen.insert(FingerprintOf(reads));
    }
    std::filesystem::remove(folder / name);
    seen.insert(FingerprintOf(reads));
    return seen.size();
  };
  Config named = config, measured = config;
  named.compile.costs_file = (folder / "mine.json").string();
  measured.compile.costs = CostSource::kMeasured;
  EXPECT_EQ(with_other_content(named, "mine.json"), 3u);
  EXPECT_EQ(with_other_content(named, "costs.json"), 1u);
  EXPECT_EQ(with_other_content(measured, "costs.json"), 3u);
}

// A folder in the place of a file is no content, and no failure.
TEST(ConfigFingerprint, AFolderIsNoFile) {
  const testing::TempFolder folder;
  Config config;
  config.compile.costs_file = folder.path().string();
  EXPECT_EQ(FingerprintOf(config), FingerprintOf(config));
}

TEST(ConfigFingerprint, TellsListsApart) {
  const auto with = [](StringList passes) {
    Config config;
    config.compile.disable_passes = std::move(passes);
    return FingerprintOf(config);
  };
  const std::set<uint64_t> seen = {with({}),         with({""}),          with({"a", "b"}),
                                   with({"b", "a"}), with({"a, b"}),      with({"a\", \"b"}),
                                   with({"ab"}),     with({"a", "b", ""})};
  EXPECT_EQ(seen.size(), 8u);
}

// The same values in other places are another configuration.
TEST(ConfigFingerprint, TellsOptionsApart) {
  Config one, other;
  one.parallelism.tensor_parallel_degree = 2;
  one.parallelism.expert_parallel_degree = 4;
  other.parallelism.tensor_parallel_degree = 4;
  other.parallelism.expert_parallel_degree = 2;
  EXPECT_NE(FingerprintOf(one), FingerprintOf(other));
  // Texts that would look alike if they were just written one after another.
  one = other = Config();
  one.model.name = "a\"\nmodel.flavor = \"b";
  one.model.flavor = "c";
  other.model.name = "a";
  other.model.flavor = "b\"\nmodel.flavor = \"c";
  EXPECT_NE(FingerprintOf(one), FingerprintOf(other));
}

}  // namespace
}  // namespace gt::fingerprint_test
