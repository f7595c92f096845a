#include "gt/models/hf_config.h"

#include <cmath>

#include "gt/base/error.h"
#include "gt/base/json_text.h"
#include "gt/base/read_file.h"

namespace gt {
namespace {

using Json = nlohmann::json;

// No model comes near these; numbers beyond them are damage, and would only run out of memory later.
constexpr int64_t kMostCount = int64_t{1} << 28;  // of channels, tokens, positions
constexpr int64_t kMostLayersOrExperts = 65536;

int64_t LimitOf(std::string_view key) {
  bool counted = key == "num_hidden_layers" || key.find("experts") != std::string_view::npos ||
                 key.find("heads") != std::string_view::npos;
  return counted ? kMostLayersOrExperts : kMostCount;
}

}  // namespace

HfConfig::HfConfig(Json json, std::string path) : json_(std::move(json)), path_(std::move(path)) {
  if (!json_.is_object()) Fail(ErrorCode::kBadHfConfig, "{}: is not a JSON object", path_);
}

HfConfig HfConfig::FromFile(const std::string& path) {
  std::string text;
  try {
    text = ReadWholeFile(path);
  } catch (const UnreadableFile& problem) {
    Fail(ErrorCode::kBadHfConfig,
         "cannot read {}: {}; --model.hf_path must be a folder with config.json and .safetensors "
         "files",
         path, problem.what());
  }
  Json parsed;
  try {
    // Export writes unknown keys again, indented: within these limits, at most some megabytes.
    parsed = ParseJson(text, {.bytes = std::size_t{16} << 20, .values = std::size_t{1} << 18});
  } catch (const BadJson& error) {
    Fail(ErrorCode::kBadHfConfig, "{}: is not valid JSON: {}", path, error.what());
  }
  return HfConfig(std::move(parsed), path);
}

void HfConfig::Reject(const std::string& key, const std::string& what) const {
  Fail(ErrorCode::kBadHfConfig, "{}: {} {}", path_, key, what);
}

const Json* HfConfig::Find(const char* key) const {
  auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

const Json& HfConfig::At(const char* key) const {
  const Json* found = Find(key);
  if (found == nullptr) Reject(key, "is missing");
  return *found;
}

std::string HfConfig::String(const char* key) const {
  const Json& value = At(key);
  if (!value.is_string()) Reject(key, "must be a string, but is " + ShortJson(value));
  return value.get<std::string>();
}

int64_t HfConfig::Int(const char* key) const {
  const Json& value = At(key);
  if (!value.is_number_integer() || value.get<double>() < 1 ||
      value.get<double>() > static_cast<double>(LimitOf(key))) {
    Reject(key, fmt::format("must be a whole number from 1 to {}, but is {}", LimitOf(key),
                            ShortJson(value)));
  }
  return value.get<int64_t>();
}

int64_t HfConfig::Int(const char* key, int64_t fallback) const {
  return OptionalInt(key).value_or(fallback);
}

std::optional<int64_t> HfConfig::OptionalInt(const char* key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer() || value->get<double>() < 0 ||
      value->get<double>() > static_cast<double>(LimitOf(key))) {
    Reject(key, fmt::format("must be a whole number up to {}, but is {}", LimitOf(key),
                            ShortJson(*value)));
  }
  return value->get<int64_t>();
}

double HfConfig::Number(const char* key) const {
  const Json& value = At(key);
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    Reject(key, "must be a number, but is " + ShortJson(value));
  }
  return value.get<double>();
}

double HfConfig::Number(const char* key, double fallback) const {
  return Find(key) == nullptr ? fallback : Number(key);
}

bool HfConfig::Bool(const char* key, bool fallback) const {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) Reject(key, "must be true or false, but is " + ShortJson(*value));
  return value->get<bool>();
}

void HfConfig::RequireFalse(const char* key) const {
  if (Bool(key, false)) Reject(key, "is true, which gt does not support");
}

void HfConfig::RequireSilu() const {
  if (Find("hidden_act") != nullptr && String("hidden_act") != "silu") {
    Reject("hidden_act", "is '" + String("hidden_act") + "', but gt knows silu alone");
  }
}

