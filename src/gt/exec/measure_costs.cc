#include "gt/exec/measure_costs.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <unordered_map>

#include "gt/base/error.h"
#include "gt/exec/program.h"
#include "gt/torch_bridge/convert.h"
#include "gt/torch_bridge/device.h"
#include "gt/torch_bridge/generator.h"

namespace gt {
namespace {

using Clock = std::chrono::steady_clock;

bool CanBeTimed(const Node& node) {
  const Operator& op = node.op();
  if (op.collective != Collective::kNone || op.transfer != Transfer::kNone) return false;
  if (op.random || op.side_effect || op.reads_data || op.is_view()) return false;
  if (node.operand_count() == 0 || node.result_count() == 0) return false;
  bool nested = false, integers = false;
  ForEachNestedGraph(node, [&](const Graph&) { nested = true; });
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    integers |= IsIntegral(node.operand(i)->type().dtype);
  }
  return !nested && (!integers || op.integers != IntegerOperands::kUnspecified);
}

TensorType AtHints(const TensorType& type, SymbolValues hints) {
  TensorType result = type;
  for (Shape* shape : {&result.sizes, &result.strides}) {
    for (Dim& dim : *shape) dim = Dim(dim.Evaluate(hints));
  }
  return result;
}

Argument AtHints(const Argument& argument, SymbolValues hints) {
  if (const auto* dim = std::get_if<Dim>(&argument)) return Dim(dim->Evaluate(hints));
  if (const auto* shape = std::get_if<Shape>(&argument)) {
    Shape result;
    for (const Dim& dim : *shape) result.push_back(Dim(dim.Evaluate(hints)));
    return result;
  }
  return argument;
}

// The node alone, as a step of its own.
std::unique_ptr<Graph> StepOf(const Node& node, SymbolValues hints) {
  auto step = std::make_unique<Graph>("one_node");
  Graph::NodeSpec spec;
  spec.op = &node.op();
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    spec.operands.push_back(step->AddInput(InputRole::kInput, fmt::format("operand_{}", i),
                                           AtHints(node.operand(i)->type(), hints)));
  }
  for (const Argument& argument : node.args()) spec.args.push_back(AtHints(argument, hints));
  Node* copy = step->Insert(std::move(spec));
  for (int32_t i = 0; i < copy->result_count(); ++i) {
    if (copy->result(i)->type().defined()) {
      step->AddOutput(OutputRole::kResult, fmt::format("result_{}", i), copy->result(i));
    }
  }
  return step;
}

// The shortest extent of what is indexed, the first operand: indices below it are in bounds whichever
// dimension they go along.
int64_t SmallestExtent(const Graph& step) {
  int64_t smallest = std::numeric_limits<int32_t>::max();
  for (const Dim& dim : step.inputs()[0]->value.type().sizes) {
    smallest = std::min(smallest, std::max<int64_t>(*dim.as_const(), 1));
  }
  return smallest;
}

at::Tensor Filled(const TensorType& type, const Graph& step, const Operator& op,
                  c10::Device device) {
  std::vector<int64_t> sizes, strides;
  for (const Dim& dim : type.sizes) sizes.push_back(*dim.as_const());
  for (const Dim& dim : type.strides) strides.push_back(*dim.as_const());
  const auto options = at::TensorOptions(ToTorch(type.dtype)).device(device);
  at::Tensor tensor = at::empty_strided(sizes, strides, options);
  if (!IsIntegral(type.dtype)) {
    // The memory, since elements of an expanded tensor are one. Not with equal numbers: products of these
    // draw less power, and so run faster than a step's.
    const auto elements = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
    at::Tensor memory = tensor.as_strided({elements}, {1});
    if (tensor.is_floating_point()) {
      memory.normal_(0, 0.01, CurrentGenerator());
    } else {
      memory.zero_();
    }
    return tensor;
  }
  const int64_t count = tensor.numel();
  at::Tensor numbers = at::arange(count, tensor.options());
  if (op.integers == IntegerOperands::kGroupEnds) {  // the groups come out equally long
    const int64_t rows = *step.inputs()[0]->value.type().sizes[0].as_const();
    numbers = (numbers + 1) * (rows / std::max<int64_t>(count, 1));
  } else {
    numbers = numbers.remainder(SmallestExtent(step));
  }
  return tensor.copy_(numbers.view(sizes));
}

