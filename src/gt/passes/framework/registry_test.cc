#include "gt/passes/framework/registry.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "gt/base/error.h"
#include "gt/passes/cleanup/common_subexpression_elimination.h"
#include "gt/passes/pipeline/pipeline.h"

namespace gt::registry_test {
namespace {

Error FailureOf(std::string_view specs) {
  try {
    ParsePipeline(specs);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error for " << specs;
  return Error(ErrorCode::kInternal, "");
}

std::string RoundTrip(std::string_view specs) { return PrintPipeline(ParsePipeline(specs)); }

TEST(PassRegistry, NamesAreUniqueAndContractsComplete) {
  std::set<std::string> names;
  for (const PassEntry& entry : AllPasses()) {
    auto pass = entry.make();
    EXPECT_EQ(pass->name(), entry.name);
    EXPECT_TRUE(names.insert(pass->name()).second) << pass->name();
    for (std::string_view text : {pass->info().summary, pass->info().description,
                                  pass->info().reads, pass->info().writes, pass->info().never}) {
      EXPECT_TRUE(text.ends_with('.')) << pass->name() << ": " << text;
    }
  }
}

TEST(PassRegistry, ReadsListsOfPasses) {
  EXPECT_EQ(RoundTrip(""), "");
  EXPECT_EQ(RoundTrip("dce"), "dce");
  EXPECT_EQ(RoundTrip(" dce , canonicalize,cse,dce"), "dce,canonicalize,cse,dce");
  EXPECT_EQ(PrintPipeline(DefaultPipeline()), "dce,canonicalize,cse,dce,reshard_after_forward");
}

TEST(PassRegistry, ReadsOptions) {
  EXPECT_EQ(RoundTrip("dce{drop_random=true, drop_collectives = false},cse{}"),
            "dce{drop_random=true},cse");
  auto pass = MakePass("cse{cross_phase=all,max_factory_bytes=0}");
  EXPECT_EQ(pass->Spec(), "cse{cross_phase=all,max_factory_bytes=0}");
}

TEST(PassRegistry, PrintsOptionsThatWereSetInCode) {
  CommonSubexpressionElimination pass({.cross_phase = CrossPhase::kNone});
  EXPECT_EQ(pass.Spec(), "cse{cross_phase=none}");
}

TEST(PassRegistry, SuggestsTheNearestPass) {
  Error error = FailureOf("dce,canonicalise");
  EXPECT_EQ(error.code(), ErrorCode::kUnknownPass);
  EXPECT_NE(error.message().find("did you mean canonicalize?"), std::string::npos)
      << error.message();
}

TEST(PassRegistry, SuggestsTheNearestOption) {
  Error error = FailureOf("dce{drop_randoms=true}");
  EXPECT_EQ(error.code(), ErrorCode::kUnknownOption);
  EXPECT_NE(error.message().find("did you mean drop_random?"), std::string::npos)
      << error.message();
}

TEST(PassRegistry, RejectsWrongValues) {
  EXPECT_EQ(FailureOf("dce{drop_random=yes}").code(), ErrorCode::kBadOptionValue);
  EXPECT_EQ(FailureOf("cse{cross_phase=viewss}").code(), ErrorCode::kBadOptionValue);
  EXPECT_EQ(FailureOf("cse{max_factory_bytes=-1}").code(), ErrorCode::kOptionOutOfRange);
}

TEST(PassRegistry, RejectsMalformedLists) {
  for (std::string_view specs :
       {",", "dce,", "dce,,cse", "dce{", "dce{drop_random}",
        "dce{drop_random=", "dce{drop_random=true", "dce}", "dce cse", "dce{drop_random=\"true}",
        "dce{=true}", "{}", "dce{drop_random=true drop_collectives=true}"}) {
    Error error = FailureOf(specs);
    EXPECT_TRUE(error.code() == ErrorCode::kMalformedPassSpec ||
                error.code() == ErrorCode::kBadOptionValue)
        << specs << ": " << error.what();
  }
  EXPECT_THROW(MakePass("dce,cse"), Error);
  EXPECT_THROW(MakePass(""), Error);
}

// A pass whose options have every type, to see that what Spec prints is read back.
class ManyOptions : public Pass {
 public:
  ManyOptions() { Declare(&values); }
  const PassInfo& info() const override {
    static constexpr PassInfo kInfo = {
        .name = "many", .summary = "", .description = "", .reads = "", .writes = "", .never = ""};
    return kInfo;
  }
  bool RunImpl(Graph&, PassContext&) override { return false; }

  struct Options {
    GT_OPTION(StringList, names, {"default"}, Any(), "");
    GT_OPTION(std::string, text, "", Any(), "");
    GT_OPTION(double, ratio, 0.5, Any(), "");
    GT_END_OPTIONS(Options);
  } values;
};

TEST(PassSpec, QuotesWhatNeedsIt) {
  ManyOptions pass;
  ManyOptions::Options& options = pass.values;
  EXPECT_EQ(pass.Spec(), "many");
  options.names = {"layers.*.moe", "loss"};
  options.text = "a, {\"b\"}";
  options.ratio = 0.25;
  EXPECT_EQ(pass.Spec(), R"(many{names=layers.*.moe,names=loss,text="a, {\"b\"}",ratio=0.25})");
  options.names.clear();
  options.text.clear();
  options.ratio = 0.5;
  EXPECT_EQ(pass.Spec(), R"(many{names=""})");
}

TEST(PassDocs, AreUpToDate) {
  std::string path = GT_SOURCE_DIR "/docs/passes.md";
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), PassesMarkdown()) << "update it with: gt docs passes > docs/passes.md";
}

}  // namespace
}  // namespace gt::registry_test
