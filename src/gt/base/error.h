// The one exception type of the project. Anything a user can cause carries a stable code, says what
// happened starting in lower case, names what it happened to (node, operator, module, file), and
// says what to change.
#pragma once

#include <fmt/format.h>

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gt {

enum class ErrorCode : int {
#define GT_ERROR(name, number, cause, cure) k##name = number,
#include "gt/base/error_codes.def"
#undef GT_ERROR
};

struct ErrorInfo {
  ErrorCode code;
  std::string_view name;
  std::string_view cause;
  std::string_view cure;
};

// All codes in the order of error_codes.def; the source of docs/errors.md.
std::span<const ErrorInfo> AllErrors();
const ErrorInfo& InfoOf(ErrorCode code);

// "GT-E0312"
std::string CodeName(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string message);

  ErrorCode code() const { return code_; }
  // The message without the leading code, for callers that wrap it.
  const std::string& message() const { return message_; }

 private:
  ErrorCode code_;
  std::string message_;
};

template <typename... Args>
[[noreturn]] void Fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace gt

// States an invariant of our own code. It stays on in release builds: a wrong graph must never run.
#define GT_CHECK(condition, ...)                                                                \
  do {                                                                                          \
    if (!(condition)) [[unlikely]] {                                                            \
      ::gt::Fail(::gt::ErrorCode::kInternal, "{}:{}: {} does not hold: {}", __FILE__, __LINE__, \
                 #condition, ::fmt::format(__VA_ARGS__));                                       \
    }                                                                                           \
  } while (false)
