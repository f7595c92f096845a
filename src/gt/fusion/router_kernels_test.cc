// That the router's kernels compile; kernels/router_test.cc runs them.
#include "gt/fusion/router_kernels.h"

#include <gtest/gtest.h>

#include "gt/fusion/element_code.h"
#include "gt/fusion/nvrtc.h"

namespace gt::router_kernels_test {
namespace {

using fusion::RouterForm;

void Compile(const RouterForm& form, std::initializer_list<int> architectures) {
  const fusion::Nvrtc* nvrtc = fusion::Nvrtc::Get();
  if (nvrtc == nullptr) GTEST_SKIP() << fusion::Nvrtc::WhyMissing();
  for (const fusion::RowKernel& source :
       {fusion::RouterSource(form), fusion::RouterBackwardSource(form)}) {
    EXPECT_EQ(source.text.find('$'), std::string::npos) << "a value is missing";
    for (int architecture : architectures) {
      const std::string text =
          "#define COMPLEX_FORM 0\n" + std::string(fusion::KernelPrelude()) + source.text;
      const auto result = nvrtc->Compile(text, source.name, architecture);
      EXPECT_FALSE(result.cubin.empty()) << source.text << result.log;
    }
  }
}

TEST(RouterKernels, Compile) {
  Compile({.sigmoid = true, .biased = true, .grouped = true, .normalized = true, .vectors = 8},
          {90});
}

TEST(RouterKernels, AllCompileForAllArchitectures_slow) {
  for (int flags = 0; flags < 16; ++flags) {
    Compile({.sigmoid = (flags & 1) != 0,
             .biased = (flags & 2) != 0,
             .grouped = (flags & 4) != 0,
             .normalized = (flags & 8) != 0,
             .vectors = flags + 1},
            {80, 90, 100});
  }
}

}  // namespace
}  // namespace gt::router_kernels_test
