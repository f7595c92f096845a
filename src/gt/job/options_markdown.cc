#include "gt/job/options_markdown.h"

#include <fmt/format.h>

#include "gt/config/option_table.h"
#include "gt/job/config.h"

namespace gt {
namespace {

constexpr std::string_view kHead = R"(# Options

Made by `gt docs options`; do not edit. `gt train --help` prints the same.

`section.name` is the flag `--section.name` and the key `name` below `[section]` of a config file
(`--config FILE`). Flags win over files, and later files over earlier ones. A run writes all of them,
as it uses them, to `config.toml` in its folder. Names are torchtitan's; what it calls otherwise is in
[torchtitan.md](torchtitan.md). Passes have options of their own: [passes.md](passes.md).
)";

}  // namespace

std::string OptionsMarkdown() {
  Config defaults;
  std::string text(kHead);
  const ConfigBinding binding = BindConfig(&defaults);
  for (const OptionGroup& group : binding.groups) {
    text += group.name.empty() ? fmt::format("\n## The job\n{}\n", group.help)
                               : fmt::format("\n## {}\n{}\n", group.name, group.help);
    text += OptionTable(group.options);
  }
  return text;
}

}  // namespace gt
