// [validation]: loss on data that is not trained on.
#pragma once

#include <cstdint>

#include "gt/config/option_struct.h"

namespace gt {

struct ValidationSection {
  GT_OPTION(bool, enable, false, Any(), "compute it");
  GT_OPTION(StringList, dataset_path, {}, Paths(),
            "files, folders and patterns of the validation data; may be repeated");
  GT_OPTION(double, split, 0.0, WithinBelow(0, 1),
            "share of the training data's documents that is held out, by a hash of their content, "
            "and validated on; switches validation on");
  GT_OPTION(int64_t, freq, 50, AtLeast(1), "every so many steps, and after the last one");
  GT_OPTION(int64_t, steps, 10, AtLeast(1), "batches each time, always the same ones");
  GT_END_OPTIONS(ValidationSection);
};

}  // namespace gt