// As many sets of operands, used in turn, as do not fit into a cache together: in a step, what a kernel
// reads was made a while ago.
std::vector<std::vector<at::Tensor>> InputsOf(const Graph& step, const Operator& op,
                                              c10::Device device) {
  constexpr int64_t kCacheBytes = int64_t{192} << 20;
  constexpr int64_t kMostSets = 16;
  std::vector<std::vector<at::Tensor>> sets;
  int64_t bytes = 0;
  do {
    std::vector<at::Tensor>& inputs = sets.emplace_back();
    for (const auto& input : step.inputs()) {
      inputs.push_back(Filled(input->value.type(), step, op, device));
      bytes += static_cast<int64_t>(inputs.back().nbytes());
    }
  } while (bytes < kCacheBytes && static_cast<int64_t>(sets.size()) < kMostSets);
  return sets;
}

// Of one run among many, one after another.
class Stopwatch {
 public:
  explicit Stopwatch(c10::Device device) : device_(device) {}

  template <typename Body>
  double Microseconds(int runs, Body&& body) {
    if (!device_.is_cuda()) {
      auto start = Clock::now();
      for (int i = 0; i < runs; ++i) body();
      return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / runs;
    }
    c10::Event start(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    c10::Event stop(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
    start.record(stream);
    for (int i = 0; i < runs; ++i) body();
    stop.record(stream);
    stop.synchronize();
    return start.elapsedTime(stop) * 1e3 / runs;
  }

 private:
  c10::Device device_;
};

// A GPU that has been idle runs faster for a moment than one in the middle of a step, which is as hot
// and draws as much power as it may.
class Heater {
 public:
  explicit Heater(c10::Device device) {
    if (device.is_cuda()) {
      matrix_ = at::empty({4096, 4096}, at::TensorOptions(at::kBFloat16).device(device));
      matrix_.normal_(0, 0.01, CurrentGenerator());  // equal numbers would draw less power
    }
  }
  void Heat() const {
    constexpr int kProducts = 60;  // more than ten milliseconds
    for (int i = 0; matrix_.defined() && i < kProducts; ++i) at::mm(matrix_, matrix_);
  }

 private:
  at::Tensor matrix_;
};

double TimeOf(const Node& node, SymbolValues hints, c10::Device device, const Heater& heater) {
  std::unique_ptr<Graph> step = StepOf(node, hints);
  const std::vector<std::vector<at::Tensor>> inputs = InputsOf(*step, node.op(), device);
  Program program(*step);
  Stopwatch watch(device);
  auto run = [&, next = size_t{0}]() mutable { program.Run(inputs[next++ % inputs.size()]); };
  run();  // libraries choose their kernels
  constexpr double kEnoughMicroseconds = 1500;
  constexpr int kMostRuns = 30;
  heater.Heat();
  const double first = watch.Microseconds(1, run);
  const int runs =
      std::clamp(static_cast<int>(kEnoughMicroseconds / std::max(first, 1.0)), 1, kMostRuns);
  std::array<double, 3> times = {};
  for (double& time : times) {
    heater.Heat();
    time = watch.Microseconds(runs, run);
  }
  std::sort(times.begin(), times.end());
  return times[1];
}

}  // namespace

int64_t MeasureCosts(const Graph& graph, c10::Device device, CostTable* table,
                     const std::function<void(double)>& progress) {
  const SymbolValues hints = graph.shapes().Hints();
  std::unordered_map<std::string, const Node*> wanted;
  std::vector<std::string> keys;
  for (const Node* node : graph.nodes()) {
    if (!CanBeTimed(*node)) continue;
    std::string key = CostTable::KeyOf(*node, hints);
    if (key.empty() || table->Find(key) != nullptr) continue;
    if (wanted.emplace(key, node).second) keys.push_back(std::move(key));
  }
  at::NoGradGuard no_gradients;
  const GeneratorScope generator(device);  // a job draws what it would have drawn
  const Heater heater(device);
  int64_t measured = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    try {
      table->Set(keys[i], TimeOf(*wanted.at(keys[i]), hints, device, heater));
      ++measured;
    } catch (const c10::OutOfMemoryError&) {
      continue;  // it is estimated instead
    } catch (const Error&) {
      continue;
    }
    if (progress) progress(static_cast<double>(i + 1) / static_cast<double>(keys.size()));
  }
  return measured;
}

}  // namespace gt
