#include "gt/models/hf_checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "gt/base/bounded_list.h"
#include "gt/base/error.h"
#include "gt/base/json_text.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/models/hf_mapping.h"
#include "gt/storage/file_writer.h"
#include "gt/storage/safetensors.h"
#include "gt/torch_bridge/convert.h"
#include "gt/torch_bridge/stored_tensor.h"
#include "gt/torch_bridge/tensor_fill.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

std::unordered_map<std::string, nn::StateTensor> StateByName(LanguageModel& model) {
  std::unordered_map<std::string, nn::StateTensor> tensors;
  for (nn::StateTensor& state : nn::NamedState(model)) {
    state.tensor = state.tensor.detach();
    tensors.emplace(state.name, std::move(state));
  }
  return tensors;
}

// Elements of the state that are in one box, from all ranks that have some of them. Rank 0 asks for
// one box after another, in the order in which it writes; the others answer until it is done.
class RegionGatherer {
 public:
  RegionGatherer(World* world, LanguageModel& model, const std::vector<HfTensor>& entries)
      : world_(world), states_(StateByName(model)), entries_(entries) {
    if (!Together()) return;
    nlohmann::json mine = nlohmann::json::object();
    for (const auto& [name, state] : states_) {
      if (state.IsOwnedBy(world_->rank())) mine[name] = {state.box.offset, state.box.sizes};
    }
    world_->Publish(fmt::format("export/{}", world_->rank()), mine.dump());
    if (!world_->first()) return;
    for (int64_t rank = 0; rank < world_->size(); ++rank) {
      boxes_.push_back(ParseJson(world_->Read(fmt::format("export/{}", rank), rank), kLargeJson));
    }
  }

  bool leads() const { return !Together() || world_->first(); }

  // Of rank 0: a tensor of the checkpoint.
  at::Tensor Gather(size_t entry, at::ScalarType dtype) {
    const nn::StateTensor& state = states_.at(entries_[entry].target);
    HfMapping mapping(entries_[entry], state.box.whole);
    return mapping.Extract(Region(entry, state, mapping.bounds()), dtype);
  }

  // Of the other ranks: until rank 0 says that it is done.
  void Answer() {
    while (true) {
      auto entry = static_cast<int64_t>(world_->Sum({0.0})[0]);
      if (entry < 0) return;
      const HfTensor& wanted = entries_[static_cast<size_t>(entry)];
      const nn::StateTensor& state = states_.at(wanted.target);
      if (!state.IsOwnedBy(world_->rank())) continue;
      TensorBox common = state.box.Intersect(BoundsInOurs(wanted, state.box.whole));
      if (common.elements() > 0) world_->Send(Part(state, common), 0);
    }
  }

  void Finish() {
    if (Together() && world_->first()) world_->Sum({-1.0});
  }

 private:
  at::Tensor Region(size_t entry, const nn::StateTensor& state, const TensorBox& bounds) {
    if (!Together()) return Part(state, bounds);
    world_->Sum({static_cast<double>(entry)});
    at::Tensor region = at::empty(bounds.sizes, state.tensor.options().device(at::kCPU));
    TensorBox own = state.box.Intersect(bounds);
    if (own.elements() > 0) ViewOfBox(region, bounds, own).copy_(Part(state, own));
    for (int64_t rank = 1; rank < world_->size(); ++rank) {
      const nlohmann::json& boxes = boxes_[static_cast<size_t>(rank)];
      auto found = boxes.find(state.name);
      if (found == boxes.end()) continue;
      TensorBox theirs{state.box.whole, found->at(0), found->at(1)};
      TensorBox common = theirs.Intersect(bounds);
      if (common.elements() == 0) continue;
      at::Tensor part = at::empty(common.sizes, region.options());
      world_->Receive(part, rank);
      ViewOfBox(region, bounds, common).copy_(part);
    }
    return region;
  }

  bool Together() const { return world_ != nullptr && world_->size() > 1; }

  static at::Tensor Part(const nn::StateTensor& state, const TensorBox& wanted) {
    return ViewOfBox(state.tensor, state.box, wanted).to(at::kCPU).contiguous();
  }

  World* world_;
  std::unordered_map<std::string, nn::StateTensor> states_;
  const std::vector<HfTensor>& entries_;
  std::vector<nlohmann::json> boxes_;  // by rank: name -> [offset, sizes] of what it answers for
};

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

// A tensor of the checkpoint on its way into one of ours. What it takes to know where its elements go
// is made when the first of them is needed, by whichever thread that is.
class HfSource {
 public:
  HfSource(const HfTensor& entry, const TensorEntry& stored, const SafetensorsFolder& files,
           const std::vector<int64_t>& whole)
      : entry_(entry), stored_(stored), files_(files), bounds_(BoundsInOurs(entry, whole)) {}
  // Gives the memory of the file's pages back.
  ~HfSource() { files_.DontNeed(stored_.bytes); }
  HfSource(const HfSource&) = delete;
  HfSource& operator=(const HfSource&) = delete;

