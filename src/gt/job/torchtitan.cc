#include "gt/job/torchtitan.h"

#include <algorithm>
#include <array>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/job/config.h"
#include "gt/job/torchtitan_passes.h"

namespace gt {
namespace {

using enum TorchtitanOption::Answer;

constexpr std::string_view kMode = "activation_checkpoint.mode";
constexpr std::string_view kSelective = "activation_checkpoint.selective_ac_option";
constexpr std::string_view kProfile = "profiling.enable_profiling";
constexpr std::string_view kProfileEvery = "profiling.profile_freq";
constexpr std::string_view kLoadHf = "checkpoint.initial_load_in_hf";
constexpr std::string_view kLoadPath = "checkpoint.initial_load_path";
constexpr std::string_view kAssets = "model.hf_assets_path";
constexpr std::string_view kPasses = "compile.passes";
constexpr std::string_view kDisabledPasses = "compile.disable_passes";
constexpr std::string_view kModule = "module";

// Names of our options in other programs, by last component.
constexpr std::array<std::pair<std::string_view, std::string_view>, 17> kOtherNames = {{
    {"sequence_length", "training.seq_len"},
    {"seq_length", "training.seq_len"},
    {"max_seq_len", "training.seq_len"},
    {"context_length", "training.seq_len"},
    {"micro_batch_size", "training.local_batch_size"},
    {"learning_rate", "optimizer.lr"},
    {"max_steps", "training.steps"},
    {"num_steps", "training.steps"},
    {"train_iters", "training.steps"},
    {"grad_clip", "training.max_norm"},
    {"output_dir", "dump_folder"},
    {"fsdp", "parallelism.data_parallel_shard_degree"},
    {"dp", "parallelism.data_parallel_shard_degree"},
    {"tp", "parallelism.tensor_parallel_degree"},
    {"cp", "parallelism.context_parallel_degree"},
    {"ep", "parallelism.expert_parallel_degree"},
    {"ep_overlap", "compile.ep_overlap.enabled"},
}};

std::string_view LastComponent(std::string_view key) { return key.substr(key.rfind('.') + 1); }

Error SaidTwice(const std::string& first, const std::string& second, std::string_view option) {
  return {ErrorCode::kDuplicateKey,
          fmt::format("{} and {} both set {}; keep one of them", first, second, option)};
}

// Notes that depend on the value.
std::string NoteOn(const TorchtitanOption& option, std::string_view value) {
  if (option.key != kModule) return std::string(option.note);
  return fmt::format("write --model.name {}", LastComponent(value));
}

// The row of the option itself is before that of its section.
const TorchtitanOption* RowOf(std::string_view key) {
  const TorchtitanOption* section = nullptr;
  for (const TorchtitanOption& option : TorchtitanOptions()) {
    if (option.key == key) return &option;
    if (NamesOption(option.key, key)) section = &option;
  }
  return section;
}

// Whether one of the values, separated by |, is this one; "" is one as well.
bool IsAmong(std::string_view values, std::string_view value) {
  while (true) {
    const std::size_t bar = values.find('|');
    if (values.substr(0, bar) == value) return true;
    if (bar == std::string_view::npos) return false;
    values.remove_prefix(bar + 1);
  }
}

std::optional<std::string> MappedValue(std::string_view values, std::string_view value) {
  for (const std::string& pair : Split(values, '|')) {
    const std::size_t equals = pair.find('=');
    if (equals != std::string::npos && pair.substr(0, equals) == value) {
      return pair.substr(equals + 1);
    }
  }
  return std::nullopt;
}

}  // namespace

bool TorchtitanReader::Knows(std::string_view key) const { return RowOf(key) != nullptr; }

bool TorchtitanReader::KnowsSection(std::string_view path) const {
  const std::string inside = std::string(path) + ".";
  return std::any_of(
             TorchtitanOptions().begin(), TorchtitanOptions().end(),
             [&](const TorchtitanOption& option) { return option.key.starts_with(inside); }) ||
         Knows(inside);
}

bool TorchtitanReader::IsSwitch(std::string_view key, std::span<const OptionGroup> groups) const {
  const TorchtitanOption* option = RowOf(key);
  if (option == nullptr) return false;
  for (const OptionGroup& group : groups) {
    for (const Option& target : group.options) {
      if (target.path() == option->target && target.is_flag()) return true;
    }
  }
  if (option->target != key && Knows(option->target)) return IsSwitch(option->target, groups);
  const std::string_view name = LastComponent(key);
  return IsAmong(option->values, "false") || IsAmong(option->values, "true") ||
         name.starts_with("enable") || name.starts_with("disable") || name.starts_with("print") ||
         key == kLoadHf;
}

std::string TorchtitanReader::Read(const std::string& key, const std::string& value,
                                   const std::string& where) {
  ours_[key] = {value, where};
  if (key == kPasses || key == kDisabledPasses) return ReadPasses(key, value, where);
  const TorchtitanOption* option = RowOf(key);
  if (option == nullptr || option->target != key) return value;
  return MappedValue(option->values, value).value_or(value);
}

// Returns lists without torchtitan's names unchanged, except that a list of compile.passes in a file
// becomes text.
std::string TorchtitanReader::ReadPasses(std::string_view key, const std::string& value,
                                         const std::string& where) {
  const TranslatedPasses passes = TranslatePasses(value);
  const bool runs = key == kPasses;
  for (const UpstreamPass* upstream : passes.options) {
    switches_.push_back({upstream->option, upstream->name, runs, where});
  }
  for (const UpstreamPass* upstream : passes.unneeded) {
    const std::string why = fmt::format("{}: {}", where, WhyNoPass(*upstream));
    if (runs)
      mistakes_.emplace_back(ErrorCode::kUnknownPass, why);
    else
      notices_.push_back(why);
  }
  if (runs && passes.replaces && !passes.renamed.empty()) {
    notices_.push_back(
        fmt::format("{}: {} replaces the job's own passes; start the list with + to "
                    "add to them",
                    where, passes.list));
  }
  const bool translated =
      !passes.options.empty() || !passes.unneeded.empty() || !passes.renamed.empty();
  return translated || (runs && value.starts_with('[')) ? passes.list : value;
}

bool TorchtitanReader::Take(const std::string& key, const std::string& value,
                            const std::string& where) {
  const TorchtitanOption* option = RowOf(key);
  if (option == nullptr) return false;
  // An older name of torchtitan's own.
  const bool older = option->answer == kRenamed && Knows(option->target) && option->target != key;
  const std::string known = older ? std::string(option->target) : key;
  if (const auto found = given_.find(known); found != given_.end() && found->second.fresh) {
    mistakes_.push_back(SaidTwice(found->second.where, where, known));
  }
  given_[known] = {value, where};
  return true;
}

bool TorchtitanReader::IsFresh(std::string_view key) const {
  const auto found = given_.find(key);
  return found != given_.end() && found->second.fresh;
}

std::string TorchtitanReader::ValueOf(std::string_view key) const {
  const auto found = given_.find(key);
  return found == given_.end() ? "" : found->second.value;
}

const std::string& TorchtitanReader::WhereOf(std::string_view key) const {
  return given_.find(key)->second.where;
}

// An option that the source also sets under our name is left alone.
void TorchtitanReader::Set(std::string_view target, const std::string& value,
                           const std::string& where) {
  if (const auto own = ours_.find(target); own != ours_.end() && own->second.fresh) return;
  for (OptionGroup& group : groups_) {
    for (Option& option : group.options) {
      if (option.path() != target) continue;
      option.SetFromText(value, where, /*append=*/false, *problems_);
      return;
    }
  }
  GT_CHECK(false, "torchtitan has a name for {}, which is no option", target);
}

void TorchtitanReader::ApplySwitch(const Switch& wanted) {
  const auto contradict = [&](const std::string& where, std::string_view value) {
    problems_->Add(ErrorCode::kConflictingOptions,
                   "{}: {} sets {} to {}, but {} is {}; keep one of them", wanted.where,
                   wanted.name, wanted.option, wanted.on, where, value);
  };
  const auto own = ours_.find(wanted.option);
  const bool is_ours = own != ours_.end() && own->second.fresh;
  if (is_ours && BooleanFromText(own->second.value) == !wanted.on) {
    return contradict(own->second.where, own->second.value);
  }
  for (const Switch& other : switches_) {
    if (&other == &wanted) break;
    if (other.option == wanted.option && other.on != wanted.on) {
      return contradict(other.where, fmt::format("{}", other.on));
    }
  }
  Set(wanted.option, wanted.on ? "true" : "false", wanted.where);
}

void TorchtitanReader::ApplyRenamed(const TorchtitanOption& option, const Given& given) {
  if (const auto own = ours_.find(option.target); own != ours_.end() && own->second.fresh) {
    const Error twice = SaidTwice(own->second.where, given.where, option.target);
    problems_->Add(twice.code(), "{}", twice.message());
    return;
  }
  Set(option.target, MappedValue(option.values, given.value).value_or(given.value), given.where);
}

void TorchtitanReader::ApplyOne(const TorchtitanOption& option, const std::string& key,
                                const Given& given) {
  switch (option.answer) {
    case kRenamed:
      ApplyRenamed(option, given);
      return;
    case kRefused:
      if (IsAmong(option.values, given.value)) return;
      problems_->Add(ErrorCode::kUnknownOption, "{} = {}, an option of torchtitan: {}", given.where,
                     Quoted(given.value), NoteOn(option, given.value));
      return;
    case kIgnored:
      if (option.values.empty()) {
        without_effect_.push_back(key);
      } else if (!IsAmong(option.values, given.value)) {
        notices_.push_back(fmt::format("{} = {} has no effect here: {}", given.where,
                                       Quoted(given.value), option.note));
      }
      return;
    case kCombined:
      return;
  }
}

void TorchtitanReader::ApplyActivationCheckpoint() {
  if (!IsFresh(kMode) && !IsFresh(kSelective)) return;
  const std::string mode = ValueOf(kMode), option = ValueOf(kSelective);
  if (mode.empty()) return;  // the option alone says nothing
  const TorchtitanOption& row = *RowOf(kMode);
  const std::optional<std::string> policy = MappedValue(row.values, mode);
  const std::string& where = WhereOf(kMode);
  if (!policy) {
    problems_->Add(
        ErrorCode::kBadOptionValue,
        "{} = {}, an option of torchtitan: choose a compile.memory_policy (none, default, "
        "eager, full, sac_and_offload); gt memory shows what each needs",
        where, Quoted(mode));
    return;
  }
  Set(row.target, *policy, where);
  if (mode == "selective" && !option.empty() && option != "op") {
    notices_.push_back(
        fmt::format("{}: gt recomputes alike in all layers, so that {} {} is taken as "
                    "compile.memory_policy eager; results do not depend on it",
                    where, kSelective, Quoted(option)));
  }
}

void TorchtitanReader::ApplyProfiling() {
  if ((!IsFresh(kProfile) && !IsFresh(kProfileEvery)) || ValueOf(kProfile) != "true") return;
  constexpr std::string_view kTorchtitansDefault = "10";
  const std::string every = ValueOf(kProfileEvery);
  const std::string step(every.empty() ? kTorchtitansDefault : std::string_view(every));
  const std::string& where = WhereOf(kProfile);
  Set(RowOf(kProfile)->target, step, where);
  notices_.push_back(
      fmt::format("{}: step {} is profiled, once; profiling.steps names others, such as 10,20,30",
                  where, step));
}

// torchtitan's hf_assets_path is a folder with the tokenizer, and with weights when it is told so.
void TorchtitanReader::ApplyInitialLoad() {
  if (IsFresh(kAssets)) Set("model.tokenizer_path", ValueOf(kAssets), WhereOf(kAssets));
  if (!IsFresh(kLoadHf) && !IsFresh(kLoadPath) && !IsFresh(kAssets)) return;
  const std::string path = ValueOf(kLoadPath);
  if (ValueOf(kLoadHf) == "true") {
    const std::string folder = path.empty() ? ValueOf(kAssets) : path;
    if (!folder.empty()) Set("model.hf_path", folder, WhereOf(kLoadHf));
  } else if (!path.empty() && IsFresh(kLoadPath)) {
    problems_->Add(
        ErrorCode::kUnknownOption,
        "{}: gt cannot read torchtitan's own checkpoints; export the weights to a Hugging "
        "Face folder and name it with model.hf_path",
        WhereOf(kLoadPath));
  }
}

void TorchtitanReader::Apply(std::span<OptionGroup> groups, Problems& problems) {
  groups_ = groups;
  problems_ = &problems;
  ApplyActivationCheckpoint();
  ApplyProfiling();
  ApplyInitialLoad();
  for (const auto& [key, given] : given_) {
    if (given.fresh) ApplyOne(*RowOf(key), key, given);
  }
  for (const Switch& wanted : switches_) ApplySwitch(wanted);
  for (const Error& mistake : mistakes_) problems.Add(mistake.code(), "{}", mistake.message());
  for (auto& [key, given] : given_) given.fresh = false;
  for (auto& [key, given] : ours_) given.fresh = false;
  switches_.clear();
  mistakes_.clear();
}

std::string TorchtitanReader::OtherName(std::string_view key) const {
  for (const auto& [other, ours] : kOtherNames) {
    if (other == LastComponent(key)) return std::string(ours);
  }
  return "";
}

std::string TorchtitanReader::Hint(std::string_view key, std::string_view prefix) const {
  const TorchtitanOption* found = nullptr;
  for (const TorchtitanOption& option : TorchtitanOptions()) {
    if (LastComponent(option.key) != LastComponent(key)) continue;
    if (found != nullptr) return "";  // there are several
    found = &option;
  }
  if (found == nullptr) return "";
  if (found->answer == kRenamed) return fmt::format("; did you mean {}{}?", prefix, found->target);
  if (found->note.empty()) return "";
  return fmt::format("; torchtitan's {}: {}", found->key, found->note);
}

std::vector<std::string> TorchtitanReader::Notices() const {
  std::vector<std::string> all = notices_;
  if (!without_effect_.empty()) {
    all.push_back(fmt::format("options of torchtitan without effect here (docs/torchtitan.md): {}",
                              Join(without_effect_, ", ")));
  }
  return all;
}

}  // namespace gt
