// A configuration as command lines and files see it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gt/config/dialect.h"
#include "gt/config/option.h"

namespace gt {

struct ConfigBinding {
  std::vector<OptionGroup> groups;  // bound to the configuration, which must outlive this
  std::function<std::unique_ptr<Dialect>()> make_dialect;  // other names for them
  // Throws if a value or a combination of them makes no sense.
  std::function<void()> validate;
};

}  // namespace gt
