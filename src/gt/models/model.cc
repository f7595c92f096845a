#include "gt/models/model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/text.h"

namespace gt {
namespace {

std::vector<ModelFamily>& Families() {
  static std::vector<ModelFamily> families;
  return families;
}

template <typename Member>
std::vector<std::string> AllOf(Member&& member) {
  std::vector<std::string> all;
  for (const ModelFamily& family : ModelFamilies()) member(family, all);
  return all;
}

// A family need not think of the names of its modules.
ModelPtr Named(ModelPtr model) {
  nn::NameModules(*model);
  return model;
}

// torchtitan has a flavor per attention backend, such as 16B_sdpa.
std::string FlavorHint(const std::string& flavor, const std::vector<std::string>& known) {
  constexpr std::array<std::pair<std::string_view, AttentionBackend>, 3> kEndings = {
      {{"_sdpa", AttentionBackend::kSdpa},
       {"_flex_attn", AttentionBackend::kFlex},
       {"_flex", AttentionBackend::kFlex}}};
  for (const auto& [ending, attention] : kEndings) {
    if (!flavor.ends_with(ending)) continue;
    const std::optional<std::string> size =
        NearestName(std::string_view(flavor).substr(0, flavor.size() - ending.size()), known);
    if (!size) break;
    return fmt::format("; use --model.flavor {} --model.attn {}", *size, EnumName(attention));
  }
  return DidYouMean(flavor, known);
}

}  // namespace

at::Tensor LanguageModel::Logits(const ModelInputs& inputs) {
  return at::linear(Hidden(inputs), HeadWeight());
}

ModelRegistration::ModelRegistration(ModelFamily family) {
  auto& families = Families();
  auto place =
      std::lower_bound(families.begin(), families.end(), family,
                       [](const ModelFamily& a, const ModelFamily& b) { return a.name < b.name; });
  families.insert(place, std::move(family));
}

const std::vector<ModelFamily>& ModelFamilies() { return Families(); }

ModelPtr BuildModel(const std::string& name, const std::string& flavor,
                    const ModelOptions& options) {
  for (const ModelFamily& family : ModelFamilies()) {
    if (family.name != name) continue;
    if (std::find(family.flavors.begin(), family.flavors.end(), flavor) != family.flavors.end()) {
      return Named(family.build(flavor, options));
    }
    Fail(ErrorCode::kUnknownModel, "model '{}' has no flavor '{}'{}; known flavors: {}", name,
         flavor, FlavorHint(flavor, family.flavors), Join(family.flavors, ", "));
  }
  auto names = AllOf([](const ModelFamily& family, auto& all) { all.push_back(family.name); });
  Fail(ErrorCode::kUnknownModel, "there is no model '{}'{}; known models: {}", name,
       DidYouMean(name, names), Join(names, ", "));
}

ModelPtr BuildModelFromHf(const std::string& folder, const ModelOptions& options) {
  HfConfig config = HfConfig::FromFile((std::filesystem::path(folder) / "config.json").string());
  std::string type = config.String("model_type");
  for (const ModelFamily& family : ModelFamilies()) {
    if (std::find(family.hf_types.begin(), family.hf_types.end(), type) != family.hf_types.end()) {
      try {
        return Named(family.build_from_hf(config, options));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kDoesNotFit) throw;
        Fail(ErrorCode::kDoesNotFit, "{}: {}", config.path(), error.message());
      }
    }
  }
  auto types = AllOf([](const ModelFamily& family, auto& all) {
    all.insert(all.end(), family.hf_types.begin(), family.hf_types.end());
  });
  config.Reject("model_type", fmt::format("is '{}'{} (known are {})", type, DidYouMean(type, types),
                                          Join(types, ", ")));
}

}  // namespace gt
