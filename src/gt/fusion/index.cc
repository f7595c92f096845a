#include "gt/fusion/index.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace gt::fusion {
namespace {

// `dim` / `by` where nothing is left over.
std::optional<Dim> ExactQuotient(const Dim& dim, const Dim& by) {
  if (dim == by) return Dim(1);
  if (by.is_const() && by.as_const() == 0) return std::nullopt;
  const Dim quotient = FloorDiv(dim, by);
  if (!quotient.is_polynomial() || quotient * by != dim) return std::nullopt;
  return quotient;
}

}  // namespace

Index::Index(const Dim& number, int lanes) : lanes_(static_cast<size_t>(lanes), 0) {
  if (number.is_const()) {
    std::fill(lanes_.begin(), lanes_.end(), *number.as_const());
  } else {
    constant_ = number;
  }
}

Index Index::Of(int variable, const Dim& coefficient, int lanes) {
  Index index(Dim(0), lanes);
  if (!coefficient.Is(0)) index.terms_[variable] = coefficient;
  return index;
}

Index Index::operator+(const Index& other) const {
  Index sum = *this;
  for (const auto& [variable, coefficient] : other.terms_) {
    Dim& to = sum.terms_[variable];
    to += coefficient;
    if (to.Is(0)) sum.terms_.erase(variable);
  }
  sum.constant_ += other.constant_;
  if (sum.lanes_.size() < other.lanes_.size()) {
    sum.lanes_.resize(other.lanes_.size(), sum.lanes_.front());
  }
  for (size_t k = 0; k < sum.lanes_.size(); ++k) {
    sum.lanes_[k] += other.lanes_[std::min(k, other.lanes_.size() - 1)];
  }
  return sum;
}

Index Index::operator*(const Dim& factor) const {
  Index product(Dim(0), static_cast<int>(lanes_.size()));
  if (factor.Is(0)) return product;
  for (const auto& [variable, coefficient] : terms_) {
    product.terms_[variable] = coefficient * factor;
  }
  product.constant_ = constant_ * factor;
  if (factor.is_const()) {
    for (size_t k = 0; k < lanes_.size(); ++k) product.lanes_[k] = lanes_[k] * *factor.as_const();
  } else if (SameInAllLanes()) {
    product.constant_ += Dim(lanes_.front()) * factor;
  } else {
    throw NeedsOneLane();
  }
  return product;
}

bool Index::SameInAllLanes() const {
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [this](int64_t lane) { return lane == lanes_.front(); });
}

Index Index::WithLanes() const {
  Index index = *this;
  for (size_t k = 0; k < lanes_.size(); ++k) index.lanes_[k] += static_cast<int64_t>(k);
  return index;
}

Index Index::NegatedLanes() const {
  Index index(Dim(0), static_cast<int>(lanes_.size()));
  for (size_t k = 0; k < lanes_.size(); ++k) index.lanes_[k] = -lanes_[k];
  return index;
}

std::optional<Index::Divided> Index::DividedBy(const Dim& size,
                                               std::span<const Variable> variables) const {
  const int count = static_cast<int>(lanes_.size());
  Divided divided{Index(Dim(0), count), Index(Dim(0), count)};
  // Terms that are multiples of the size go into the quotient.
  for (const auto& [variable, coefficient] : terms_) {
    if (auto quotient = ExactQuotient(coefficient, size)) {
      divided.quotient.terms_[variable] = *quotient;
    } else {
      divided.remainder.terms_[variable] = coefficient;
    }
  }
  if (!constant_.Is(0)) {
    auto quotient = ExactQuotient(constant_, size);
    if (!quotient) return std::nullopt;
    divided.quotient.constant_ = *quotient;
  }
  if (std::any_of(lanes_.begin(), lanes_.end(), [](int64_t lane) { return lane < 0; })) {
    return std::nullopt;
  }
  if (divided.remainder.terms_.empty() && size.is_const()) {
    for (size_t k = 0; k < lanes_.size(); ++k) {
      divided.quotient.lanes_[k] = lanes_[k] / *size.as_const();
      divided.remainder.lanes_[k] = lanes_[k] % *size.as_const();
    }
    return divided;
  }
  // The rest is the remainder if it can never reach the size.
  Dim largest(*std::max_element(lanes_.begin(), lanes_.end()));
  for (const auto& [variable, coefficient] : divided.remainder.terms_) {
    const std::optional<Dim>& extent = variables[static_cast<size_t>(variable)].extent;
    if (!extent || coefficient.LeadsNegative()) return std::nullopt;
    largest += coefficient * (*extent - Dim(1));
  }
  const std::optional<int64_t> room = (size - Dim(1) - largest).as_const();
  if (!room || *room < 0) return std::nullopt;
  divided.remainder.lanes_ = lanes_;
  return divided;
}

std::string Index::Key() const {
  auto name = [](SymbolId id) { return fmt::format("s{}", id); };
  std::string key;
  for (const auto& [variable, coefficient] : terms_) {
    key += fmt::format("{}*{}+", coefficient.ToString(name), variable);
  }
  key += constant_.ToString(name);
  for (int64_t lane : lanes_) key += fmt::format(",{}", lane);
  return key;
}

std::optional<std::string> LaneText(std::span<const int64_t> lanes) {
  const auto is = [&](const std::function<int64_t(int64_t)>& value) {
    for (size_t k = 0; k < lanes.size(); ++k) {
      if (lanes[k] != value(static_cast<int64_t>(k))) return false;
    }
    return true;
  };
  const int64_t first = lanes.front();
  if (is([&](int64_t) { return first; })) return fmt::format("{}", first);
  const std::string plus = first == 0 ? "" : fmt::format(" + {}", first);
  for (int64_t factor : {1, 2, 4, 8}) {
    const std::string times = factor == 1 ? "" : fmt::format("{} * ", factor);
    if (is([&](int64_t k) { return factor * k + first; })) {
      return fmt::format("{}k{}", times, plus);
    }
    for (int64_t by : {2, 4, 8}) {
      if (is([&](int64_t k) { return factor * (k / by) + first; })) {
        return fmt::format("{}(k / {}){}", times, by, plus);
      }
      if (is([&](int64_t k) { return factor * (k % by) + first; })) {
        return fmt::format("{}(k % {}){}", times, by, plus);
      }
    }
  }
  return std::nullopt;
}

}  // namespace gt::fusion
