#include "gt/train/model_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "gt/analysis/roles.h"
#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/compile/configured_model.h"
#include "gt/dist/mesh.h"
#include "gt/job/config.h"
#include "gt/train/metrics.h"

namespace gt {
namespace {

int64_t BytesOf(TrainingDtype dtype) { return dtype == TrainingDtype::kBfloat16 ? 2 : 4; }

// Parts are as large as the largest rank's.
int64_t Share(int64_t count, int64_t ranks) { return (count + ranks - 1) / ranks; }

// What a model's config.json says of it; 0 where it does not.
int64_t Hyperparameter(const nlohmann::json& json, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    auto found = json.find(name);
    if (found != json.end() && found->is_number_integer()) return found->get<int64_t>();
  }
  return 0;
}

int64_t ExpertsOf(const nlohmann::json& json) {
  return Hyperparameter(json, {"n_routed_experts", "num_experts", "num_local_experts"});
}

void RequireDivides(const char* degree, int64_t divisor, const char* what, int64_t number) {
  if (number % divisor == 0) return;
  Fail(ErrorCode::kConflictingOptions,
       "--{} {} must divide the {} {}, since each rank takes an equal number of them", degree,
       divisor, number, what);
}

void CheckDegrees(const ParallelDegrees& degrees, const nlohmann::json& json) {
  constexpr const char* kTensor = "parallelism.tensor_parallel_degree";
  constexpr const char* kExpert = "parallelism.expert_parallel_degree";
  int64_t tp = degrees.tensor_parallel, ep = degrees.expert_parallel;
  RequireDivides(kTensor, tp, "attention heads", Hyperparameter(json, {"num_attention_heads"}));
  RequireDivides(kTensor, tp, "key/value heads", Hyperparameter(json, {"num_key_value_heads"}));
  RequireDivides(kTensor, tp, "channels of the feed-forward part",
                 Hyperparameter(json, {"intermediate_size"}));
  if (ep == 1) return;
  int64_t experts = ExpertsOf(json);
  if (experts == 0) {
    Fail(ErrorCode::kConflictingOptions,
         "--{} {} splits experts, but the model has none; leave it at 1", kExpert, ep);
  }
  RequireDivides(kExpert, ep, "experts of a layer", experts);
  if (degrees.shards() % ep != 0) {
    Fail(ErrorCode::kConflictingOptions,
         "--{} {} must divide the {} ranks that share parameters, since experts live on the same "
         "ranks as the rest",
         kExpert, ep, degrees.shards());
  }
}

ModelPart PartOf(std::optional<ModuleRole> role) {
  if (!role) return ModelPart::kOther;
  switch (*role) {
    case ModuleRole::kAttention:
      return ModelPart::kAttention;
    case ModuleRole::kFeedForward:
      return ModelPart::kDenseFfn;
    case ModuleRole::kRouter:
      return ModelPart::kRouter;
    case ModuleRole::kExperts:
      return ModelPart::kRoutedExperts;
    case ModuleRole::kSharedExperts:
      return ModelPart::kSharedExperts;
    case ModuleRole::kNorm:
      return ModelPart::kNorms;
    case ModuleRole::kEmbedding:
      return ModelPart::kEmbedding;
    case ModuleRole::kHead:
      return ModelPart::kHead;
    case ModuleRole::kBlock:
    case ModuleRole::kMoe:
      break;
  }
  return ModelPart::kOther;
}

struct BlockSize {
  int64_t dense = 0, experts = 0;
};

// Bytes of parameters as they are computed with, beyond those that are stored. Gathering undoes
// FSDP, but a rank keeps to its heads and to its experts.
int64_t WeightCopies(const ModelReport& report, const std::map<int32_t, BlockSize>& blocks) {
  int64_t bytes = BytesOf(report.compute);
  int64_t tp = report.degrees.tensor_parallel, ep = report.degrees.expert_parallel;
  if (report.degrees.data_parallel_shard == 1) {
    return report.stored == report.compute ? 0 : Share(report.parameters, tp) * bytes;
  }
  int64_t largest = 0;
  for (const auto& [number, block] : blocks) {
    if (number < 0) continue;  // the rest of the model
    largest = std::max(largest, Share(block.dense, tp) + Share(block.experts, ep > 1 ? ep : tp));
  }
  return 2 * largest * bytes;
}

// Numbers that a matrix leaves behind for backward, for one token: its inputs and its outputs.
// Results of attention's matrices are kept once more after they were turned and laid out for the
// kernel, and those of a gate (w1) after its activation.
int64_t KeptFor(ModelPart part, const std::string& name, const at::Tensor& parameter,
                int64_t top_k) {
  if (parameter.dim() < 2) return 0;
  int64_t in = parameter.size(-1), out = parameter.size(-2);
  switch (part) {
    case ModelPart::kEmbedding:  // looking up keeps the row
    case ModelPart::kHead:       // logits are counted by themselves
      return in;
    case ModelPart::kAttention:
      return in + 2 * out;
    default:
      bool gate = name.ends_with(".w1") || name.ends_with(".w1.weight");
      return (in + (gate ? 2 : 1) * out) * (part == ModelPart::kRoutedExperts ? top_k : 1);
  }
}

int64_t LogitBytes(const Config& config, const LanguageModel& model, int64_t tokens) {
  int64_t chunks = std::min(LossConfigOf(config, model).chunks, config.training.seq_len);
  int64_t numbers = Share(tokens, chunks) * model.vocab_size();
  return numbers * (4 + 4 + BytesOf(ComputeDtypeOf(config)));
}

std::string FormatRow(std::string_view name, const PartReport& row, int64_t total) {
  return fmt::format("  {:<16} {:>19} {:>7.2f}% {:>12} {:>12} {:>12} {:>12}\n", name,
                     FormatCount(static_cast<double>(row.parameters)),
                     100.0 * static_cast<double>(row.parameters) / static_cast<double>(total),
                     ByteText(row.parameter_bytes), ByteText(row.gradient_bytes),
                     ByteText(row.optimizer_bytes), ByteText(row.bytes()));
}

// "data_parallel_shard 8 x tensor_parallel 2, expert_parallel 4": degrees above 1.
std::string DegreesText(const ParallelDegrees& degrees) {
  std::vector<std::string> shown;
  const auto add = [&shown](std::string_view name, int64_t degree) {
    if (degree > 1) shown.push_back(fmt::format("{} {}", name, degree));
  };
  add("data_parallel_replicate", degrees.data_parallel_replicate);
  add("data_parallel_shard", degrees.data_parallel_shard);
  add("context_parallel", degrees.context_parallel);
  add("tensor_parallel", degrees.tensor_parallel);
  std::string text = shown.empty() ? "no parallelism" : gt::Join(shown, " x ");
  if (degrees.expert_parallel > 1) {
    text += fmt::format(", expert_parallel {}", degrees.expert_parallel);
  }
  return text;
}

std::string FormatFlops(double flops) {
  for (const char* unit : {"FLOP", "KFLOP", "MFLOP", "GFLOP", "TFLOP"}) {
    if (flops < 1000) return fmt::format("{:.1f} {}", flops, unit);
    flops /= 1000;
  }
  return fmt::format("{:.1f} PFLOP", flops);
}

nlohmann::ordered_json Weights(const PartReport& row) {
  return {{"parameters", row.parameters},
          {"parameter_bytes", row.parameter_bytes},
          {"gradient_bytes", row.gradient_bytes},
          {"optimizer_bytes", row.optimizer_bytes}};
}

}  // namespace

