// Includes point downwards: the order of folders is src/gt/folders.txt, the core includes no torch
// header, and only tests include what exists for tests.
#include "gt/report/architecture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "gt/base/read_file.h"

namespace gt::architecture_test {
namespace {

const std::filesystem::path kSources = GT_SOURCE_DIR "/src/gt";

bool IsTorchHeader(std::string_view header) {
  constexpr std::string_view kTorch[] = {"torch/", "ATen/", "c10/", "caffe2/"};
  return std::any_of(std::begin(kTorch), std::end(kTorch),
                     [header](std::string_view prefix) { return header.starts_with(prefix); });
}

TEST(Architecture, RecognizesIncludes) {
  EXPECT_EQ(IncludedHeader("#include <torch/torch.h>"), "torch/torch.h");
  EXPECT_EQ(IncludedHeader("  #  include \"gt/exec/program.h\"  // why"), "gt/exec/program.h");
  EXPECT_EQ(IncludedHeader("// #include <torch/torch.h>"), "");
  EXPECT_EQ(IncludedHeader("#define X \"torch/\""), "");
  EXPECT_TRUE(IsTorchHeader("ATen/core/Tensor.h"));
  EXPECT_FALSE(IsTorchHeader("gt/ir/graph.h"));
}

TEST(Architecture, FindsTheFolderOfAHeader) {
  const std::vector<SourceFolder> folders = {{"base", "core", ""}, {"passes/chunk", "core", ""}};
  EXPECT_EQ(FolderOf(folders, "gt/base/error.h"), 0);
  EXPECT_EQ(FolderOf(folders, "gt/passes/chunk/chunk.h"), 1);
  EXPECT_EQ(FolderOf(folders, "gt/passes/other.h"), -1);
  EXPECT_EQ(FolderOf(folders, "gt/error.h"), -1);
  EXPECT_EQ(FolderOf(folders, "vector"), -1);
}

TEST(Architecture, EveryFolderIsListed) {
  std::set<std::string> listed, there;
  for (const SourceFolder& folder : ReadFolders(kSources)) listed.insert(folder.name);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kSources)) {
    const std::filesystem::path folder = entry.path().parent_path();
    if (entry.path().extension() == ".cc" || entry.path().extension() == ".h") {
      there.insert(std::filesystem::relative(folder, kSources).string());
    }
  }
  EXPECT_EQ(listed, there);
}

TEST(Architecture, IncludesPointDownwards) {
  const std::vector<SourceFolder> folders = ReadFolders(kSources);
  for (size_t i = 0; i < folders.size(); ++i) {
    for (const IncludeLine& include : IncludesOf(kSources, folders[i], /*tests=*/false)) {
      if (!include.header.starts_with("gt/")) continue;
      const int folder = FolderOf(folders, include.header);
      EXPECT_TRUE(folder >= 0 && folder <= static_cast<int>(i))
          << include.file.string() << ":" << include.line << " includes " << include.header
          << "\nfolders.txt has " << folders[i].name
          << " before it; move the code to the folder that may know both";
    }
  }
}

TEST(Architecture, CoreAndItsTestsKnowNoTorch) {
  const std::vector<SourceFolder> folders = ReadFolders(kSources);
  for (const SourceFolder& folder : folders) {
    if (folder.layer != "core" && folder.name != "testing") continue;
    for (const IncludeLine& include : IncludesOf(kSources, folder, /*tests=*/true)) {
      const int included = FolderOf(folders, include.header);
      const bool above = included >= 0 && folders[static_cast<size_t>(included)].layer != "core" &&
                         folders[static_cast<size_t>(included)].name != "testing";
      EXPECT_FALSE(above || IsTorchHeader(include.header))
          << include.file.string() << ":" << include.line << " includes " << include.header
          << "\nthe core is built without libtorch";
    }
  }
}

TEST(Architecture, OnlyTestsIncludeTestHelpers) {
  for (const SourceFolder& folder : ReadFolders(kSources)) {
    if (folder.layer == "tests") continue;
    for (const IncludeLine& include : IncludesOf(kSources, folder, /*tests=*/false)) {
      EXPECT_FALSE(include.header.starts_with("gt/testing/") ||
                   include.header.ends_with("_test_util.h"))
          << include.file.string() << ":" << include.line;
    }
  }
}

TEST(Architecture, DocumentIsUpToDate) {
  EXPECT_EQ(ReadWholeFile(GT_SOURCE_DIR "/docs/architecture.md"), ArchitectureMarkdown(kSources))
      << "run: gt docs architecture > docs/architecture.md";
}

}  // namespace
}  // namespace gt::architecture_test
