// The process groups of a job, as passes see them: by name, as nodes refer to them. Two names may
// refer to one group, and two groups may have the same ranks; what tells groups apart is which
// queue their collectives wait in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace gt {

class ProcessGroups {
 public:
  virtual ~ProcessGroups() = default;

  struct Info {
    int64_t identity = 0;  // the same exactly for names of one group
    std::vector<int64_t> ranks;
  };
  virtual Info Find(std::string_view name) = 0;

  // The name of a group with the ranks of `source`, in their order, and a queue of its own. Made on
  // the first call and reused by the later ones; lives as long as the job.
  // Tokens and their counts go first where links are shared.
  enum class Purpose { kTokens, kCounts, kGathers };
  virtual std::string Separate(std::string_view source, Purpose purpose) = 0;
  // What the name of such a group ends in.
  static std::string_view SuffixOf(Purpose purpose) {
    switch (purpose) {
      case Purpose::kTokens:
        return ".tokens";
      case Purpose::kCounts:
        return ".counts";
      case Purpose::kGathers:
        return ".gathers";
    }
    return "";
  }
};

// For graphs outside of a job: every name is a group of its own, of which no ranks are known.
class NamedGroups : public ProcessGroups {
 public:
  Info Find(std::string_view name) override {
    auto [found, is_new] = identities_.try_emplace(std::string(name), identities_.size());
    return {static_cast<int64_t>(found->second), {}};
  }
  std::string Separate(std::string_view source, Purpose purpose) override {
    return std::string(source) + std::string(SuffixOf(purpose));
  }

 private:
  std::unordered_map<std::string, size_t> identities_;
};

}  // namespace gt
