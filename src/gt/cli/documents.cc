#include "gt/cli/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/resources.h"
#include "gt/base/text.h"
#include "gt/cli/torchtitan_page.h"
#include "gt/job/options_markdown.h"
#include "gt/ops/operators_page.h"
#include "gt/passes/framework/registry.h"
#include "gt/report/architecture.h"

namespace gt::cli {
namespace {

std::string ErrorsMarkdown() {
  std::vector<ErrorInfo> errors(AllErrors().begin(), AllErrors().end());
  std::sort(errors.begin(), errors.end(),
            [](const ErrorInfo& a, const ErrorInfo& b) { return a.code < b.code; });
  std::string text =
      "# Errors\n\nEvery message that a user can meet begins with one of these codes. Made by `gt "
      "docs errors`; do not "
      "edit.\n\n| code | cause | cure |\n|---|---|---|\n";
  for (const ErrorInfo& error : errors) {
    text += fmt::format("| {} | {} | {} |\n", CodeName(error.code), error.cause, error.cure);
  }
  return text;
}

// Needs the sources, which an installation does not have.
std::string ArchitecturePage() {
  return ArchitectureMarkdown(ResourcePath("src/gt/folders.txt").parent_path());
}

struct Page {
  std::string_view name;  // docs/<name>.md
  std::string (*text)();
};

constexpr Page kPages[] = {
    {"architecture", ArchitecturePage}, {"errors", ErrorsMarkdown},
    {"operators", OperatorsMarkdown},   {"options", OptionsMarkdown},
    {"passes", PassesMarkdown},         {"torchtitan", TorchtitanMarkdown},
};

}  // namespace

std::vector<std::string> DocumentNames() {
  std::vector<std::string> names;
  for (const Page& page : kPages) names.emplace_back(page.name);
  return names;
}

std::string DocumentText(std::string_view name) {
  for (const Page& page : kPages) {
    if (page.name == name) return page.text();
  }
  const std::vector<std::string> known = DocumentNames();
  Fail(ErrorCode::kUnknownOption, "there is no page '{}'{}; pages: {}", name,
       DidYouMean(name, known), Join(known, ", "));
}

}  // namespace gt::cli
