#include "gt/analysis/roles.h"

#include <gtest/gtest.h>

namespace gt::roles_test {
namespace {

ModuleTable Declared() {
  ModuleTable modules;
  for (const char* block : {"h.1", "h.0", "tail"}) modules.Declare(Name(block), ModuleRole::kBlock);
  modules.Declare(Name("h.0.moe"), ModuleRole::kMoe);
  modules.Declare(Name("h.0.moe.all"), ModuleRole::kExperts);
  modules.Declare(Name("h.0.moe.all.inner"), ModuleRole::kExperts);
  modules.Declare(Name("tail.h"), ModuleRole::kBlock);
  modules.Declare(Name("out"), ModuleRole::kHead);
  return modules;
}

// Blocks are numbered as they were declared; names do not count.
TEST(RolesTest, BlocksAroundModules) {
  const ModuleTable modules = Declared();
  Roles roles(modules);
  EXPECT_EQ(roles.Of(Name("h.1")).block, 0);
  EXPECT_EQ(roles.Of(Name("h.0.attention.wq.weight")).block, 1);
  EXPECT_EQ(roles.Of(Name("h.0.attention")).block_module, Name("h.0"));
  EXPECT_EQ(roles.Of(Name("tail.h.x")).block, 2);  // the outermost
  for (const char* outside :
       {"", "h", "h.10", "xh.1", "x.h.1", "h.0x", "out", ".h.1", "layers.0"}) {
    EXPECT_EQ(roles.Of(Name(outside)).block, -1) << outside;
  }
}

TEST(RolesTest, ExpertsAndTheInnermostRole) {
  const ModuleTable modules = Declared();
  Roles roles(modules);
  EXPECT_EQ(roles.Of(Name("h.0.moe")).experts, Name());
  EXPECT_EQ(roles.Of(Name("h.0.moe.all.inner.w1")).experts, Name("h.0.moe.all"));
  EXPECT_EQ(roles.Of(Name("h.0.moe.gate")).role, ModuleRole::kMoe);
  EXPECT_EQ(roles.Of(Name("h.0.norm")).role, ModuleRole::kBlock);
  EXPECT_EQ(roles.Of(Name("out.weight")).role, ModuleRole::kHead);
  EXPECT_EQ(roles.Of(Name("norm")).role, std::nullopt);
}

TEST(RolesTest, PatternsOfModules) {
  auto pattern = [](std::initializer_list<const char*> names) {
    std::vector<Name> modules;
    for (const char* name : names) modules.push_back(Name(name));
    return PatternOf(modules);
  };
  EXPECT_EQ(pattern({}), "");
  EXPECT_EQ(pattern({"layers.0"}), "layers.*");
  EXPECT_EQ(pattern({"layers.3.moe", "layers.4.moe"}), "layers.*.moe");
  EXPECT_EQ(pattern({"first", "second"}), "*");
  EXPECT_EQ(pattern({"h.0.sparse", "h.1.moe"}), "h.*.*");
  EXPECT_EQ(pattern({"h.0", "tail"}), "");
}

}  // namespace
}  // namespace gt::roles_test
