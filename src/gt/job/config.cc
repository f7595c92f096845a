#include "gt/job/config.h"

#include <memory>
#include <utility>

#include "gt/base/logging.h"
#include "gt/config/config_file.h"
#include "gt/config/problems.h"
#include "gt/job/torchtitan.h"

namespace gt {

ConfigBinding BindConfig(Config* config) {
  return {BindOptions(config, "where the job runs and writes"),
          [] { return std::make_unique<TorchtitanReader>(); }, [config] { Validate(*config); }};
}

bool NamesOption(std::string_view entry, std::string_view path) {
  if (!entry.ends_with(".*")) return entry == path;
  return path.starts_with(entry.substr(0, entry.size() - 1));
}

void ForEachOption(const Config& config, const std::function<void(const Option&)>& visit) {
  Config copy = config;
  const ConfigBinding binding = BindConfig(&copy);
  for (const OptionGroup& group : binding.groups) {
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
  return OptionsAsToml(BindConfig(&copy).groups);
}

void LoadToml(std::string_view text, std::string_view file_name, Config* config) {
  Config loaded = *config;
  ConfigBinding binding = BindConfig(&loaded);
  const std::unique_ptr<Dialect> dialect = binding.make_dialect();
  Problems problems;
  ApplyToml(text, file_name, binding.groups, *dialect, problems);
  problems.ThrowIfAny();
  for (const std::string& notice : dialect->Notices()) log::Info("{}", notice);
  *config = std::move(loaded);
}

void LoadTomlFile(const std::string& path, Config* config) {
  LoadToml(ReadConfigFile(path), path, config);
}

}  // namespace gt
