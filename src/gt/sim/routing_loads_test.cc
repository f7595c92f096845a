#include "gt/sim/routing_loads.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "gt/passes/chunk/chunk_test_util.h"
#include "gt/testing/temp_folder.h"

namespace gt::routing_loads_test {
namespace {

using testing::ExpectError;

// ---- counts of a graph ----

// A module of two experts on two ranks that sends s0 rows, and reads what leaves and what arrives. The
// counts that `embed` reads are no count sync.
constexpr testing::StepText kExchange = {
    R"(
  %v = aten::view(%x, size = [s0 * 8]) : f32[s0 * 8] <layers.0>
  %c = aten::histc(%v, bins = 2) : f32[2] <layers.0>
  gt::read_ints(%n) binds [u4] {module = "embed"}
  %i = aten::_to_copy(%c, dtype = i64) : i64[2] <layers.0>
  gt::read_ints(%i) binds [u0, u1] {module = "layers.0", ep = dispatch, exchange = count_sync}
  %j = aten::neg(%i) : i64[2] <layers.0>
  gt::read_ints(%j) binds [u2, u3] {module = "layers.0", ep = dispatch, exchange = count_sync}
  %a = _c10d_functional::all_to_all_single(%x, output_split_sizes = [u2, u3], input_split_sizes = [u0, u1], group_name = "ep") : f32[u2 + u3, 8] {module = "layers.0", ep = dispatch, exchange = exchange}
  %b = _c10d_functional::wait_tensor(%a) : f32[u2 + u3, 8] <layers.0>
  %h = aten::mm(%b, %w) : f32[u2 + u3, 8] <layers.0>
  %e = _c10d_functional::all_to_all_single(%h, output_split_sizes = [u0, u1], input_split_sizes = [u2, u3], group_name = "ep") : f32[u0 + u1, 8] {module = "layers.0", ep = combine, exchange = exchange}
  %f = _c10d_functional::wait_tensor(%e) : f32[u0 + u1, 8] <layers.0>
  %y = aten::add.Tensor(%f, %x) : f32[s0, 8] <layers.0>)",
    R"(result "y" %y)",
    R"(, %n: input "n" i64[1])",
    23,
    "; u0: data, hint 11, range [0, inf]; u1: data, hint 12, range [0, inf]; u2: data, hint 11, "
    "range "
    "[0, inf]; u3: data, hint 12, range [0, inf]; u4: data, hint 7, range [0, inf]",
    "u0 + u1 == s0"};

std::unique_ptr<Graph> InChunks(int64_t chunks) {
  return testing::Cut(kExchange, {.num_chunks = chunks});
}

std::unique_ptr<Graph> Whole() { return Parse(kExchange.Text(), "test"); }

RoutingLoads LoadOfLayer(double mean, double max) {
  RoutingLoads loads;
  loads.modules["layers.0"] = {mean, max};
  return loads;
}

int64_t HintsOfArriving(const Graph& graph) {
  int64_t sum = 0;
  const CountReads reads(graph);
  for (const CountReads::Module& module : reads.modules()) {
    for (const CountReads::Read& read : module.arriving) {
      for (SymbolId id : read.symbols) sum += graph.shapes().symbol(id).hint;
    }
  }
  return sum;
}

// The hints of all other symbols, by name.
std::map<std::string, int64_t> OtherHints(const Graph& graph) {
  std::map<std::string, int64_t> hints;
  for (const Symbol& symbol : graph.shapes().symbols()) hints[symbol.name] = symbol.hint;
  const CountReads reads(graph);
  for (const CountReads::Module& module : reads.modules()) {
    for (const CountReads::Read& read : module.arriving) {
      for (SymbolId id : read.symbols) hints.erase(graph.shapes().NameOf(id));
    }
  }
  return hints;
}

TEST(CountReads, TellArrivingRowsFromLeavingOnes) {
  std::unique_ptr<Graph> graph = Whole();
  const CountReads reads(*graph);
  ASSERT_EQ(reads.modules().size(), 1u);
  const CountReads::Module& module = reads.modules()[0];
  EXPECT_EQ(module.fqn, "layers.0");
  ASSERT_EQ(module.arriving.size(), 1u);
  EXPECT_EQ(module.arriving[0].even, 23);
  auto names = [&](const std::vector<SymbolId>& ids) {
    std::vector<std::string> result;
    for (SymbolId id : ids) result.push_back(graph->shapes().NameOf(id));
    return result;
  };
  EXPECT_EQ(names(module.arriving[0].symbols), (std::vector<std::string>{"u2", "u3"}));
  EXPECT_EQ(names(module.leaving), (std::vector<std::string>{"u0", "u1"}));
}

TEST(CountReads, KnowTheEvenShareOfEachChunk) {
  const std::unique_ptr<Graph> cut = InChunks(4);
  const CountReads reads(*cut);
  ASSERT_EQ(reads.modules().size(), 1u);
  std::vector<int64_t> even, chunks;
  for (const CountReads::Read& read : reads.modules()[0].arriving) {
    even.push_back(read.even);
    chunks.push_back(read.chunk);
  }
  EXPECT_EQ(even, (std::vector<int64_t>{6, 6, 6, 5}));
  EXPECT_EQ(chunks, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(reads.modules()[0].leaving.size(), 8u);
}

TEST(ApplyLoads, ScalesWhatArrivesAndNothingElse) {
  for (int64_t chunks : {1, 2, 3, 7}) {
    SCOPED_TRACE(chunks);
    std::unique_ptr<Graph> cut;
    std::unique_ptr<Graph> whole = Whole();
    if (chunks > 1) cut = InChunks(chunks);
    Graph& graph = cut ? *cut : *whole;
    const auto others = OtherHints(graph);
    EXPECT_EQ(HintsOfArriving(graph), 23);
    for (double load : {2.5, 0.3, 0.0, 1.0, 17.77}) {
      // Repeatedly: each starts from the even share.
      for (int repeat = 0; repeat < 2; ++repeat) {
        ApplyLoads(graph, LoadOfLayer(1.0, load));
        EXPECT_EQ(HintsOfArriving(graph), std::llround(23 * load)) << load;
      }
      EXPECT_EQ(OtherHints(graph), others);
    }
    ApplyLoads(graph, LoadOfLayer(3.0, 1.0), LoadOf::kMean);
    EXPECT_EQ(HintsOfArriving(graph), 69);
    ApplyLoads(graph, {});
    EXPECT_EQ(HintsOfArriving(graph), 23) << "modules without a load are even";
    EXPECT_NO_THROW(Verify(graph));
  }
}

// Cutting divides the hints that exist: loads may be applied before or after it.
TEST(ApplyLoads, SurvivesCutting) {
  std::unique_ptr<Graph> graph = Whole();
  ApplyLoads(*graph, LoadOfLayer(1, 3));
  EXPECT_EQ(HintsOfArriving(*graph), 69);
  const std::unique_ptr<Graph> cut = testing::Cut(std::move(graph), {.num_chunks = 3});
  EXPECT_NEAR(static_cast<double>(HintsOfArriving(*cut)), 69, 3);
  ApplyLoads(*cut, LoadOfLayer(1, 3));
  EXPECT_EQ(HintsOfArriving(*cut), 69);
}

// Hints decide nothing: a graph with other loads asks for no other guards and runs the same nodes.
TEST(ApplyLoads, ChangesHintsAlone) {
  const std::unique_ptr<Graph> cut = InChunks(2);
  const size_t guards = cut->shapes().guards().size();
  const int64_t nodes = cut->node_count();
  ApplyLoads(*cut, LoadOfLayer(1, 4));
  EXPECT_EQ(cut->shapes().guards().size(), guards);
  EXPECT_EQ(cut->node_count(), nodes);
  EXPECT_ANY_THROW(cut->shapes().SetDataHint(0, 3)) << "guards rely on hints of inputs";
}

TEST(MeasuredLoads, DividesWhatArrivedByWhatLeft) {
  const std::unique_ptr<Graph> cut = InChunks(3);
  const Graph& graph = *cut;
  std::vector<int64_t> values(graph.shapes().symbols().size(), 1000);  // of symbols no chunk binds
  const CountReads reads(graph);
  const CountReads::Module& module = reads.modules()[0];
  for (SymbolId id : module.leaving) values[id] = 4;
  for (size_t i = 0; i < 3; ++i) {
    for (SymbolId id : module.arriving[i].symbols) values[id] = 3 + 3 * static_cast<int64_t>(i);
  }
  EXPECT_EQ(MeasuredLoads(graph, values), LoadOfLayer(1.5, 1.5));
}

TEST(CountReads, AreNoneWithoutExchanges) {
  std::unique_ptr<Graph> graph = Parse(
      "graph @g(%c: input \"c\" i64[2]) {\n  symbols { u0: data, hint 3; u1: data, hint 5 }\n"
      "  gt::read_ints(%c) binds [u0, u1] {module = \"m\", exchange = count_sync}\n  return\n}\n",
      "test");
  EXPECT_TRUE(CountReads(*graph).modules().empty()) << "nothing says what an even share would be";
  ApplyLoads(*graph, LoadOfLayer(2, 2));
  EXPECT_EQ(graph->shapes().symbol(0).hint, 3);
}

// ---- loads as text, and how they are compared ----

TEST(RoutingLoads, AreReadAsTheyWereWritten) {
  RoutingLoads loads;
  loads.modules["layers.1.moe"] = {1.0, 1.0 / 3};
  loads.modules["layers.12.moe"] = {0.25, 7.125};
  EXPECT_EQ(RoutingLoads::FromJson(loads.ToJson(), "loads.json"), loads);
  EXPECT_EQ(RoutingLoads::FromJson(RoutingLoads{}.ToJson(), "loads.json"), RoutingLoads{});
}

TEST(RoutingLoads, ErrorsNameFileAndPlace) {
  auto read = [](const char* text) { return [text] { RoutingLoads::FromJson(text, "a.json"); }; };
  ExpectError(ErrorCode::kBadMoeLoads, {"a.json"}, read("{"));
  ExpectError(ErrorCode::kBadMoeLoads, {"a.json", "modules"}, read("{}"));
  ExpectError(ErrorCode::kBadMoeLoads, {"a.json", "modules"}, read("{\"modules\": []}"));
  ExpectError(ErrorCode::kBadMoeLoads, {"a.json", "m", "'max' is missing"},
              read("{\"modules\": {\"m\": {\"mean\": 1}}}"));
  ExpectError(ErrorCode::kBadMoeLoads, {"a.json", "m.max", "-2"},
              read("{\"modules\": {\"m\": {\"mean\": 1, \"max\": -2}}}"));
}

TEST(RoutingLoads, DeepNestsAreErrors) {
  const std::string nested = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& text : {nested, "{\"modules\": " + nested + "}"}) {
    testing::ExpectError(ErrorCode::kBadMoeLoads, {"x.json", "nested"},
                         [&] { RoutingLoads::FromJson(text, "x.json"); });
    testing::ExpectError(ErrorCode::kBadMoeLoads, {"x.json", "nested"},
                         [&] { ExpertWeights::FromJson(text, "x.json"); });
  }
}

TEST(RoutingLoads, ImbalanceIsTheFullestRankOverTheAverageOne) {
  EXPECT_EQ(Imbalance({}), 1.0);
  RoutingLoads loads;
  loads.modules["a"] = {1.0, 3.0};
  loads.modules["b"] = {2.0, 2.0};
  EXPECT_EQ(Imbalance(loads), 2.0);
}

TEST(LoadDrift, IsAShareOfTheRowsThatTravel) {
  auto loads = [](double a, double b) {
    RoutingLoads result;
    result.modules["a"] = {1.0, a};
    result.modules["b"] = {1.0, b};
    return result;
  };
  EXPECT_EQ(LoadDrift({}, loads(1, 1)), 0.0);
  EXPECT_EQ(LoadDrift(loads(2, 3), loads(2, 3)), 0.0);
  EXPECT_DOUBLE_EQ(LoadDrift({}, loads(1.5, 1)), 0.5 / 2.5);
  EXPECT_DOUBLE_EQ(LoadDrift(loads(1.5, 1), {}), 0.5 / 2.5) << "back to even loads";
  // The total stays the same, and yet no layer is as it was.
  EXPECT_DOUBLE_EQ(LoadDrift(loads(2, 1), loads(1, 2)), 2.0 / 3);
  // The same change matters less where more travels.
  EXPECT_LT(LoadDrift(loads(4, 4), loads(4.4, 4)), LoadDrift(loads(1, 1), loads(1.4, 1)));
  EXPECT_EQ(LoadDrift(loads(0, 0), loads(0, 0)), 0.0);
}

// ---- weights ----

TEST(ZipfWeights, FallWithPopularityWhichIsNotTheOrderOfExperts) {
  for (int64_t experts : {4, 64, 256}) {
    std::vector<double> weights = ZipfWeights(experts, 1.0);
    EXPECT_FALSE(std::is_sorted(weights.rbegin(), weights.rend()));
    EXPECT_EQ(weights, ZipfWeights(experts, 1.0));
    std::sort(weights.rbegin(), weights.rend());
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_DOUBLE_EQ(weights[i], 1.0 / static_cast<double>(i + 1));
    }
  }
  EXPECT_EQ(ZipfWeights(8, 0.0), std::vector<double>(8, 1.0));
}

