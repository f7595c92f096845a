#include "gt/testing/label_problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

namespace gt::testing {
namespace {

using placement::CostMatrix;
using placement::Edge;
using placement::kForbidden;
using placement::kPhases;
using placement::LabelProblem;
using placement::LiveRange;
using placement::StepEdge;
using placement::StepProblem;
using placement::StepTime;
using placement::StepVariable;
using placement::Variable;

class RandomProblemMaker {
 public:
  RandomProblemMaker(uint64_t seed, bool with_memory) : random_(seed), with_memory_(with_memory) {}

  LabelProblem Make() {
    LabelProblem problem;
    const int count = Between(1, 8);
    for (int v = 0; v < count; ++v) problem.variables.push_back(MakeVariable());
    for (int e = count > 1 ? Between(0, 2 * count) : 0; e > 0; --e) {
      const int from = Between(0, count - 1);
      const int to = Between(0, count - 1);
      if (from != to) AddEdge(problem, from, to);
    }
    if (with_memory_) problem.usage_limit = Between(3, 30);
    return problem;
  }

 private:
  int Between(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  Variable MakeVariable() {
    Variable variable;
    const bool uses = with_memory_ && Between(0, 3) > 0;
    for (int label = Between(1, 4); label > 0; --label) {
      variable.costs.push_back(Between(0, 9) == 0 ? kForbidden : Between(0, 10));
      if (uses) variable.usage.push_back(Between(0, 8));
    }
    if (!uses) return variable;
    const int begin = Between(0, 6);
    const int end = begin + Between(0, 5);
    variable.live.push_back({begin, end, Between(1, 2)});
    if (Between(0, 3) == 0) variable.live.push_back({end + 1, end + 3, 1});
    return variable;
  }

  void AddEdge(LabelProblem& problem, int from, int to) {
    CostMatrix matrix;
    matrix.rows = static_cast<int32_t>(problem.variables[static_cast<size_t>(from)].costs.size());
    matrix.columns = static_cast<int32_t>(problem.variables[static_cast<size_t>(to)].costs.size());
    const int most = Between(0, 2) == 0 ? 1 : 10;
    for (int i = matrix.rows * matrix.columns; i > 0; --i) {
      matrix.values.push_back(
          static_cast<float>(Between(0, 7) == 0 ? kForbidden : Between(0, most)));
    }
    problem.edges.push_back({from, to, static_cast<int32_t>(problem.matrices.size()),
                             static_cast<double>(Between(0, 3))});
    problem.matrices.push_back(std::move(matrix));
  }

  std::mt19937_64 random_;
  const bool with_memory_;
};

enum Layout { kWhole, kRows, kSequence, kFeatures, kPartial };
constexpr int kLayouts = 5;
constexpr double kRanks = 8;

// What each choice along one axis needs of its input and weight, and makes of its output.
struct Choice {
  Layout input;
  Layout weight;
  Layout output;
};
constexpr std::array<Choice, 5> kMatmul = {{{kWhole, kWhole, kWhole},
                                            {kRows, kWhole, kRows},
                                            {kSequence, kWhole, kSequence},
                                            {kWhole, kFeatures, kFeatures},
                                            {kFeatures, kRows, kPartial}}};
constexpr std::array<Choice, 5> kElementwise = {{{kWhole, kWhole, kWhole},
                                                 {kRows, kRows, kRows},
                                                 {kSequence, kSequence, kSequence},
                                                 {kFeatures, kFeatures, kFeatures},
                                                 {kPartial, kPartial, kPartial}}};
// Not linear: partial sums have to be added up before.
constexpr std::array<Choice, 5> kNonlinear = {{{kWhole, kWhole, kWhole},
                                               {kRows, kRows, kRows},
                                               {kSequence, kSequence, kSequence},
                                               {kFeatures, kFeatures, kFeatures},
                                               {kWhole, kWhole, kWhole}}};

double Redistribution(Layout from, Layout to, double bytes) {
  if (from == to || (from == kWhole && to != kPartial)) return 0;
  if (to == kPartial) return kForbidden;
  if (from == kPartial) return to == kWhole ? 2 * bytes : bytes;
  return to == kWhole ? bytes : bytes / kRanks;
}

class LayeredProblemMaker {
 public:
  LayeredProblemMaker(int layers, int axes) : layers_(layers), axes_(axes) {
    for (int axis = 0; axis < axes; ++axis) labels_ *= kLayouts;
  }

