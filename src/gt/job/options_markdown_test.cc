#include "gt/job/options_markdown.h"

#include <gtest/gtest.h>

#include "gt/base/read_file.h"
#include "gt/job/config.h"

namespace gt::options_markdown_test {
namespace {

TEST(OptionDocs, AreUpToDate) {
  EXPECT_EQ(ReadWholeFile(GT_SOURCE_DIR "/docs/options.md"), OptionsMarkdown())
      << "update it with: gt docs options > docs/options.md";
}

TEST(OptionDocs, HaveARowForEveryOption) {
  const std::string text = OptionsMarkdown();
  ForEachOption(Config(), [&](const Option& option) {
    EXPECT_NE(text.find("| `" + option.path() + "` |"), std::string::npos) << option.path();
  });
}

}  // namespace
}  // namespace gt::options_markdown_test
