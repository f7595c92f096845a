#include "gt/cli/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/passes/registry.h"

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

}  // namespace

std::string DocumentText(std::string_view page) {
  if (page == "errors") return ErrorsMarkdown();
  if (page == "passes") return PassesMarkdown();
  std::vector<std::string> known = {"errors", "passes"};
  Fail(ErrorCode::kUnknownOption, "there is no page '{}'{}; pages: errors, passes", page,
       DidYouMean(page, known));
}

}  // namespace gt::cli
