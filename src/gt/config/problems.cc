#include "gt/config/problems.h"

#include <algorithm>

namespace gt {

void Problems::ThrowIfAny() const {
  if (found_.empty()) return;
  if (found_.size() == 1) throw found_.front();
  const ErrorCode first = found_.front().code();
  const bool all_alike = std::all_of(found_.begin(), found_.end(),
                                     [first](const Error& e) { return e.code() == first; });
  std::string message = fmt::format("{} problems with flags and config files:", found_.size());
  for (const Error& error : found_) message += fmt::format("\n  {}", error.what());
  throw Error(all_alike ? first : ErrorCode::kSeveralConfigProblems, message);
}

}  // namespace gt
