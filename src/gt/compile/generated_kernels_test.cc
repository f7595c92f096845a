// The kernels of whole steps, on a machine without a GPU: they are few, do not grow with the model, and
// compile for every generation of GPUs.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "gt/base/text.h"
#include "gt/base/workers.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/config/command_line.h"
#include "gt/dist/world.h"
#include "gt/fusion/kernel_source.h"
#include "gt/fusion/nvrtc.h"
#include "gt/job/config.h"

namespace gt::generated_kernels_test {
namespace {

Config JobOf(const std::string& flags) {
  Config config;
  CommandLine line("test", "");
  line.WithConfig(&config);
  std::vector<std::string> words = Split(flags, ' ');
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  EXPECT_TRUE(line.Parse(static_cast<int>(arguments.size()), arguments.data()));
  config.comm.backend = CommBackend::kFake;
  config.device = DeviceChoice::kCuda;
  return config;
}

struct Kernels {
  std::map<std::string, fusion::KernelSource> sources;  // by text
  int64_t nodes = 0;
};

void AddKernels(const std::string& flags, Kernels& kernels) {
  const Config config = JobOf(flags);
  World::Run(config, [&](World& world) {
    const Mesh mesh(config.parallelism, world.size(), world.rank());
    ModelPtr model = BuildConfiguredModel(config, world, mesh);
    const CompiledStep step = Compile({.model = *model,
                                       .config = config,
                                       .device = c10::Device(c10::kCUDA, 0),
                                       .mesh = mesh,
                                       .world = &world});
    for (const Node* node : step.graph->nodes()) {
      const Graph* body = FusedBody(*node);
      if (body == nullptr) continue;
      ++kernels.nodes;
      auto source = fusion::MakeKernelSource(*body);
      ASSERT_TRUE(source) << node->meta().module.str();
      std::string text = source->text;
      kernels.sources.emplace(std::move(text), std::move(*source));
    }
  });
}

TEST(GeneratedKernels, DoNotGrowWithLayersAndBatches) {
  for (const std::string family : {"llama3", "deepseek_v3"}) {
    Kernels few, many;
    const std::string flags = "--model.name " + family + " --training.seq_len 128 ";
    AddKernels(flags + "--model.n_layers 3 --training.local_batch_size 2", few);
    AddKernels(flags + "--model.n_layers 6 --training.local_batch_size 4", many);
    EXPECT_GT(many.nodes, few.nodes);
    EXPECT_EQ(many.sources.size(), few.sources.size()) << family;
  }
}

TEST(GeneratedKernels, RegionsAndNoneAreRespected) {
  Kernels all, blocks, attention, none;
  const std::string flags = "--model.name llama3 --model.n_layers 2 --training.seq_len 64";
  AddKernels(flags, all);
  AddKernels(flags + " --compile.inductor_compilation regional", blocks);
  AddKernels(flags +
                 " --compile.inductor_compilation regional --compile.fusion_module_fqn "
                 "layers.*.attention",
             attention);
  AddKernels(flags + " --compile.inductor_compilation none", none);
  EXPECT_GE(all.nodes, blocks.nodes);
  EXPECT_GT(blocks.nodes, attention.nodes);
  EXPECT_GT(attention.nodes, 0);
  EXPECT_EQ(none.nodes, 0);
}

TEST(GeneratedKernels, CompileForEveryGenerationOfGpus) {
  const fusion::Nvrtc* nvrtc = fusion::Nvrtc::Get();
  if (nvrtc == nullptr) GTEST_SKIP() << fusion::Nvrtc::WhyMissing();
  Kernels kernels;
  for (const std::string family :
       {"--model.name llama3 ", "--model.name qwen3 --model.flavor debugmodel_moe ",
        "--model.name deepseek_v3 "}) {
    for (const std::string dtype : {"bfloat16", "float32"}) {
      AddKernels(family + "--model.n_layers 2 --training.seq_len 128 --training.dtype " + dtype +
                     " --training.mixed_precision_param " + dtype,
                 kernels);
    }
  }
  std::vector<const fusion::KernelSource*> sources;
  for (const auto& [text, source] : kernels.sources) sources.push_back(&source);
  constexpr int kArchitectures[] = {80, 90, 100};
  std::vector<std::string> failures(3 * sources.size());
  RunWorkers(static_cast<int64_t>(failures.size()), [&](WorkItems& items) {
    while (const auto item = items.Next()) {
      const auto at = static_cast<size_t>(*item);
      const auto result =
          nvrtc->Compile(sources[at / 3]->text, sources[at / 3]->name, kArchitectures[at % 3]);
      if (result.cubin.empty()) failures[at] = result.log + "\n" + sources[at / 3]->text;
    }
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  EXPECT_GT(sources.size(), 10u);
}

}  // namespace
}  // namespace gt::generated_kernels_test
