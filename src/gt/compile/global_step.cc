#include "gt/compile/global_step.h"

#include <algorithm>

#include "gt/compile/configured_model.h"
#include "gt/job/config.h"

namespace gt {

int64_t GlobalBatch(const Config& config, int64_t ranks) {
  const Mesh mesh(config.parallelism, ranks, 0);
  return config.training.local_batch_size * mesh.size(MeshAxis::kBatch);
}

Config GlobalConfig(const Config& config, int64_t ranks, const LanguageModel& model) {
  Config global = config;
  global.parallelism = ParallelismSection{};
  global.training.local_batch_size = GlobalBatch(config, ranks);
  global.compile.ep_overlap.enabled = AutoSwitch::kFalse;
  global.compile.enable_autoparallel = false;
  global.compile.inductor_compilation =
      InductorCompilation::kNone;  // operators are placed, not kernels
  // Parts of the loss that a rank's share of the tokens needs; placement shards each of them.
  if (global.training.loss_chunks == 0) {
    Config local = config;
    local.training.seq_len =
        std::max<int64_t>(1, global.training.local_batch_size * config.training.seq_len /
                                 (ranks * config.training.local_batch_size));
    global.training.loss_chunks = LossConfigOf(local, model).chunks;
  }
  return global;
}

}  // namespace gt
