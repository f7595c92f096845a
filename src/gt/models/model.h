// The models by name: families and their flavors. docs/adding_a_model.md shows how to add one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gt/dist/group.h"
#include "gt/models/hf_config.h"
#include "gt/nn/attention.h"
#include "gt/nn/module.h"

namespace gt {

// What a job decides about a model besides its family and flavor.
struct ModelOptions {
  int64_t max_length = 2048;  // the longest sequence it must handle
  nn::AttentionConfig attention = {};
  int64_t layers = 0;          // in place of the flavor's; 0: the flavor's
  int64_t vocab = 0;           // the same
  double load_balance = -1;    // how fast expert biases move; negative: the flavor's
  bool force_balance = false;  // experts in turn, for measurements
  double dropout = 0.0;        // share of what blocks add that training drops
};

// Both [batch, length], int64.
struct ModelInputs {
  at::Tensor tokens;
  at::Tensor positions;  // within the token's document
};

// One tensor of a Hugging Face checkpoint as a view of one of ours. The view may have more
// dimensions and other strides; its elements in row-major order are those of the checkpoint's
// tensor. So one function says how to read the tensor and how to write it.
struct HfTensor {
  std::string name;
  std::vector<int64_t> sizes;
  std::string target;                                      // our parameter or buffer
  std::function<at::Tensor(const at::Tensor&)> view = {};  // empty: the tensor as it is
  // For orders that no strides describe: row r of the checkpoint is row rows[r] of the view.
  std::vector<int64_t> rows = {};
};

// How tensor parallelism treats the modules that match a pattern. Between blocks every rank has its
// stretch of each sequence; a module that needs whole sequences gathers them, and one whose results
// are parts of a sum adds them up and shares the sequence out again.
struct TensorSplit {
  enum class Weight { kWhole, kRows, kColumns };
  enum class Sequence { kAsItIs, kGathered, kSummedAndShared };
  std::string module;  // pattern, as in base/fqn_pattern.h
  Weight weight = Weight::kWhole;
  int64_t units = 0;      // rows or columns are shared out in so many equal pieces ...
  std::string unit = {};  // ... of this kind, for messages: "heads"
  Sequence input = Sequence::kAsItIs;
  Sequence output = Sequence::kAsItIs;
};

// Adds up a tensor over all ranks that see different tokens.
using SumOverRanks = std::function<at::Tensor(const at::Tensor&)>;

// What the trainer needs to know of a model.
class LanguageModel : public nn::Module {
 public:
  explicit LanguageModel(std::source_location where = std::source_location::current())
      : nn::Module(where) {}
  // What the head turns into logits: [batch, length, width].
  virtual at::Tensor Hidden(const ModelInputs& inputs) = 0;
  // logits = hidden * HeadWeight^T; [vocab, width]
  virtual at::Tensor HeadWeight() const = 0;
  at::Tensor Logits(const ModelInputs& inputs);
  // Who shares the rows of HeadWeight, and with them each sequence of Hidden.
  struct HeadSpread {
    const Group* group = nullptr;  // null: nobody
    int64_t first_row = 0;         // of this rank
  };
  void SpreadHead(const HeadSpread& spread) { head_spread_ = spread; }
  const HeadSpread& head_spread() const { return head_spread_; }

  virtual int64_t vocab_size() const = 0;
  // Floating-point operations of forward and backward for one token at this sequence length,
  // recomputation not counted.
  virtual int64_t FlopsPerToken(int64_t length) const = 0;
  // Weights that multiply one token.
  virtual int64_t ActiveParameters() const = 0;

  // Before the optimizer's step: what changes by other rules than gradients. `sum` adds up counts of
  // tokens; it must be called equally often on every rank.
  virtual void BeforeUpdate(const SumOverRanks& sum) { (void)sum; }

  // How the model can be shared out among tensor-parallel ranks; empty: it cannot.
  virtual std::vector<TensorSplit> TensorSplits() const { return {}; }

  // How the model is stored in a Hugging Face folder: every tensor, and config.json.
  virtual std::vector<HfTensor> HfTensors() const = 0;
  virtual nlohmann::json HfConfigJson() const = 0;

 private:
  HeadSpread head_spread_;
};

using ModelPtr = std::shared_ptr<LanguageModel>;

struct ModelFamily {
  std::string name;
  std::vector<std::string> flavors;
  std::function<ModelPtr(const std::string& flavor, const ModelOptions&)> build;
  // Values of "model_type" in config.json that this family reads, and how.
  std::vector<std::string> hf_types;
  std::function<ModelPtr(const HfConfig&, const ModelOptions&)> build_from_hf;
};

// Makes a family known; a static object of this type in the family's file does it when the program
// starts.
struct ModelRegistration {
  explicit ModelRegistration(ModelFamily family);
};

// Sorted by name.
const std::vector<ModelFamily>& ModelFamilies();

// Models are built without data (nn::Materialize allocates). Unknown names are errors that suggest
// the nearest.
ModelPtr BuildModel(const std::string& name, const std::string& flavor,
                    const ModelOptions& options);
// As config.json in the folder describes it.
ModelPtr BuildModelFromHf(const std::string& folder, const ModelOptions& options);

}  // namespace gt
