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
  const char* file;
  const char* batch;  // first dimension of the inputs
  const char* mesh;
  bool finest_parameters;
  const char* rows;  // how inputs, results and their gradients are laid out
  double objective_us;
  double lower_by_us;  // what this engine saves
  // A line each: name, layouts of operands, "->", layout of the result, microseconds.
  const char* parameters;
  const char* kernels;
  // How many moves take how long, without the microsecond that AutoParallel adds to each.
  std::vector<std::pair<int, double>> moves_us;
};

void PrintTo(const Oracle& oracle, std::ostream* out) { *out << oracle.name; }

std::string ReadStep(const Oracle& oracle) {
  std::string text = ReadWholeFile(std::string(GT_SOURCE_DIR "/tests/placement/") + oracle.file);
  const size_t begin = text.find("hint ") + 5;
  return text.replace(begin, text.find(',', begin) - begin, oracle.batch);
}

// A plan, with what it costs.
class Solved {
 public:
  Solved(const Oracle& oracle, bool fold)
      : graph_(Parse(ReadStep(oracle), oracle.file)),
        links_(ReadCluster(GT_SOURCE_DIR "/configs/clusters/h100.toml")),
        pricing_(DeviceMesh::Parse(oracle.mesh), links_, SpeedOf("hopper"),
                 CostFormulas::kAutoparallel),
        problem_(*graph_, pricing_, OptionsOf(oracle, *graph_, fold)),
        solution_(Solve(problem_.Labels({}))) {}

  const LabelSolution& solution() const { return solution_; }

  // As a line of Oracle::parameters, without the time.
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
  static ProblemOptions OptionsOf(const Oracle& oracle, const Graph& graph, bool fold) {
    ProblemOptions options{.fold = fold, .finest_parameters = oracle.finest_parameters};
    for (const auto& input : graph.inputs()) {
      if (input->role == InputRole::kInput) options.pins.push_back({input->name, oracle.rows});
    }
    for (const auto& output : graph.outputs()) {
      if (output->role == OutputRole::kResult) options.pins.push_back({output->name, oracle.rows});
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

  const std::map<std::string, size_t> classes = solved.Classes();
  std::istringstream lines(std::string(oracle.parameters) + oracle.kernels);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const size_t time = line.rfind(' ');
    const std::string name = line.substr(0, line.find(' '));
    ASSERT_TRUE(classes.contains(name)) << name;
    EXPECT_EQ(solved.Placement(classes.at(name)), line.substr(0, time));
    EXPECT_NEAR(solved.StrategyOf(classes.at(name)).kernel_us, std::stod(line.substr(time)), 1e-3)
        << name;
  }

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

constexpr const char* kFfn256 = R"(
add S(0) -> S(0) 7.000
mm S(0) R -> S(0) 49.682
mm_1 S(0) R -> S(0) 49.682
add_1 S(0) -> S(0) 7.000
mm_2 S(1) S(0) -> P 49.682
mm_3 S(0) R -> S(0) 49.682
mm_4 S(1) S(0) -> P 49.682
)";
constexpr const char* kFfn32x8 = R"(
add S(0)R -> S(0)R 7.000
mm S(0)R RS(1) -> S(0)S(1) 7.000
mm_1 S(0)S(1) RS(0) -> S(0)P 7.000
add_1 S(0)R -> S(0)R 7.000
mm_2 S(1)R S(0)S(1) -> PS(1) 7.000
mm_3 S(0)R RS(1) -> S(0)S(1) 7.000
mm_4 S(1)S(0) S(0)R -> PS(0) 7.000
)";
constexpr const char* kBlock256 = R"(
xq_mm S(0) R -> S(0) 447.134
xk_mm S(0) R -> S(0) 447.134
xv_mm S(0) R -> S(0) 447.134
out S(0) S(0) S(0) -> S(0) 78.236
xo_mm S(0) R -> S(0) 447.134
add S(0) S(0) -> S(0) 58.563
x1_mm S(0) R -> S(0) 1788.535
relu S(0) -> S(0) 156.167
x2_mm S(0) R -> S(0) 1788.535
add_1 S(0) S(0) -> S(0) 58.563
w2_dw_mm S(1) S(0) -> P 1788.535
w2_dx_mm S(0) R -> S(0) 1788.535
dx1 S(0) S(0) -> S(0) 234.250
w1_dw_mm S(1) S(0) -> P 1788.535
w1_dx_mm S(0) R -> S(0) 1788.535
add_2 S(0) S(0) -> S(0) 58.563
wo_dw_mm S(1) S(0) -> P 447.134
wo_dx_mm S(0) R -> S(0) 447.134
dq S(0) S(0) S(0) S(0) S(0) S(0) R R -> S(0) 156.319
wv_dw_mm S(1) S(0) -> P 447.134
wv_dx_mm S(0) R -> S(0) 447.134
add_3 S(0) S(0) -> S(0) 58.563
wk_dw_mm S(1) S(0) -> P 447.134
wk_dx_mm S(0) R -> S(0) 447.134
add_4 S(0) S(0) -> S(0) 58.563
wq_dw_mm S(1) S(0) -> P 447.134
wq_dx_mm S(0) R -> S(0) 447.134
add_5 S(0) S(0) -> S(0) 58.563
)";
constexpr const char* kBlock32x8 = R"(
xq_mm S(0)R RS(1) -> S(0)S(1) 55.892
xk_mm S(0)R RS(1) -> S(0)S(1) 55.892
xv_mm S(0)R RS(1) -> S(0)S(1) 55.892
out S(0)S(1) S(0)S(1) S(0)S(1) -> S(0)S(1) 9.779
xo_mm S(0)S(1) RS(0) -> S(0)P 55.892
add S(0)R S(0)R -> S(0)R 58.563
x1_mm S(0)R RS(1) -> S(0)S(1) 223.567
relu S(0)S(2) -> S(0)S(2) 19.521
x2_mm S(0)S(1) RS(0) -> S(0)P 223.567
add_1 S(0)R S(0)R -> S(0)R 58.563
w2_dw_mm S(1)R S(0)S(1) -> PS(1) 223.567
w2_dx_mm S(0)R RS(1) -> S(0)S(1) 223.567
dx1 S(0)S(2) S(0)S(2) -> S(0)S(2) 29.281
w1_dw_mm S(1)S(0) S(0)R -> PS(0) 223.567
w1_dx_mm S(0)S(1) RS(0) -> S(0)P 223.567
add_2 S(0)R S(0)R -> S(0)R 58.563
wo_dw_mm S(1)R S(0)S(1) -> PS(1) 55.892
wo_dx_mm S(0)R RS(1) -> S(0)S(1) 55.892
dq S(0)S(1) S(0)S(1) S(0)S(1) S(0)S(1) S(0)S(1) S(0)S(1) RR RR -> S(0)S(1) 19.540
wv_dw_mm S(1)S(0) S(0)R -> PS(0) 55.892
wv_dx_mm S(0)S(1) RS(0) -> S(0)P 55.892
add_3 S(0)P S(0)P -> S(0)P 58.563
wk_dw_mm S(1)S(0) S(0)R -> PS(0) 55.892
wk_dx_mm S(0)S(1) RS(0) -> S(0)P 55.892
add_4 S(0)P S(0)P -> S(0)P 58.563
wq_dw_mm S(1)S(0) S(0)R -> PS(0) 55.892
wq_dx_mm S(0)S(1) RS(0) -> S(0)P 55.892
add_5 S(0)P S(0)P -> S(0)P 58.563
)";

