#include "gt/fusion/kernel_text.h"

#include <algorithm>

#include "gt/base/text.h"
#include "gt/fusion/kernel_source.h"

namespace gt::fusion {
namespace {

size_t At(int number) { return static_cast<size_t>(number); }

Dim CoefficientOf(const Index& index, int variable) {
  const auto found = index.terms().find(variable);
  return found == index.terms().end() ? Dim(0) : found->second;
}

}  // namespace

KernelText::KernelText(const Graph& body, int lanes, const KernelPlan* plan)
    : lanes_(lanes), plan_(plan), hints_(body.shapes().Hints()) {
  scopes_.emplace_back();
}

Position KernelText::LoopOver(const TensorType& type) {
  Position position(type.sizes.size(), Number(0));
  std::vector<size_t> dims;
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    if (!type.sizes[d].Is(1)) dims.push_back(d);
  }
  std::stable_sort(dims.begin(), dims.end(), [&](size_t a, size_t b) {
    return Hint(type.strides[a]) > Hint(type.strides[b]);
  });
  threads_ = Dim(1);
  for (size_t d : dims) {
    Dim extent = type.sizes[d];
    const bool innermost = d == dims.back();
    if (innermost && lanes_ > 1) extent = Dim(*extent.as_const() / lanes_);
    const int variable = NewVariable("", extent);
    loop_.push_back(variable);
    threads_ *= extent;
    position[d] = Index::Of(variable, Dim(innermost ? lanes_ : 1), lanes_);
    if (innermost && lanes_ > 1) position[d] = position[d].WithLanes();
  }
  for (size_t i = 0; i < loop_.size(); ++i) {
    variables_[At(loop_[i])].name = fmt::format("i{}", i);
  }
  return position;
}

std::vector<std::string> KernelText::Head() {
  std::vector<std::string> head = {
      fmt::format("const Size thread = (Size)blockIdx.x * {} + threadIdx.x;", kThreadsPerBlock),
      "if (thread >= threads) return;"};
  std::string rest = "thread";
  for (size_t i = loop_.size(); i-- > 0;) {
    if (JoinsNext(loop_[i])) continue;
    Dim extent = *variables_[At(loop_[i])].extent;
    size_t first = i;
    while (first > 0 && JoinsNext(loop_[first - 1])) {
      extent *= *variables_[At(loop_[--first])].extent;
    }
    const std::string& name = variables_[At(loop_[i])].name;
    if (first == 0) {
      head.push_back(fmt::format("const Size {} = {};", name, rest));
      break;
    }
    const std::string by = SizeText(extent);
    const std::string next = fmt::format("rest{}", i);
    head.push_back(
        fmt::format("const Size {} = {} % {}, {} = {} / {};", name, rest, by, next, rest, by));
    rest = next;
  }
  return head;
}

std::vector<bool> KernelText::JoinedDims() const {
  std::vector<bool> joined;
  for (size_t i = 0; i + 1 < loop_.size(); ++i) {
    joined.push_back(std::all_of(uses_.begin(), uses_.end(), [&](const Index& use) {
      return CoefficientOf(use, loop_[i]) ==
             CoefficientOf(use, loop_[i + 1]) * *variables_[At(loop_[i + 1])].extent;
    }));
  }
  joined.push_back(false);
  return joined;
}

int KernelText::NewVariable(std::string name, std::optional<Dim> extent) {
  variables_.push_back({std::move(name), std::move(extent)});
  return static_cast<int>(variables_.size()) - 1;
}

bool KernelText::JoinsNext(int variable) const {
  for (size_t i = 0; i < loop_.size(); ++i) {
    if (loop_[i] == variable) return plan_ != nullptr && plan_->joins_next[i];
  }
  return false;
}

std::string KernelText::SizeText(const Dim& dim) {
  constexpr int64_t kLargestNumber = 16;
  if (const auto number = dim.as_const(); number && *number <= kLargestNumber) {
    return fmt::format("{}", *number);
  }
  const auto found = std::find(sizes_.begin(), sizes_.end(), dim);
  const auto at = found - sizes_.begin();
  if (found == sizes_.end()) sizes_.push_back(dim);
  return fmt::format("s{}", at);
}

std::string KernelText::BaseText(const Index& index, int64_t number) {
  uses_.push_back(index);
  std::vector<std::string> parts;
  for (const auto& [variable, coefficient] : index.terms()) {
    if (JoinsNext(variable)) continue;  // part of the next one
    const std::string& name = variables_[At(variable)].name;
    parts.push_back(coefficient.Is(1) ? name : fmt::format("{} * {}", name, SizeText(coefficient)));
  }
  if (!index.constant().Is(0)) parts.push_back(SizeText(index.constant()));
  if (number != 0 || parts.empty()) {
    parts.push_back(number < 0 ? fmt::format("({})", number) : SizeText(Dim(number)));
  }
  return Join(parts, " + ");
}

std::string KernelText::IndexText(const Index& index) {
  if (index.SameInAllLanes()) return BaseText(index, index.lanes().front());
  const std::optional<std::string> lanes = LaneText(index.lanes());
  if (!lanes) throw NeedsOneLane();
  if (index.IsNumber()) return *lanes;
  return fmt::format("{} + {}", BaseText(index, 0), *lanes);
}

const std::string* KernelText::Find(const std::string& key) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto found = scope->find(key);
    if (found != scope->end()) return &found->second;
  }
  return nullptr;
}

}  // namespace gt::fusion