// Counts of a draw by libstdc++'s generator, one expert after another, each taken out when drawn.
std::vector<double> ReferenceShares(const std::vector<double>& weights, int64_t top_k,
                                    int64_t tokens) {
  std::mt19937_64 random(3);
  std::vector<double> shares(weights.size(), 0.0);
  for (int64_t token = 0; token < tokens; ++token) {
    std::vector<double> left = weights;
    for (int64_t i = 0; i < top_k; ++i) {
      std::discrete_distribution<size_t> draw(left.begin(), left.end());
      const size_t expert = draw(random);
      shares[expert] += 1.0 / static_cast<double>(tokens);
      left[expert] = 0;
    }
  }
  return shares;
}

// The noise is no random generator; drawn counts are those of one all the same.
TEST(DrawCounts, AreThoseOfDrawingByWeightWithoutReplacement) {
  struct Case {
    int64_t experts, top_k;
    double exponent;
  };
  constexpr int64_t kTokens = 4096;
  for (const Case& c :
       {Case{8, 2, 1.0}, Case{64, 6, 1.0}, Case{64, 6, 0.0}, Case{256, 8, 0.7}, Case{16, 1, 1.5}}) {
    SCOPED_TRACE(fmt::format("{} of {}, zipf:{}", c.top_k, c.experts, c.exponent));
    const std::vector<double> weights = ZipfWeights(c.experts, c.exponent);
    const std::vector<int64_t> counts = DrawCounts(weights, c.top_k, kTokens);
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), kTokens * c.top_k);
    const std::vector<double> expected = ReferenceShares(weights, c.top_k, 8 * kTokens);
    for (size_t i = 0; i < counts.size(); ++i) {
      const double share = static_cast<double>(counts[i]) / kTokens;
      const double deviation = std::sqrt(expected[i] * (1 - expected[i]) / kTokens);
      EXPECT_NEAR(share, expected[i], 5 * deviation + 1e-3) << "expert " << i;
      EXPECT_LE(counts[i], kTokens) << "k different experts for each token";
    }
  }
}

