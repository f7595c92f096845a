#include "gt/job/trajectory.h"

#include <algorithm>
#include <array>

namespace gt {
namespace {

constexpr auto kWithoutBearing = std::to_array<OptionWithoutBearing>({
    // The model itself is compared.
    {"model.name", "the architecture is compared"},
    {"model.flavor", "the architecture is compared"},
    {"model.hf_path", "the architecture is compared, and weights come from the checkpoint"},
    {"model.n_layers", "the architecture is compared"},
    {"model.vocab_size", "the architecture is compared"},
    {"training.dtype", "the tensors are compared"},
    {"training.local_batch_size", "the sequences of a step are compared"},
    // Where and how the same numbers are computed.
    {"device", "rounding alone"},
    {"threads", "rounding alone"},
    {"ranks", "rounding alone"},
    {"parallelism.*", "rounding alone"},
    {"comm.*", "changes no number"},
    {"compile.*", "changes no number"},
    {"model.attn", "rounding alone"},
    {"training.deterministic", "rounding alone"},
    {"training.loss_chunks", "rounding alone"},
    {"training.prefetch", "changes no number"},
    {"training.memory_limit_gb", "changes no number"},
    {"training.check_memory", "changes no number"},
    {"debug.collectives_of_one", "changes no number"},
    {"debug.share_gpu", "changes no number"},
    {"debug.free_collectives", "changes no number"},
    {"debug.fill_memory", "changes no number"},
    {"debug.host_memory_gb", "changes no number"},
    {"debug.fault", "changes no number"},
    // What is written and reported.
    {"dump_folder", "where files go"},
    {"overwrite", "where files go"},
    {"checkpoint.*", "what is saved, and when"},
    {"metrics.*", "what is reported"},
    {"profiling.*", "what is measured"},
    {"validation.enable", "trains nothing"},
    {"validation.dataset_path", "trains nothing"},
    {"validation.freq", "trains nothing"},
    {"validation.steps", "trains nothing"},
    {"validation.split", "the data is compared"},
});

bool Counts(std::string_view path) {
  return std::none_of(
      kWithoutBearing.begin(), kWithoutBearing.end(),
      [path](const OptionWithoutBearing& entry) { return NamesOption(entry.name, path); });
}

}  // namespace

std::span<const OptionWithoutBearing> OptionsWithoutBearing() { return kWithoutBearing; }

std::vector<OptionChange> TrajectoryChanges(const Config& before, const Config& now) {
  std::vector<OptionChange> options;
  ForEachOption(before, [&](const Option& option) {
    options.push_back({option.path(), option.TomlText(), ""});
  });
  std::size_t next = 0;
  ForEachOption(now, [&](const Option& option) { options[next++].now = option.TomlText(); });
  std::erase_if(options, [](const OptionChange& option) {
    return option.before == option.now || !Counts(option.name);
  });
  return options;
}

}  // namespace gt
