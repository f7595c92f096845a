#include "gt/exec/generator.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <thread>

namespace gt {
namespace {

at::Tensor Draw() { return at::empty({8}).uniform_(0, 1, CurrentGenerator()); }

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

// What rematerialization does: draw again from an earlier state, and leave later draws as they were.
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

TEST(Generator, ThreadsDoNotDisturbEachOther) {
  GeneratorScope scope;
  SeedGenerator(at::kCPU, 5);
  at::Tensor here = Draw(), there;
  SeedGenerator(at::kCPU, 5);
  std::thread other([&there] {
    GeneratorScope own;
    SeedGenerator(at::kCPU, 5);
    there = Draw();
  });
  other.join();
  EXPECT_TRUE(at::equal(there, here));
  EXPECT_TRUE(at::equal(Draw(), here));
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
}  // namespace gt