  LabelProblem Make() {
    int stream = Add(kElementwise, 0);
    for (int layer = 0; layer < layers_; ++layer) {
      const int norm = After(Add(kNonlinear, 1), {stream});
      const int attention =
          After(Add(kNonlinear, 400), {Matmul(norm, 64), Matmul(norm, 16), Matmul(norm, 16)});
      stream = After(Add(kElementwise, 1), {stream, Matmul(attention, 64)});
      const int second = After(Add(kNonlinear, 1), {stream});
      const int product = After(Add(kNonlinear, 4), {Matmul(second, 224), Matmul(second, 224)});
      stream = After(Add(kElementwise, 1), {stream, Matmul(product, 224)});
    }
    return std::move(problem_);
  }

 private:
  using Choices = std::array<Choice, 5>;

  Layout Along(int label, int axis) const {
    for (; axis > 0; --axis) label /= kLayouts;
    return static_cast<Layout>(label % kLayouts);
  }

  int Add(const Choices& choices, double work) {
    Variable variable;
    for (int label = 0; label < labels_; ++label) {
      double share = work;
      for (int axis = 0; axis < axes_; ++axis) {
        if (Along(label, axis) != kWhole) share /= kRanks;
      }
      variable.costs.push_back(share);
    }
    problem_.variables.push_back(std::move(variable));
    choices_.push_back(&choices);
    return static_cast<int>(problem_.variables.size()) - 1;
  }

  int After(int consumer, std::initializer_list<int> producers) {
    for (const int producer : producers) Link(producer, consumer, &Choice::input, 32);
    return consumer;
  }

  int Matmul(int input, double weight) {
    const int matmul = After(Add(kMatmul, weight * 40), {input});
    Link(Add(kElementwise, 0), matmul, &Choice::weight, weight);
    return matmul;
  }

  void Link(int from, int to, Layout Choice::*need, double bytes) {
    const Choices& producer = *choices_[static_cast<size_t>(from)];
    const Choices& consumer = *choices_[static_cast<size_t>(to)];
    CostMatrix matrix{labels_, labels_, {}};
    for (int x = 0; x < labels_; ++x) {
      for (int y = 0; y < labels_; ++y) {
        double cost = 0;
        double size = bytes;
        for (int axis = 0; axis < axes_; ++axis) {
          const Layout have = producer[static_cast<size_t>(Along(x, axis))].output;
          const Layout want = consumer[static_cast<size_t>(Along(y, axis))].*need;
          cost += Redistribution(have, want, size);
          if (want != kWhole) size /= kRanks;
        }
        matrix.values.push_back(static_cast<float>(cost));
      }
    }
    problem_.edges.push_back({from, to, static_cast<int32_t>(problem_.matrices.size()), 1});
    problem_.matrices.push_back(std::move(matrix));
  }

