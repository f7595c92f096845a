// The hand-written kernels: which shapes they have, and that they compile.
#include "gt/fusion/row_kernels.h"

#include <gtest/gtest.h>

#include "gt/fusion/element_code.h"
#include "gt/fusion/nvrtc.h"

namespace gt::row_kernels_test {
namespace {

using fusion::RowKernel;
using fusion::RowShape;
using fusion::RowShapeFor;

constexpr DType kTypes[] = {DType::kBFloat16, DType::kFloat16, DType::kFloat32};

// All elements of a row have a thread, whatever its length and alignment, unless it is too long for registers.
TEST(RowKernels, EveryElementHasAThread) {
  for (DType dtype : kTypes) {
    for (int64_t width : {1, 7, 8, 12, 100, 512, 1000, 2048, 4096, 7168, 8192, 16384}) {
      for (int64_t alignment : {1, 2, 4, 8, 64}) {
        const auto shape = RowShapeFor(width, alignment, dtype);
        if (!shape) {
          EXPECT_GT(width, int64_t{256} * 8) << alignment;
          continue;
        }
        EXPECT_GE(int64_t{shape->threads} * shape->lanes * shape->vectors, width);
        EXPECT_EQ(width % shape->lanes, 0);
        EXPECT_EQ(alignment % shape->lanes, 0);
        EXPECT_EQ(shape->threads % 32, 0);
        EXPECT_LE(shape->lanes * ItemSize(dtype), 16);
      }
    }
  }
  EXPECT_FALSE(RowShapeFor(1 << 20, 8, DType::kBFloat16));
}

// Blocks of a backward depend on the rows alone and never outnumber them.
TEST(RowKernels, BlocksShareTheRows) {
  const RowShape wide = *RowShapeFor(4096, 8, DType::kBFloat16);
  const RowShape narrow = *RowShapeFor(512, 8, DType::kBFloat16);
  EXPECT_EQ(fusion::RmsNormBackwardBlocks(3, wide), 3);
  EXPECT_EQ(fusion::RmsNormBackwardBlocks(100000, wide), 512);
  EXPECT_EQ(fusion::RmsNormBackwardBlocks(100000, narrow), 2048);
}

std::vector<RowKernel> AllSources() {
  std::vector<RowKernel> sources;
  for (DType dtype : kTypes) {
    for (int64_t width : {4096, 2048, 512, 7}) {
      for (bool added : {false, true}) {
        const RowShape shape = *RowShapeFor(width, width, dtype);
        sources.push_back(fusion::RmsNormSource(dtype, shape, added));
        sources.push_back(fusion::RmsNormBackwardSource(dtype, shape, added));
      }
    }
    for (int lanes : {1, 4}) {
      sources.push_back(fusion::LogSumExpSource(dtype, lanes));
      sources.push_back(fusion::CrossEntropyBackwardSource(dtype, lanes));
      sources.push_back(fusion::RowDotsSource(dtype, DType::kFloat32, lanes, false));
      sources.push_back(fusion::RowDotsSource(dtype, dtype, lanes, true));
    }
    sources.push_back(fusion::ColumnSumSource(dtype));
  }
  return sources;
}

void Compile(const std::vector<RowKernel>& sources, std::initializer_list<int> architectures) {
  const fusion::Nvrtc* nvrtc = fusion::Nvrtc::Get();
  if (nvrtc == nullptr) GTEST_SKIP() << fusion::Nvrtc::WhyMissing();
  for (const RowKernel& source : sources) {
    for (int architecture : architectures) {
      const std::string text =
          "#define COMPLEX_FORM 0\n" + std::string(fusion::KernelPrelude()) + source.text;
      const auto result = nvrtc->Compile(text, source.name, architecture);
      EXPECT_FALSE(result.cubin.empty()) << source.text << result.log;
    }
  }
}

TEST(RowKernels, Compile) {
  const std::vector<RowKernel> all = AllSources();
  Compile({all.begin(), all.begin() + 2}, {90});
}

TEST(RowKernels, AllCompileForAllArchitectures_slow) { Compile(AllSources(), {80, 90, 100}); }

}  // namespace
}  // namespace gt::row_kernels_test