TEST(DrawCounts, LeaveOutExpertsWithoutWeight) {
  const std::vector<double> weights = {1, 0, 2, 0, 1, 0};
  const std::vector<int64_t> counts = DrawCounts(weights, 2, 500);
  for (size_t i = 0; i < counts.size(); ++i) EXPECT_EQ(counts[i] > 0, weights[i] > 0) << i;
}

TEST(ExpertWeights, OfAFileAreForAllModulesOrEach) {
  const ExpertWeights all = ExpertWeights::FromJson("[1, 2.5, 0]", "a.json");
  EXPECT_EQ(all.Of("layers.3.moe", 3, 2), (std::vector<double>{1, 2.5, 0}));
  const ExpertWeights each = ExpertWeights::FromJson(
      R"({"layers.*.moe": [1, 1], "layers.2.moe": [3, 1], "**": [9, 1]})", "a.json");
  EXPECT_EQ(each.Of("layers.1.moe", 2, 1), (std::vector<double>{1, 1}));
  EXPECT_EQ(each.Of("layers.2.moe", 2, 1), (std::vector<double>{3, 1})) << "the exact name first";
  EXPECT_EQ(each.Of("other", 2, 1), (std::vector<double>{9, 1}));
}

TEST(ExpertWeights, ErrorsNameFileAndPlace) {
  auto read = [](const char* text) {
    return [text] { ExpertWeights::FromJson(text, "a.json").Of("layers.2.moe", 4, 2); };
  };
  constexpr ErrorCode kBad = ErrorCode::kBadMoeLoads;
  ExpectError(kBad, {"a.json"}, read("[1, 2"));
  ExpectError(kBad, {"a.json", "list"}, read("3"));
  ExpectError(kBad, {"a.json", "[2]", "null"}, read("[1, 2, null, 4]"));
  ExpectError(kBad, {"a.json", "layers.2.moe[1]", "-1"}, read("{\"layers.2.moe\": [1, -1, 1, 1]}"));
  ExpectError(kBad, {"a.json", "layers.2.moe", "list"}, read("{\"layers.2.moe\": 1}"));
  ExpectError(kBad, {"a.json", "layers.2.moe", "no entry"}, read("{\"layers.1.moe\": [1]}"));
  ExpectError(kBad, {"a.json", "layers..moe"}, read("{\"layers..moe\": [1, 1, 1, 1]}"));
  ExpectError(kBad, {"a.json", "3 weights", "4 experts"}, read("[1, 1, 1]"));
  ExpectError(kBad, {"a.json", "1 experts", "goes to 2"}, read("[0, 1, 0, 0]"));
  ExpectError(kBad, {"nowhere.json", "No such file"}, [] {
    ExpertWeights weights(MoeLoad{.kind = MoeLoad::Kind::kFile, .path = "nowhere.json"});
  });
}

