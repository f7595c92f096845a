#include "gt/base/byte_text.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <iterator>
#include <string_view>

namespace gt {

std::string ByteText(int64_t bytes) {
  auto value = static_cast<double>(bytes);
  if (value < 1024) return fmt::format("{} B", bytes);
  for (const char* unit : {"KiB", "MiB"}) {
    value /= 1024;
    if (value < 1024) return fmt::format("{:.1f} {}", value, unit);
  }
  value /= 1024;
  return value < 1024 ? fmt::format("{:.2f} GiB", value) : fmt::format("{:.2f} TiB", value / 1024);
}

std::string ExactByteText(int64_t bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  constexpr double kStep = 1024;
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes) / kStep;
  size_t unit = 0;
  for (; value >= kStep && unit + 1 < kUnits.size(); ++unit) value /= kStep;
  return fmt::format("{:.1f} {} ({} bytes)", value, kUnits[unit], bytes);
}

std::string EnoughGibibytes(int64_t bytes) {
  if (bytes <= 0) return "0";
  constexpr int kDigits = 4;
  const double value = std::ldexp(static_cast<double>(bytes), -30);
  const double digit = std::pow(10, std::floor(std::log10(value)) + 1 - kDigits);
  return fmt::format("{:.{}g}", digit * std::ceil(value / digit), kDigits);
}

std::string DecimalByteText(int64_t bytes) {
  constexpr const char* kUnits[] = {"KB", "MB", "GB", "TB", "PB"};
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, value < 9.95 ? 1 : 0, kUnits[unit]);
}

}  // namespace gt
