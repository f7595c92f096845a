#include "gt/config/config.h"

#include <algorithm>
#include <limits>

#include "gt/base/error.h"
#include "gt/base/fqn_pattern.h"
#include "gt/base/logging.h"
#include "gt/base/read_file.h"
#include "gt/config/moe_load.h"
#include "gt/config/toml.h"
#include "gt/config/torchtitan.h"

namespace gt {
namespace {

class GroupBuilder {
 public:
  void Enter(std::string name, std::string help) {
    open_.push_back(std::move(name));
    groups_.push_back({Join(open_, "."), std::move(help), {}});
  }
  void Leave() { open_.pop_back(); }

  template <typename T>
  void Add(const std::string& name, T* variable, Limit limit, std::string help) {
    const std::string section = Join(open_, ".");
    // TOML could not express it: after [a.b] nothing returns to [a].
    GT_CHECK(groups_.back().name == section, "option {} comes after a section nested in {}", name,
             section);
    groups_.back().options.emplace_back(section.empty() ? name : section + "." + name, variable,
                                        limit, std::move(help));
  }

  std::vector<OptionGroup> Finish() { return std::move(groups_); }

 private:
  std::vector<OptionGroup> groups_{{"", "where the job runs and writes", {}}};
  std::vector<std::string> open_;
};

Option* FindOption(std::vector<OptionGroup>& groups, std::string_view path) {
  for (OptionGroup& group : groups) {
    for (Option& option : group.options) {
      if (option.path() == path) return &option;
    }
  }
  return nullptr;
}

// A section counts as known when it holds options or other sections.
bool IsSection(const std::vector<OptionGroup>& groups, std::string_view path) {
  const std::string inside = std::string(path) + ".";
  return std::any_of(groups.begin(), groups.end(), [&](const OptionGroup& group) {
    return !group.name.empty() && (group.name == path || group.name.starts_with(inside));
  });
}

std::vector<std::string> SectionNames(const std::vector<OptionGroup>& groups) {
  std::vector<std::string> names;
  for (const OptionGroup& group : groups) {
    if (!group.name.empty()) names.push_back(group.name);
  }
  return names;
}

std::vector<std::string> OptionNames(const std::vector<OptionGroup>& groups) {
  std::vector<std::string> names;
  for (const OptionGroup& group : groups) {
    for (const Option& option : group.options) names.push_back(option.path());
  }
  return names;
}

// A value as a flag would be given it.
std::string FlagText(const toml::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value.data)) return *text;
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) return fmt::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value.data)) return fmt::to_string(*number);
  std::vector<std::string> items;
  for (const toml::Value& item : std::get<toml::Array>(value.data)) items.push_back(FlagText(item));
  return fmt::format("[{}]", Join(items, ","));
}

void SetFromEntry(const toml::Entry& entry, std::string_view file, Option& option,
                  Problems& problems) {
  const std::string where = fmt::format("{}:{}: {}", file, entry.line, entry.path);
  const std::string text = FlagText(entry.value);
  const std::string translated = TorchtitanReader::Translated(entry.path, text);
  if (translated == text) {
    option.SetFromToml(entry.value, where, problems);
  } else {
    option.SetFromText(translated, where, /*append=*/false, problems);
  }
}

// Returns the unknown sections, each with a dot after it.
std::vector<std::string> ReportUnknownSections(const toml::Document& document,
                                               std::string_view file,
                                               std::vector<OptionGroup>& groups,
                                               Problems& problems) {
  std::vector<std::string> unknown;
  for (const toml::Section& section : document.sections) {
    if (IsSection(groups, section.path) || TorchtitanReader::KnowsSection(section.path)) continue;
    unknown.push_back(section.path + ".");
    if (FindOption(groups, section.path) != nullptr) {
      problems.Add(ErrorCode::kUnknownOption, "{}:{}: {} is a key, not a section; write {} = ...",
                   file, section.line, section.path, section.path);
      continue;
    }
    const std::optional<std::string> nearest = NearestName(section.path, SectionNames(groups));
    problems.Add(ErrorCode::kUnknownOption, "{}:{}: unknown section [{}]{}", file, section.line,
                 section.path, nearest ? fmt::format("; did you mean [{}]?", *nearest) : "");
  }
  return unknown;
}

void ApplyDocument(const toml::Document& document, std::string_view file,
                   std::vector<OptionGroup>& groups, TorchtitanReader& torchtitan,
                   Problems& problems) {
  // One misspelled section is one problem, not one for each of its keys.
  const std::vector<std::string> unknown_sections =
      ReportUnknownSections(document, file, groups, problems);
  for (const toml::Entry& entry : document.entries) {
    if (std::any_of(unknown_sections.begin(), unknown_sections.end(),
                    [&](const std::string& s) { return entry.path.starts_with(s); })) {
      continue;
    }
    if (Option* option = FindOption(groups, entry.path)) {
      SetFromEntry(entry, file, *option, problems);
    } else if (IsSection(groups, entry.path)) {
      problems.Add(ErrorCode::kUnknownOption,
                   "{}:{}: {} is a section, not a key; write [{}] and its keys below", file,
                   entry.line, entry.path, entry.path);
    } else if (!torchtitan.Take(entry.path, FlagText(entry.value),
                                fmt::format("{}:{}: {}", file, entry.line, entry.path))) {
      problems.Add(ErrorCode::kUnknownOption, "{}:{}: unknown key {}{}", file, entry.line,
                   entry.path, DidYouMean(entry.path, OptionNames(groups)));
    }
  }
  torchtitan.Apply(groups, problems);
}