  const int layers_;
  const int axes_;
  int32_t labels_ = 1;
  LabelProblem problem_;
  std::vector<const Choices*> choices_;
};

// The next of all labellings; false after the last.
bool NextLabelling(const LabelProblem& problem, std::vector<int32_t>& labels) {
  size_t v = 0;
  while (v < labels.size() &&
         static_cast<size_t>(++labels[v]) == problem.variables[v].costs.size()) {
    labels[v++] = 0;
  }
  return v < labels.size();
}

}  // namespace

LabelProblem RandomLabelProblem(uint64_t seed, bool with_memory) {
  return RandomProblemMaker(seed, with_memory).Make();
}

LabelProblem LayeredLabelProblem(int layers, int axes) {
  return LayeredProblemMaker(layers, axes).Make();
}

LabelProblem GridLabelProblem(uint64_t seed, int side, int labels, bool with_memory) {
  std::mt19937_64 random(seed);
  LabelProblem problem;
  for (int v = 0; v < side * side; ++v) {
    Variable& variable = problem.variables.emplace_back();
    for (int label = 0; label < labels; ++label) {
      variable.costs.push_back(static_cast<double>(random() % 100));
      if (with_memory) variable.usage.push_back(static_cast<int64_t>(random() % 100));
    }
    if (with_memory) variable.live.push_back({v, v + 2 * side, 1});
  }
  if (with_memory) {
    std::vector<int32_t> least;
    std::vector<int32_t> most;
    for (const Variable& variable : problem.variables) {
      const auto [low, high] = std::ranges::minmax_element(variable.usage);
      least.push_back(static_cast<int32_t>(low - variable.usage.begin()));
      most.push_back(static_cast<int32_t>(high - variable.usage.begin()));
    }
    problem.usage_limit = (3 * PeakUsage(problem, least) + PeakUsage(problem, most)) / 4;
  }
  for (int v = 0; v < side * side; ++v) {
    for (const int next : {(v + 1) % side == 0 ? -1 : v + 1, v + side}) {
      if (next < 0 || next >= side * side) continue;
      problem.edges.push_back({v, next, static_cast<int32_t>(problem.matrices.size()), 1});
      CostMatrix matrix{labels, labels, {}};
      for (int i = 0; i < labels * labels; ++i) {
        matrix.values.push_back(static_cast<float>(random() % 100));
      }
      problem.matrices.push_back(std::move(matrix));
    }
  }
  return problem;
}

double EnumeratedOptimum(const LabelProblem& problem) {
  std::vector<int32_t> labels(problem.variables.size(), 0);
  double best = kForbidden;
  do {
    if (PeakUsage(problem, labels) <= problem.usage_limit) {
      best = std::min(best, CostOf(problem, labels));
    }
  } while (NextLabelling(problem, labels));
  return best;
}

StepProblem RandomStepProblem(uint64_t seed, bool with_memory) {
  const LabelProblem sums = RandomLabelProblem(seed, with_memory);
  std::mt19937_64 random(seed);
  StepProblem problem;
  problem.matrices = sums.matrices;
  problem.usage_limit = sums.usage_limit;
  for (const Variable& variable : sums.variables) {
    StepVariable& step = problem.variables.emplace_back();
    step.usage = variable.usage;
    step.live = variable.live;
    const size_t phase = random() % kPhases;
    for (const double cost : variable.costs) {
      StepTime& time = step.times.emplace_back();
      (random() % 3 == 0 || cost == kForbidden ? time.visible : time.kernels[phase]) = cost;
    }
  }
  for (const Edge& edge : sums.edges) {
    StepEdge step{edge.from, edge.to, edge.matrix, 0, {}};
    switch (random() % 4) {
      case 0:
        step.visible = edge.factor;
        break;
      case 1:
        step.moves = {edge.factor, edge.factor};
        break;
      default:
        step.moves[random() % kPhases] = edge.factor;
    }
    problem.edges.push_back(step);
  }
  return problem;
}

double EnumeratedStep(const StepProblem& problem, double over_price) {
  LabelProblem memory = problem.At({});
  for (size_t v = 0; v < memory.variables.size(); ++v) {
    memory.variables[v].usage = problem.variables[v].usage;
    memory.variables[v].live = problem.variables[v].live;
  }
  std::vector<int32_t> labels(problem.variables.size(), 0);
  double best = kForbidden;
  do {
    const int64_t over = PeakUsage(memory, labels) - problem.usage_limit;
    const double charged = over > 0 ? static_cast<double>(over) * over_price : 0;
    best = std::min(best, problem.TimeOf(labels).Total() + charged);
  } while (NextLabelling(memory, labels));
  return best;
}

namespace {

class LinearProgramWriter {
 public:
  explicit LinearProgramWriter(const StepProblem& problem) : problem_(problem) {}

