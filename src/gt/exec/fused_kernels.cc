#include "gt/exec/fused_kernels.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <chrono>
#include <map>
#include <mutex>
#include <set>

#include "gt/base/text.h"
#include "gt/exec/kernel_admission.h"
#include "gt/fusion/kernel_compiler.h"
#include "gt/kernels/cuda_driver.h"
#include "gt/kernels/load_kernel.h"
#include "gt/torch_bridge/convert.h"

namespace gt {
namespace {

using fusion::KernelSource;

// The body's outputs, at the sizes of a run.
struct OutputLayout {
  c10::DimVector sizes, strides;
};

// All that a launch needs, at the sizes of a run.
struct Launch {
  std::vector<int64_t> sizes;  // arguments of the kernel, the number of threads last
  std::vector<OutputLayout> outputs;
};

class CudaKernel : public FusedKernel {
 public:
  CudaKernel(const Graph& body, KernelSource source, void* function, c10::Device device)
      : body_(body), source_(std::move(source)), function_(function), device_(device) {
    for (const auto& output : body.outputs()) {
      dtypes_.push_back(ToTorch(output->value()->type().dtype));
      constant_ &= IsConstant(output->value()->type());
    }
    for (const Dim& dim : source_.sizes) constant_ &= dim.is_const();
    constant_ &= source_.threads.is_const();
    if (constant_) fixed_ = At({});
  }

  void Run(std::span<const at::Tensor> inputs, SymbolValues symbols,
           std::vector<at::Tensor>& outputs) const override {
    if (constant_) {
      Run(inputs, fixed_, outputs);
    } else {
      Run(inputs, At(symbols), outputs);
    }
  }

 private:
  static bool IsConstant(const TensorType& type) {
    for (const Shape* shape : {&type.sizes, &type.strides}) {
      for (const Dim& dim : *shape) {
        if (!dim.is_const()) return false;
      }
    }
    return true;
  }

  Launch At(SymbolValues symbols) const {
    Launch launch;
    for (const Dim& dim : source_.sizes) launch.sizes.push_back(dim.Evaluate(symbols));
    launch.sizes.push_back(source_.threads.Evaluate(symbols));
    for (const auto& output : body_.outputs()) {
      OutputLayout& layout = launch.outputs.emplace_back();
      const TensorType& type = output->value()->type();
      for (const Dim& dim : type.sizes) layout.sizes.push_back(dim.Evaluate(symbols));
      for (const Dim& dim : type.strides) layout.strides.push_back(dim.Evaluate(symbols));
    }
    return launch;
  }

  // Vectors are loaded as one: what begins elsewhere is first copied to where they can be, with its gaps and
  // with elements that several positions share.
  static at::Tensor Realigned(const at::Tensor& tensor) {
    if (tensor.numel() == 0) return tensor;
    int64_t extent = 1;
    for (int64_t d = 0; d < tensor.dim(); ++d) extent += (tensor.size(d) - 1) * tensor.stride(d);
    return tensor.as_strided({extent}, {1}).clone().as_strided(tensor.sizes(), tensor.strides(), 0);
  }

  void Run(std::span<const at::Tensor> inputs, const Launch& launch,
           std::vector<at::Tensor>& outputs) const {
    const auto options = at::TensorOptions(device_);
    outputs.resize(launch.outputs.size());
    for (size_t i = 0; i < launch.outputs.size(); ++i) {
      const OutputLayout& layout = launch.outputs[i];
      if (outputs[i].defined()) continue;
      outputs[i] = at::empty_strided(layout.sizes, layout.strides, options.dtype(dtypes_[i]));
    }
    const auto threads = static_cast<uint64_t>(launch.sizes.back());
    if (threads == 0) return;

    std::vector<void*> pointers;
    std::vector<at::Tensor> copies;
    for (const at::Tensor& input : inputs)
      pointers.push_back(const_cast<void*>(input.const_data_ptr()));
    for (const at::Tensor& output : outputs) pointers.push_back(output.mutable_data_ptr());
    for (const auto& [tensor, bytes] : source_.pointers) {
      void*& pointer = pointers[static_cast<size_t>(tensor)];
      if (reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(bytes) == 0) continue;
      copies.push_back(Realigned(inputs[static_cast<size_t>(tensor)]));
      pointer = copies.back().mutable_data_ptr();
    }
    std::vector<uint32_t> narrow(launch.sizes.begin(), launch.sizes.end());
    std::vector<void*> arguments;
    for (void*& pointer : pointers) arguments.push_back(&pointer);
    for (size_t i = 0; i < launch.sizes.size(); ++i) {
      arguments.push_back(source_.wide ? static_cast<void*>(const_cast<int64_t*>(&launch.sizes[i]))
                                       : static_cast<void*>(&narrow[i]));
    }
    constexpr auto kThreads = static_cast<uint64_t>(fusion::kThreadsPerBlock);
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
    CudaDriver::Get()->Launch(function_, (threads + kThreads - 1) / kThreads, kThreads,
                              stream.native_handle(), arguments.data());
  }

