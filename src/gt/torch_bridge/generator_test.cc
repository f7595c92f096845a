#include "gt/torch_bridge/generator.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <thread>

#include "gt/torch_bridge/device.h"

namespace gt::generator_test {
namespace {

at::Tensor Draw(c10::Device device = at::kCPU) {
  return at::empty({8}, at::TensorOptions(device)).uniform_(0, 1, CurrentGenerator());
}

at::Tensor State() {
  static auto op = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("gt::generator_state", "")
                       .typed<at::Tensor(at::Device)>();
  return op.call(at::kCPU);
}

at::Tensor SetState(const at::Tensor& state) {
  static auto op = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("gt::set_generator_state", "")
                       .typed<at::Tensor(const at::Tensor&, at::Device)>();
  return op.call(state, at::kCPU);
}

TEST(Generator, ASeedDecidesWhatIsDrawn) {
  GeneratorScope scope;
  SeedGenerator(at::kCPU, 7);
  at::Tensor first = Draw(), second = Draw();
  EXPECT_FALSE(at::equal(first, second));
  SeedGenerator(at::kCPU, 7);
  EXPECT_TRUE(at::equal(Draw(), first));
  SeedGenerator(at::kCPU, 8);
  EXPECT_FALSE(at::equal(Draw(), first));
}

// What rematerialization does: redraw from an earlier state, and leave later draws as they were.
TEST(Generator, AStateCanBeGoneBackToAndLeftAgain) {
  GeneratorScope scope;
  SeedGenerator(at::kCPU, 3);
  at::Tensor state = State();
  EXPECT_EQ(state.sizes(), at::IntArrayRef{5056});  // what the graph says of it
  at::Tensor first = Draw(), second = Draw();
  SeedGenerator(at::kCPU, 3);
  EXPECT_TRUE(at::equal(Draw(), first));
  at::Tensor now = SetState(state);
  EXPECT_TRUE(at::equal(Draw(), first));
  SetState(now);
  EXPECT_TRUE(at::equal(Draw(), second));
}

// A thread's own generator draws what the device's draws after the same seed, and leaves it alone.
void ExpectThreadsToDrawAlone(c10::Device device) {
  SeedGenerator(device, 5);
  at::Tensor of_process = Draw(device);
  SeedGenerator(device, 5);
  GeneratorScope scope(device);
  SeedGenerator(device, 5);
  at::Tensor here = Draw(device), there;
  EXPECT_TRUE(at::equal(here, of_process));
  SeedGenerator(device, 5);
  std::thread other([&there, device] {
    GeneratorScope own(device);
    SeedGenerator(device, 5);
    there = Draw(device);
  });
  other.join();
  EXPECT_TRUE(at::equal(there.cpu(), here.cpu()));
  EXPECT_TRUE(at::equal(Draw(device), here));
}

TEST(Generator, ThreadsDoNotDisturbEachOther) { ExpectThreadsToDrawAlone(at::kCPU); }

TEST(Generator, ThreadsOnAGpuDoNotDisturbEachOther_gpu) {
  c10::Device device = ChooseDevice(DeviceChoice::kAuto);
  if (!device.is_cuda()) GTEST_SKIP() << "there is no GPU";
  ExpectThreadsToDrawAlone(device);
}

TEST(Generator, WithoutAScopeItIsLibtorchsOwn) {
  EXPECT_FALSE(CurrentGenerator());
  SeedGenerator(at::kCPU, 11);
  at::Tensor ours = Draw();
  at::manual_seed(11);
  EXPECT_TRUE(at::equal(at::rand({8}), ours));
  {
    GeneratorScope scope;
    EXPECT_TRUE(IsCurrentGenerator(*CurrentGenerator()));
  }
  EXPECT_FALSE(CurrentGenerator());
}

}  // namespace
}  // namespace gt::generator_test
