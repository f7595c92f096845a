#include "gt/job/derived_options.h"

#include <gtest/gtest.h>

#include "gt/base/error.h"
#include "gt/job/config.h"

namespace gt::derived_options_test {
namespace {

std::string MessageOf(const Config& config, ErrorCode code) {
  try {
    Validate(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.message();
  }
  ADD_FAILURE() << "expected an error";
  return {};
}

TEST(MoeLoad, IsRead) {
  EXPECT_EQ(ParseMoeLoad("router"), MoeLoad{});
  EXPECT_EQ(ParseMoeLoad("balanced").kind, MoeLoad::Kind::kBalanced);
  EXPECT_EQ(ParseMoeLoad("zipf:1.25"), (MoeLoad{.kind = MoeLoad::Kind::kZipf, .exponent = 1.25}));
  EXPECT_EQ(ParseMoeLoad("zipf:0").exponent, 0.0);
  EXPECT_EQ(ParseMoeLoad("runs/loads.json"),
            (MoeLoad{.kind = MoeLoad::Kind::kFile, .path = "runs/loads.json"}));
}

TEST(MoeLoad, SaysWhatItExpects) {
  Config config;
  for (const char* text : {"zipf", "zipf:", "zipf:-1", "zipf:x", "zipf:1.0x", "zipf:nan",
                           "zipf:inf", "zipf:11", "Router", "loads.toml"}) {
    config.debug.moe_load = text;
    const std::string message = MessageOf(config, ErrorCode::kBadOptionValue);
    EXPECT_NE(message.find("debug.moe_load"), std::string::npos) << message;
    EXPECT_NE(message.find("zipf:"), std::string::npos) << message;
  }
}

TEST(MoeLoad, AgreesWithTheOlderFlag) {
  Config config;
  config.debug.moe_force_load_balance = true;
  for (const char* text : {"router", "balanced"}) {
    config.debug.moe_load = text;
    EXPECT_NO_THROW(Validate(config));
    EXPECT_EQ(MoeLoadOf(config).kind, MoeLoad::Kind::kBalanced);
  }
  for (const char* text : {"zipf:1", "loads.json"}) {
    config.debug.moe_load = text;
    EXPECT_NE(MessageOf(config, ErrorCode::kConflictingOptions).find("moe_force_load_balance"),
              std::string::npos);
  }
  config.debug.moe_force_load_balance = false;
  config.debug.moe_load = "balanced";
  EXPECT_EQ(MoeLoadOf(config).kind, MoeLoad::Kind::kBalanced);
}

TEST(DerivedOptions, CostsAreReadWhenAskedFor) {
  Config config;
  config.dump_folder = "out";
  EXPECT_EQ(CostsPath(config), std::nullopt);
  config.compile.costs = CostSource::kMeasured;
  EXPECT_EQ(CostsPath(config), "out/costs.json");
  config.compile.costs_file = "mine.json";
  EXPECT_EQ(CostsPath(config), "mine.json");
  config.compile.costs = CostSource::kEstimated;
  EXPECT_EQ(CostsPath(config), "mine.json");
}

TEST(DerivedOptions, ASplitSwitchesValidationOn) {
  Config config;
  EXPECT_FALSE(Validates(config));
  config.validation.split = 0.05;
  EXPECT_TRUE(Validates(config));
  config.validation.split = 0;
  config.validation.enable = true;
  EXPECT_TRUE(Validates(config));
}

TEST(DerivedOptions, TheBestCheckpointNeedsValidationAndCheckpoints) {
  Config config;
  config.checkpoint.keep_best = config.checkpoint.enable = true;
  EXPECT_NE(MessageOf(config, ErrorCode::kConflictingOptions).find("there is no validation"),
            std::string::npos);
  config.validation.split = 0.05;
  EXPECT_NO_THROW(Validate(config));
  config.checkpoint.enable = false;
  EXPECT_NE(MessageOf(config, ErrorCode::kConflictingOptions).find("belongs to checkpoint.enable"),
            std::string::npos);
}

}  // namespace
}  // namespace gt::derived_options_test
