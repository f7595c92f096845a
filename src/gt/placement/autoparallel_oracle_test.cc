// Plans that AutoParallel finds for the models of its own placement tests, on a cluster of H100: with
// its cost formulas and its bound on parameters this engine finds the same placements at the same cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "gt/base/read_file.h"
#include "gt/ir/text.h"
#include "gt/placement/place_problem.h"
#include "gt/sim/cluster.h"

namespace gt::autoparallel_oracle_test {
namespace {

using namespace placement;

struct Oracle {
  const char* name;
  const char* step;   // tests/placement/<step>.gtir
  const char* plan;   // tests/placement/<plan>.plan
  const char* batch;  // hint of the first dimension
  const char* mesh;
  bool finest_parameters;
  const char* pins;
  double objective_us;
  double lower_by_us;  // what this engine saves
  double kernels_us;
  // How many moves take how long, without the microsecond that AutoParallel adds to each. Empty: not
  // compared one by one.
  std::vector<std::pair<int, double>> moves_us;
  const char* parameters;  // as in a plan
};

void PrintTo(const Oracle& oracle, std::ostream* out) { *out << oracle.name; }

std::string ReadTestFile(const std::string& name) {
  return ReadWholeFile(GT_SOURCE_DIR "/tests/placement/" + name);
}

std::string ReadStep(const Oracle& oracle) {
  std::string text = ReadTestFile(std::string(oracle.step) + ".gtir");
  const size_t hint = text.find("hint ");
  if (hint == std::string::npos) return text;
  const size_t begin = hint + 5;
  return text.replace(begin, text.find(',', begin) - begin, oracle.batch);
}

// A plan, with what it costs.
class Solved {
 public:
  Solved(const Oracle& oracle, bool fold)
      : graph_(Parse(ReadStep(oracle), oracle.step)),
        links_(ReadCluster(GT_SOURCE_DIR "/configs/clusters/h100.toml")),
        pricing_(DeviceMesh::Parse(oracle.mesh), links_, SpeedOf("hopper"),
                 CostFormulas::kAutoparallel),
        problem_(*graph_, pricing_, OptionsOf(oracle, fold)),
        solution_(Solve(problem_.Labels({}))) {}

  const LabelSolution& solution() const { return solution_; }

  // As a line of a plan, without the time.
  std::string Placement(size_t class_index) const {
    const Strategy& strategy = StrategyOf(class_index);
    const ClassPieces& pieces = problem_.pieces()[class_index];
    std::string text = problem_.folding().classes[class_index].name();
    for (size_t i = 0; i < strategy.operands.size(); ++i) {
      text += " " + ToString(strategy.operands[i], pieces.operands[i], pricing_.mesh());
    }
    return text + " -> " + ToString(strategy.results[0], pieces.results[0], pricing_.mesh());
  }

  // By the name of the input or of the node's first result.
  std::map<std::string, size_t> Classes() const {
    std::map<std::string, size_t> classes;
    for (size_t i = 0; i < problem_.folding().classes.size(); ++i) {
      classes[problem_.folding().classes[i].name()] = i;
    }
    return classes;
  }
  const Strategy& StrategyOf(size_t class_index) const {
    return problem_.strategies()[class_index][static_cast<size_t>(solution_.labels[class_index])];
  }

  double KernelsUs() const {
    double us = 0;
    for (size_t i = 0; i < problem_.folding().classes.size(); ++i) us += StrategyOf(i).kernel_us;
    return us;
  }

  // All moves that send something, ascending, without the microsecond for each.
  std::vector<double> Moves() const {
    std::vector<double> moves;
    double edges_us = 0;
    for (const PlacedEdge& edge : problem_.edges()) {
      const Move move = problem_.MoveOf(edge, solution_.labels[static_cast<size_t>(edge.from)],
                                        solution_.labels[static_cast<size_t>(edge.to)]);
      edges_us += move.us;
      if (move.count > 0) moves.push_back(move.us - 1);
    }
    // What is left is the move of the one result that is a partial sum.
    const double result_us = solution_.cost - KernelsUs() - edges_us;
    if (result_us > 1) moves.push_back(result_us - 1);
    std::sort(moves.begin(), moves.end());
    return moves;
  }

 private:
  static ProblemOptions OptionsOf(const Oracle& oracle, bool fold) {
    ProblemOptions options{.fold = fold, .finest_parameters = oracle.finest_parameters};
    std::istringstream pins(oracle.pins);
    for (std::string pin; pins >> pin;) {
      const size_t equal = pin.find('=');
      options.pins.push_back({pin.substr(0, equal), pin.substr(equal + 1)});
    }
    return options;
  }