ParallelDegrees DegreesOf(const Config& config) {
  const Mesh mesh(config.parallelism, std::max<int64_t>(1, config.ranks), 0);
  return {.data_parallel_replicate = mesh.size(MeshAxis::kDpReplicate),
          .data_parallel_shard = mesh.size(MeshAxis::kFsdp) / mesh.size(MeshAxis::kCp),
          .context_parallel = mesh.size(MeshAxis::kCp),
          .tensor_parallel = mesh.size(MeshAxis::kTp),
          .expert_parallel = mesh.size(MeshAxis::kEp)};
}

PartReport ModelReport::Sum() const {
  PartReport sum{.part = ModelPart::kOther};
  for (const PartReport& row : parts) {
    sum.parameters += row.parameters;
    sum.parameter_bytes += row.parameter_bytes;
    sum.gradient_bytes += row.gradient_bytes;
    sum.optimizer_bytes += row.optimizer_bytes;
  }
  return sum;
}

int64_t ModelReport::bytes() const {
  return Sum().bytes() + activation_bytes + logit_bytes + weight_copy_bytes;
}

ModelReport ReportOnModel(const Config& config, const ParallelDegrees& degrees) {
  ModelPtr model = BuildConfiguredModel(config);
  nlohmann::json json = model->HfConfigJson();
  CheckDegrees(degrees, json);

  ModelReport report;
  report.title = ModelTitle(config);
  report.degrees = degrees;
  report.stored = config.training.dtype;
  report.compute = ComputeDtypeOf(config);
  report.batch = config.training.local_batch_size;
  report.length = config.training.seq_len;
  report.tied = json.value("tie_word_embeddings", false);
  report.parameters = nn::ParameterCount(*model);
  report.active_parameters = model->ActiveParameters();
  report.flops_per_token = model->FlopsPerToken(report.length);

  std::array<int64_t, kEnumNames<ModelPart>.size()> by_part = {};
  std::map<int32_t, BlockSize> by_block;
  const ModuleTable modules = nn::RolesOf(*model);
  Roles roles(modules);
  int64_t kept = 0, top_k = Hyperparameter(json, {"num_experts_per_tok"});
  for (const auto& item : model->named_parameters()) {
    const Roles::Place& place = roles.Of(Name(item.key()));
    ModelPart part = PartOf(place.role);  // a norm inside of attention is a norm
    by_part[static_cast<size_t>(part)] += item.value().numel();
    BlockSize& block = by_block[place.block];
    (part == ModelPart::kRoutedExperts ? block.experts : block.dense) += item.value().numel();
    kept += KeptFor(part, item.key(), item.value(), top_k);
  }
  for (size_t i = 0; i < by_part.size(); ++i) {
    if (by_part[i] == 0) continue;
    int64_t bytes = Share(by_part[i], degrees.shards()) * BytesOf(report.stored);
    // AdamW keeps two means in the parameters' dtype.
    report.parts.push_back({static_cast<ModelPart>(i), by_part[i], bytes, bytes, 2 * bytes});
  }
  int64_t tokens = Share(report.batch * report.length, degrees.context_parallel);
  report.activation_bytes = Share(tokens * kept * BytesOf(report.compute), degrees.tensor_parallel);
  report.logit_bytes = Share(LogitBytes(config, *model, tokens), degrees.tensor_parallel);
  report.weight_copy_bytes = WeightCopies(report, by_block);
  return report;
}

