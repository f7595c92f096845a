// A process group as the rest of the program sees it: who talks to whom, under which name. The name
// is how functional collectives and graphs refer to it, and the same on every rank, so the graphs of
// all ranks read alike. Two groups over the same ranks are two groups, with a queue each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gt {

enum class GroupPriority { kNormal, kHigh };

struct Group {
  std::string name;
  std::string description;  // "shares dense parameters", for reports
  std::vector<int64_t> ranks;
  int64_t index = 0;  // of this rank among them
  GroupPriority priority = GroupPriority::kNormal;

  int64_t size() const { return static_cast<int64_t>(ranks.size()); }
};

}  // namespace gt
