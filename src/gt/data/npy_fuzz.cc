// Feeds arbitrary bytes to the reader of .npy files. Run with ./gt fuzz npy 600.
#include <cstdint>
#include <cstdlib>

#include "gt/base/error.h"
#include "gt/data/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const gt::NpyHeader header =
        gt::ParseNpy({reinterpret_cast<const std::byte*>(data), size}, "fuzzed.npy");
    const size_t bytes = static_cast<size_t>(header.elements) * gt::BytesPer(header.type);
    if (header.data_offset > size || bytes != size - header.data_offset) std::abort();
    if (gt::ElementCount(header.shape) != header.elements) std::abort();
  } catch (const gt::Error& error) {
    if (error.code() != gt::ErrorCode::kBadData) std::abort();
  }
  return 0;
}
