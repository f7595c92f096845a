#include "gt/exec/bisect_results.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <cstring>

#include "gt/base/error.h"
#include "gt/exec/reference.h"
#include "gt/passes/framework/bisect.h"
#include "gt/torch_bridge/convert.h"

namespace gt {
namespace {

constexpr uint64_t kSeed = 1;

std::vector<int64_t> AtHints(const Shape& shape, SymbolValues hints) {
  std::vector<int64_t> values;
  for (const Dim& dim : shape) values.push_back(dim.Evaluate(hints));
  return values;
}

at::Tensor RandomTensor(const TensorType& type, SymbolValues hints, at::Generator generator) {
  const std::vector<int64_t> sizes = AtHints(type.sizes, hints);
  const auto dtype = ToTorch(type.dtype);
  at::Tensor tensor = at::empty_strided(sizes, AtHints(type.strides, hints),
                                        at::TensorOptions(dtype).device(ToTorch(type.device)));
  const bool whole = c10::isIntegralType(dtype, /*includeBool=*/true);
  return tensor.copy_(whole ? at::randint(2, sizes, generator, at::TensorOptions(at::kLong))
                            : at::randn(sizes, generator));
}

std::vector<at::Tensor> Run(const Graph& graph, const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> copies;  // operators may write into their operands
  for (const at::Tensor& input : inputs) copies.push_back(input.clone());
  at::manual_seed(kSeed);
  return RunReference(graph, copies);
}

// Empty if the bits are equal.
std::string Difference(const at::Tensor& expected, const at::Tensor& actual) {
  if (expected.defined() != actual.defined()) return "is there in one case only";
  if (!expected.defined()) return "";
  if (expected.sizes() != actual.sizes() || expected.dtype() != actual.dtype()) {
    return "has another type";
  }
  const at::Tensor a = expected.cpu().contiguous(), b = actual.cpu().contiguous();
  const auto width = static_cast<size_t>(a.element_size());
  const auto* bytes_a = static_cast<const std::byte*>(a.const_data_ptr());
  const auto* bytes_b = static_cast<const std::byte*>(b.const_data_ptr());
  int64_t different = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const size_t at = static_cast<size_t>(i) * width;
    if (std::memcmp(bytes_a + at, bytes_b + at, width) != 0) ++different;
  }
  return different == 0 ? "" : fmt::format("{} of {} elements differ", different, a.numel());
}

std::string FirstDifference(const Graph& graph, const std::vector<at::Tensor>& expected,
                            const std::vector<at::Tensor>& actual) {
  if (expected.size() != actual.size()) return "the number of outputs changes";
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::string difference = Difference(expected[i], actual[i]);
    if (!difference.empty()) {
      return fmt::format("output {}: {}", Quoted(graph.outputs()[i]->name), difference);
    }
  }
  return "";
}

}  // namespace

std::vector<at::Tensor> RandomInputs(const Graph& graph, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  const SymbolValues hints = graph.shapes().Hints();
  std::vector<at::Tensor> inputs;
  for (const auto& input : graph.inputs()) {
    inputs.push_back(RandomTensor(input->value.type(), hints, generator));
  }
  return inputs;
}

std::optional<ChangedResults> FirstChangingResults(const PassList& passes, const Graph& graph,
                                                   PassContext& context) {
  std::vector<at::Tensor> inputs, expected;
  const auto cannot_run = [](ErrorCode code, std::string_view why) {
    Fail(code,
         "the graph cannot run here as it is, so that there are no results to compare (collectives "
         "need ranks, and operators their device): {}",
         why);
  };
  try {
    inputs = RandomInputs(graph, kSeed);
    expected = Run(graph, inputs);
  } catch (const Error& error) {
    cannot_run(error.code(), error.message());
  } catch (const std::exception& error) {
    cannot_run(ErrorCode::kKernelFailed, error.what());
  }
  std::string difference;
  const auto holds = [&](Graph& now) {
    try {
      difference = FirstDifference(now, expected, Run(now, inputs));
    } catch (const std::exception& error) {
      difference = fmt::format("the graph cannot run any more: {}", error.what());
    }
    return difference.empty();
  };
  const auto breaking = FirstBreaking(passes, graph, holds, BisectSearch::kLinear, &context);
  if (!breaking) return std::nullopt;
  if (breaking->index < 0) {
    Fail(ErrorCode::kKernelFailed,
         "two runs of the graph as it is give different results, so that none can be compared: {}",
         difference);
  }
  return ChangedResults{breaking->index, breaking->spec, difference};
}

}  // namespace gt
