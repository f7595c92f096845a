#include "gt/base/logging.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace gt::log {
namespace {

spdlog::level::level_enum ToSpdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

struct Logger {
  spdlog::logger lines{"gt", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()};
  // Kept beside spdlog's own so that a level check needs no call into it.
  std::atomic<Level> level{Level::kInfo};

  Logger() {
    lines.set_pattern("[%H:%M:%S.%e] %^%l%$: %v");
    lines.set_level(spdlog::level::debug);
    lines.flush_on(spdlog::level::debug);
    const char* wanted = std::getenv("GT_LOG");
    if (wanted == nullptr || *wanted == '\0') return;
    if (const auto parsed = EnumFromName<Level>(wanted)) {
      level = *parsed;
      return;
    }
    // A mistyped environment variable is no reason not to train.
    const auto& names = kEnumNames<Level>;
    const std::vector<std::string> candidates(names.begin(), names.end());
    lines.warn("GT_LOG={} is ignored: expected one of {}{}", Quoted(wanted), Join(names, ", "),
               DidYouMean(wanted, candidates));
  }
};

Logger& TheLogger() {
  // Never destroyed: other static objects may log while the program ends.
  static Logger& logger = *new Logger;
  return logger;
}

}  // namespace

void SetLevel(Level level) { TheLogger().level.store(level, std::memory_order_relaxed); }

Level CurrentLevel() { return TheLogger().level.load(std::memory_order_relaxed); }

void Write(Level level, std::string_view message) {
  TheLogger().lines.log(ToSpdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace gt::log
