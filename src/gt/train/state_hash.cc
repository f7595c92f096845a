#include "gt/train/state_hash.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "gt/base/error.h"
#include "gt/parallel/ownership.h"
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

// Bits of element i, whatever the width of the type.
uint64_t BitsAt(const std::byte* data, int64_t index, size_t width) {
  uint64_t bits = 0;
  std::memcpy(&bits, data + static_cast<size_t>(index) * width, width);
  return bits;
}

uint64_t HashOfPart(const nn::StateTensor& state) {
  at::Tensor host = state.tensor.detach().to(at::kCPU).contiguous();
  uint64_t stream = HashOfName(state.name);
  size_t width = host.element_size();
  GT_CHECK(width <= sizeof(uint64_t), "'{}' has elements of {} bytes", state.name, width);
  const auto* data = static_cast<const std::byte*>(host.const_data_ptr());
  if (host.numel() == 0) return 0;
  BoxRows rows(state.box);
  std::atomic<uint64_t> total = 0;
  int64_t grain = std::max<int64_t>(1, (1 << 16) / rows.length());
  at::parallel_for(0, rows.count(), grain, [&](int64_t begin, int64_t end) {
    uint64_t sum = 0;
    for (int64_t row = begin; row < end; ++row) {
      auto first = static_cast<uint64_t>(rows.First(row));
      for (int64_t i = 0; i < rows.length(); ++i) {
        uint64_t place = (first + static_cast<uint64_t>(i)) * 0x9e3779b97f4a7c15ull;
        sum += Mix(Mix(stream + place) ^ BitsAt(data, row * rows.length() + i, width));
      }
    }
    total += sum;
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
uint64_t HashOf(const std::vector<nn::StateTensor>& tensors, World& world, const Mesh& mesh) {
  uint64_t sum = 0;
  for (const nn::StateTensor& state : tensors) {
    if (OwnsPart(state.box, mesh)) sum += HashOfPart(state);
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

uint64_t StateHash(LanguageModel& model, World& world, const Mesh& mesh) {
  return HashOf(nn::NamedState(model), world, mesh);
}

StepHashes HashStep(LanguageModel& model, const std::vector<at::Tensor>& gradients, World& world,
                    const Mesh& mesh) {
  std::unordered_map<const c10::TensorImpl*, at::Tensor> gradient_of;
  std::vector<at::Tensor> parameters = model.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    gradient_of.emplace(parameters[i].unsafeGetTensorImpl(), gradients[i]);
  }
  std::vector<nn::StateTensor> trained = StateOf(model, /*parameters=*/true);
  StepHashes hashes;
  hashes.parameters = HashOf(trained, world, mesh);
  hashes.buffers = HashOnEachRank(StateOf(model, /*parameters=*/false), world);
  for (nn::StateTensor& state : trained) {
    state.tensor = gradient_of.at(state.tensor.unsafeGetTensorImpl());
  }
  std::erase_if(trained, [](const nn::StateTensor& state) { return !state.tensor.defined(); });
  hashes.gradients = HashOf(trained, world, mesh);
  return hashes;
}

}  // namespace gt
