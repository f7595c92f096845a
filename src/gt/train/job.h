// The parts of a training job on one rank that exist before its step is compiled, made in the order
// of the members. Nothing here needs memory for parameters.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gt/compile/placed_step.h"
#include "gt/dist/mesh.h"
#include "gt/dist/world.h"
#include "gt/job/config.h"
#include "gt/models/model.h"
#include "gt/torch_bridge/cpu_memory.h"
#include "gt/torch_bridge/generator.h"
#include "gt/train/fault.h"
#include "gt/train/job_data.h"
#include "gt/train/run_folder.h"
#include "gt/train/step/step.h"

namespace gt {

struct Job {
  // What cannot be trained is refused here: options that contradict each other, ranks that were started
  // differently, a folder that is in use, data that cannot be read. All ranks must call it.
  Job(const Config& asked, World& ranks);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Sequences of all ranks and batches of one update.
  int64_t SequencesPerStep() const;
  // Takes over what the plan of a placed job says, which is known when its step is compiled: what this
  // rank has of the model and of every batch.
  void Follow(const std::shared_ptr<const PlacedJob>& placed);

  Config config;  // with the tokenizer settled
  World& world;
  std::optional<RunFolder> folder;  // of the first rank
  std::vector<std::string> notes;   // about the choice of the folder, for the user
  MeterScope meter;
  std::optional<GeneratorScope> generator;  // of a rank on the CPU, or among others in this process
  Mesh mesh;
  int64_t micro_batches;       // batches whose gradients are added up before each update
  std::set<int64_t> profiled;  // steps
  std::optional<Fault> fault;
  c10::Device device;
  JobCluster cluster;         // what predictions count with; none for an eager job
  ModelPtr model;             // without memory until training_state.h
  bool bytes_chosen = false;  // the vocabulary is too small for the tokenizer that ships with gt
  std::unique_ptr<TextCodec> codec;
  JobShare share;
  DataContents contents;
  std::unique_ptr<BatchReader> data;
  std::unique_ptr<BatchReader> validation;       // null: there is none
  std::shared_ptr<const PlacedJob> placed;       // null: the layout is hand-written
  std::unique_ptr<TrainStep> placed_validation;  // of a placed job, made when it is first needed
};

}  // namespace gt
