// Options of the pass fuse.
#pragma once

#include "gt/base/text.h"
#include "gt/config/option_struct.h"

namespace gt {

struct FuseOptions {
  GT_OPTION(
      StringList, fusion_module_fqn, {}, Any(),
      "fuse inside these modules, by pattern: components separated by dots, * for any one, ** "
      "for any number; empty: everywhere");
  GT_OPTION(
      bool, any_device, false, Any(),
      "also fuse what runs on a CPU, where the operators of a group still run one by one: for "
      "tests");
  GT_END_OPTIONS(FuseOptions);
};

}  // namespace gt
