#include "gt/config/option_struct.h"

#include <gtest/gtest.h>

#include "gt/base/error.h"

namespace gt::option_struct_test {
namespace {

struct PassOptions {
  GT_OPTION(int64_t, num_chunks, 2, Within(2, 8), "into how many");
  GT_OPTION(StringList, names, {}, Any(), "which");
  GT_END_OPTIONS(PassOptions);
};

struct InnerSection {
  GT_OPTION(bool, enabled, true, Any(), "do it");
  GT_END_OPTIONS(InnerSection);
};

struct Job {
  GT_OPTION(std::string, folder, "out", NotEmpty(), "where files go");
  GT_OPTION_OF(PassOptions, num_chunks, "number of chunks");
  GT_SECTION(InnerSection, inner, "what is inside");
  GT_END_OPTIONS(Job);
};

TEST(OptionStruct, HasItsOptionsInTheOrderOfTheirLines) {
  PassOptions options;
  const std::vector<OptionGroup> groups = BindOptions(&options, "all");
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].help, "all");
  ASSERT_EQ(groups[0].options.size(), 2u);
  EXPECT_EQ(groups[0].options[0].path(), "num_chunks");
  EXPECT_EQ(groups[0].options[0].help(), "into how many");
  EXPECT_EQ(groups[0].options[0].Expected(), "an integer in [2, 8]");
  EXPECT_EQ(groups[0].options[1].path(), "names");
}

TEST(OptionStruct, SetsItsMembers) {
  PassOptions options;
  std::vector<OptionGroup> groups = BindOptions(&options);
  Problems problems;
  groups[0].options[0].SetFromText("3", "num_chunks", /*append=*/false, problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(options.num_chunks, 3);
  EXPECT_NE(options, PassOptions());
}

TEST(OptionStruct, TakesDefaultAndRangeFromTheComponent) {
  Job job;
  EXPECT_EQ(job.num_chunks, PassOptions().num_chunks);
  const std::vector<OptionGroup> groups = BindOptions(&job);
  const Option& option = groups[0].options[1];
  EXPECT_EQ(option.path(), "num_chunks");
  EXPECT_EQ(option.help(), "number of chunks");
  EXPECT_EQ(option.default_text(), "2");
  EXPECT_EQ(option.LimitText(), "in [2, 8]");
}

TEST(OptionStruct, SectionsAreGroupsOfTheirOwn) {
  Job job;
  const std::vector<OptionGroup> groups = BindOptions(&job);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[1].name, "inner");
  EXPECT_EQ(groups[1].help, "what is inside");
  ASSERT_EQ(groups[1].options.size(), 1u);
  EXPECT_EQ(groups[1].options[0].path(), "inner.enabled");
}

struct Misplaced {
  GT_SECTION(InnerSection, inner, "what is inside");
  GT_OPTION(bool, late, false, Any(), "after a section");
  GT_END_OPTIONS(Misplaced);
};

TEST(OptionStruct, RefusesAnOptionAfterASection) {
  Misplaced misplaced;
  EXPECT_THROW(BindOptions(&misplaced), Error);
}

}  // namespace
}  // namespace gt::option_struct_test
