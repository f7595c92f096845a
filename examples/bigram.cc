// A model family in one file: the next token from the one before it, by way of a hidden layer. Trained
// eagerly and captured with gt's own trainer; the bits are the same.
#include <fmt/format.h>

#include <filesystem>

#include "gt/job/config.h"
#include "gt/models/model.h"
#include "gt/nn/blocks.h"
#include "gt/train/trainer.h"

namespace {

constexpr int64_t kVocab = 256, kWidth = 32;

class Bigram : public gt::LanguageModel {
 public:
  Bigram() {
    embedding_ =
        AddChild<gt::nn::Embedding>("embedding", kVocab, kWidth, gt::nn::Init::Normal(1.0));
    hidden_ =
        AddChild<gt::nn::Linear>("hidden", kWidth, kWidth, gt::nn::Init::TruncatedNormal(0.02));
    hidden_->set_role(gt::ModuleRole::kBlock);
    head_ = AddChild<gt::nn::Linear>("head", kWidth, kVocab, gt::nn::Init::TruncatedNormal(0.02));
    head_->set_role(gt::ModuleRole::kHead);
  }

  at::Tensor Hidden(const gt::ModelInputs& inputs) override {
    const at::Tensor x = embedding_(inputs.tokens);
    return x + at::silu(hidden_(x));
  }
  at::Tensor HeadWeight() const override { return head_->weight(); }
  int64_t vocab_size() const override { return kVocab; }
  int64_t ActiveParameters() const override { return kWidth * kWidth + kVocab * kWidth; }
  int64_t FlopsPerToken(int64_t /*length*/) const override { return 6 * ActiveParameters(); }
  std::vector<gt::HfTensor> HfTensors() const override {
    return {{"embedding.weight", {kVocab, kWidth}, "embedding.weight"},
            {"hidden.weight", {kWidth, kWidth}, "hidden.weight"},
            {"head.weight", {kVocab, kWidth}, "head.weight"}};
  }
  nlohmann::json HfConfigJson() const override { return {{"model_type", "bigram"}}; }

 private:
  gt::nn::Ref<gt::nn::Embedding> embedding_;
  gt::nn::Ref<gt::nn::Linear> hidden_, head_;
};

const gt::ModelRegistration kRegistration({
    .name = "bigram",
    .source = "an example",
    .flavors = {"small"},
    .build = [](const std::string&, const gt::ModelOptions&) { return std::make_shared<Bigram>(); },
    .hf_types = {"bigram"},
    .build_from_hf = [](const gt::HfConfig&,
                        const gt::ModelOptions&) { return std::make_shared<Bigram>(); },
});

uint64_t HashAfterTraining(gt::CompileMode mode, const std::filesystem::path& folder) {
  gt::Config config;
  config.model.name = "bigram";
  config.model.flavor = "small";
  config.model.tokenizer_path = "bytes";
  config.device = gt::DeviceChoice::kCpu;
  config.training.steps = 5;
  config.training.seq_len = 64;
  config.compile.mode = mode;
  config.dump_folder = folder.string();
  return gt::Train(config).state_hash;
}

}  // namespace

int main() {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "gt_example_bigram";
  const uint64_t eager = HashAfterTraining(gt::CompileMode::kEager, folder / "eager");
  const uint64_t captured = HashAfterTraining(gt::CompileMode::kAotFxTrace, folder / "captured");
  std::filesystem::remove_all(folder);
  fmt::print("eager {:016x}, captured {:016x}\n", eager, captured);
  return eager == captured ? 0 : 1;
}
