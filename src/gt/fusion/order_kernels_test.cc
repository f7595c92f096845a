// That the kernels of a counting sort compile; kernels/expert_order_test.cc runs them.
#include "gt/fusion/order_kernels.h"

#include <gtest/gtest.h>

#include "gt/fusion/element_code.h"
#include "gt/fusion/nvrtc.h"

namespace gt::order_kernels_test {
namespace {

void Compile(std::initializer_list<int64_t> experts, std::initializer_list<int> architectures) {
  const fusion::Nvrtc* nvrtc = fusion::Nvrtc::Get();
  if (nvrtc == nullptr) GTEST_SKIP() << fusion::Nvrtc::WhyMissing();
  for (int64_t count : experts) {
    for (const fusion::RowKernel& source :
         {fusion::ExpertCountSource(count), fusion::ExpertOrderSource(count)}) {
      for (int architecture : architectures) {
        const std::string text =
            "#define COMPLEX_FORM 0\n" + std::string(fusion::KernelPrelude()) + source.text;
        const auto result = nvrtc->Compile(text, source.name, architecture);
        EXPECT_FALSE(result.cubin.empty()) << source.text << result.log;
      }
    }
  }
}

// The largest has the most memory that threads share.
TEST(OrderKernels, Compile) { Compile({fusion::kMostOrderedExperts}, {90}); }
TEST(OrderKernels, CompileForAllArchitectures_slow) { Compile({1, 7, 64, 256}, {80, 90, 100}); }

}  // namespace
}  // namespace gt::order_kernels_test
