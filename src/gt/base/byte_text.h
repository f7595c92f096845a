// Amounts of memory as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace gt {

// "512 B", "1.5 KiB", "3.2 MiB", "12.34 GiB", "1.20 TiB"
std::string ByteText(int64_t bytes);

}  // namespace gt