// ---- what a rank can expect ----

TEST(ExpectedLoads, AddUpOverRanksAndDifferBetweenThem) {
  const MoeLoad zipf{.kind = MoeLoad::Kind::kZipf, .exponent = 1.0};
  const std::vector<ExpertModule> modules = {{"layers.1.moe", 64, 6}, {"layers.2.moe", 64, 6}};
  std::set<double> loads;
  double sum = 0, largest = 0;
  for (int64_t rank = 0; rank < 32; ++rank) {
    const ExpectedRouting expected = ExpectedLoads(zipf, modules, 32, rank, 16384);
    const double own = expected.own.modules.at("layers.1.moe").max;
    EXPECT_EQ(expected.own.modules.at("layers.2.moe").mean, own);
    sum += own;
    largest = std::max(largest, own);
    loads.insert(own);
    EXPECT_NEAR(expected.over_ranks.modules.at("layers.1.moe").mean, 1.0, 1e-9);
    if (rank == 31) EXPECT_EQ(expected.over_ranks.modules.at("layers.1.moe").max, largest);
  }
  EXPECT_NEAR(sum, 32, 1e-6);
  EXPECT_GT(loads.size(), 24u);
  EXPECT_LT(*loads.begin(), 0.5) << "a light rank";
  EXPECT_GT(*loads.rbegin(), 3.0) << "a heavy one";
}

