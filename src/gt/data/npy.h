// The header of a .npy file (NumPy's format, versions 1 to 3), as far as token ids need it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/base/text.h"

namespace gt {

// Little-endian integers that token ids are stored as.
enum class TokenType { kUint8, kUint16, kUint32, kUint64, kInt16, kInt32, kInt64 };

template <>
inline constexpr std::array<std::string_view, 7> kEnumNames<TokenType> = {
    "uint8", "uint16", "uint32", "uint64", "int16", "int32", "int64"};

std::size_t BytesPer(TokenType type);

struct NpyHeader {
  TokenType type = TokenType::kUint8;
  std::vector<int64_t> shape;  // no dimension is negative
  std::size_t data_offset = 0;
  int64_t elements = 0;  // product of the shape
};

// `file` holds the whole file and `name` is used in messages. The data is checked to be all there,
// and nothing after it. Everything else is BadData.
NpyHeader ParseNpy(std::span<const std::byte> file, std::string_view name);

// Product of the dimensions; negative when it does not fit into the memory of any machine.
int64_t ElementCount(std::span<const int64_t> shape);

}  // namespace gt