  const Graph& body_;
  const KernelSource source_;
  void* const function_;
  const c10::Device device_;
  std::vector<at::ScalarType> dtypes_;
  bool constant_ = true;  // no size depends on a symbol
  Launch fixed_;
};

// Functions and verdicts of this process, which several steps and ranks share.
class LoadedKernels {
 public:
  static LoadedKernels& Get() {
    static auto* kernels = new LoadedKernels();  // modules are never unloaded
    return *kernels;
  }

  std::mutex mutex;  // held while kernels are loaded and compared
  std::map<std::pair<int, std::string>, void*> functions;  // by device and key
  std::map<std::string, Verdict> verdicts;                 // by key and sizes
};

// Indices that do not fit into 32 bits, or may not.
bool NeedsWideIndices(const Graph& body, SymbolValues symbols) {
  constexpr double kMost = 4e9, kMostSymbolic = 1e9;
  const auto is_large = [&](const TensorType& type) {
    double extent = 1;
    bool symbolic = false;
    for (size_t d = 0; d < type.sizes.size(); ++d) {
      symbolic |= !type.sizes[d].is_const() || !type.strides[d].is_const();
      extent += static_cast<double>(std::max<int64_t>(type.sizes[d].Evaluate(symbols) - 1, 0)) *
                static_cast<double>(type.strides[d].Evaluate(symbols));
    }
    return extent > (symbolic ? kMostSymbolic : kMost);
  };
  for (const auto& input : body.inputs()) {
    if (is_large(input->value.type())) return true;
  }
  for (const Node* node : body.nodes()) {
    for (int32_t i = 0; i < node->result_count(); ++i) {
      if (is_large(node->result(i)->type())) return true;
    }
  }
  return false;
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Verdicts hold for one device, one libtorch and one set of sizes: ATen chooses its kernels by them.
std::string VerdictKey(const std::string& key, const KernelSource& source, SymbolValues symbols,
                       const std::string& device) {
  constexpr int kAdmission = 2;  // raised when more is asked of kernels
  std::string text =
      fmt::format("{} {} libtorch {} admission {}", key, device, TORCH_VERSION, kAdmission);
  for (const Dim& dim : source.sizes) text += fmt::format(" {}", dim.Evaluate(symbols));
  text += fmt::format(" {}", source.threads.Evaluate(symbols));
  return fusion::LongHash(text);
}

}  // namespace

namespace {

// A fused node that has no kernel yet.
struct Candidate {
  const Node* node;
  const Graph* body;
  KernelSource source;
};

// Makes kernels for the fused nodes of one graph on one GPU, form by form of what they may be written as.
class KernelMaker {
 public:
  using Kernels = std::unordered_map<const Node*, std::shared_ptr<const FusedKernel>>;

  KernelMaker(const Graph& graph, c10::Device device, std::filesystem::path store,
              KernelReport& report, Kernels& kernels)
      : driver_(*CudaDriver::Get()),
        device_(device),
        number_(device.has_index() ? device.index() : 0),
        symbols_(graph.shapes().Hints()),
        store_(std::move(store)),
        report_(report),
        kernels_(kernels) {}

  void Run(std::vector<Candidate> candidates) {
    const c10::DeviceGuard guard(device_);
    at::zeros({1}, device_);  // makes libtorch's context, should this be the first use
    std::set<std::string> texts;
    for (const Candidate& candidate : candidates) texts.insert(candidate.source.text);
    report_.kernels = static_cast<int64_t>(texts.size());
    for (int form = 0; !candidates.empty(); ++form) {
      candidates = RunForm(std::move(candidates), form);
      for (Candidate& candidate : candidates) {
        candidate.source = *fusion::MakeKernelSource(
            *candidate.body, {.wide = candidate.source.wide, .form = form + 1});
      }
    }
  }

 private:
  // Returns those that have another form to try.
  std::vector<Candidate> RunForm(std::vector<Candidate> candidates, int form) {
    std::map<std::string, size_t> numbers;  // by text
    std::vector<const KernelSource*> sources;
    for (const Candidate& one : candidates) {
      if (numbers.try_emplace(one.source.text, sources.size()).second) {
        sources.push_back(&one.source);
      }
    }
    auto start = std::chrono::steady_clock::now();
    std::vector<fusion::CompiledKernel> compiled =
        fusion::CompileKernels(sources, driver_.Architecture(number_), store_);
    report_.compile_seconds += SecondsSince(start);

    LoadedKernels& loaded = LoadedKernels::Get();
    const std::lock_guard lock(loaded.mutex);
    start = std::chrono::steady_clock::now();
    const std::vector<void*> functions = Load(loaded, sources, compiled);
    std::vector<Candidate> again;
    std::set<size_t> admitted, rejected;
    for (Candidate& one : candidates) {
      const size_t i = numbers.at(one.source.text);
      if (functions[i] == nullptr) continue;
      const std::string key = VerdictKey(compiled[i].key, one.source, symbols_, DeviceName());
      auto kernel = std::make_shared<CudaKernel>(*one.body, one.source, functions[i], device_);
      const Verdict& verdict = VerdictOn(loaded, key, *kernel, *one.body);
      if (verdict.admitted()) {
        report_.admitted += admitted.insert(i).second;
        kernels_[one.node] = std::move(kernel);
      } else if (!verdict.same_bits && form + 1 < one.source.forms) {
        again.push_back(std::move(one));
      } else if (rejected.insert(i).second) {
        report_.rejected.push_back(fmt::format("{} ({})", one.source.name, verdict.reason));
      }
    }
    report_.admission_seconds += SecondsSince(start);
    return again;
  }

