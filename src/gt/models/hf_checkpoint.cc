#include "gt/models/hf_checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <unordered_map>
#include <unordered_set>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/exec/convert.h"
#include "gt/exec/stored_tensor.h"
#include "gt/storage/file_writer.h"
#include "gt/storage/mapped_file.h"
#include "gt/storage/safetensors.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

std::unordered_map<std::string, at::Tensor> StateByName(LanguageModel& model) {
  std::unordered_map<std::string, at::Tensor> tensors;
  for (auto& [name, tensor] : nn::NamedState(model)) tensors.emplace(name, tensor.detach());
  return tensors;
}

at::Tensor ViewOf(const HfTensor& entry, const at::Tensor& target) {
  return entry.view ? entry.view(target) : target;
}

at::Tensor RowsOf(const HfTensor& entry) { return at::tensor(entry.rows, at::kLong); }

void Fill(const HfTensor& entry, const at::Tensor& target, const TensorEntry& stored) {
  at::Tensor values = ToTensor(stored);
  if (entry.rows.empty()) {
    at::Tensor view = ViewOf(entry, target);
    view.copy_(values.view(view.sizes()));
    return;
  }
  at::Tensor ordered = at::empty_like(values);
  ordered.index_copy_(0, RowsOf(entry), values);
  ViewOf(entry, target).copy_(ordered);
}

at::Tensor Extract(const HfTensor& entry, const at::Tensor& target, at::ScalarType dtype) {
  at::Tensor view = ViewOf(entry, target).to(at::kCPU);
  if (!entry.rows.empty()) view = view.index_select(0, RowsOf(entry));
  return view.to(dtype).contiguous();
}

// Tensors that other programs write, but that hold nothing a model needs: tables that are computed,
// heads that are the embedding anyway, and the layers after the last one that DeepSeek uses to
// predict several tokens ahead.
bool IsIgnored(const std::string& name, const HfConfig& config) {
  if (name.ends_with("rotary_emb.inv_freq")) return true;
  if (name == "lm_head.weight" && config.Bool("tie_word_embeddings", false)) return true;
  constexpr std::string_view kLayers = "model.layers.";
  if (config.Int("num_nextn_predict_layers", 0) == 0 || !name.starts_with(kLayers)) return false;
  return std::strtoll(name.c_str() + kLayers.size(), nullptr, 10) >=
         config.Int("num_hidden_layers");
}

bool IsWeight(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

// Whole or not at all.
void WriteText(const fs::path& path, std::string_view text) {
  fs::path temporary = path;
  temporary += ".tmp";
  FileWriter file(temporary);
  file.Write(text);
  file.Finish();
  Rename(temporary, path);
}

}  // namespace

void LoadHfWeights(LanguageModel& model, const std::string& folder) {
  SafetensorsFolder files(folder);
  HfConfig config = HfConfig::FromFile((fs::path(folder) / "config.json").string());
  auto targets = StateByName(model);
  std::vector<HfTensor> wanted = model.HfTensors();
  std::vector<std::string> problems;
  std::unordered_set<std::string> known;
  std::vector<const TensorEntry*> found;
  for (const HfTensor& entry : wanted) {
    known.insert(entry.name);
    const TensorEntry* stored = files.Find(entry.name);
    found.push_back(stored);
    if (stored == nullptr) {
      problems.push_back(fmt::format("missing: {} [{}]", entry.name, fmt::join(entry.sizes, ", ")));
    } else if (stored->sizes != entry.sizes) {
      problems.push_back(fmt::format("{} has shape [{}], the model wants [{}]", entry.name,
                                     fmt::join(stored->sizes, ", "), fmt::join(entry.sizes, ", ")));
    } else if (!IsWeight(stored->dtype)) {
      problems.push_back(
          fmt::format("{} is {}; gt reads F32, BF16 and F16", entry.name, stored->stored_dtype));
    }
  }
  for (const TensorEntry& stored : files.tensors()) {
    if (known.contains(stored.name)) continue;
    if (IsIgnored(stored.name, config)) {
      log::Debug("{}: {} is not needed", folder, stored.name);
      continue;
    }
    problems.push_back(
        fmt::format("not known: {} [{}]", stored.name, fmt::join(stored.sizes, ", ")));
  }
  if (!problems.empty()) {
    Fail(ErrorCode::kWeightsMismatch,
         "the weights in {} do not fit its config.json, in {} place{}:\n  {}", folder,
         problems.size(), problems.size() == 1 ? "" : "s", Join(problems, "\n  "));
  }
  at::NoGradGuard no_gradients;
  for (size_t i = 0; i < wanted.size(); ++i) {
    Fill(wanted[i], targets.at(wanted[i].target), *found[i]);
    files.DontNeed(*found[i]);
  }
}

void SaveHfFolder(LanguageModel& model, const std::string& folder, at::ScalarType dtype,
                  const std::string& original, int64_t max_shard_bytes) {
  at::NoGradGuard no_gradients;
  CreateFolders(folder);
  auto targets = StateByName(model);
  std::vector<TensorSource> sources;
  for (HfTensor& entry : model.HfTensors()) {
    at::Tensor target = targets.at(entry.target);
    // The correction of the router decides between experts by small differences: always float32.
    bool bias = entry.target.ends_with("expert_bias");
    at::ScalarType type = bias ? at::kFloat : dtype;
    TensorSource source{entry.name, FromTorch(type), entry.sizes, {}};
    source.write = [entry = std::move(entry), target, type](const ByteSink& sink) {
      at::Tensor values = Extract(entry, target, type);
      sink({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
    };
    sources.push_back(std::move(source));
  }
  WriteSafetensorsFolder(folder, sources, max_shard_bytes);
  nlohmann::json config = model.HfConfigJson();
  if (!original.empty()) {
    // Keys that gt does not use stay as they were published.
    nlohmann::json published =
        HfConfig::FromFile((fs::path(original) / "config.json").string()).json();
    for (const char* key : {"num_hidden_layers", "vocab_size"}) published[key] = config[key];
    config = std::move(published);
  }
  config["dtype"] = config["torch_dtype"] = dtype == at::kBFloat16 ? "bfloat16"
                                            : dtype == at::kHalf   ? "float16"
                                                                   : "float32";
  WriteText(fs::path(folder) / "config.json", config.dump(2) + "\n");
  CopyTokenizer(original, folder);
}

void CopyTokenizer(const std::string& from, const std::string& folder) {
  std::error_code error;
  for (const char* name : {"generation_config.json", "tokenizer.json", "tokenizer_config.json",
                           "special_tokens_map.json"}) {
    fs::path source = fs::path(from) / name, target = fs::path(folder) / name;
    if (from.empty() || !fs::exists(source, error) || fs::equivalent(source, target, error))
      continue;
    MappedFile file(source, ErrorCode::kBadTokenizer);
    auto bytes = file.bytes();
    WriteText(target, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
}

}  // namespace gt
