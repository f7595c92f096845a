#include "gt/config/option_struct.h"

#include "gt/base/error.h"
#include "gt/base/text.h"

namespace gt {

void OptionCollector::Enter(std::string name, std::string help) {
  open_.push_back(std::move(name));
  groups_.push_back({Join(open_, "."), std::move(help), {}});
}

void OptionCollector::Add(const std::string& name, Binding binding, Limit limit, std::string help) {
  const std::string section = Join(open_, ".");
  // TOML could not express it: after [a.b] nothing returns to [a].
  GT_CHECK(groups_.back().name == section, "option {} comes after a section nested in {}", name,
           section);
  groups_.back().options.emplace_back(section.empty() ? name : section + "." + name,
                                      std::move(binding), limit, std::move(help));
}

}  // namespace gt
