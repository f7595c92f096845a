// Steps for a GPU, captured where there may be none: the graph is the one that a machine with a GPU
// gives. tests/gpu/graph_hashes.txt was written by this very test on an H200 with libtorch 2.11.0:
//   GT_RECORD_HASHES=FILE gt_torch_tests --gtest_filter='GpuCapture.*'
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "gt/base/text.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/config/command_line.h"
#include "gt/dist/world.h"
#include "gt/job/config.h"
#include "gt/sim/memory_curve.h"
#include "gt/torch_bridge/device.h"

namespace gt::gpu_capture_test {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

struct Job {
  std::string name;
  Config config;
};

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
  config.compile.inductor_compilation = InductorCompilation::kNone;  // the capture is compared
  return config;
}

// All families, both kinds of attention, one rank and every kind of parallelism, whole and in chunks.
std::vector<Job> Jobs() {
  const std::string small = " --training.seq_len 64 --training.local_batch_size 4";
  const std::map<std::string, std::string> families = {
      {"llama3", "--model.name llama3 --model.n_layers 2"},
      {"qwen3", "--model.name qwen3 --model.n_layers 2"},
      {"qwen3_moe", "--model.name qwen3 --model.flavor debugmodel_moe --model.n_layers 2"},
      {"deepseek_v3", "--model.name deepseek_v3 --model.n_layers 3"}};
  std::vector<Job> jobs;
  auto add = [&](const std::string& name, const std::string& flags) {
    jobs.push_back({name, JobOf(flags)});
  };
  for (const auto& [family, flags] : families) {
    const bool sparse = family == "qwen3_moe" || family == "deepseek_v3";
    for (const std::string attention : {"sdpa", "flex"}) {
      const std::string name = family + "_" + attention;
      const std::string job = flags + small + " --model.attn " + attention;
      add(name, job + " --training.mixed_precision_param float32");
      const std::string half = job + " --training.mixed_precision_param bfloat16";
      add(name + "_bf16", half);
      add(name + "_full_dropout", half + " --compile.memory_policy full --model.dropout 0.1");
      add(name + "_tp2", half + " --ranks 4 --parallelism.tensor_parallel_degree 2");
      const bool spreads = attention == "sdpa";  // FlexAttention does not go with cp yet
      if (spreads) {
        add(name + "_cp2", half + " --ranks 4 --parallelism.context_parallel_degree 2");
      }
      if (!sparse) continue;
      const std::string ep = half + " --ranks 4 --parallelism.expert_parallel_degree 4";
      add(name + "_ep4", ep);
      add(name + "_ep4_tp2", ep + " --parallelism.tensor_parallel_degree 2");
      if (spreads) add(name + "_ep4_cp2", ep + " --parallelism.context_parallel_degree 2");
      add(name + "_ep4_offload", ep + " --compile.memory_policy sac_and_offload");
      add(name + "_ep4_moe_seq3",
          ep + " --compile.ep_overlap.enabled --compile.ep_overlap.schedule none "
               "--compile.ep_overlap.module_fqn layers.*.moe --compile.ep_overlap.chunk_dim seq "
               "--compile.ep_overlap.num_chunks 3");
    }
  }
  return jobs;
}

uint64_t HashOf(const Config& config) {
  SetDeterministic(false);  // decides which attention runs
  uint64_t hash = 0;
  World::Run(config, [&](World& world) {
    const Mesh mesh(config.parallelism, world.size(), world.rank());
    ModelPtr model = BuildConfiguredModel(config, world, mesh);
    CompiledStep captured =
        Compile({.model = *model, .config = config, .device = kGpu, .mesh = mesh, .world = &world});
    for (const auto& input : captured.graph->inputs()) {
      EXPECT_EQ(input->value.type().device.kind, DeviceKind::kCuda) << input->name;
    }
    // Where a node was written changes with every line of the program.
    for (Node* node : captured.graph->nodes()) node->meta().source = Name();
    hash = captured.graph->Hash();
  });
  return hash;
}

TEST(GpuCapture, GivesTheGraphOfAMachineWithAGpu) {
  std::map<std::string, std::string> known;
  std::ifstream file(GT_SOURCE_DIR "/tests/gpu/graph_hashes.txt");
  for (std::string name, hash; file >> name >> hash;) known[name] = hash;
  const char* record = std::getenv("GT_RECORD_HASHES");
  std::ofstream recorded;
  if (record != nullptr) {
    ASSERT_TRUE(CudaUsable()) << "hashes are recorded on a machine with a GPU";
    recorded.open(record);
  }
  for (const Job& job : Jobs()) {
    const std::string hash = fmt::format("{:016x}", HashOf(job.config));
    if (record != nullptr) {
      recorded << job.name << " " << hash << "\n";
    } else {
      EXPECT_EQ(known[job.name], hash) << job.name;
    }
  }
}

// A capture for a GPU that is not there leaves no trace: captures for the CPU before and after it are
// the same, and nothing in the process believes in a GPU.
TEST(GpuCapture, LeavesNoTrace) {
  Config config = JobOf(
      "--model.name deepseek_v3 --model.n_layers 2 --training.seq_len 64 "
      "--training.local_batch_size 2");
  config.device = DeviceChoice::kCpu;
  auto on_cpu = [&] {
    uint64_t hash = 0;
    World::Run(config, [&](World& world) {
      const Mesh mesh(config.parallelism, world.size(), world.rank());
      ModelPtr model = BuildConfiguredModel(config, world, mesh);
      hash = Compile({.model = *model,
                      .config = config,
                      .device = c10::kCPU,
                      .mesh = mesh,
                      .world = &world})
                 .graph->Hash();
    });
    return hash;
  };
  const uint64_t before = on_cpu();
  const uint64_t for_gpu = HashOf(config);
  EXPECT_NE(for_gpu, before);
  EXPECT_EQ(on_cpu(), before);
  EXPECT_EQ(HashOf(config), for_gpu);
  EXPECT_EQ(at::globalContext().hasCUDA(), CudaUsable());
  at::manual_seed(3);  // asks every device there is
}

}  // namespace
}  // namespace gt::gpu_capture_test
