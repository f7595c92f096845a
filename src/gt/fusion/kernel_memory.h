// Loads and stores of a generated kernel: what lanes of a thread need of each other's neighbours is moved as one
// vector where that is possible.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "gt/fusion/kernel_text.h"
#include "gt/ir/graph.h"

namespace gt::fusion {

class KernelMemory {
 public:
  KernelMemory(KernelText& text, const Graph& body) : text_(text), body_(body) {}

  // An expression of the element in lane k.
  std::string LoadElement(const Value& value, const Position& position);
  // `element`: an expression of it, as CodeType has it.
  void Store(int output, const Value& value, const Position& position, const std::string& element);

  // By input and place without lanes: the numbers of elements from there on that lanes need.
  const std::map<std::string, std::set<int64_t>>& loaded() const { return loaded_; }
  // By tensor, inputs first: bytes that its pointer must be a multiple of.
  const std::map<int32_t, int64_t>& aligned() const { return aligned_; }

 private:
  Index Address(const TensorType& type, const Position& position) const;
  // Whether vectors of this many elements from there on can be moved as one.
  bool CanBeVector(const Index& address, int64_t first, int64_t count, DType dtype, int32_t tensor);

  KernelText& text_;
  const Graph& body_;
  std::map<std::string, std::set<int64_t>> loaded_;
  std::map<int32_t, int64_t> aligned_;
};

}  // namespace gt::fusion
