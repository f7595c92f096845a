// The one logger of the program. It writes to stderr, so that stdout carries only what a command
// was asked to print. The level comes from GT_LOG=debug|info|warn|error (info when unset) and can
// be set by --log_level.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "gt/base/text.h"

namespace gt::log {

enum class Level { kDebug, kInfo, kWarn, kError };

void SetLevel(Level level);
Level CurrentLevel();

// Writes one line; safe from any thread. The functions below are the way to call it.
void Write(Level level, std::string_view message);

template <typename... Args>
void At(Level level, fmt::format_string<Args...> format, Args&&... args) {
  // Formatting costs more than the check, and debug lines are written on hot paths of passes.
  if (level < CurrentLevel()) return;
  Write(level, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void Debug(fmt::format_string<Args...> format, Args&&... args) {
  At(Level::kDebug, format, std::forward<Args>(args)...);
}

template <typename... Args>
void Info(fmt::format_string<Args...> format, Args&&... args) {
  At(Level::kInfo, format, std::forward<Args>(args)...);
}

template <typename... Args>
void Warn(fmt::format_string<Args...> format, Args&&... args) {
  At(Level::kWarn, format, std::forward<Args>(args)...);
}

template <typename... Args>
void Error(fmt::format_string<Args...> format, Args&&... args) {
  At(Level::kError, format, std::forward<Args>(args)...);
}

}  // namespace gt::log

template <>
inline constexpr std::array<std::string_view, 4> gt::kEnumNames<gt::log::Level> = {"debug", "info",
                                                                                   "warn", "error"};
