// Computes small graphs on several ranks at a time, to compare a graph before and after passes:
// values bit for bit, and which outputs share memory. Knows storages, offsets and strides, and the
// operators that pass tests are made of; sizes must be numbers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gt/ir/graph.h"

namespace gt::testing {

class Interpreter {
 public:
  // Inputs are drawn, the same for every graph with inputs of the same sizes. They are multiples of
  // 1/8 in [-1, 1], so that the order of a sum does not show. Fails at an operator that it does not
  // know.
  explicit Interpreter(const Graph& graph, int ranks = 1);

  // For each output, for each rank, the elements in row-major order.
  std::vector<std::vector<std::vector<double>>> Outputs() const;
  // For each pair of outputs, and each output and input, whether they share memory.
  std::vector<bool> Sharing() const;

 private:
  struct Tensor {
    std::shared_ptr<std::vector<double>> storage;
    int64_t offset = 0;
    std::vector<int64_t> sizes, strides;

    int64_t numel() const;
    // The i-th element in row-major order.
    double& at(int64_t i) const;
    // The element that the i-th of `sizes` reads when this tensor is broadcast to them.
    double& Broadcast(int64_t i, const std::vector<int64_t>& to) const;
  };
  using OfRanks = std::vector<Tensor>;

  static Tensor Fresh(const TensorType& type);
  double Draw();
  const OfRanks& In(const Node& node, int32_t i = 0) const { return values_.at(node.operand(i)); }

  void Run(const Node& node);
  void View(const Node& node, const Value& viewed);
  void Communicate(const Node& node);
  void Split(const Node& node, size_t rank);
  void Cat(const Node& node, size_t rank, Tensor& result);
  void Pad(const Node& node, size_t rank, Tensor& result);
  double Element(const Node& node, const std::string& op, size_t rank, const Tensor& result,
                 int64_t i);

  size_t ranks_;
  std::mt19937_64 generator_{42};
  std::map<const Value*, OfRanks> values_;
  std::vector<OfRanks> inputs_, outputs_;
};

// Says what the second graph computes otherwise than the first, or which of its outputs share
// memory that did not; nothing if all is as it was.
std::optional<std::string> DifferenceOf(const Interpreter& before, const Interpreter& after);

}  // namespace gt::testing
