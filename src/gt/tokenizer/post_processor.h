// Which special tokens are added around a text.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/tokenizer/json_part.h"

namespace gt {

struct PostProcessor {
  std::vector<int32_t> before, after;

  // `part` is the field `post_processor`, which may be null. Only what happens to single texts is
  // read; pairs are a matter of other models. Errors: BadTokenizer.
  static PostProcessor FromJson(const JsonPart& part);
};

}  // namespace gt