  std::vector<void*> Load(LoadedKernels& loaded, const std::vector<const KernelSource*>& sources,
                          std::vector<fusion::CompiledKernel>& compiled) {
    std::vector<void*> functions(sources.size(), nullptr);
    size_t refused = 0;
    std::string refusal;
    for (size_t i = 0; i < sources.size(); ++i) {
      report_.compiled += !compiled[i].stored && !compiled[i].cubin.empty();
      std::string why = compiled[i].error;
      if (!compiled[i].cubin.empty()) {
        void*& function = loaded.functions[{number_, compiled[i].key}];
        if (function == nullptr) {
          const bool stored = compiled[i].stored;
          function = LoadKernel(driver_, *sources[i], driver_.Architecture(number_), store_,
                                compiled[i], why);
          report_.compiled += stored && !compiled[i].stored && !compiled[i].cubin.empty();
        }
        functions[i] = function;
      }
      if (functions[i] != nullptr) continue;
      report_.rejected.push_back(fmt::format("{} ({})", sources[i]->name, why));
      if (compiled[i].cubin.empty()) {
        if (report_.missing.empty()) report_.missing = why;
      } else {
        ++refused;
        refusal = why;
      }
    }
    // Not each by name: the driver is older than the compiler.
    if (refused == sources.size() && report_.missing.empty()) {
      report_.missing = OldDriver(refusal);
    }
    return functions;
  }

  const Verdict& VerdictOn(LoadedKernels& loaded, const std::string& key, const FusedKernel& kernel,
                           const Graph& body) {
    auto [entry, fresh] = loaded.verdicts.try_emplace(key);
    Verdict& verdict = entry->second;
    if (!fresh) return verdict;
    const std::string file = key + ".verdict";
    if (const auto text = store_.Find(file)) {
      if (auto stored = VerdictFrom(*text)) return verdict = std::move(*stored);
    }
    ++report_.compared;
    try {
      verdict = Admit(kernel, body, symbols_, device_);
      store_.Put(file, Stored(verdict));
    } catch (const c10::Error& error) {
      // Not stored: with more memory, or another neighbour on the device, it may go well.
      verdict.reason = fmt::format("it could not be compared: {}",
                                   Split(error.what_without_backtrace(), '\n').front());
    }
    return verdict;
  }

  const std::string& DeviceName() {
    if (device_name_.empty()) device_name_ = driver_.NameOf(number_);
    return device_name_;
  }

  const CudaDriver& driver_;
  const c10::Device device_;
  const int number_;
  const SymbolValues symbols_;
  fusion::KernelStore store_;
  KernelReport& report_;
  Kernels& kernels_;
  std::string device_name_;
};

}  // namespace

FusedKernels::FusedKernels(const Graph& graph, c10::Device device, std::filesystem::path store) {
  const SymbolValues symbols = graph.shapes().Hints();
  const DeviceKind kind = FromTorch(device).kind;
  std::vector<Candidate> candidates;
  for (const Node* node : graph.nodes()) {
    const Graph* body = FusedBody(*node);
    if (body == nullptr || node->result()->type().device.kind != kind) continue;
    ++report_.nodes;
    auto source = fusion::MakeKernelSource(*body, {.wide = NeedsWideIndices(*body, symbols)});
    if (source) candidates.push_back({node, body, std::move(*source)});
  }
  if (candidates.empty()) return;
  if (CudaDriver::Get() == nullptr) {
    report_.missing = "there is no driver";
    return;
  }
  KernelMaker(graph, device, std::move(store), report_, kernels_).Run(std::move(candidates));
}

FusedKernels::~FusedKernels() = default;

const FusedKernel* FusedKernels::Find(const Node& node) const {
  const auto found = kernels_.find(&node);
  return found == kernels_.end() ? nullptr : found->second.get();
}

bool HasFusedNodes(const Graph& graph) {
  for (const Node* node : graph.nodes()) {
    if (FusedBody(*node) != nullptr) return true;
  }
  return false;
}

}  // namespace gt
