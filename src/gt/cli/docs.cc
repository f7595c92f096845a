// gt docs: prints the pages of docs/ that are made from the program's own tables.
#include <fmt/format.h>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/cli/commands.h"
#include "gt/cli/documents.h"
#include "gt/config/command_line.h"

namespace gt::cli {

int RunDocs(Arguments args) {
  std::string page;
  CommandLine line("gt docs",
                   "prints a page of documentation that is made from the program itself");
  line.Positional("PAGE", &page, Join(DocumentNames(), ", "));
  if (!line.Parse(args)) {
    fmt::print("{}", line.Help());
    return 0;
  }
  fmt::print("{}", DocumentText(page));
  return 0;
}

}  // namespace gt::cli
