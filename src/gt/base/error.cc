#include "gt/base/error.h"

#include <algorithm>
#include <array>

namespace gt {
namespace {

constexpr ErrorInfo kErrors[] = {
#define GT_ERROR(name, number, cause, cure) {ErrorCode::k##name, #name, cause, cure},
#include "gt/base/error_codes.def"
#undef GT_ERROR
};

}  // namespace

std::span<const ErrorInfo> AllErrors() { return kErrors; }

const ErrorInfo& InfoOf(ErrorCode code) {
  const auto* found = std::find_if(std::begin(kErrors), std::end(kErrors),
                                   [code](const ErrorInfo& info) { return info.code == code; });
  return found == std::end(kErrors) ? kErrors[0] : *found;
}

std::string CodeName(ErrorCode code) { return fmt::format("GT-E{:04}", static_cast<int>(code)); }

Error::Error(ErrorCode code, std::string message)
    : std::runtime_error(fmt::format("{}: {}", CodeName(code), message)),
      code_(code),
      message_(std::move(message)) {}

}  // namespace gt