  std::unique_ptr<Graph> graph_;
  LinkModel links_;
  Pricing pricing_;
  PlaceProblem problem_;
  LabelSolution solution_;
};

class AutoparallelOracle : public ::testing::TestWithParam<Oracle> {};

// Every parameter, matmul and other kernel is placed as in AutoParallel's plan and costs the same.
TEST_P(AutoparallelOracle, PlacesAndPricesAlike) {
  const Oracle& oracle = GetParam();
  const Solved solved(oracle, /*fold=*/false);
  ASSERT_TRUE(solved.solution().feasible);
  EXPECT_LT(solved.solution().gap(), 1e-9);
  EXPECT_NEAR(solved.solution().cost, oracle.objective_us - oracle.lower_by_us, 0.01);
  EXPECT_NEAR(solved.KernelsUs(), oracle.kernels_us, 0.01);

  const std::map<std::string, size_t> classes = solved.Classes();
  std::istringstream lines(oracle.parameters + ReadTestFile(std::string(oracle.plan) + ".plan"));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    const size_t time = line.rfind(' ');
    const std::string name = line.substr(0, line.find(' '));
    ASSERT_TRUE(classes.contains(name)) << name;
    EXPECT_EQ(solved.Placement(classes.at(name)), line.substr(0, time));
    EXPECT_NEAR(solved.StrategyOf(classes.at(name)).kernel_us, std::stod(line.substr(time)), 1e-3)
        << name;
  }