std::string ToTable(const ModelReport& report) {
  auto count = [](int64_t number) { return FormatCount(static_cast<double>(number)); };
  const ParallelDegrees& degrees = report.degrees;
  std::string text = fmt::format("{}: {} parameters, {} active per token\n", report.title,
                                 count(report.parameters), count(report.active_parameters));
  text += fmt::format("{} per token, forward and backward, at {} tokens a sequence\n",
                      FormatFlops(static_cast<double>(report.flops_per_token)), report.length);
  text += fmt::format("kept in {}, computed in {}\n", EnumName(report.stored),
                      EnumName(report.compute));
  text += fmt::format("{} rank{}: {}\n", degrees.ranks(), degrees.ranks() == 1 ? "" : "s",
                      DegreesText(degrees));
  text += fmt::format("\n  {:<16} {:>19} {:>8} {:>12} {:>12} {:>12} {:>12}\n", "part", "parameters",
                      "share", "weights", "gradients", "optimizer", "of a rank");
  for (const PartReport& row : report.parts) {
    text += FormatRow(EnumName(row.part), row, report.parameters);
  }
  text += FormatRow("total", report.Sum(), report.parameters);
  if (report.tied) text += "  (the head is the embedding)\n";
  text += fmt::format("\nestimates for one rank, {} x {} tokens, nothing recomputed:\n",
                      report.batch, report.length);
  auto row = [&text](std::string_view name, int64_t bytes) {
    text += fmt::format("  {:<16} {:>19}\n", name, ByteText(bytes));
  };
  row("activations", report.activation_bytes);
  row("logits", report.logit_bytes);
  row("weight copies", report.weight_copy_bytes);
  row("all of a rank", report.bytes());
  return text;
}

nlohmann::ordered_json ToJson(const ModelReport& report) {
  nlohmann::ordered_json json = {
      {"model", report.title},
      {"parameters", report.parameters},
      {"active_parameters", report.active_parameters},
      {"flops_per_token", report.flops_per_token},
      {"seq_len", report.length},
      {"local_batch_size", report.batch},
      {"dtype", EnumName(report.stored)},
      {"mixed_precision_param", EnumName(report.compute)},
      {"tied", report.tied},
      {"ranks", report.degrees.ranks()},
      {"data_parallel_replicate_degree", report.degrees.data_parallel_replicate},
      {"data_parallel_shard_degree", report.degrees.data_parallel_shard},
      {"context_parallel_degree", report.degrees.context_parallel},
      {"tensor_parallel_degree", report.degrees.tensor_parallel},
      {"expert_parallel_degree", report.degrees.expert_parallel}};
  for (const PartReport& row : report.parts) {
    std::string name(EnumName(row.part));
    std::replace(name.begin(), name.end(), ' ', '_');
    json["parts"][name] = Weights(row);
  }
  json["rank_bytes"] = Weights(report.Sum());
  json["rank_bytes"].erase("parameters");
  json["rank_bytes"]["activations_estimate"] = report.activation_bytes;
  json["rank_bytes"]["logits_estimate"] = report.logit_bytes;
  json["rank_bytes"]["weight_copies_estimate"] = report.weight_copy_bytes;
  json["rank_bytes"]["all_estimate"] = report.bytes();
  return json;
}

}  // namespace gt
