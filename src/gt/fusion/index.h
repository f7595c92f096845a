// Positions of elements inside a generated kernel: sums of loop variables times sizes, plus a number for
// each lane of a thread's vector. Sizes are Dims, so that an index is exact for every size; which of them
// are numbers in the text and which are arguments of the kernel is decided when the text is written.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gt/ir/dim.h"
#include "gt/ir/type.h"

namespace gt::fusion {

// The lanes of one vector would take different ways: the kernel has to compute one element a thread.
struct NeedsOneLane {};

// A variable of the kernel that counts from 0 to below `extent`; no extent: not known.
struct Variable {
  std::string name;
  std::optional<Dim> extent;
};

class Index {
 public:
  Index() = default;
  // The same number in each of `lanes` lanes.
  Index(const Dim& number, int lanes);

  static Index Of(int variable, const Dim& coefficient, int lanes);

  Index operator+(const Index& other) const;
  Index operator*(const Dim& factor) const;
  bool operator==(const Index& other) const = default;

  // Coefficients by variable. Dim has no order, variables are numbered.
  const std::map<int, Dim>& terms() const { return terms_; }
  const Dim& constant() const { return constant_; }  // what is no number: the start of a slice
  std::span<const int64_t> lanes() const { return lanes_; }

  bool SameInAllLanes() const;
  Index WithLanes() const;     // 0, 1, 2, ... added to the lanes
  Index NegatedLanes() const;  // of the lanes alone
  // Whether it is the same number for every thread.
  bool IsNumber() const { return terms_.empty() && constant_.Is(0); }

  struct Divided;
  // What it is divided by a size, if that can be said without dividing when the kernel runs.
  std::optional<Divided> DividedBy(const Dim& size, std::span<const Variable> variables) const;

  std::string Key() const;

 private:
  std::map<int, Dim> terms_;
  Dim constant_;
  std::vector<int64_t> lanes_ = {0};
};

struct Index::Divided {
  Index quotient, remainder;
};

// The lanes' numbers as an expression of the lane k ("k", "k / 2", "2 * (k % 4) + 1"), or nothing.
std::optional<std::string> LaneText(std::span<const int64_t> lanes);

}  // namespace gt::fusion
