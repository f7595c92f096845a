// Process groups as a job has them, for tests of passes that ask about them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gt/passes/framework/process_groups.h"

namespace gt::testing {

// Names with an identity and ranks, and those made on request, called as NamedGroups calls them.
// Names that are not known are groups of their own.
class FakeGroups : public NamedGroups {
 public:
  explicit FakeGroups(std::map<std::string, Info, std::less<>> known = {})
      : known_(std::move(known)) {}

  Info Find(std::string_view name) override {
    auto found = known_.find(name);
    if (found != known_.end()) return found->second;
    Info info = NamedGroups::Find(name);
    info.identity += kUnknown;
    return info;
  }
  std::string Separate(std::string_view source, Purpose purpose) override {
    std::string name = NamedGroups::Separate(source, purpose);
    Info info = NamedGroups::Find(name);
    known_.try_emplace(name, Info{info.identity + kUnknown, Find(source).ranks});
    made.push_back(name);
    return name;
  }

  std::vector<std::string> made;  // names of groups, in the order in which they were asked for

 private:
  static constexpr int64_t kUnknown = 1'000'000;  // beyond identities that tests give
  std::map<std::string, Info, std::less<>> known_;
};

}  // namespace gt::testing
