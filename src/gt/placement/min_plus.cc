#include "gt/placement/min_plus.h"

namespace gt::placement {

void MinPlus(const double* table, size_t rows, size_t columns, const double* __restrict weight,
             double* __restrict out) {
  for (size_t y = 0; y < columns; ++y) out[y] = table[y] - weight[0];
  for (size_t x = 1; x < rows; ++x) {
    const double* __restrict row = table + x * columns;
    const double less = weight[x];
    for (size_t y = 0; y < columns; ++y) {
      const double value = row[y] - less;
      out[y] = value < out[y] ? value : out[y];
    }
  }
}

}  // namespace gt::placement
