// gt models: the families and flavors that --model.name and --model.flavor choose from.
#include <fmt/format.h>

#include "gt/base/text.h"
#include "gt/cli/commands.h"
#include "gt/config/command_line.h"
#include "gt/models/model.h"
#include "gt/train/metrics.h"

namespace gt::cli {
namespace {

int64_t NumberIn(const nlohmann::json& json, const char* key) {
  return json.contains(key) && json[key].is_number_integer() ? json[key].get<int64_t>() : 0;
}

std::string CountText(int64_t count) { return FormatCount(static_cast<double>(count)); }

// Models are built without their weights, so that every number is the model's own.
void PrintFlavor(const ModelFamily& family, const std::string& flavor) {
  const ModelPtr model = family.build(flavor, ModelOptions{.max_length = 1});
  const nlohmann::json json = model->HfConfigJson();
  fmt::print("  {:<16} {:>15} {:>15} {:>7} {:>7} {:>6} {:>11}\n", flavor,
             CountText(nn::ParameterCount(*model)), CountText(model->ActiveParameters()),
             NumberIn(json, "num_hidden_layers"), NumberIn(json, "hidden_size"),
             NumberIn(json, "num_attention_heads"), CountText(model->vocab_size()));
}

}  // namespace

int RunModels(Arguments args) {
  CommandLine line("gt models",
                   "lists the models that --model.name and --model.flavor choose from");
  if (!line.Parse(args)) {
    fmt::print("{}", line.Help());
    return 0;
  }
  for (const ModelFamily& family : ModelFamilies()) {
    fmt::print("--model.name {}: {}\n", family.name, family.source);
    fmt::print("  {:<16} {:>15} {:>15} {:>7} {:>7} {:>6} {:>11}\n", "--model.flavor", "parameters",
               "used per token", "layers", "width", "heads", "vocabulary");
    for (const std::string& flavor : family.flavors) PrintFlavor(family, flavor);
    fmt::print("  or --model.hf_path FOLDER with a config.json of type {}\n\n",
               Join(family.hf_types, ", "));
  }
  fmt::print("gt info shows where a model's parameters and memory are.\n");
  return 0;
}

}  // namespace gt::cli