  int64_t elements() const { return TensorBox::All(entry_.sizes).elements(); }

  // Copies into `out`, which is `box` of ours, what the checkpoint's tensor has of it.
  void Fill(const at::Tensor& out, const TensorBox& box) {
    if (bounds_.Intersect(box).elements() == 0) return;
    std::call_once(made_, [&] {
      mapping_.emplace(entry_, bounds_.whole);
      arranged_ = mapping_->Arrange(ViewOf(stored_));
    });
    mapping_->Fill(arranged_, out, box, [this](const at::Tensor& elements) {
      files_.WillNeed(
          {static_cast<const std::byte*>(elements.const_data_ptr()), elements.nbytes()});
    });
  }

 private:
  const HfTensor& entry_;
  const TensorEntry& stored_;
  const SafetensorsFolder& files_;
  const TensorBox bounds_;
  std::once_flag made_;
  std::optional<HfMapping> mapping_;
  at::Tensor arranged_;
};

// All tensors of the checkpoint that make up one of ours. They live until its last piece is filled.
using HfSources = std::vector<std::unique_ptr<HfSource>>;

void AddPieces(const nn::StateTensor& state, const std::shared_ptr<HfSources>& sources,
               std::vector<FillPiece>& pieces) {
  int64_t elements = 0;
  for (const auto& source : *sources) elements += source->elements();
  GT_CHECK(elements == TensorBox::All(state.box.whole).elements(),
           "the checkpoint has {} elements of '{}' [{}]", elements, state.name,
           fmt::join(state.box.whole, ", "));
  for (TensorBox& box : SplitBox(state.box, kFillElements)) {
    at::Tensor destination = ViewOfBox(state.tensor, state.box, box);
    auto read = [sources, box = std::move(box)](const at::Tensor& out) {
      for (const auto& source : *sources) source->Fill(out, box);
    };
    pieces.push_back({std::move(destination), std::move(read)});
  }
}

// Disks are fastest when they are read from one end to the other.
std::vector<size_t> InFileOrder(const std::vector<const TensorEntry*>& found) {
  std::vector<size_t> order(found.size());
  std::iota(order.begin(), order.end(), 0);
  // They are elements of one list, shard by shard in the order of their bytes.
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return found[a] < found[b]; });
  return order;
}

// Of the whole model. `wanted` are in the files as `found`.
std::vector<FillPiece> PiecesOfWeights(
    const std::vector<HfTensor>& wanted, const std::vector<const TensorEntry*>& found,
    const SafetensorsFolder& files,
    const std::unordered_map<std::string, nn::StateTensor>& targets) {
  std::unordered_map<std::string, std::shared_ptr<HfSources>> sources;
  std::vector<const nn::StateTensor*> order;
  for (size_t i : InFileOrder(found)) {
    const nn::StateTensor& state = targets.at(wanted[i].target);
    std::shared_ptr<HfSources>& of_target = sources[state.name];
    if (!of_target) {
      of_target = std::make_shared<HfSources>();
      order.push_back(&state);
    }
    of_target->push_back(std::make_unique<HfSource>(wanted[i], *found[i], files, state.box.whole));
  }
  std::vector<FillPiece> pieces;
  for (const nn::StateTensor* state : order) AddPieces(*state, sources.at(state->name), pieces);
  return pieces;
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
         problems.size(), problems.size() == 1 ? "" : "s", JoinFirst(problems, "\n  "));
  }
  FillTensors(PiecesOfWeights(wanted, found, files, targets));
}

void SaveHfFolder(LanguageModel& model, const std::string& folder, at::ScalarType dtype,
                  const std::string& original, World* world, int64_t max_shard_bytes) {
  at::NoGradGuard no_gradients;
  std::vector<HfTensor> entries = model.HfTensors();
  RegionGatherer gatherer(world, model, entries);
  if (!gatherer.leads()) {
    gatherer.Answer();
    return;
  }
  CreateFolders(folder);
  std::vector<TensorSource> sources;
  for (size_t i = 0; i < entries.size(); ++i) {
    const HfTensor& entry = entries[i];
    // The correction of the router decides between experts by small differences: always float32.
    bool bias = entry.target.ends_with("expert_bias");
    at::ScalarType type = bias ? at::kFloat : dtype;
    TensorSource source{entry.name, FromTorch(type), entry.sizes, {}};
    source.write = [&gatherer, i, type](const ByteSink& sink) {
      at::Tensor values = gatherer.Gather(i, type);
      sink({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
    };
    sources.push_back(std::move(source));
  }
  WriteSafetensorsFolder(folder, sources, max_shard_bytes);
  gatherer.Finish();
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
  WriteFile(fs::path(folder) / "config.json", config.dump(2) + "\n");
}

}  // namespace gt
