// [validation]: loss on data that is not trained on.
#pragma once

#include <cstdint>
#include <string>

#include "gt/config/option_struct.h"

namespace gt {

struct ValidationSection {
  GT_OPTION(bool, enable, false, Any(), "compute it");
  GT_OPTION(std::string, dataset_path, "", Any(), "file or folder of the validation data");
  GT_OPTION(int64_t, freq, 50, AtLeast(1), "every so many steps, and after the last one");
  GT_OPTION(int64_t, steps, 10, AtLeast(1), "batches each time, always the same ones");
  GT_END_OPTIONS(ValidationSection);
};

}  // namespace gt
