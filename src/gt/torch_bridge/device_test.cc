#include "gt/torch_bridge/device.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace gt::device_test {
namespace {

// All tests of this program run on the processor as gt's own programs do.
class PreparedCpu : public ::testing::Environment {
 public:
  void SetUp() override { PrepareCpu(); }
};
[[maybe_unused]] const ::testing::Environment* const prepared =
    ::testing::AddGlobalTestEnvironment(new PreparedCpu);

// oneDNN takes the tile unit that a processor shows, where its tiles have no size as well.
TEST(PrepareCpu, HalfPrecisionProductsRun) {
  const at::Tensor a = at::ones({64, 96}, at::kBFloat16), b = at::ones({96, 32}, at::kBFloat16);
  EXPECT_TRUE(at::equal(at::mm(a, b), at::full({64, 32}, 96, at::kBFloat16)));
}

}  // namespace
}  // namespace gt::device_test