  if (oracle.moves_us.empty()) return;
  std::vector<double> expected;
  for (const auto& [count, us] : oracle.moves_us) expected.insert(expected.end(), count, us);
  const std::vector<double> moves = solved.Moves();
  ASSERT_EQ(moves.size(), expected.size());
  for (size_t i = 0; i < moves.size(); ++i) EXPECT_NEAR(moves[i], expected[i], 2e-3);
}

// Folding the three projections into one class changes nothing.
TEST_P(AutoparallelOracle, CostsTheSameFolded) {
  EXPECT_NEAR(Solved(GetParam(), /*fold=*/true).solution().cost,
              GetParam().objective_us - GetParam().lower_by_us, 0.01);
}

// Parameters by plan; kernels are in the .plan files.
const Oracle kOracles[] = {
    {.name = "Ffn256",
     .step = "ffn",
     .plan = "ffn_256",
     .batch = "524288",
     .mesh = "256",
     .finest_parameters = true,
     .pins = "x=S(0) bias=S(0) dy=S(0) y=S(0) add=S(0) add_1=S(0)",
     .objective_us = 2174.1121,
     .lower_by_us = 0,
     .kernels_us = 262.4076,
     .moves_us = {{2, 305.56}, {2, 647.292}},
     .parameters = R"(
linear1.weight -> S(0) 0
linear2.weight -> S(0) 0
)"},
    {.name = "Ffn256Unbounded",
     .step = "ffn",
     .plan = "ffn_256",
     .batch = "524288",
     .mesh = "256",
     .finest_parameters = false,
     .pins = "x=S(0) bias=S(0) dy=S(0) y=S(0) add=S(0) add_1=S(0)",
     .objective_us = 875.5283,
     .lower_by_us = 0,
     .kernels_us = 262.4076,
     .moves_us = {{2, 305.56}},
     .parameters = R"(
linear1.weight -> R 0
linear2.weight -> R 0
)"},
    {.name = "Ffn32x8",
     .step = "ffn",
     .plan = "ffn_32x8",
     .batch = "65536",
     .mesh = "32x8",
     .finest_parameters = true,
     .pins = "x=S(0)R bias=S(0)R dy=S(0)R y=S(0)R add=S(0)R add_1=S(0)R",
     .objective_us = 1160.3824,
     .lower_by_us = 0,
     .kernels_us = 49.0000,
     .moves_us = {{1, 62.418}, {4, 260.991}},
     .parameters = R"(
linear1.weight -> S(0)S(0) 0
linear2.weight -> S(0)S(1) 0
)"},
    {.name = "Ffn32x8Unbounded",
     .step = "ffn",
     .plan = "ffn_32x8",
     .batch = "65536",
     .mesh = "32x8",
     .finest_parameters = false,
     .pins = "x=S(0)R bias=S(0)R dy=S(0)R y=S(0)R add=S(0)R add_1=S(0)R",
     .objective_us = 709.6059,
     .lower_by_us = 0,
     .kernels_us = 49.0000,
     .moves_us = {{1, 62.418}, {2, 297.594}},
     .parameters = R"(
linear1.weight -> RS(0) 0
linear2.weight -> RS(1) 0
)"},
    {.name = "Block256",
     .step = "transformer_block",
     .plan = "transformer_block_256",
     .batch = "2048",
     .mesh = "256",
     .finest_parameters = true,
     .pins = "x=S(0) dy=S(0) y=S(0) dx=S(0)",
     .objective_us = 41651.9175,
     .lower_by_us = 0,
     .kernels_us = 17073.1590,
     .moves_us = {{8, 1316.827}, {4, 3508.035}},
     .parameters = R"(
wq.weight -> S(0) 0
wk.weight -> S(0) 0
wv.weight -> S(0) 0
wo.weight -> S(0) 0
w1.weight -> S(0) 0
w2.weight -> S(0) 0
)"},
    {.name = "Block256Unbounded",
     .step = "transformer_block",
     .plan = "transformer_block_256",
     .batch = "2048",
     .mesh = "256",
     .finest_parameters = false,
     .pins = "x=S(0) dy=S(0) y=S(0) dx=S(0)",
     .objective_us = 32094.4746,
     .lower_by_us = 0,
     .kernels_us = 17073.1590,
     .moves_us = {{4, 1575.088}, {2, 4357.483}},
     .parameters = R"(
wq.weight -> R 0
wk.weight -> R 0
wv.weight -> R 0
wo.weight -> R 0
w1.weight -> R 0
w2.weight -> R 0
)"},
    // What all ranks have joins partial sums in one transition, where AutoParallel needs two: to an
    // average and back.
    {.name = "Block32x8",
     .step = "transformer_block",
     .plan = "transformer_block_32x8",
     .batch = "256",
     .mesh = "32x8",
     .finest_parameters = true,
     .pins = "x=S(0)R dy=S(0)R y=S(0)R dx=S(0)R",
     .objective_us = 16601.5082,
     .lower_by_us = 1,
     .kernels_us = 2441.5981,
     .moves_us = {{4, 219.508}, {8, 691.412}, {4, 1933.146}},
     .parameters = R"(
wq.weight -> S(0)S(0) 0
wk.weight -> S(0)S(0) 0
wv.weight -> S(0)S(0) 0
wo.weight -> S(0)S(1) 0
w1.weight -> S(0)S(0) 0
w2.weight -> S(0)S(1) 0
)"},
    {.name = "Block32x8Unbounded",
     .step = "transformer_block",
     .plan = "transformer_block_32x8",
     .batch = "256",
     .mesh = "32x8",
     .finest_parameters = false,
     .pins = "x=S(0)R dy=S(0)R y=S(0)R dx=S(0)R",
     .objective_us = 16228.4701,
     .lower_by_us = 1,
     .kernels_us = 2441.5981,
     .moves_us = {{4, 219.508}, {4, 1290.564}, {4, 1933.146}},
     .parameters = R"(
wq.weight -> RS(0) 0
wk.weight -> RS(0) 0
wv.weight -> RS(0) 0
wo.weight -> RS(1) 0
w1.weight -> S(0)S(0) 0
w2.weight -> S(0)S(1) 0
)"},
    // Weights can be gathered in one step or in two at the same cost: moves are not compared.
    {.name = "Llama3Layer8x8",
     .step = "llama3_layer",
     .plan = "llama3_layer_8x8",
     .batch = "16",
     .mesh = "8x8",
     .finest_parameters = true,
     .pins = "tokens=S(0)R dlogits=S(0)S(2) logits=S(0)S(2)",
     .objective_us = 36416.7530,
     .lower_by_us = 0,
     .kernels_us = 18859.0640,
     .moves_us = {},
     .parameters = R"(
tok_embeddings.weight -> S(1)S(1) 0
attention.wq.weight -> S(0)S(0) 0
attention.wk.weight -> S(0)S(0) 0
attention.wv.weight -> S(0)S(0) 0
attention.wo.weight -> S(0)S(0) 0
feed_forward.w1.weight -> S(0)S(0) 0
feed_forward.w2.weight -> S(0)S(1) 0
feed_forward.w3.weight -> S(0)S(0) 0
attention_norm.weight -> S(0)S(0) 0
ffn_norm.weight -> S(0)S(0) 0
norm.weight -> S(0)S(0) 0
output.weight -> S(0)S(0) 0
)"},
};

// Further plans of which only the objective is known, rounded to a microsecond or a tenth of it: two
// layers, and one on a single axis, where all parameters are gathered (FSDP).
TEST(AutoparallelObjective, OfLlama3) {
  auto cost = [](const char* step, const char* batch, const char* mesh, const char* pins) {
    const Oracle oracle{.name = step,
                        .step = step,
                        .plan = "",
                        .batch = batch,
                        .mesh = mesh,
                        .finest_parameters = true,
                        .pins = pins,
                        .objective_us = 0,
                        .lower_by_us = 0,
                        .kernels_us = 0,
                        .moves_us = {},
                        .parameters = ""};
    const double folded = Solved(oracle, /*fold=*/true).solution().cost;
    EXPECT_NEAR(folded, Solved(oracle, /*fold=*/false).solution().cost, 0.01);
    return folded;
  };
  const char* grid = "tokens=S(0)R dlogits=S(0)S(2) logits=S(0)S(2)";
  const char* line = "tokens=S(0) dlogits=S(0) logits=S(0)";
  EXPECT_NEAR(cost("llama3_two_layers", "16", "8x8", grid), 53125, 0.5);
  const double one = cost("llama3_layer", "128", "64", line);
  EXPECT_NEAR(one, 170953.6, 0.2);
  EXPECT_NEAR(cost("llama3_two_layers", "128", "64", line) - one, 74924.8, 0.05);
}

INSTANTIATE_TEST_SUITE_P(Plans, AutoparallelOracle, ::testing::ValuesIn(kOracles),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gt::autoparallel_oracle_test
