// config.json of a Hugging Face folder: typed access, with errors that name file and key. Every key
// that a model reads is checked, and keys that would change the computation in a way gt does not
// know must have the value that leaves it alone.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "gt/nn/rope.h"

namespace gt {

class HfConfig {
 public:
  static HfConfig FromFile(const std::string& path);
  HfConfig(nlohmann::json json, std::string path);

  // A key that is missing or null is an error, or the fallback where one is given.
  std::string String(const char* key) const;
  int64_t Int(const char* key) const;  // at least 1
  int64_t Int(const char* key, int64_t fallback) const;
  double Number(const char* key) const;
  double Number(const char* key, double fallback) const;
  bool Bool(const char* key, bool fallback) const;
  std::optional<int64_t> OptionalInt(const char* key) const;
  const nlohmann::json* Find(const char* key) const;  // null when missing or null

  // Position encoding, in the current form (rope_parameters) or the older one (rope_theta,
  // rope_scaling). `scaling` receives the raw scaling object for keys of one family.
  nn::RopeConfig Rope(nlohmann::json* scaling = nullptr) const;

  // For keys whose other values gt does not compute: biases, other activations, sliding windows.
  void RequireFalse(const char* key) const;
  void RequireSilu() const;

  // Fails: "<path>: <key> <what>".
  [[noreturn]] void Reject(const std::string& key, const std::string& what) const;

  const nlohmann::json& json() const { return json_; }
  const std::string& path() const { return path_; }

 private:
  const nlohmann::json& At(const char* key) const;
  nlohmann::json json_;
  std::string path_;
};

// The rope_parameters (and the older keys) that Rope() reads back as the same thing.
void WriteRope(const nn::RopeConfig& rope, nlohmann::json& config);

}  // namespace gt
