// Buckets of random steps: every rank computes what it computed before. The .gtir file beside this
// one says what is packed with what, and where it starts and ends.
#include "gt/passes/fsdp/bucket_fsdp.h"

#include <gtest/gtest.h>

#include <random>

#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/passes/framework/manager.h"
#include "gt/testing/interpreter.h"
#include "gt/testing/test_roles.h"

namespace gt::bucket_fsdp_test {
namespace {

using testing::Interpreter;

// Lines of text with parameters and outputs. A step computes with single numbers, so that
// parameters of any size fit each other.
struct Model {
  std::string inputs = "%x: input \"x\" f32[]";
  std::string lines;
  std::string outputs;
  std::string last = "x";  // what the next node computes with

  void Parameter(std::string_view name, std::string_view fqn, std::string_view type) {
    inputs += fmt::format(", %{}: param \"{}\" {}", name, fqn, type);
  }
  void Line(const std::string& line) { lines += "  " + line + "\n"; }

  // %<name>_g, %<name>_w, and their use %<name>_u before %<name>_h.
  void Gather(std::string_view name, std::string_view of, std::string_view type,
              std::string_view meta, std::string_view group = "fsdp") {
    Line(fmt::format(
        "%{0}_g = _c10d_functional::all_gather_into_tensor(%{1}, group_size = 2, group_name = "
        "\"{2}\") : {3} {{{4}}}",
        name, of, group, type, meta));
    Line(fmt::format("%{0}_w = _c10d_functional::wait_tensor(%{0}_g) : {1} {{{2}}}", name, type,
                     meta));
    Use(name, fmt::format("{}_w", name), type, meta);
  }
  void Use(std::string_view name, std::string_view value, std::string_view type,
           std::string_view meta) {
    Line(fmt::format("%{0}_u = aten::mul.Tensor(%{1}, %{2}) : {3} {{{4}}}", name, value, last, type,
                     meta));
    Line(fmt::format("%{0}_h = aten::sum(%{0}_u) : f32[] {{{1}}}", name, meta));
    last = fmt::format("{}_h", name);
  }
  // %<name>_r and its wait %<name>_v of the gradient %<name>_d.
  void Scatter(std::string_view name, std::string_view of, std::string_view type,
               std::string_view meta, std::string_view group = "fsdp") {
    Line(fmt::format(
        "%{0}_r = _c10d_functional::reduce_scatter_tensor(%{1}, reduce_op = \"sum\", group_size = "
        "2, group_name = \"{2}\") : {3} {{{4}}}",
        name, of, group, type, meta));
    Line(fmt::format("%{0}_v = _c10d_functional::wait_tensor(%{0}_r) : {1} {{{2}}}", name, type,
                     meta));
  }
  void Gradient(std::string_view fqn, std::string_view value) {
    outputs += fmt::format(", gradient \"{}\" %{}", fqn, value);
  }
  std::string Text() const {
    return fmt::format("graph @step({}) {{\n{}  return loss \"loss\" %{}{}\n}}\n", inputs, lines,
                       last, outputs);
  }
};

std::string Forward(std::string_view module) { return fmt::format("module = \"{}\"", module); }
std::string Backward(std::string_view module) {
  return fmt::format("module = \"{}\", phase = backward", module);
}

// Draws a step at random: blocks, groups, chains, extra users, replicas.
class RandomStep {
 public:
  explicit RandomStep(uint64_t seed) : random_(seed) {
    const int count = 2 + Below(8);
    for (int i = 0; i < count; ++i) MakeParameter(i);
    for (int i = 0; i < count + 3; ++i) Gather(Below(count), i, false);
    for (int i = 0; i < 2 * count; ++i) Reduce(Below(count), i);
    for (int i = 0; i < count; ++i) {
      if (!gradients_[Index(i)].empty()) model_.Gradient(Fqn(i), gradients_[Index(i)]);
    }
  }
  std::string Text() const { return model_.Text(); }

 private:
  static size_t Index(int i) { return static_cast<size_t>(i); }
  int Below(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(random_); }
  std::string Fqn(int i) const { return modules_[Index(i)] + fmt::format(".p{}", i); }

