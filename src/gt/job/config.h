// The configuration of a job: one plain struct tree, filled from defaults, then config files, then
// flags (see CommandLine). Names are torchtitan's. Rules about several options are in Validate().
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gt/config/config_binding.h"
#include "gt/config/option.h"
#include "gt/config/option_struct.h"
#include "gt/job/sections/checkpoint.h"
#include "gt/job/sections/comm.h"
#include "gt/job/sections/compile.h"
#include "gt/job/sections/debug.h"
#include "gt/job/sections/device_choice.h"
#include "gt/job/sections/metrics.h"
#include "gt/job/sections/model.h"
#include "gt/job/sections/optimizer.h"
#include "gt/job/sections/parallelism.h"
#include "gt/job/sections/training.h"
#include "gt/job/sections/validation.h"

namespace gt {

struct Config {
  GT_OPTION(DeviceChoice, device, DeviceChoice::kAuto, Any(),
            "where to run; auto takes cuda when a usable GPU is there, else cpu");
  GT_OPTION(
      std::string, dump_folder, "outputs/{model}-{time}", NotEmpty(),
      "folder for metrics.jsonl, the resolved config and everything else a run writes; {model} and "
      "{time} are filled in, and beside a folder with {time} the link latest names the last run");
  GT_OPTION(bool, overwrite, false, Any(),
            "begin anew in a dump_folder with results of another configuration, which move to its "
            "folder previous");
  GT_OPTION(int64_t, threads, 0, Within(0, 1024),
            "threads inside one CPU operator; 0 leaves it to libtorch. The number changes bits");
  GT_OPTION(int64_t, ranks, 0, Within(0, 1048576),
            "number of ranks: threads of this process, or with --comm.backend fake and emulated as "
            "many as are pretended; 0: as the launcher says, else one");
  GT_OPTION(
      std::string, mesh, "auto", NotEmpty(),
      "axes that placement lays a step out on, such as 8x8, the last one within a node; auto: "
      "the degrees of parallelism.* as axes, else every mesh of the ranks is tried");
  GT_SECTION(ModelSection, model, "the network");
  GT_SECTION(TrainingSection, training, "what is trained on, how long, and in which precision");
  GT_SECTION(ParallelismSection, parallelism, "how the work is shared among ranks");
  GT_SECTION(CommSection, comm, "how ranks communicate");
  GT_SECTION(OptimizerSection, optimizer, "AdamW");
  GT_SECTION(LrSchedulerSection, lr_scheduler, "warm-up, then constant, then decay");
  GT_SECTION(CompileSection, compile, "how the train step runs");
  GT_SECTION(ValidationSection, validation, "loss on data that is not trained on");
  GT_SECTION(CheckpointSection, checkpoint, "what is saved, when, and what a run starts from");
  GT_SECTION(MetricsSection, metrics, "what a run reports");
  GT_SECTION(ProfilingSection, profiling, "timelines of single steps");
  GT_SECTION(DebugSection, debug, "for measurements and tests");
  GT_END_OPTIONS(Config);

  std::vector<std::string> config_files;  // that it was read from: inputs of the run, and no option
};

// Every option bound to the members of `config`, section by section in the order above; the group of
// the options outside of any section is first and has no name. `config` must outlive the result.
ConfigBinding BindConfig(Config* config);

// What forward and backward compute in (training.mixed_precision_param). `auto` takes what GPUs are
// fast at when `device` is cuda, and never casts parameters up. A device that is auto counts as a
// CPU: a job that runs settles the question first (SettlePrecision), once it knows its device.
TrainingDtype ComputeDtypeOf(const Config& config);
// Puts the answer in the place of `auto`, for what must not depend on the machine that reads it.
void SettlePrecision(Config* config, bool on_gpu);

// Whether an entry of a table names the option: by its path, or by its section as "checkpoint.*".
bool NamesOption(std::string_view entry, std::string_view path);

// The walk over all options with their values, for fingerprints and reports.
void ForEachOption(const Config& config, const std::function<void(const Option&)>& visit);

// The whole config, defaults included, in the form LoadToml reads.
std::string ToToml(const Config& config);

// Overwrites what the file or text names. Throws one error for everything that is wrong with it,
// and then leaves `config` as it was. Ranges are checked here, rules between options only by
// Validate, since flags come later.
void LoadTomlFile(const std::string& path, Config* config);
void LoadToml(std::string_view text, std::string_view file_name, Config* config);

// Checks every range, for configs made in code, and the rules between options. Warm-up longer than
// the run is allowed, since `--training.steps 1` must just work: it is said in a warning, and the
// schedule is cut.
void Validate(const Config& config);

}  // namespace gt
