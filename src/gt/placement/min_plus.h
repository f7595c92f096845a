// The inner loop of message passing, in a file of its own because it is compiled for vectors.
#pragma once

#include <cstddef>

namespace gt::placement {

// out[y] = the smallest table[x][y] - weight[x].
void MinPlus(const double* table, size_t rows, size_t columns, const double* weight, double* out);

}  // namespace gt::placement
