// The inner loops of message passing and of reductions, in a file of its own because it is compiled for vectors.
#pragma once

#include <cstddef>

namespace gt::placement {

// out[y] = the smallest table[x][y] - weight[x].
void MinPlus(const double* table, size_t rows, size_t columns, const double* weight, double* out);
void MinPlus(const float* table, size_t rows, size_t columns, const double* weight, double* out);
// out[x] = the smallest table[x][y] - weight[y].
void MinPlusOfRows(const double* table, size_t rows, size_t columns, const double* weight,
                   double* out);
void MinPlusOfRows(const float* table, size_t rows, size_t columns, const double* weight,
                   double* out);
// Lowers out[x] to the smallest (table[x][y] + offset[x]) - weight[y]. No number is not small.
void LowerToRows(const double* table, size_t rows, size_t columns, const double* offset,
                 const double* weight, double* out);

// The largest one[i] - other[i] where other[i] is not infinite; minus infinity if nowhere. What is
// returned may be less once it is above `enough`.
double MaxDifference(const double* one, const double* other, size_t count, double enough);

// The largest difference between two rows, where they are not both infinite.
double MaxDifference(const float* one, const float* other, size_t count);

}  // namespace gt::placement
