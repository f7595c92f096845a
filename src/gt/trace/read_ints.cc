#include "gt/trace/read_ints.h"

#include <ATen/ATen.h>

#include "gt/base/error.h"
#include "gt/trace/recorder.h"
#include "gt/trace/symbolic.h"

namespace gt {
namespace {

std::vector<c10::SymInt> ReadNow(const at::Tensor& tensor) {
  at::Tensor numbers = tensor.detach().to(at::kCPU, at::kLong).contiguous();
  const int64_t* data = numbers.const_data_ptr<int64_t>();
  return {data, data + numbers.numel()};
}

}  // namespace

std::vector<c10::SymInt> ReadInts(const at::Tensor& tensor, const ReadIntsFacts& facts) {
  Recorder* recorder = Recorder::Active();
  if (recorder == nullptr) return ReadNow(tensor);
  std::optional<Dim> sum, expected;
  if (facts.sum) sum = ToDim(*facts.sum);
  if (facts.expected_sum) expected = ToDim(*facts.expected_sum);
  std::vector<c10::SymInt> numbers;
  ShapeEnv& shapes = recorder->graph().shapes();
  for (SymbolId id : recorder->BindInts(tensor, sum, expected)) {
    numbers.push_back(ToSymInt(Dim::Symbol(id), shapes));
  }
  return numbers;
}

}  // namespace gt