  std::string Write() {
    for (size_t v = 0; v < problem_.variables.size(); ++v) AddVariable(v);
    for (size_t e = 0; e < problem_.edges.size(); ++e) AddEdge(e);
    AddMoments();
    rows_ += fmt::format(" V{} >= 0\n", visible_);
    for (size_t phase = 0; phase < kPhases; ++phase) {
      rows_ += fmt::format(" P{0}{1} >= 0\n P{0}{2} >= 0\n", phase, kernels_[phase], moves_[phase]);
    }
    return fmt::format("Minimize\n obj: V + P0 + P1\nSubject To\n{}Bounds\n{}Binaries\n{}End\n",
                       rows_, bounds_, binaries_);
  }

 private:
  void AddVariable(size_t v) {
    std::string one;
    for (size_t label = 0; label < problem_.variables[v].times.size(); ++label) {
      const std::string x = fmt::format("x{}_{}", v, label);
      one += " + " + x;
      binaries_ += " " + x + "\n";
      const StepTime& time = problem_.variables[v].times[label];
      if (time.visible == kForbidden) {
        rows_ += fmt::format(" {} = 0\n", x);
        continue;
      }
      Subtract(visible_, time.visible, x);
      for (size_t phase = 0; phase < kPhases; ++phase) {
        Subtract(kernels_[phase], time.kernels[phase], x);
        Subtract(moves_[phase], time.moves[phase], x);
      }
    }
    rows_ += one + " = 1\n";
  }

  void AddEdge(size_t e) {
    const StepEdge& edge = problem_.edges[e];
    const CostMatrix& matrix = problem_.matrices[static_cast<size_t>(edge.matrix)];
    for (int32_t i = 0; i < matrix.rows; ++i) {
      for (int32_t j = 0; j < matrix.columns; ++j) {
        const double us = matrix.At(i, j);
        const std::string pair = fmt::format("x{}_{} + x{}_{}", edge.from, i, edge.to, j);
        if (us == kForbidden) {
          rows_ += fmt::format(" {} <= 1\n", pair);
          continue;
        }
        const std::string y = fmt::format("y{}_{}_{}", e, i, j);
        rows_ += fmt::format(" {} - {} <= 1\n", pair, y);
        bounds_ += fmt::format(" 0 <= {} <= 1\n", y);
        Subtract(visible_, edge.visible * us, y);
        for (size_t phase = 0; phase < kPhases; ++phase) {
          Subtract(moves_[phase], edge.moves[phase] * us, y);
        }
      }
    }
  }

  void AddMoments() {
    if (problem_.usage_limit == std::numeric_limits<int64_t>::max()) return;
    constexpr int32_t kTicks = 32;  // more than random problems have
    for (int32_t tick = 0; tick < kTicks; ++tick) {
      std::string used;
      for (size_t v = 0; v < problem_.variables.size(); ++v) {
        const StepVariable& variable = problem_.variables[v];
        for (const LiveRange& range : variable.live) {
          if (tick < range.begin || tick >= range.end) continue;
          for (size_t label = 0; label < variable.usage.size(); ++label) {
            const int64_t bytes = variable.usage[label] * range.count;
            if (bytes > 0) used += fmt::format(" + {} x{}_{}", bytes, v, label);
          }
        }
      }
      if (!used.empty()) rows_ += fmt::format("{} <= {}\n", used, problem_.usage_limit);
    }
  }

  static void Subtract(std::string& sum, double amount, const std::string& name) {
    if (amount != 0) sum += fmt::format(" - {} {}", amount, name);
  }

  const StepProblem& problem_;
  std::string rows_, bounds_, binaries_;
  std::string visible_, kernels_[kPhases], moves_[kPhases];  // sums, with their signs turned
};

}  // namespace

std::string LinearProgramText(const StepProblem& problem) {
  return LinearProgramWriter(problem).Write();
}

}  // namespace gt::testing
