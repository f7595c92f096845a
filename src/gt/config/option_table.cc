#include "gt/config/option_table.h"

#include <fmt/format.h>

namespace gt {

std::string OptionTable(std::span<const Option> options) {
  if (options.empty()) return "";
  std::string table = "\n| option | value | default | |\n|---|---|---|---|\n";
  for (const Option& option : options) {
    table += fmt::format("| `{}` | {} | `{}` | {} |\n", option.path(), option.Expected(),
                         option.default_text(), option.help());
  }
  return table;
}

}  // namespace gt