std::string ConfigFileText(const std::string& path) {
  try {
    return ReadWholeFile(path);
  } catch (const UnreadableFile& problem) {
    Fail(ErrorCode::kConfigFileUnreadable, "cannot read config file {}: {}", path, problem.what());
  }
}

void CheckEpOverlap(const Config& config, bool rewrites, Problems& problems) {
  const Config::Compile& compile = config.compile;
  const Config::Compile::EpOverlap& overlap = compile.ep_overlap;
  const bool eager = overlap.strategy == ChunkStrategy::kEager;
  const bool enabled = overlap.enabled == AutoSwitch::kTrue;  // auto chooses what is possible
  if (enabled && !eager && !rewrites) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "compile.ep_overlap.strategy graph rewrites the captured graph, which {} leaves "
                 "out; use compile.ep_overlap.strategy eager",
                 compile.enable_passes ? "compile.mode eager" : "compile.enable_passes=false");
  }
  const bool batch = overlap.chunk_dim == ChunkDim::kBatch;
  const std::int64_t ranks =
      config.parallelism.tensor_parallel_degree * config.parallelism.context_parallel_degree;
  const std::int64_t extent =
      batch ? config.training.local_batch_size : config.training.seq_len / ranks;
  if (enabled && extent < overlap.num_chunks) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "compile.ep_overlap.num_chunks {} needs at least as many {}, but a rank has {} at "
                 "a time; lower it or raise {}",
                 overlap.num_chunks, batch ? "sequences" : "positions of a sequence", extent,
                 batch ? "training.local_batch_size" : "training.seq_len");
  }
  if (overlap.disable_early_grad_accumulation && eager) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "compile.ep_overlap.disable_early_grad_accumulation belongs to "
                 "compile.ep_overlap.strategy graph: strategy eager never adds gradients early");
  }
  if (std::string why = FqnPatternProblem(overlap.module_fqn); !why.empty()) {
    problems.Add(ErrorCode::kBadOptionValue, "compile.ep_overlap.module_fqn '{}': {}",
                 overlap.module_fqn, why);
  }
}

void CheckMoeLoad(const Config& config, Problems& problems) {
  const std::string& text = config.debug.moe_load;
  if (std::string why = MoeLoadProblem(text); !why.empty()) {
    problems.Add(ErrorCode::kBadOptionValue, "debug.moe_load {}: {}", Quoted(text), why);
    return;
  }
  const MoeLoad::Kind kind = ParseMoeLoad(text).kind;
  const bool contradicts = kind == MoeLoad::Kind::kZipf || kind == MoeLoad::Kind::kFile;
  if (config.debug.moe_force_load_balance && contradicts) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "debug.moe_force_load_balance gives every expert equally many tokens, but "
                 "debug.moe_load is {}; leave out one of them",
                 Quoted(text));
  }
}

void CheckTogether(const Config& config, Problems& problems) {
  const Config::Compile& compile = config.compile;
  if (!compile.full_recompute_save_ops.empty() && compile.memory_policy != MemoryPolicy::kFull) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "compile.full_recompute_save_ops belongs to compile.memory_policy full, but the "
                 "policy is {}",
                 EnumName(compile.memory_policy));
  }
  bool rewrites = compile.mode != CompileMode::kEager && compile.enable_passes;
  if (compile.memory_policy != MemoryPolicy::kNone && !rewrites) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "compile.memory_policy {} rewrites the captured graph, which {} leaves out",
                 EnumName(compile.memory_policy),
                 compile.enable_passes ? "compile.mode eager" : "compile.enable_passes=false");
  }
  CheckEpOverlap(config, rewrites, problems);
  CheckMoeLoad(config, problems);
  if (config.validation.enable && config.validation.dataset_path.empty()) {
    problems.Add(ErrorCode::kMissingArgument,
                 "validation.enable needs validation.dataset_path: the file or folder of data that "
                 "is not trained on");
  }
  if (compile.enable_fsdp_dense_region_overlap && !compile.fsdp_bucketing) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "compile.enable_fsdp_dense_region_overlap moves the buckets of "
                 "compile.fsdp_bucketing, which is off");
  }
  const CommBackend backend = config.comm.backend;
  if (config.debug.share_gpu && config.device == DeviceChoice::kCpu) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "debug.share_gpu lets ranks share a GPU, but device is cpu, which ranks share "
                 "anyway; leave one of them out");
  }
  if (config.debug.share_gpu && backend != CommBackend::kAuto && backend != CommBackend::kGloo) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "debug.share_gpu communicates with gloo, but comm.backend is {}{}; leave one of "
                 "them out",
                 EnumName(backend),
                 backend == CommBackend::kNccl ? ", which refuses two ranks on one GPU" : "");
  }
  const Config::Training& training = config.training;
  // Kernels index tokens with 32 bits. The ranges of the factors keep the product far from
  // overflow.
  const std::int64_t tokens = training.local_batch_size * training.seq_len;
  if (tokens > std::numeric_limits<std::int32_t>::max()) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "training.local_batch_size {} times training.seq_len {} is {} tokens a step, more "
                 "than the {} that fit in 32 bits; lower one of them",
                 training.local_batch_size, training.seq_len, tokens,
                 std::numeric_limits<std::int32_t>::max());
  }
}

}  // namespace

