// Translates pass lists (compile.passes, compile.disable_passes) from torchtitan's names
// (passes/framework/upstream_passes.h) to gt's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gt/passes/framework/upstream_passes.h"

namespace gt {

struct TranslatedPasses {
  std::string list;                           // comma-separated, as on the command line
  bool replaces = false;                      // without a leading +
  std::vector<const UpstreamPass*> renamed;   // translated to gt's pass
  std::vector<const UpstreamPass*> options;   // options in gt, removed from the list
  std::vector<const UpstreamPass*> unneeded;  // no counterpart, removed from the list
};

// `text` is a list from a flag, or, in brackets, from a file. Unknown names are kept.
TranslatedPasses TranslatePasses(std::string_view text);

}  // namespace gt
