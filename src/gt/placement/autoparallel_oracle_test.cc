// Plans that AutoParallel finds for the models of its own placement tests, on a cluster of H100: with
// its cost formulas and its bound on parameters this engine finds the same placements at the same cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
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
  const char* step;        // tests/placement/<step>.gtir
  const char* plan;        // tests/placement/<plan>.plan
  const char* batch;       // hint of the first dimension
  const char* sizes = "";  // other sizes than the step's: "4096=2048 128=64"
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

// Replaces numbers, all at the same time.
std::string WithSizes(const std::string& text, const std::string& sizes) {
  std::map<std::string, std::string> changed;
  std::istringstream list(sizes);
  for (std::string size; list >> size;) {
    const size_t equal = size.find('=');
    changed[size.substr(0, equal)] = size.substr(equal + 1);
  }
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const auto part_of_word = [](char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; };
    size_t end = i;
    while (end < text.size() && part_of_word(text[end])) ++end;
    if (end == i) ++end;
    const std::string word = text.substr(i, end - i);
    const auto found = changed.find(word);
    result += found == changed.end() ? word : found->second;
    i = end;
  }
  return result;
}

std::string ReadStep(const Oracle& oracle) {
  std::string text = ReadTestFile(std::string(oracle.step) + ".gtir");
  const size_t hint = text.find("hint ");
  if (hint == std::string::npos) return text;
  const size_t begin = hint + 5;
  text.replace(begin, text.find(',', begin) - begin, oracle.batch);
  return WithSizes(text, oracle.sizes);
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
    // Three nodes, of which nothing was measured.
    {.name = "Ffn3x8",
     .step = "ffn",
     .plan = "ffn_3x8",
     .batch = "6144",
     .mesh = "3x8",
     .finest_parameters = true,
     .pins = "x=S(0)R bias=S(0)R dy=S(0)R y=S(0)R add=S(0)R add_1=S(0)R",
     .objective_us = 808.5269,
     .lower_by_us = 0,
     .kernels_us = 191.5124,
     .moves_us = {{1, 79.582}, {2, 94.924}, {1, 129.501}, {1, 209.083}},
     .parameters = R"(
linear1.weight -> S(0)S(1) 0
linear2.weight -> S(1)S(0) 0
)"},
    // Ranks that do not fill their nodes.
    {.name = "Ffn3x4",
     .step = "ffn",
     .plan = "ffn_3x4",
     .batch = "6144",
     .mesh = "3x4",
     .finest_parameters = true,
     .pins = "x=S(0)R bias=S(0)R dy=S(0)R y=S(0)R add=S(0)R add_1=S(0)R",
     .objective_us = 1093.8903,
     .lower_by_us = 0,
     .kernels_us = 193.9526,
     .moves_us = {{2, 146.973}, {1, 149.023}, {1, 153.973}, {1, 295.996}},
     .parameters = R"(
linear1.weight -> S(0)S(1) 0
linear2.weight -> S(1)S(0) 0
)"},
    {.name = "Ffn4x8x4",
     .step = "ffn",
     .plan = "ffn_4x8x4",
     .batch = "8192",
     .mesh = "4x8x4",
     .finest_parameters = true,
     .pins = "x=S(0)RR bias=S(0)RR dy=S(0)RR y=S(0)RR add=S(0)RR add_1=S(0)RR",
     .objective_us = 431.2247,
     .lower_by_us = 0,
     .kernels_us = 59.8408,
     .moves_us = {{2, 40.875}, {1, 50.545}, {2, 116.044}},
     .parameters = R"(
linear1.weight -> S(0)S(0)S(0) 0
linear2.weight -> S(0)S(0)S(1) 0
)"},
    // Sums over two nodes.
    {.name = "Block2x128",
     .step = "transformer_block",
     .plan = "transformer_block_2x128",
     .batch = "16",
     .mesh = "2x128",
     .finest_parameters = true,
     .pins = "x=S(0)R dy=S(0)R y=S(0)R dx=S(0)R",
     .objective_us = 6329.6602,
     .lower_by_us = 1,
     .kernels_us = 714.5386,
     .moves_us = {{8, 27.984}, {2, 66.402}, {2, 71.552}, {2, 575.984}, {1, 603.968}, {5, 666.681}},
     .parameters = R"(
wq.weight -> S(0)S(1) 0
wk.weight -> S(0)S(1) 0
wv.weight -> S(0)S(1) 0
wo.weight -> S(1)S(0) 0
w1.weight -> S(0)S(0) 0
w2.weight -> S(0)S(1) 0
)"},
    // One layer with the widths of Llama-3-1B on sequences of 2048 tokens. Features are cut between blocks,
    // so that norms sum means.
    {.name = "Llama3Layer1b8x8",
     .step = "llama3_layer",
     .plan = "llama3_1b_layer_8x8",
     .batch = "16",
     .sizes = "8192=2048 4096=2048 14336=8192 1024=512 128=64 64=32 33554432=4194304 "
              "8388608=1048576",
     .mesh = "8x8",
     .finest_parameters = true,
     .pins = "tokens=S(0)R dlogits=S(0)S(2) logits=S(0)S(2)",
     .objective_us = 10048.3861,
     .lower_by_us = 0,
     .kernels_us = 2808.6437,
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