// Nested sections open a scope in which `self` is the member of the outer `self`.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
std::vector<OptionGroup> BindOptions(Config* config) {
  GroupBuilder builder;
  auto& self = *config;
#define GT_SECTION(name, Type, help) \
  {                                  \
    auto& outer = self;              \
    {                                \
      auto& self = outer.name;       \
      builder.Enter(#name, help);
#define GT_END_SECTION(name) \
  builder.Leave();           \
  }                          \
  }
#define GT_OPTION(type, name, default_value, limit, help) \
  builder.Add(#name, &self.name, limit, help);
#include "gt/config/config_options.def"
#undef GT_OPTION
#undef GT_END_SECTION
#undef GT_SECTION
  return builder.Finish();
}
#pragma GCC diagnostic pop

bool NamesOption(std::string_view entry, std::string_view path) {
  if (!entry.ends_with(".*")) return entry == path;
  return path.starts_with(entry.substr(0, entry.size() - 1));
}

void ForEachOption(const Config& config, const std::function<void(const Option&)>& visit) {
  Config copy = config;
  for (const OptionGroup& group : BindOptions(&copy)) {
    for (const Option& option : group.options) visit(option);
  }
}

TrainingDtype ComputeDtypeOf(const Config& config) {
  switch (config.training.mixed_precision_param) {
    case ComputeDtype::kFloat32:
      return TrainingDtype::kFloat32;
    case ComputeDtype::kBfloat16:
      return TrainingDtype::kBfloat16;
    case ComputeDtype::kAuto:
      break;
  }
  return config.device == DeviceChoice::kCuda ? TrainingDtype::kBfloat16 : config.training.dtype;
}

void SettlePrecision(Config* config, bool on_gpu) {
  Config placed = *config;
  placed.device = on_gpu ? DeviceChoice::kCuda : DeviceChoice::kCpu;
  config->training.mixed_precision_param = ComputeDtypeOf(placed) == TrainingDtype::kBfloat16
                                               ? ComputeDtype::kBfloat16
                                               : ComputeDtype::kFloat32;
}

std::string ToToml(const Config& config) {
  Config copy = config;
  std::string text;
  for (const OptionGroup& group : BindOptions(&copy)) {
    if (!group.name.empty()) text += fmt::format("\n[{}]\n", group.name);
    const std::size_t section_length = group.name.empty() ? 0 : group.name.size() + 1;
    for (const Option& option : group.options) {
      text += fmt::format("{} = {}\n", option.path().substr(section_length), option.TomlText());
    }
  }
  return text;
}

void LoadToml(std::string_view text, std::string_view file_name, Config* config) {
  Config loaded = *config;
  std::vector<OptionGroup> groups = BindOptions(&loaded);
  Problems problems;
  TorchtitanReader torchtitan;
  ApplyDocument(toml::Parse(text, file_name), file_name, groups, torchtitan, problems);
  problems.ThrowIfAny();
  for (const std::string& notice : torchtitan.Notices()) log::Info("{}", notice);
  *config = std::move(loaded);
}

void LoadTomlFile(const std::string& path, Config* config) {
  LoadToml(ConfigFileText(path), path, config);
}

void ApplyTomlFile(const std::string& path, std::vector<OptionGroup>& groups,
                   TorchtitanReader& torchtitan, Problems& problems) {
  try {
    ApplyDocument(toml::Parse(ConfigFileText(path), path), path, groups, torchtitan, problems);
  } catch (const Error& error) {
    problems.Add(error.code(), "{}", error.message());
  }
}

void Validate(const Config& config) {
  Problems problems;
  ForEachOption(config, [&](const Option& option) { option.Check(option.path(), problems); });
  // Rules between options may rely on the ranges.
  if (problems.empty()) CheckTogether(config, problems);
  problems.ThrowIfAny();

  const std::int64_t warmup = config.lr_scheduler.warmup_steps;
  if (warmup > config.training.steps) {
    log::Warn("lr_scheduler.warmup_steps {} is cut to training.steps {}", warmup,
              config.training.steps);
  }
  const bool casts_up = config.training.mixed_precision_param == ComputeDtype::kFloat32 &&
                        config.training.dtype == TrainingDtype::kBfloat16;
  if (casts_up) {
    log::Warn(
        "training.mixed_precision_param float32: parameters are kept in bfloat16 (training.dtype) "
        "and cast up in every step");
  }
}

}  // namespace gt
