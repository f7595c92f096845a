// A driver that is older than the compiler of kernels refuses every binary. A table of functions stands in for it;
// tensors are on the CPU, where no kernel could run, so that whatever is right has been computed by operators.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "gt/exec/fused_kernels.h"
#include "gt/exec/program.h"
#include "gt/exec/reference.h"
#include "gt/fusion/nvrtc.h"
#include "gt/ir/text.h"
#include "gt/kernels/cuda_driver.h"
#include "gt/kernels/device_function.h"
#include "gt/kernels/load_kernel.h"
#include "gt/kernels/row_operators.h"
#include "gt/passes/framework/registry.h"
#include "gt/testing/temp_folder.h"
#include "gt/torch_bridge/device.h"

namespace gt::old_driver_test {
namespace {

constexpr int kInvalidImage = 200;  // what a driver says of a binary that is newer than itself

int64_t loads = 0;     // how often the driver was asked to
int64_t launches = 0;  // of kernels that it should not have
bool refuses_all = true;
std::string reason;  // that it gives

int RefuseModule(void** module, const void* image) {
  ++loads;
  static int loaded = 0;
  *module = &loaded;
  const bool is_elf = std::memcmp(image,
                                  "\x7f"
                                  "ELF",
                                  4) == 0;
  return refuses_all || !is_elf ? kInvalidImage : 0;
}

CudaDriver::Functions OldDriverFunctions() {
  return {.device_get = [](int* handle, int number) { return *handle = number, 0; },
          .attribute = [](int* value, int which, int) { return *value = which == 75 ? 9 : 0, 0; },
          .device_name = [](char* name, int, int) { return std::strcpy(name, "old"), 0; },
          .module_load = RefuseModule,
          .module_function = [](void** function, void* module,
                                const char*) { return *function = module, 0; },
          .launch = [](void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       void*, void**, void**) { return ++launches, 0; },
          .error_string = [](int, const char** text) { return *text = reason.c_str(), 0; }};
}

int64_t CountOf(const std::string& text, std::string_view part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

class OldDriver : public ::testing::Test {
 protected:
  void SetUp() override {
    if (fusion::Nvrtc::Get() == nullptr) GTEST_SKIP() << fusion::Nvrtc::WhyMissing();
    loads = launches = 0;
    refuses_all = true;
    // Lines are said once in a process: each test has its own.
    static int tests = 0;
    reason = fmt::format("device kernel image is invalid ({})", ++tests);
  }

  // Two groups with different kernels, as a step for a GPU has them, but on the CPU.
  static std::unique_ptr<Graph> Step() {
    auto graph = Parse(
        R"(graph @g(%a: input "a" f32[8, 64], %b: input "b" f32[8, 64], %w: param "w" f32[64, 64]) {
  %n = aten::neg(%a) : f32[8, 64]
  %m = aten::mul.Tensor(%n, %b) : f32[8, 64]
  %p = aten::mm(%m, %w) : f32[8, 64]
  %s = aten::add.Tensor(%p, %b) : f32[8, 64]
  %r = aten::relu(%s) : f32[8, 64]
  return result "r" %r
})");
    for (const auto& pass : ParsePipeline("fuse{any_device=true}")) pass->Run(*graph);
    return graph;
  }

  // A run's report; the results must be those of operators.
  KernelReport Run() const {
    const std::unique_ptr<Graph> graph = Step();
    EXPECT_TRUE(HasFusedNodes(*graph));
    const FusedKernels kernels(*graph, at::kCPU, folder_.path());
    for (const Node* node : graph->nodes()) EXPECT_EQ(kernels.Find(*node), nullptr);
    const std::vector<at::Tensor> inputs = {at::randn({8, 64}), at::randn({8, 64}),
                                            at::randn({64, 64})};
    const at::Tensor expected = at::relu(at::mm(-inputs[0] * inputs[1], inputs[2]) + inputs[1]);
    EXPECT_TRUE(at::equal(Program(*graph, &kernels).Run(inputs)[0], expected));
    return kernels.report();
  }

  const testing::TempFolder folder_;
};

// A run without kept binaries, and one that finds those of the first.
TEST_F(OldDriver, GeneratedKernelsAreLeftToOperators) {
  const StandInDriver driver(OldDriverFunctions());
  ::testing::internal::CaptureStderr();
  const KernelReport first = Run(), second = Run();
  const std::string said = ::testing::internal::GetCapturedStderr();
  for (const KernelReport& report : {first, second}) {
    EXPECT_EQ(report.kernels, 2);
    EXPECT_EQ(report.admitted, 0);
    EXPECT_EQ(report.missing,
              fmt::format("the driver does not load it: {}; the driver must be as new as the "
                          "compiler of kernels (NVRTC {})",
                          reason, fusion::Nvrtc::Get()->version()));
  }
  EXPECT_EQ(said, "") << "whoever has the report says it";
  EXPECT_EQ(loads, 4);
  EXPECT_EQ(launches, 0);
}

// However many there are, and also where generated ones are missing for the same reason: one line.
TEST_F(OldDriver, IsToldOnce) {
  const StandInDriver driver(OldDriverFunctions());
  UseKernelFolder(folder_.path());
  ::testing::internal::CaptureStderr();
  for (const char* name : {"first", "second", "third"}) {
    DeviceFunction function(
        name, fmt::format("extern \"C\" __global__ void {}(float* x) {{ x[0] = 1; }}\n", name));
    for (int i = 0; i < 2; ++i) EXPECT_FALSE(function.IsAvailable(at::kCPU)) << name;
  }
  WarnWithoutKernels(Run().missing);
  const std::string said = ::testing::internal::GetCapturedStderr();
  UseKernelFolder(fusion::DefaultKernelFolder());
  EXPECT_EQ(CountOf(said, "\n"), 1) << said;
  EXPECT_EQ(CountOf(said, "no kernels of gt's own, libtorch's operators run one by one"), 1)
      << said;
  EXPECT_EQ(CountOf(said, "the driver must be as new as the compiler of kernels"), 1) << said;
  EXPECT_EQ(launches, 0);
}

// Only what was kept is of no use: it is made again, and the new one is loaded.
TEST_F(OldDriver, MayStillLoadWhatIsMadeAgain) {
  refuses_all = false;
  const StandInDriver driver(OldDriverFunctions());
  UseKernelFolder(folder_.path());
  DeviceFunction function("fourth",
                          "extern \"C\" __global__ void fourth(float* x) { x[0] = 1; }\n");
  fusion::KernelStore(folder_.path())
      .Put(fusion::KernelKey(function.source(), 90) + ".cubin", "no binary");
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(function.IsAvailable(at::kCPU));
  const std::string said = ::testing::internal::GetCapturedStderr();
  UseKernelFolder(fusion::DefaultKernelFolder());
  EXPECT_EQ(CountOf(said, "the driver refuses"), 1) << said;
  EXPECT_EQ(loads, 2);
}

// On a GPU whose driver has become too old, operators of our own are libtorch's.
TEST_F(OldDriver, OperatorsRunByParts_gpu) {
  if (!CudaUsable()) GTEST_SKIP() << "there is no GPU";
  CudaDriver::Functions functions = CudaDriver::Get()->functions();
  functions.module_load = RefuseModule;
  const StandInDriver driver(functions);
  // A width that no other test has: what is loaded already stays.
  const auto options = at::TensorOptions(at::Device(at::kCUDA, 0)).dtype(at::kBFloat16);
  const at::Tensor x = at::randn({40, 1168}, options), weight = at::randn({1168}, options);
  ::testing::internal::CaptureStderr();
  auto [out, rstd] = RowRmsNorm(x, weight, 1e-5);
  RowLogSumExp(at::randn({5, 77}, options));
  const std::string said = ::testing::internal::GetCapturedStderr();
  auto [expected, expected_rstd] = at::_fused_rms_norm(x, {1168}, weight, 1e-5);
  EXPECT_TRUE(at::equal(out, expected) && at::equal(rstd, expected_rstd));
  EXPECT_GT(loads, 0);
  EXPECT_LE(CountOf(said, "\n"), 1) << said;
}

}  // namespace
}  // namespace gt::old_driver_test
