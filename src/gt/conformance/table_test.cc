// What must hold for the table of operators as a whole: schemas are libtorch's own, facts agree
// with libtorch's tags and alias annotations, and no operator goes untested.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "gt/conformance/harness.h"
#include "gt/torch_bridge/convert.h"

namespace gt::conformance::table_test {
namespace {

std::vector<const Operator*> OperatorsOfLibtorch() {
  std::vector<const Operator*> result;
  for (const Operator* op : AllOperators()) {
    const std::string& name = op->name.str();
    if (name.starts_with("aten::") || name.starts_with("_c10d_functional")) result.push_back(op);
  }
  return result;
}

std::optional<c10::OperatorHandle> Handle(const Operator& op) {
  const std::string& name = op.name.str();
  size_t dot = name.find('.', name.find("::"));
  std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchema({name.substr(0, dot), overload});
}

std::string SchemaOf(const c10::OperatorHandle& handle) {
  std::ostringstream text;
  text << handle.schema();
  return text.str();
}

TEST(OperatorTable, HoldsEnoughOperators) { EXPECT_GE(AllOperators().size(), 150u); }

TEST(OperatorTable, SchemasAreLibtorchs) {
  for (const Operator* op : OperatorsOfLibtorch()) {
    std::optional<c10::OperatorHandle> handle = Handle(*op);
    if (!handle) {
      ADD_FAILURE() << "libtorch has no operator " << op->name.str();
      continue;
    }
    EXPECT_EQ(op->schema.text, SchemaOf(*handle));
  }
}

// Composite operators never reach a captured graph: autograd takes them apart first. An entry for
// one would be dead.
TEST(OperatorTable, HasNoCompositeOperators) {
  // Passes write reshape. RMS norm has a kernel of its own below autograd, but only on CUDA.
  const std::set<std::string> wanted = {"aten::reshape", "aten::_fused_rms_norm"};
  for (const Operator* op : OperatorsOfLibtorch()) {
    if (wanted.contains(op->name.str())) continue;
    std::optional<c10::OperatorHandle> handle = Handle(*op);
    if (!handle) continue;
    bool composite = handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
                     !handle->hasKernelForDispatchKey(c10::DispatchKey::CPU);
    EXPECT_FALSE(composite) << op->name.str() << " is composite in libtorch";
  }
}

TEST(OperatorTable, ArgumentsMatchLibtorch) {
  for (const Operator* op : OperatorsOfLibtorch()) {
    std::optional<c10::OperatorHandle> handle = Handle(*op);
    if (!handle) continue;
    const auto& theirs = handle->schema().arguments();
    ASSERT_EQ(op->schema.args.size(), theirs.size()) << op->name.str();
    for (size_t i = 0; i < theirs.size(); ++i) {
      const ArgSpec& ours = op->schema.args[i];
      EXPECT_EQ(ours.name, theirs[i].name()) << op->name.str();
      EXPECT_EQ(ours.default_value.has_value(), theirs[i].default_value().has_value())
          << op->name.str() << " argument " << ours.name;
      EXPECT_FALSE(theirs[i].is_out()) << op->name.str() << " is an out variant";
      bool written = theirs[i].alias_info() && theirs[i].alias_info()->isWrite();
      EXPECT_FALSE(written) << op->name.str() << " mutates its argument " << ours.name;
    }
    EXPECT_EQ(op->schema.results.size(), handle->schema().returns().size()) << op->name.str();
  }
}

// The defaults that our parser reads must be those that libtorch would fill in.
TEST(OperatorTable, DefaultsMatchLibtorch) {
  for (const Operator* op : OperatorsOfLibtorch()) {
    std::optional<c10::OperatorHandle> handle = Handle(*op);
    if (!handle) continue;
    const auto& theirs = handle->schema().arguments();
    for (size_t i = 0; i < std::min(theirs.size(), op->schema.args.size()); ++i) {
      const ArgSpec& ours = op->schema.args[i];
      if (!ours.default_value || !theirs[i].default_value()) continue;
      if (ours.kind == ArgKind::kGenerator) continue;
      std::ostringstream expected, actual;
      expected << *theirs[i].default_value();
      try {
        actual << ToIValue(ours, *ours.default_value, {});
      } catch (const std::exception& error) {
        actual << error.what();
      }
      EXPECT_EQ(actual.str(), expected.str()) << op->name.str() << " argument " << ours.name;
    }
  }
}

TEST(OperatorTable, ViewsAreViewsInLibtorch) {
  // The first is a view in memory, if not by schema; the second copies where no view exists.
  const std::set<std::string> different = {"aten::_unsafe_view", "aten::reshape"};
  for (const Operator* op : OperatorsOfLibtorch()) {
    if (different.contains(op->name.str())) continue;
    std::optional<c10::OperatorHandle> handle = Handle(*op);
    if (!handle) continue;
    bool aliases = false;
    for (const c10::Argument& result : handle->schema().returns())
      aliases |= result.alias_info() != nullptr;
    EXPECT_EQ(op->is_view(), aliases) << op->name.str();
  }
}

TEST(OperatorTable, RandomOperatorsAreTaggedInLibtorch) {
  // Draw from a generator without being tagged for it, or the other way round; each with its
  // reason.
  for (const Operator* op : OperatorsOfLibtorch()) {
    std::optional<c10::OperatorHandle> handle = Handle(*op);
    if (!handle) continue;
    // Attention draws numbers only to drop weights, which its rules reject.
    if (op->name.str().starts_with("aten::_scaled_dot_product_")) continue;
    EXPECT_EQ(op->random, handle->hasTag(at::Tag::nondeterministic_seeded)) << op->name.str();
  }
}

TEST(OperatorTable, EveryOperatorHasARule) {
  for (const Operator* op : AllOperators()) EXPECT_NE(op->rule, nullptr) << op->name.str();
}

TEST(OperatorTable, EveryOperatorHasConformanceCases) {
  for (const Operator* op : AllOperators()) {
    const std::string& name = op->name.str();
    std::string_view reason = ExemptionOf(name);
    if (HasCases(name)) {
      EXPECT_TRUE(reason.empty()) << name << " has cases and needs no exemption";
      continue;
    }
    EXPECT_FALSE(reason.empty()) << name << " has no conformance case and no exemption";
  }
}

}  // namespace
}  // namespace gt::conformance::table_test
