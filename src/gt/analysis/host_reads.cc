#include "gt/analysis/host_reads.h"

namespace gt {

bool FeedsHostRead(const Value& value) {
  for (const Use& use : value.uses()) {
    const Node* user = use.node();
    if (user == nullptr) continue;
    if (user->op().reads_data) return true;
    // A wait holds on to what is copied as well: only what it returns is the copy.
    if (user->op().aliasing != Aliasing::kAlways || use.index() != 0) continue;
    for (int32_t i = 0; i < user->result_count(); ++i) {
      if (FeedsHostRead(*user->result(i))) return true;
    }
  }
  return false;
}

}  // namespace gt