const Oracle kOracles[] = {
    {"Ffn256",
     "ffn.gtir",
     "524288",
     "256",
     true,
     "S(0)",
     2174.1121,
     0,
     R"(
linear1.weight -> S(0) 0
linear2.weight -> S(0) 0
)",
     kFfn256,
     {{2, 305.56}, {2, 647.292}}},
    {"Ffn256Unbounded",
     "ffn.gtir",
     "524288",
     "256",
     false,
     "S(0)",
     875.5283,
     0,
     R"(
linear1.weight -> R 0
linear2.weight -> R 0
)",
     kFfn256,
     {{2, 305.56}}},
    {"Ffn32x8",
     "ffn.gtir",
     "65536",
     "32x8",
     true,
     "S(0)R",
     1160.3824,
     0,
     R"(
linear1.weight -> S(0)S(0) 0
linear2.weight -> S(0)S(1) 0
)",
     kFfn32x8,
     {{1, 62.418}, {4, 260.991}}},
    {"Ffn32x8Unbounded",
     "ffn.gtir",
     "65536",
     "32x8",
     false,
     "S(0)R",
     709.6059,
     0,
     R"(
linear1.weight -> RS(0) 0
linear2.weight -> RS(1) 0
)",
     kFfn32x8,
     {{1, 62.418}, {2, 297.594}}},
    {"Block256",
     "transformer_block.gtir",
     "2048",
     "256",
     true,
     "S(0)",
     41651.9175,
     0,
     R"(
wq.weight -> S(0) 0
wk.weight -> S(0) 0
wv.weight -> S(0) 0
wo.weight -> S(0) 0
w1.weight -> S(0) 0
w2.weight -> S(0) 0
)",
     kBlock256,
     {{8, 1316.827}, {4, 3508.035}}},
    {"Block256Unbounded",
     "transformer_block.gtir",
     "2048",
     "256",
     false,
     "S(0)",
     32094.4746,
     0,
     R"(
wq.weight -> R 0
wk.weight -> R 0
wv.weight -> R 0
wo.weight -> R 0
w1.weight -> R 0
w2.weight -> R 0
)",
     kBlock256,
     {{4, 1575.088}, {2, 4357.483}}},
    // A sum that some ranks have whole joins partial sums in one transition, where AutoParallel
    // needs two (to an average and back).
    {"Block32x8",
     "transformer_block.gtir",
     "256",
     "32x8",
     true,
     "S(0)R",
     16601.5082,
     1,
     R"(
wq.weight -> S(0)S(0) 0
wk.weight -> S(0)S(0) 0
wv.weight -> S(0)S(0) 0
wo.weight -> S(0)S(1) 0
w1.weight -> S(0)S(0) 0
w2.weight -> S(0)S(1) 0
)",
     kBlock32x8,
     {{4, 219.508}, {8, 691.412}, {4, 1933.146}}},
    // A sum that some ranks have whole joins partial sums in one transition, where AutoParallel
    // needs two (to an average and back).
    {"Block32x8Unbounded",
     "transformer_block.gtir",
     "256",
     "32x8",
     false,
     "S(0)R",
     16228.4701,
     1,
     R"(
wq.weight -> RS(0) 0
wk.weight -> RS(0) 0
wv.weight -> RS(0) 0
wo.weight -> RS(1) 0
w1.weight -> S(0)S(0) 0
w2.weight -> S(0)S(1) 0
)",
     kBlock32x8,
     {{4, 219.508}, {4, 1290.564}, {4, 1933.146}}},
};

INSTANTIATE_TEST_SUITE_P(Plans, AutoparallelOracle, ::testing::ValuesIn(kOracles),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gt::autoparallel_oracle_test
