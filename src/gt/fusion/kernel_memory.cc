#include "gt/fusion/kernel_memory.h"

#include <algorithm>

#include "gt/fusion/element_code.h"

namespace gt::fusion {

Index KernelMemory::Address(const TensorType& type, const Position& position) const {
  Index address = text_.Number(0);
  for (size_t d = 0; d < position.size(); ++d) {
    if (type.sizes[d].Is(1)) continue;
    address = address + position[d] * type.strides[d];
  }
  return address;
}

bool KernelMemory::CanBeVector(const Index& address, int64_t first, int64_t count, DType dtype,
                               int32_t tensor) {
  const bool power = (count & (count - 1)) == 0;
  if (!power || count < 2 || first % count != 0) return false;
  const auto is_multiple = [count](const Dim& dim) {
    if (dim.is_const()) return *dim.as_const() % count == 0;
    return dim.CoefficientGcd() % count == 0 && dim.ConstantTerm() % count == 0;
  };
  for (const auto& [variable, coefficient] : address.terms()) {
    if (!is_multiple(coefficient)) return false;
  }
  if (!is_multiple(address.constant())) return false;
  int64_t& aligned = aligned_[tensor];
  aligned = std::max<int64_t>(aligned, std::min<int64_t>(16, count * ItemSize(dtype)));
  return true;
}

std::string KernelMemory::LoadElement(const Value& value, const Position& position) {
  const Index address = Address(value.type(), position);
  const DType dtype = value.type().dtype;
  const std::string_view type = StorageType(dtype);
  const int32_t tensor = value.index();
  if (address.SameInAllLanes()) {
    std::string name = text_.NewName('x');
    text_.Line("const {} {} = {};", CodeType(dtype), name,
               Loaded(dtype, fmt::format("in{}[{}]", tensor,
                                         text_.BaseText(address, address.lanes().front()))));
    return name;
  }
  const Index base = address + address.NegatedLanes();
  // What is near each other is loaded together.
  const int64_t lowest = *std::min_element(address.lanes().begin(), address.lanes().end());
  const std::string key =
      fmt::format("load {} {} {}", tensor, base.Key(),
                  lowest >= 0 ? lowest / text_.lanes() : lowest - text_.lanes());
  std::set<int64_t>& needed = loaded_[key];
  needed.insert(address.lanes().begin(), address.lanes().end());
  // The first run knows only what it has seen so far; its text is not used.
  const std::set<int64_t>& all = text_.plan() == nullptr ? needed : text_.plan()->loaded.at(key);
  const int64_t first = *all.begin(), count = *all.rbegin() - first + 1;
  if (count > 2 * static_cast<int64_t>(text_.lanes())) {
    const std::string name = text_.NewName('x');
    text_.Line("{} {}[{}]; LANES({}) {}[k] = in{}[{}];", type, name, text_.lanes(), text_.lanes(),
               name, tensor, text_.IndexText(address));
    return Loaded(dtype, name + "[k]");
  }
  std::string name;
  if (const auto* known = text_.Find(key)) {
    name = *known;
  } else {
    name = text_.NewName('x');
    const std::string from = text_.BaseText(base, first);
    if (CanBeVector(base, first, count, dtype, tensor)) {
      text_.Line("const Vec<{}, {}> {} = Load<{}>(in{} + {});", type, count, name, count, tensor,
                 from);
    } else {
      text_.Line("{} {}[{}]; LANES({}) {}[k] = in{}[{} + k];", type, name, count, count, name,
                 tensor, from);
    }
    text_.Remember(key, name);
  }
  std::vector<int64_t> lanes(address.lanes().begin(), address.lanes().end());
  for (int64_t& lane : lanes) lane -= first;
  const std::optional<std::string> lane = LaneText(lanes);
  if (!lane) throw NeedsOneLane();
  return Loaded(dtype, fmt::format("{}[{}]", name, *lane));
}

void KernelMemory::Store(int output, const Value& value, const Position& position,
                         const std::string& element) {
  const DType dtype = value.type().dtype;
  const std::string stored = Stored(dtype, element);
  const Index address = Address(value.type(), position);
  if (text_.lanes() == 1) {
    text_.Line("out{}[{}] = {};", output, text_.BaseText(address, address.lanes().front()), stored);
    return;
  }
  const auto tensor = static_cast<int32_t>(body_.inputs().size()) + output;
  bool counts = true;
  for (size_t k = 0; k < address.lanes().size(); ++k) {
    counts &= address.lanes()[k] == static_cast<int64_t>(k);
  }
  const Index base = address + address.NegatedLanes();
  if (!counts || !CanBeVector(base, 0, text_.lanes(), dtype, tensor)) {
    text_.Line("LANES({}) out{}[{}] = {};", text_.lanes(), output, text_.IndexText(address),
               stored);
    return;
  }
  const std::string name = text_.NewName('y');
  text_.Line("Vec<{}, {}> {}; LANES({}) {}[k] = {};", StorageType(dtype), text_.lanes(), name,
             text_.lanes(), name, stored);
  text_.Line("Store(out{} + {}, {});", output, text_.BaseText(base, 0), name);
}

}  // namespace gt::fusion
