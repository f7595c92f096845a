#include "gt/train/state_hash.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "gt/base/error.h"
#include "gt/base/workers.h"
#include "gt/storage/checksum.h"

namespace gt {
namespace {

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

uint64_t HashOfName(const std::string& name) {
  Xxh64 hash;
  hash.Update(std::as_bytes(std::span(name)));
  return hash.Digest();
}

// Of elements next to each other in the whole tensor, the first of which is number `first` there.
using RowHash = uint64_t (*)(uint64_t stream, uint64_t first, const std::byte* data, int64_t count);

template <typename Bits>
uint64_t HashOfRow(uint64_t stream, uint64_t first, const std::byte* data, int64_t count) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, data + static_cast<size_t>(i) * sizeof bits, sizeof bits);
    uint64_t place = (first + static_cast<uint64_t>(i)) * 0x9e3779b97f4a7c15ull;
    sum += Mix(Mix(stream + place) ^ bits);
  }
  return sum;
}

RowHash RowHashFor(const nn::StateTensor& state) {
  switch (state.tensor.element_size()) {
    case 1:
      return HashOfRow<uint8_t>;
    case 2:
      return HashOfRow<uint16_t>;
    case 4:
      return HashOfRow<uint32_t>;
    case 8:
      return HashOfRow<uint64_t>;
    default:
      Fail(ErrorCode::kInternal, "'{}' has elements of {} bytes", state.name,
           state.tensor.element_size());
  }
}

uint64_t HashOfPart(const nn::StateTensor& state) {
  if (state.tensor.numel() == 0) return 0;
  const RowHash hash_of_row = RowHashFor(state);
  at::Tensor host = state.tensor.detach().to(at::kCPU).contiguous();
  uint64_t stream = HashOfName(state.name);
  const auto* data = static_cast<const std::byte*>(host.const_data_ptr());
  BoxRows rows(state.box);
  const auto row_bytes = static_cast<size_t>(rows.length()) * host.element_size();
  std::atomic<uint64_t> total = 0;
  const int64_t rows_at_a_time = std::max<int64_t>(1, (1 << 20) / rows.length());
  const int64_t chunks = (rows.count() + rows_at_a_time - 1) / rows_at_a_time;
  RunWorkers(chunks, [&](WorkItems& items) {
    while (const auto chunk = items.Next()) {
      const int64_t begin = *chunk * rows_at_a_time;
      const int64_t end = std::min(begin + rows_at_a_time, rows.count());
      uint64_t sum = 0;
      for (int64_t row = begin; row < end; ++row) {
        sum += hash_of_row(stream, static_cast<uint64_t>(rows.First(row)),
                           data + static_cast<size_t>(row) * row_bytes, rows.length());
      }
      total += sum;
    }
  });
  return total;
}

uint64_t SumOverRanks(uint64_t sum, World& world) {
  // Doubles add integers exactly up to 2^53: four digits of 16 bits leave room for many ranks.
  std::vector<double> digits;
  for (int i = 0; i < 4; ++i) digits.push_back(static_cast<double>((sum >> (16 * i)) & 0xffff));
  digits = world.Sum(digits);
  uint64_t total = 0;
  for (int i = 0; i < 4; ++i) {
    total += static_cast<uint64_t>(digits[static_cast<size_t>(i)]) << (16 * i);
  }
  return total;
}

// Every element once, whoever has it.
uint64_t HashOf(const std::vector<nn::StateTensor>& tensors, World& world) {
  uint64_t sum = 0;
  for (const nn::StateTensor& state : tensors) {
    if (state.IsOwnedBy(world.rank())) sum += HashOfPart(state);
  }
  return SumOverRanks(sum, world);
}

// What every rank has: until the update, each counts its own tokens.
uint64_t HashOnEachRank(const std::vector<nn::StateTensor>& tensors, World& world) {
  uint64_t sum = 0;
  for (const nn::StateTensor& state : tensors) sum += HashOfPart(state);
  return SumOverRanks(Mix(sum + static_cast<uint64_t>(world.rank())), world);
}

// The state's tensors that are parameters, or those that are not.
std::vector<nn::StateTensor> StateOf(LanguageModel& model, bool parameters) {
  std::unordered_set<const c10::TensorImpl*> trained;
  for (const at::Tensor& parameter : model.parameters()) {
    trained.insert(parameter.unsafeGetTensorImpl());
  }
  std::vector<nn::StateTensor> chosen;
  for (nn::StateTensor& state : nn::NamedState(model)) {
    if (trained.contains(state.tensor.unsafeGetTensorImpl()) == parameters) {
      chosen.push_back(std::move(state));
    }
  }
  return chosen;
}

}  // namespace

uint64_t StateHash(LanguageModel& model, World& world) {
  return HashOf(nn::NamedState(model), world);
}

StepHashes HashStep(LanguageModel& model, const std::vector<at::Tensor>& gradients, World& world) {
  std::unordered_map<const c10::TensorImpl*, at::Tensor> gradient_of;
  std::vector<at::Tensor> parameters = model.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    gradient_of.emplace(parameters[i].unsafeGetTensorImpl(), gradients[i]);
  }
  std::vector<nn::StateTensor> trained = StateOf(model, /*parameters=*/true);
  StepHashes hashes;
  hashes.parameters = HashOf(trained, world);
  hashes.buffers = HashOnEachRank(StateOf(model, /*parameters=*/false), world);
  for (nn::StateTensor& state : trained) {
    state.tensor = gradient_of.at(state.tensor.unsafeGetTensorImpl());
  }
  std::erase_if(trained, [](const nn::StateTensor& state) { return !state.tensor.defined(); });
  hashes.gradients = HashOf(trained, world);
  return hashes;
}

uint64_t HashOfCounts(const at::Tensor& counts) {
  const at::Tensor host = counts.detach().to(at::kCPU, at::kDouble).contiguous();
  Xxh64 hash;
  hash.Update(
      std::as_bytes(std::span(host.const_data_ptr<double>(), static_cast<size_t>(host.numel()))));
  return hash.Digest();
}

}  // namespace gt