  void MakeParameter(int i) {
    static const char* const kModules[] = {"tok",     "layers.0.wq",     "layers.0.moe.experts",
                                           "norm",    "layers.1.ffn.w1", "layers.1.moe.experts",
                                           "layers.1"};
    modules_.emplace_back(kModules[Below(7)]);
    rows_.push_back(1 + Below(3));
    gradients_.emplace_back();
    model_.Parameter(fmt::format("p{}", i), Fqn(i), fmt::format("f32[{}, 2]", rows_.back()));
  }
  const char* Group() { return Below(4) == 0 ? "other" : "fsdp"; }

  // A gather and its use; sometimes through a copy, sometimes in the backward.
  std::string Gather(int p, int id, bool backward) {
    const std::string name = fmt::format("{}{}", backward ? "k" : "f", id);
    const std::string meta = backward ? Backward(modules_[Index(p)]) : Forward(modules_[Index(p)]);
    std::string of = fmt::format("p{}", p);
    if (Below(3) == 0) {
      model_.Line(fmt::format("%{}_c = aten::clone(%{}) : f32[{}, 2] {{{}}}", name, of,
                              rows_[Index(p)], meta));
      of = name + "_c";
    }
    model_.Gather(name, of, fmt::format("f32[{}, 2]", 2 * rows_[Index(p)]), meta, Group());
    return name;
  }

  void Reduce(int p, int id) {
    const std::string name = Gather(p, id, true), meta = Backward(modules_[Index(p)]);
    const std::string type = fmt::format("f32[{}, 2]", rows_[Index(p)]);
    model_.Scatter(name, name + "_u", type, meta, Group());
    std::string value = name + "_v";
    if (Below(4) == 0) {
      model_.Line(fmt::format("%{}_x = aten::view(%{}, size = [{}]) : f32[{}] {{{}}}", name, value,
                              2 * rows_[Index(p)], 2 * rows_[Index(p)], meta));
      model_.Line(fmt::format("%{0}_y = aten::sum(%{0}_x) : f32[] {{{1}}}", name, meta));
      if (Below(2) == 0) model_.last = name + "_y";  // what follows depends on the reduced gradient
    }
    if (Below(3) == 0) {
      model_.Line(
          fmt::format("%{}_a = _c10d_functional::all_reduce(%{}, reduce_op = \"sum\", "
                      "group_name = \"replicas\") : {} {{{}}}",
                      name, value, type, meta));
      model_.Line(fmt::format("%{0}_b = _c10d_functional::wait_tensor(%{0}_a) : {1} {{{2}}}", name,
                              type, meta));
      value = name + "_b";
    }
    std::string& gradient = gradients_[Index(p)];
    if (!gradient.empty()) {
      model_.Line(fmt::format("%{}_s = aten::add.Tensor(%{}, %{}) : {} {{{}}}", name, gradient,
                              value, type, meta));
      value = name + "_s";
    }
    gradient = value;
  }

  std::mt19937_64 random_;
  Model model_;
  std::vector<std::string> modules_, gradients_;
  std::vector<int> rows_;
};

int64_t CounterOf(const PassRun& run, std::string_view counter) {
  for (const auto& [name, value] : run.counters) {
    if (name == counter) return value;
  }
  ADD_FAILURE() << "no counter " << counter;
  return -1;
}

TEST(BucketFsdp, RandomSteps) {
  int64_t packed = 0;
  for (uint64_t seed = 0; seed < 300 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    auto graph = Parse(RandomStep(seed).Text());
    Verify(*graph);
    const Interpreter before(*graph, /*ranks=*/2);
    PassList passes;
    const BucketFsdpOptions options = {.fsdp_prefetch = static_cast<int64_t>(seed % 4)};
    passes.push_back(std::make_unique<BucketFsdp>(options));
    PassManager manager(std::move(passes), {.write_reproducer = false});
    testing::DeclareLayers(*graph);
    const PassRun run = manager.Run(*graph).runs.at(0);
    const auto difference = DifferenceOf(before, Interpreter(*graph, /*ranks=*/2));
    EXPECT_FALSE(difference.has_value()) << *difference << "\n" << Print(*graph);
    EXPECT_FALSE(manager.Run(*graph).changed) << "a second run changes something";
    EXPECT_EQ(Parse(Print(*graph))->Hash(), graph->Hash());
    packed += CounterOf(run, "gathers") - CounterOf(run, "gather_buckets");
    packed += CounterOf(run, "reductions") - CounterOf(run, "reduction_buckets");
  }
  EXPECT_GT(packed, 1000);
}

}  // namespace
}  // namespace gt::bucket_fsdp_test
