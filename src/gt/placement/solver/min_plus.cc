#include "gt/placement/solver/min_plus.h"

#include <algorithm>
#include <cstring>
#include <limits>

// Wider registers where the processor has them. Differences and minima are exact, so that results are
// the same with any. Sanitizers do not get along with choosing a function while a program is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GT_WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define GT_WIDEST
#endif

namespace gt::placement {

namespace {

constexpr size_t kLanes = 8;
using Lanes = double __attribute__((vector_size(kLanes * sizeof(double))));
using NarrowLanes = float __attribute__((vector_size(kLanes * sizeof(float))));

// Functions that are inlined are compiled for each kind of processor.
__attribute__((always_inline)) inline Lanes Load(const double* values) {
  Lanes lanes;
  std::memcpy(&lanes, values, sizeof(lanes));
  return lanes;
}
__attribute__((always_inline)) inline Lanes Load(const float* values) {
  NarrowLanes lanes;
  std::memcpy(&lanes, values, sizeof(lanes));
  return __builtin_convertvector(lanes, Lanes);
}

template <typename Number>
__attribute__((always_inline)) inline void LeastOfColumns(const Number* table, size_t rows,
                                                          size_t columns,
                                                          const double* __restrict weight,
                                                          double* __restrict out) {
  for (size_t y = 0; y < columns; ++y) out[y] = double{table[y]} - weight[0];
  for (size_t x = 1; x < rows; ++x) {
    const Number* __restrict row = table + x * columns;
    const double less = weight[x];
    for (size_t y = 0; y < columns; ++y) {
      const double value = double{row[y]} - less;
      out[y] = value < out[y] ? value : out[y];
    }
  }
}

// The smallest value of `value_at` and `lanes_at`, which give one and kLanes of them, and `least`. Compilers
// do not make vectors of a loop that looks for a minimum by themselves.
template <typename ValueAt, typename LanesAt>
__attribute__((always_inline)) inline double Least(size_t columns, double least,
                                                   const ValueAt& value_at,
                                                   const LanesAt& lanes_at) {
  const size_t whole = columns / kLanes * kLanes;
  for (size_t y = whole; y < columns; ++y) {
    const double value = value_at(y);
    least = value < least ? value : least;
  }
  Lanes lanes = Lanes{} + least;
  for (size_t y = 0; y < whole; y += kLanes) {
    const Lanes values = lanes_at(y);
    lanes = values < lanes ? values : lanes;
  }
  for (size_t lane = 0; lane < kLanes; ++lane) least = lanes[lane] < least ? lanes[lane] : least;
  return least;
}

template <typename Number>
__attribute__((always_inline)) inline void LeastOfRows(const Number* table, size_t rows,
                                                       size_t columns,
                                                       const double* __restrict weight,
                                                       double* __restrict out) {
  for (size_t x = 0; x < rows; ++x) {
    const Number* row = table + x * columns;
    out[x] = Least(
        columns, std::numeric_limits<double>::infinity(),
        [&](size_t y) __attribute__((always_inline)) { return double{row[y]} - weight[y]; },
        [&](size_t y) __attribute__((always_inline)) { return Load(row + y) - Load(weight + y); });
  }
}

}  // namespace

GT_WIDEST
void MinPlus(const double* table, size_t rows, size_t columns, const double* weight, double* out) {
  LeastOfColumns(table, rows, columns, weight, out);
}
GT_WIDEST
void MinPlus(const float* table, size_t rows, size_t columns, const double* weight, double* out) {
  LeastOfColumns(table, rows, columns, weight, out);
}

GT_WIDEST
void MinPlusOfRows(const double* table, size_t rows, size_t columns, const double* weight,
                   double* out) {
  LeastOfRows(table, rows, columns, weight, out);
}
GT_WIDEST
void MinPlusOfRows(const float* table, size_t rows, size_t columns, const double* weight,
                   double* out) {
  LeastOfRows(table, rows, columns, weight, out);
}

GT_WIDEST
void LowerToRows(const double* table, size_t rows, size_t columns, const double* offset,
                 const double* weight, double* out) {
  for (size_t x = 0; x < rows; ++x) {
    const double* row = table + x * columns;
    out[x] = Least(
        columns, out[x],
        [&](size_t y) __attribute__((always_inline)) { return row[y] + offset[x] - weight[y]; },
        [&](size_t y) __attribute__((always_inline)) {
          return Load(row + y) + offset[x] - Load(weight + y);
        });
  }
}

namespace {

// Infinity less infinity is no number, and a comparison with it is false: such places do not count.
// Differences are those of the numbers as they are stored. Inlined, to be compiled for each kind of processor.
template <typename Number>
__attribute__((always_inline)) inline double Largest(const Number* one, const Number* other,
                                                     size_t count, double enough) {
  double most[kLanes];
  std::fill_n(most, kLanes, -std::numeric_limits<double>::infinity());
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double difference = double{one[i + lane]} - double{other[i + lane]};
      most[lane] = difference > most[lane] ? difference : most[lane];
    }
    if (i % (8 * kLanes) == 0 && *std::max_element(most, most + kLanes) > enough) break;
  }
  double worst = *std::max_element(most, most + kLanes);
  if (worst > enough) return worst;
  for (; i < count; ++i) {
    const double difference = double{one[i]} - double{other[i]};
    worst = difference > worst ? difference : worst;
  }
  return worst;
}

}  // namespace

GT_WIDEST
double MaxDifference(const double* one, const double* other, size_t count, double enough) {
  return Largest(one, other, count, enough);
}

GT_WIDEST
double MaxDifference(const float* one, const float* other, size_t count) {
  return Largest(one, other, count, std::numeric_limits<double>::infinity());
}

}  // namespace gt::placement