nn::RopeConfig HfConfig::Rope(Json* scaling) const {
  Json parameters = Json::object();
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* given = Find(key);
    if (given == nullptr) continue;
    if (!given->is_object()) Reject(key, "must be an object");
    auto type = given->find("rope_type");
    auto before = parameters.find("rope_type");
    if (type != given->end() && before != parameters.end() && *type != *before) {
      Reject("rope_scaling and rope_parameters", "name different types");
    }
    parameters.update(*given);
  }
  if (!parameters.contains("rope_theta") && Find("rope_theta") != nullptr) {
    parameters["rope_theta"] = *Find("rope_theta");
  }
  HfConfig rope(parameters, path_ + ": rope_parameters");
  nn::RopeConfig config;
  config.theta = rope.Number("rope_theta", 10000.0);
  if (config.theta <= 1) rope.Reject("rope_theta", "must be above 1");
  std::string type = "default";
  for (const char* key : {"type", "rope_type"}) {
    if (rope.Find(key) != nullptr) type = rope.String(key);
  }
  auto factor = [&rope] {
    double value = rope.Number("factor");
    if (value < 1) rope.Reject("factor", "must be at least 1");
    return value;
  };
  auto original = [&] {
    return rope.Int("original_max_position_embeddings", Int("max_position_embeddings"));
  };
  if (type == "llama3") {
    config.scaling = nn::Llama3Scaling{factor(), rope.Number("low_freq_factor"),
                                       rope.Number("high_freq_factor"), original()};
  } else if (type == "linear") {
    config.scaling = nn::LinearScaling{factor()};
  } else if (type == "yarn") {
    nn::YarnScaling yarn;
    yarn.factor = factor();
    yarn.beta_fast = rope.Number("beta_fast", 32.0);
    yarn.beta_slow = rope.Number("beta_slow", 1.0);
    if (yarn.beta_fast <= 0 || yarn.beta_slow <= 0) {
      rope.Reject("beta_fast, beta_slow", "must be above 0");
    }
    yarn.original_length = original();
    yarn.truncate = rope.Bool("truncate", true);
    double mscale = rope.Number("mscale", 0.0), all = rope.Number("mscale_all_dim", 0.0);
    if (rope.Find("attention_factor") != nullptr) {
      yarn.attention_factor = rope.Number("attention_factor");
    } else if (mscale != 0 && all != 0) {
      yarn.attention_factor =
          nn::YarnAttentionScale(yarn.factor, mscale) / nn::YarnAttentionScale(yarn.factor, all);
    } else {
      yarn.attention_factor = nn::YarnAttentionScale(yarn.factor);
    }
    config.scaling = yarn;
  } else if (type != "default") {
    rope.Reject("rope_type", "is '" + type + "'; gt knows default, linear, llama3 and yarn");
  }
  if (scaling != nullptr) *scaling = parameters;
  return config;
}

void WriteRope(const nn::RopeConfig& rope, Json& config) {
  Json scaling = Json::object();
  if (const auto* llama3 = std::get_if<nn::Llama3Scaling>(&rope.scaling)) {
    scaling = {{"rope_type", "llama3"},
               {"factor", llama3->factor},
               {"low_freq_factor", llama3->low_frequency_factor},
               {"high_freq_factor", llama3->high_frequency_factor},
               {"original_max_position_embeddings", llama3->original_length}};
  } else if (const auto* linear = std::get_if<nn::LinearScaling>(&rope.scaling)) {
    scaling = {{"rope_type", "linear"}, {"factor", linear->factor}};
  } else if (const auto* yarn = std::get_if<nn::YarnScaling>(&rope.scaling)) {
    scaling = {{"rope_type", "yarn"},
               {"factor", yarn->factor},
               {"beta_fast", yarn->beta_fast},
               {"beta_slow", yarn->beta_slow},
               {"original_max_position_embeddings", yarn->original_length},
               {"truncate", yarn->truncate},
               {"attention_factor", yarn->attention_factor}};
  }
  config["rope_theta"] = rope.theta;
  config["rope_scaling"] = scaling.empty() ? Json(nullptr) : scaling;
  if (scaling.empty()) scaling["rope_type"] = "default";
  scaling["rope_theta"] = rope.theta;
  config["rope_parameters"] = scaling;
}

}  // namespace gt
