#include "gt/base/byte_text.h"

#include <fmt/format.h>

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

}  // namespace gt
