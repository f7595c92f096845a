// The core must build and run without libtorch: its folders include neither torch headers nor the
// folders above them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace gt::layering_test {
namespace {

// What an #include line names; empty for other lines.
std::string_view Included(std::string_view line) {
  const auto skip_space = [&line] {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  };
  skip_space();
  if (!line.starts_with('#')) return {};
  line.remove_prefix(1);
  skip_space();
  if (!line.starts_with("include")) return {};
  const size_t begin = line.find_first_of("<\"");
  if (begin == std::string_view::npos) return {};
  line.remove_prefix(begin + 1);
  return line.substr(0, line.find_first_of(">\""));
}

bool IsForbidden(std::string_view header) {
  constexpr std::string_view kForbidden[] = {
      "torch/", "ATen/",    "c10/",       "caffe2/",   "gt/trace/", "gt/exec/",
      "gt/nn/", "gt/dist/", "gt/models/", "gt/train/", "gt/cli/",   "gt/parallel/",
  };
  return std::any_of(std::begin(kForbidden), std::end(kForbidden),
                     [header](std::string_view prefix) { return header.starts_with(prefix); });
}

TEST(LayeringTest, RecognizesIncludes) {
  EXPECT_EQ(Included("#include <torch/torch.h>"), "torch/torch.h");
  EXPECT_EQ(Included("  #  include \"gt/exec/program.h\"  // why"), "gt/exec/program.h");
  EXPECT_EQ(Included("// #include <torch/torch.h>"), "");
  EXPECT_EQ(Included("#define X \"torch/\""), "");
  EXPECT_TRUE(IsForbidden("ATen/core/Tensor.h"));
  EXPECT_TRUE(IsForbidden("gt/trace/tracer.h"));
  EXPECT_FALSE(IsForbidden("gt/ir/graph.h"));
}

TEST(LayeringTest, CoreIncludesNothingFromAbove) {
  int files = 0;
  for (const char* folder : {"base", "ir", "ops", "passes", "sim", "config", "storage", "tokenizer",
                             "data", "report", "launch"}) {
    const auto root = std::filesystem::path(GT_SOURCE_DIR) / "src" / "gt" / folder;
    if (!std::filesystem::exists(root)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cc" && extension != ".def") continue;
      ++files;
      std::ifstream file(entry.path());
      std::string line;
      for (int number = 1; std::getline(file, line); ++number) {
        EXPECT_FALSE(IsForbidden(Included(line)))
            << entry.path().string() << ":" << number << ": " << line
            << "\nthe core cannot include this; move the code that needs it to a folder above";
      }
    }
  }
  EXPECT_GT(files, 20);
}

}  // namespace
}  // namespace gt::layering_test
