// The configuration of a job: one plain struct tree, filled from defaults, then config files, then
// flags (see CommandLine). Its members are the lines of config_options.def, for example
// config.training.steps.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gt/base/text.h"
#include "gt/config/option.h"
#include "gt/config/problems.h"

namespace gt {

class TorchtitanReader;

enum class DeviceChoice { kAuto, kCpu, kCuda };
enum class AttentionBackend { kSdpa, kFlex };
enum class AttentionMask { kCausal, kBlockCausal };
enum class AutoSwitch { kAuto, kFalse, kTrue };
enum class CheckpointAsync { kDisabled, kAsync };
enum class ExportDtype { kFloat32, kBfloat16, kFloat16 };
enum class TrainingDtype { kFloat32, kBfloat16 };
enum class ComputeDtype { kAuto, kFloat32, kBfloat16 };
enum class DecayType { kLinear, kCosine, kSqrt, kNone };
enum class CompileMode { kEager, kAotFxTrace };
enum class ExecutorKind { kFast, kReference };
enum class MemoryPolicy { kNone, kDefault, kEager, kFull, kSacAndOffload };
enum class ReshardAfterForward { kDefault, kAlways, kNever };
enum class ChunkDim { kBatch, kSeq };
enum class ChunkStrategy { kEager, kGraph };
enum class OverlapSchedule { kNone, kStructural, kCost };
enum class CostSource { kEstimated, kMeasured };
enum class CommBackend { kAuto, kGloo, kNccl, kFake, kEmulated };

template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<DeviceChoice> = {"auto", "cpu", "cuda"};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<AttentionBackend> = {"sdpa", "flex"};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<AttentionMask> = {"causal",
                                                                              "block_causal"};
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<AutoSwitch> = {"auto", "false", "true"};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<CheckpointAsync> = {"disabled",
                                                                                "async"};
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<ExportDtype> = {"float32", "bfloat16",
                                                                            "float16"};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<TrainingDtype> = {"float32",
                                                                              "bfloat16"};
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<ComputeDtype> = {"auto", "float32",
                                                                             "bfloat16"};
template <>
inline constexpr std::array<std::string_view, 4> kEnumNames<DecayType> = {"linear", "cosine",
                                                                          "sqrt", "none"};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<CompileMode> = {"eager",
                                                                            "aot_fx_trace"};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<ExecutorKind> = {"fast", "reference"};

template <>
inline constexpr std::array<std::string_view, 5> kEnumNames<MemoryPolicy> = {
    "none", "default", "eager", "full", "sac_and_offload"};
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<ReshardAfterForward> = {
    "default", "always", "never"};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<ChunkDim> = {"batch", "seq"};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<ChunkStrategy> = {"eager", "graph"};
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<OverlapSchedule> = {
    "none", "structural", "cost"};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<CostSource> = {"estimated", "measured"};
template <>
inline constexpr std::array<std::string_view, 5> kEnumNames<CommBackend> = {"auto", "gloo", "nccl",
                                                                            "fake", "emulated"};

struct Config {
#define GT_SECTION(name, Type, help) \
  struct Type {                      \
    bool operator==(const Type&) const = default;
#define GT_END_SECTION(name) \
  }                          \
  name;
#define GT_OPTION(type, name, default_value, limit, help) type name = default_value;
#include "gt/config/config_options.def"
#undef GT_OPTION
#undef GT_END_SECTION
#undef GT_SECTION

  bool operator==(const Config&) const = default;
};

// Every option bound to the members of `config`, section by section in the order of the .def file;
// the group of the options outside of any section comes first and has no name. `config` must
// outlive the result.
std::vector<OptionGroup> BindOptions(Config* config);

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

// The same for a caller that collects the problems of several sources; keys that are fine are set.
// `torchtitan` collects what the files call otherwise.
void ApplyTomlFile(const std::string& path, std::vector<OptionGroup>& groups,
                   TorchtitanReader& torchtitan, Problems& problems);

// Checks every range, for configs made in code, and the rules between options. Warm-up longer than
// the run is allowed, since `--training.steps 1` must just work: it is said in a warning, and the
// schedule is cut.
void Validate(const Config& config);

}  // namespace gt
