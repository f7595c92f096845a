#include "gt/models/model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

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
         flavor, DidYouMean(flavor, family.flavors), Join(family.flavors, ", "));
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
      return Named(family.build_from_hf(config, options));
    }
  }
  auto types = AllOf([](const ModelFamily& family, auto& all) {
    all.insert(all.end(), family.hf_types.begin(), family.hf_types.end());
  });
  config.Reject("model_type", fmt::format("is '{}'{} (known are {})", type, DidYouMean(type, types),
                                          Join(types, ", ")));
}

}  // namespace gt
