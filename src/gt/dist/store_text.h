// Texts as the values of libtorch's stores, which hold bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gt {

inline std::vector<uint8_t> ToBytes(const std::string& text) { return {text.begin(), text.end()}; }
inline std::string ToText(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace gt
