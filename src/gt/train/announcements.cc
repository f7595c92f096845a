#include "gt/train/announcements.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <string>

#include "gt/base/byte_text.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/memory_advice.h"
#include "gt/job/config.h"
#include "gt/parallel/chunk_modules.h"
#include "gt/report/memory_report.h"
#include "gt/report/overlap_report.h"
#include "gt/report/placement_report.h"
#include "gt/report/rewrite_summary.h"
#include "gt/torch_bridge/device.h"
#include "gt/train/data_report.h"
#include "gt/train/metrics.h"
#include "gt/train/say.h"

namespace gt {
namespace {

std::string Precision(const Config& config) {
  std::string stored(EnumName(config.training.dtype));
  std::string compute(EnumName(config.training.mixed_precision_param));
  return stored == compute ? stored : stored + " (compute in " + compute + ")";
}

std::string Where(c10::Device device) {
  if (device.is_cuda()) {
    return fmt::format("cuda, float32 matrix products in {}", Float32Products());
  }
  return fmt::format("cpu with {} thread{}", at::get_num_threads(),
                     at::get_num_threads() == 1 ? "" : "s");
}

std::string OnHost(const Job& job, const MemoryCurve& curve) {
  const bool copies = job.device.is_cuda() && curve.state_copies > 0;
  const bool offloads = job.config.compile.memory_policy == MemoryPolicy::kSacAndOffload;
  if (!offloads && !copies) return "";
  return fmt::format("; {} in host memory", ByteText(curve.elsewhere_peak));
}

// What was placed, how, and what it is worth.
void SayPlacement(const Job& job, const PlacedJob& placed, const Graph& graph) {
  const placement::Plan& plan = placed.plan;
  const Prediction& predicted = placed.chosen.prediction;
  const std::string mesh = placement::DeviceMesh(plan.mesh).ToString();
  const std::string& file =
      placed.source.empty() ? job.config.compile.autoparallel_plan : placed.source;
  const std::string source =
      file.empty() ? fmt::format("found in {:.1f} s", placed.seconds) : "from " + file;
  if (placed.judged == 0) {  // a stored plan competes with none
    Say(job.world, "placement on mesh {} {}", mesh, source);
  } else {
    Say(job.world, "placement on mesh {} {}: predicted {:.1f} ms, the best of {} plans", mesh,
        source, predicted.microseconds / 1e3, placed.judged);
    if (!placed.chosen.layout.empty()) {
      Say(job.world, "  it is the hand-written layout {}", placed.chosen.layout);
    } else if (!placed.rival.name.empty()) {
      Say(job.world, "  the best hand-written layout, {}, is predicted to take {:.1f} ms",
          placed.rival.name, placed.rival.prediction.microseconds / 1e3);
    }
  }
  if (plan.bound_us > 0) {
    Say(job.world, "  by the costs of the search {:.2f} ms, and no placement less than {:.2f} ms",
        plan.step_us / 1e3, plan.bound_us / 1e3);
  }
  for (const std::string& line : PlacementLines(graph)) Say(job.world, "{}", line);
}

void SayOverlap(const Job& job, const CompiledStep& step) {
  if (!step.prediction_is_known) {
    Say(job.world, "predicted step: no estimate, since the device and its links were not measured");
    return;
  }
  const OverlapSummary summary = SummarizeOverlap(*step.predicted);
  Say(job.world,
      "predicted step: {:.1f} ms, of which {:.1f} ms compute and {:.1f} ms communication, {:.0f} "
      "% "
      "of it hidden",
      summary.step / 1e3, summary.compute / 1e3, summary.communication / 1e3,
      100 * summary.hidden_share());
  if (const std::string line = WhatMemoryCosts(step.passes); !line.empty()) {
    Say(job.world, "{}", line);
  }
}

void SayData(const Job& job) {
  const DataReport report = ReportData(job);
  for (const std::string& line : report.lines) SayLine(line);
  for (const std::string& warning : report.warnings) log::Warn("{}", warning);
}

// For chunks that the modules make.
void SayModulesInChunks(const Job& job) {
  const EpOverlapSection& overlap = job.config.compile.ep_overlap;
  if (overlap.enabled != AutoSwitch::kTrue) return;
  Say(job.world, "  chunks         {}: {}, each in {} chunks along the {}",
      ChunkedModulesPattern(*job.model, overlap),
      Counted(std::ssize(SelectChunkedModules(*job.model, overlap)), "module"), overlap.num_chunks,
      overlap.chunk_dim == ChunkDim::kSeq ? "sequence" : "batch");
}

}  // namespace

void Introduce(const Job& job) {
  const Config& config = job.config;
  Say(job.world, "{}: {} parameters, {} on {}", ModelTitle(config),
      FormatCount(static_cast<double>(nn::ParameterCount(*job.model))), Precision(config),
      Where(job.device));
  if (job.world.size() > 1) {
    Say(job.world, "{}: {}", job.world.Describe(),
        config.compile.enable_autoparallel ? "to be placed" : job.mesh.Describe());
  }
  std::string accumulated = job.micro_batches == 1 ? "" : fmt::format("{} x ", job.micro_batches);
  Say(job.world, "data: {}, {}{} x {} tokens a step, {} steps", job.data->data().Describe(),
      accumulated, job.SequencesPerStep() / job.micro_batches, config.training.seq_len,
      config.training.steps);
  if (job.world.first()) SayData(job);
  for (const std::string& note : job.notes) Say(job.world, "{}", note);
  Say(job.world, "results in {}", config.dump_folder);
  if (job.bytes_chosen) {
    Say(job.world,
        "tokens are bytes: a vocabulary of {} is too small for the tokenizer that ships with gt",
        job.model->vocab_size());
  }
}

void AnnounceStep(const Job& job, const CompiledStep& step, const MemoryCurve& curve) {
  Say(job.world, "captured {} nodes in {:.0f} ms, {} after passes ({:.0f} ms)",
      FormatCount(static_cast<double>(step.captured_nodes)), step.capture_seconds * 1e3,
      FormatCount(static_cast<double>(step.graph->node_count())), step.passes.seconds * 1e3);
  const bool by_modules =
      job.config.compile.ep_overlap.strategy == ChunkStrategy::kEager;  // no pass reports these
  if (by_modules) SayModulesInChunks(job);
  for (const std::string& line : RewriteLines(step.passes, *step.graph)) Say(job.world, "{}", line);
  if (step.placed) SayPlacement(job, *step.placed, *step.graph);
  Say(job.world, "memory at the peak: {}{}", MemoryLine(curve), OnHost(job, curve));
  for (const std::string& line : step.choice) Say(job.world, "{}", line);
  if (step.predicted) SayOverlap(job, step);
}

void AnnounceEager(const Job& job) {
  Say(job.world, "running eagerly");
  SayModulesInChunks(job);
  if (job.config.compile.ep_overlap.enabled == AutoSwitch::kAuto) {
    Say(job.world, "chunks: no, since an eager step has no graph to choose them by");
  }
}

}  // namespace gt