TEST(ExpectedLoads, AreEvenWhereNobodySaysOtherwise) {
  const std::vector<ExpertModule> modules = {{"m", 8, 2}};
  for (MoeLoad::Kind kind : {MoeLoad::Kind::kRouter, MoeLoad::Kind::kBalanced}) {
    const ExpectedRouting expected = ExpectedLoads({.kind = kind}, modules, 4, 1, 64);
    EXPECT_EQ(expected.own.modules.at("m"), ModuleLoad{});
    EXPECT_EQ(expected.over_ranks.modules.at("m"), ModuleLoad{});
  }
}

TEST(ExpectedLoads, FollowTheFile) {
  const testing::TempFolder folder;
  const std::string path = (folder / "loads.json").string();
  testing::WriteText(path, R"({"a": [1, 1, 0, 0], "b": [0, 0, 1, 1]})");
  const MoeLoad load{.kind = MoeLoad::Kind::kFile, .path = path};
  const std::vector<ExpertModule> modules = {{"a", 4, 2}, {"b", 4, 2}};
  const ExpectedRouting expected = ExpectedLoads(load, modules, 2, 0, 100);
  EXPECT_EQ(expected.own.modules.at("a"), (ModuleLoad{2, 2}));
  EXPECT_EQ(expected.own.modules.at("b"), (ModuleLoad{0, 0}));
  EXPECT_EQ(expected.over_ranks.modules.at("b"), (ModuleLoad{1, 2}));
}

}  // namespace
}  // namespace gt::routing_loads_test
