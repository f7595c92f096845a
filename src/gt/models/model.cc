#include "gt/models/model.h"

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/models/llama3.h"

namespace gt {
namespace {

struct Llama3Flavor {
  std::string_view name;
  Llama3Config config;
};

Llama3Config Llama3Sizes(int64_t vocab, int64_t width, int64_t layers, int64_t heads,
                         int64_t kv_heads, int64_t ffn_width) {
  Llama3Config config;
  config.vocab = vocab;
  config.width = width;
  config.layers = layers;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.ffn_width = ffn_width;
  return config;
}

const std::vector<Llama3Flavor>& Llama3Flavors() {
  static const std::vector<Llama3Flavor> flavors = {
      // For tests: small, but with grouped heads, so that no path is left out.
      {"tiny", Llama3Sizes(256, 32, 2, 4, 2, 96)},
      {"debugmodel", Llama3Sizes(2048, 256, 6, 16, 16, 768)},
      {"8B", Llama3Sizes(128256, 4096, 32, 32, 8, 14336)},
      {"70B", Llama3Sizes(128256, 8192, 80, 64, 8, 28672)},
      {"405B", Llama3Sizes(128256, 16384, 126, 128, 8, 53248)},
  };
  return flavors;
}

}  // namespace

std::vector<std::string> ModelNames() { return {"llama3"}; }

std::vector<std::string> FlavorNames(const std::string& model) {
  std::vector<std::string> names;
  if (model == "llama3") {
    for (const Llama3Flavor& flavor : Llama3Flavors()) names.emplace_back(flavor.name);
  }
  return names;
}

std::shared_ptr<LanguageModel> BuildModel(const std::string& name, const std::string& flavor,
                                          int64_t max_length) {
  if (name != "llama3") {
    Fail(ErrorCode::kUnknownModel, "there is no model '{}'{}; known models: {}", name,
         DidYouMean(name, ModelNames()), Join(ModelNames(), ", "));
  }
  for (const Llama3Flavor& known : Llama3Flavors()) {
    if (known.name != flavor) continue;
    Llama3Config config = known.config;
    config.max_length = max_length;
    return std::make_shared<Llama3>(config);
  }
  Fail(ErrorCode::kUnknownModel, "model '{}' has no flavor '{}'{}; known flavors: {}", name, flavor,
       DidYouMean(flavor, FlavorNames(name)), Join(FlavorNames(name), ", "));
}

}  // namespace gt
