// The table of operators. Each file of this folder registers one family; registry.cc lists the
// families.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "gt/ir/operator.h"

namespace gt {

class OperatorTable {
 public:
  // Adds an operator and returns it so that further facts can be set:
  // table.Add("aten::mm(...) -> Tensor", MmRule, {.work = Work::kProduct, ...}).flops = ...
  Operator& Add(std::string_view schema, ShapeRule rule, const OperatorFacts& facts);
  std::vector<std::unique_ptr<Operator>> Take() { return std::move(operators_); }

 private:
  std::vector<std::unique_ptr<Operator>> operators_;
};

// Operators of another project: an object of this type at namespace scope in its sources makes them
// known before the first graph is made.
class OperatorFamily {
 public:
  using Register = void (*)(OperatorTable& table);
  explicit OperatorFamily(Register add);
};

// Adds operators that have their facts in common.
class OperatorGroup {
 public:
  OperatorGroup(OperatorTable& table, const OperatorFacts& facts) : table_(table), facts_(facts) {}
  Operator& Add(std::string_view schema, ShapeRule rule) {
    return table_.Add(schema, rule, facts_);
  }

 private:
  OperatorTable& table_;
  OperatorFacts facts_;
};

// One per file of this folder.
void RegisterElementwise(OperatorTable& table);
void RegisterReductions(OperatorTable& table);
void RegisterFactories(OperatorTable& table);
void RegisterRandom(OperatorTable& table);
void RegisterViews(OperatorTable& table);
void RegisterIndexing(OperatorTable& table);
void RegisterMatmul(OperatorTable& table);
void RegisterNormalization(OperatorTable& table);
void RegisterLoss(OperatorTable& table);
void RegisterAttention(OperatorTable& table);
void RegisterRouting(OperatorTable& table);
void RegisterCollectives(OperatorTable& table);
void RegisterDataReads(OperatorTable& table);
void RegisterTransfers(OperatorTable& table);
void RegisterFused(OperatorTable& table);

}  // namespace gt
