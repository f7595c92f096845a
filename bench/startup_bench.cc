// What passes before the first step: first values of a model's parameters, and Hugging Face weights,
// on the device of the job. Each beside what bounds it, measured in the same run:
//   first values   against the same memory filled with ones in the same pieces, and libtorch's normal_
//   weights        against reading the same files into a buffer, on one thread as cat does and on all
//                  cores; from the disk (the system's copy dropped before) and from memory
// The best of several tries is shown.
//
//   startup_bench [--tries 3] [--folder /tmp] [options of a job, as gt train takes them]
#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/workers.h"
#include "gt/compile/configured_model.h"
#include "gt/config/command_line.h"
#include "gt/job/config.h"
#include "gt/models/hf_checkpoint.h"
#include "gt/torch_bridge/device.h"
#include "gt/torch_bridge/tensor_fill.h"
#include "gt/train/step/optimizer.h"

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double Seconds(const std::function<void()>& body) {
  const Clock::time_point start = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The files of a folder of weights, for reading them without looking at what they hold.
class Files {
 public:
  explicit Files(const fs::path& folder) {
    for (const auto& file : fs::directory_iterator(folder)) {
      if (file.path().extension() != ".safetensors") continue;
      Opened opened{open(file.path().c_str(), O_RDONLY), static_cast<int64_t>(file.file_size())};
      GT_CHECK(opened.descriptor >= 0, "{} cannot be opened", file.path().string());
      fsync(opened.descriptor);  // what is not on the disk yet cannot be dropped
      for (int64_t at = 0; at < opened.bytes; at += kPiece) pieces_.push_back({files_.size(), at});
      bytes_ += opened.bytes;
      files_.push_back(opened);
    }
  }
  ~Files() {
    for (const Opened& file : files_) close(file.descriptor);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  int64_t bytes() const { return bytes_; }

  // The next who reads them reads the disk.
  void Drop() const {
    for (const Opened& file : files_) posix_fadvise(file.descriptor, 0, 0, POSIX_FADV_DONTNEED);
  }

  void Read(int64_t threads) const {
    gt::LimitWorkers(threads);
    gt::RunWorkers(std::ssize(pieces_), [this](gt::WorkItems& items) {
      std::vector<std::byte> buffer(kPiece);
      while (const auto item = items.Next()) {
        const Piece& piece = pieces_[static_cast<size_t>(*item)];
        GT_CHECK(pread(files_[piece.file].descriptor, buffer.data(), kPiece, piece.begin) > 0,
                 "a file cannot be read");
      }
    });
    gt::LimitWorkers(0);
  }

 private:
  static constexpr int64_t kPiece = int64_t{4} << 20;
  struct Opened {
    int descriptor;
    int64_t bytes;
  };
  struct Piece {
    size_t file;
    int64_t begin;
  };
  std::vector<Opened> files_;
  std::vector<Piece> pieces_;
  int64_t bytes_ = 0;
};

class StartupBench {
 public:
  StartupBench(const gt::Config& config, int64_t tries)
      : config_(config), tries_(tries), device_(gt::ChooseDevice(config.device)) {
    gt::SetThreads(config.threads);
    parameters_ = static_cast<double>(gt::nn::ParameterCount(*gt::BuildConfiguredModel(config)));
    fmt::print("{}, {:.3f} G parameters in {}, on {} with {} cores\n", gt::ModelTitle(config),
               parameters_ / 1e9, gt::EnumName(config.training.dtype),
               device_.is_cuda() ? "a GPU" : "the CPU", std::thread::hardware_concurrency());
  }

  void FirstValues() {
    const double ours = Best([&](gt::LanguageModel& model) { Materialize(model); });
    gt::LimitWorkers(1);
    const double one_thread = Best([&](gt::LanguageModel& model) { Materialize(model); });
    gt::LimitWorkers(0);
    const double bound = Best([&](gt::LanguageModel& model) { FillWithOnes(model); });
    const double torch = Best([&](gt::LanguageModel& model) { FillWithNormal(model); });
    Print("first values", ours, "");
    Print("  on one thread", one_thread, fmt::format("{:.1f} x all cores", one_thread / ours));
    Print("  ones in their place", bound, fmt::format("first values take {:.2f} x", ours / bound));
    Print("  libtorch's normal_", torch, fmt::format("first values take {:.2f} x", ours / torch));
  }

  void OptimizerState() {
    double best = 1e30;
    for (int64_t i = 0; i < tries_; ++i) {
      gt::ModelPtr model = gt::BuildConfiguredModel(config_);
      gt::nn::Allocate(*model, device_, gt::ToTorch(config_.training.dtype));
      best = std::min(best, Seconds([&] {
                        gt::AdamW optimizer(gt::NamedParameters(*model), config_.optimizer);
                        gt::Synchronize(device_);
                      }));
    }
    Print("optimizer's state", best, "");
  }

  void Weights(const fs::path& folder) {
    {
      gt::ModelPtr model = gt::BuildConfiguredModel(config_);
      Materialize(*model);
      gt::SaveHfFolder(*model, folder.string(), at::kBFloat16);
    }
    const Files files(folder);
    const auto load = [&](gt::LanguageModel& model) {
      gt::nn::Allocate(model, device_, gt::ToTorch(config_.training.dtype));
      gt::LoadHfWeights(model, folder.string());
    };
    for (const bool cold : {true, false}) {
      const std::function<void()> before = [&] {
        if (cold) files.Drop();
      };
      const double cat = BestOf([&] { files.Read(1); }, before);
      const double all = BestOf([&] { files.Read(0); }, before);
      const double ours = Best(load, before);
      const auto rate = [&](double seconds) {
        return static_cast<double>(files.bytes()) / seconds / 1e9;
      };
      Print(cold ? "weights from the disk" : "weights from memory", ours,
            fmt::format("{:.2f} GB/s of file", rate(ours)));
      Print("  reading on one thread", cat,
            fmt::format("{:.2f} GB/s; weights take {:.2f} x", rate(cat), ours / cat));
      Print("  reading on all cores", all,
            fmt::format("{:.2f} GB/s; weights take {:.2f} x", rate(all), ours / all));
    }
  }

 private:
  double BestOf(const std::function<void()>& body, const std::function<void()>& before) const {
    double best = 1e30;
    for (int64_t i = 0; i < tries_; ++i) {
      before();
      best = std::min(best, Seconds(body));
    }
    return best;
  }

  // Of a model without memory each time: taking it is part of the start.
  double Best(
      const std::function<void(gt::LanguageModel&)>& body,
      const std::function<void()>& before = [] {}) const {
    double best = 1e30;
    for (int64_t i = 0; i < tries_; ++i) {
      gt::ModelPtr model = gt::BuildConfiguredModel(config_);
      before();
      best = std::min(best, Seconds([&] {
                        body(*model);
                        gt::Synchronize(device_);
                      }));
    }
    return best;
  }

  void Materialize(gt::LanguageModel& model) const {
    gt::nn::Materialize(model, device_, /*seed=*/1, gt::ToTorch(config_.training.dtype));
  }

  void FillWithOnes(gt::LanguageModel& model) const {
    gt::nn::Allocate(model, device_, gt::ToTorch(config_.training.dtype));
    std::vector<gt::FillPiece> pieces;
    for (const gt::nn::StateTensor& state : gt::nn::NamedState(model)) {
      const at::Tensor tensor = state.tensor.detach();
      for (const gt::TensorBox& piece : gt::SplitBox(state.box, gt::kFillElements)) {
        pieces.push_back(
            {gt::ViewOfBox(tensor, state.box, piece), [](const at::Tensor& out) { out.fill_(1); }});
      }
    }
    gt::FillTensors(std::move(pieces));
  }

  void FillWithNormal(gt::LanguageModel& model) const {
    gt::nn::Allocate(model, device_, gt::ToTorch(config_.training.dtype));
    for (const at::Tensor& parameter : model.parameters()) parameter.detach().normal_(0, 0.02);
  }

  void Print(const std::string& what, double seconds, const std::string& remark) const {
    fmt::print("{:<26} {:>8.3f} s {:>8.3f} s for each billion   {}\n", what, seconds,
               seconds / parameters_ * 1e9, remark);
    std::fflush(stdout);
  }

  const gt::Config& config_;
  const int64_t tries_;
  const c10::Device device_;
  double parameters_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  gt::PrepareCpu();
  gt::Config config;
  config.model.flavor = "1B";
  config.model.n_layers = 4;
  int64_t tries = 3;
  std::string folder = fs::temp_directory_path().string();
  gt::CommandLine line("startup_bench", "measures what passes before the first step");
  line.Flag("tries", &tries, gt::AtLeast(1), "times that each thing is done")
      .Flag("folder", &folder, "where weights are written, on the disk to be measured")
      .WithConfig(&config);
  try {
    if (!line.Parse(count - 1, arguments + 1)) {
      fmt::print("{}", line.Help());
      return 0;
    }
    const fs::path weights = fs::path(folder) / fmt::format("gt_startup_bench_{}", getpid());
    StartupBench bench(config, tries);
    bench.FirstValues();
    bench.OptimizerState();
    bench.Weights(weights);
    fs::remove_all(weights);
  } catch (const gt::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
