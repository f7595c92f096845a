// torchtitan's options under the names and values that torchtitan gives them, where gt's differ: so
// that its TOML files and flags work here as long as they mean the same. Options that both call alike
// need no word here. One table (job/torchtitan_options.cc) says for each of the others what becomes of
// it, and is the table of docs/torchtitan.md. Pass names are in passes/framework/upstream_passes.h.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/config/dialect.h"
#include "gt/config/option.h"
#include "gt/config/problems.h"

namespace gt {

struct TorchtitanOption {
  enum class Answer {
    kRenamed,   // `target` is set
    kIgnored,   // has no effect here; stated once
    kRefused,   // would change what is trained, and gt cannot do it
    kCombined,  // means something together with other options; `target` may be set
  };
  std::string_view key;  // "job.description", or "float8.*" for all keys of a section
  Answer answer = Answer::kIgnored;
  std::string_view target = {};  // gt's option
  // Separated by |: values with which there is nothing to ignore or refuse; none: for kIgnored the
  // option never has an effect, for kRefused it must be empty. In other rows "a=b": a is called b here.
  std::string_view values = {};
  std::string_view note = {};  // what gt does instead, or what to use
};

std::span<const TorchtitanOption> TorchtitanOptions();

// The options of torchtitan that a job was given.
class TorchtitanReader : public Dialect {
 public:
  bool Knows(std::string_view key) const override;
  bool KnowsSection(std::string_view path) const override;
  bool IsSwitch(std::string_view key, std::span<const OptionGroup> groups) const override;
  std::string Read(const std::string& key, const std::string& value,
                   const std::string& where) override;
  bool Take(const std::string& key, const std::string& value, const std::string& where) override;
  void Apply(std::span<OptionGroup> groups, Problems& problems) override;
  std::string OtherName(std::string_view key) const override;
  std::string Hint(std::string_view key, std::string_view prefix) const override;
  std::vector<std::string> Notices() const override;

 private:
  struct Given {
    std::string value, where;
    bool fresh = true;  // from the source that is being read
  };
  // A name in a pass list that is an option in gt.
  struct Switch {
    std::string_view option, name;
    bool on = true;
    std::string where;
  };

  std::string ReadPasses(std::string_view key, const std::string& value, const std::string& where);
  void ApplySwitch(const Switch& wanted);
  void ApplyRenamed(const TorchtitanOption& option, const Given& given);
  void ApplyOne(const TorchtitanOption& option, const std::string& key, const Given& given);
  void ApplyActivationCheckpoint();
  void ApplyProfiling();
  void ApplyInitialLoad();
  bool IsFresh(std::string_view key) const;
  std::string ValueOf(std::string_view key) const;         // empty if it was not given
  const std::string& WhereOf(std::string_view key) const;  // it was given
  void Set(std::string_view target, const std::string& value, const std::string& where);

  std::map<std::string, Given, std::less<>> given_;
  std::map<std::string, Given, std::less<>> ours_;  // options with the same name in both
  std::vector<Switch> switches_;                    // of the source that is being read
  std::vector<Error> mistakes_;                     // of that source
  std::vector<std::string> without_effect_;
  std::vector<std::string> notices_;
  std::span<OptionGroup> groups_;  // while Apply runs
  Problems* problems_ = nullptr;
};

}  // namespace gt
