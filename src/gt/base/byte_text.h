// Amounts of memory as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace gt {

// "512 B", "1.5 KiB", "3.2 MiB", "12.34 GiB", "1.20 TiB"
std::string ByteText(int64_t bytes);

// "512 bytes", "1.5 KiB (1536 bytes)": where somebody may have to count.
std::string ExactByteText(int64_t bytes);

// "88.53", "0.0006142": GiB as flags take them, rounded up to four digits, so that so much is enough.
std::string EnoughGibibytes(int64_t bytes);

// "999 bytes", "1.5 KB", "12 GB": sizes of files, in powers of ten.
std::string DecimalByteText(int64_t bytes);

}  // namespace gt
