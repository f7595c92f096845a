#include "gt/train/data_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gt/job/config.h"
#include "gt/train/metrics.h"

namespace gt {
namespace {

// The sample that ships with gt is small on purpose, and the default run reads it three times. About
// four passes train nearly as well as new data.
constexpr double kEpochsOfSample = 4;

// "about 99,200": estimates have three digits.
std::string CountText(double count, bool is_counted) {
  if (is_counted) return FormatCount(count);
  const double unit = std::pow(10.0, std::max(0.0, std::floor(std::log10(count + 1)) - 2));
  return "about " + FormatCount(std::round(count / unit) * unit);
}

// "1 piece of text", "45 pieces of text"
std::string CountOf(double count, bool is_counted, std::string_view plural) {
  std::string what(plural);
  if (is_counted && count == 1) what.erase(plural.substr(0, plural.find(' ')).size() - 1, 1);
  return fmt::format("{} {}", CountText(count, is_counted), what);
}

std::string EpochsText(double epochs) {
  if (epochs >= 100) return FormatCount(std::round(epochs));
  if (epochs < 0.01) return "less than 0.01";
  return epochs < 1 ? fmt::format("{:.2g}", epochs) : fmt::format("{:.3g}", epochs);
}

struct Need {
  double sequences, tokens;
  double epochs;
};

Need NeedOf(const Job& job, const EpochSize& size) {
  const TrainingSection& training = job.config.training;
  Need need{};
  need.sequences =
      static_cast<double>(job.SequencesPerStep()) * static_cast<double>(training.steps);
  need.tokens = need.sequences * static_cast<double>(training.seq_len);
  need.epochs = size.sequences > 0 ? need.sequences / size.sequences : 0;
  return need;
}

std::string NeedText(const Need& need, const EpochSize& size) {
  return fmt::format("one epoch: {}; this run reads {} tokens in {} sequence{}, {}{} epoch{}",
                     EpochText(size), FormatCount(need.tokens), FormatCount(need.sequences),
                     need.sequences == 1 ? "" : "s",
                     size.tokens_are_counted || need.epochs < 0.01 ? "" : "about ",
                     EpochsText(need.epochs), need.epochs == 1 ? "" : "s");
}

std::string ValidationText(const Job& job) {
  const Config& config = job.config;
  const Loader& data = job.validation->data();
  const std::string source =
      config.validation.split > 0
          ? fmt::format("{:.4g} % of the data, held out", 100 * config.validation.split)
          : data.Describe();
  const auto sequences = job.SequencesPerStep() / job.micro_batches;
  return fmt::format("validation: {}: {}; {} x {} x {} tokens every {}", source,
                     EpochText(data.MeasureEpoch()), config.validation.steps, sequences,
                     config.training.seq_len, Counted(config.validation.freq, "step"));
}

void AddLengthWarnings(const Job& job, const EpochSize& size, const Need& need,
                       std::vector<std::string>& warnings) {
  const TrainingSection& training = job.config.training;
  if (size.tokens < static_cast<double>(training.seq_len)) {
    warnings.push_back(fmt::format(
        "a sequence of {} tokens is longer than the whole data set, which has {}: every sequence "
        "repeats it; use more data, or lower --training.seq_len",
        FormatCount(static_cast<double>(training.seq_len)),
        CountText(size.tokens, size.tokens_are_counted)));
    return;
  }
  const double most = training.dataset_path.empty() ? kEpochsOfSample : 1;
  // An estimate may be off by some percent.
  if (need.epochs <= (size.tokens_are_counted ? most : 1.03 * most)) return;
  warnings.push_back(fmt::format(
      "this run reads {} tokens, but one epoch has {}: the data is read {}; use more data or fewer "
      "--training.steps if that is not intended",
      FormatCount(need.tokens), CountText(size.tokens, size.tokens_are_counted),
      need.epochs < 1.01 ? "more than once" : EpochsText(need.epochs) + " times"));
}

void AddTextWarning(const EpochSize& size, std::vector<std::string>& warnings) {
  // Half of UTF-16 are zero bytes, and half of random bytes are not text. A few Latin-1 letters in
  // ASCII text stay far below.
  constexpr double kMostOfText = 0.3;
  if (size.odd_share <= kMostOfText) return;
  warnings.push_back(fmt::format(
      "'{}' is read as text, but {:.0f} % of its bytes are not text (control characters or not "
      "UTF-8); if it has another format, convert it to text, .jsonl, .npy or .bin",
      size.oddest_file, 100 * size.odd_share));
}

void AddFieldWarning(const Job& job, const EpochSize& size, std::vector<std::string>& warnings) {
  const std::string& field = job.config.training.text_field;
  if (field.empty() || size.what == "documents") return;
  warnings.push_back(
      fmt::format("--training.text_field {} is for JSON lines (.jsonl), but the data is {}", field,
                  job.data->data().has_tokens() ? "tokens" : "read as plain text"));
}

void AddVocabularyWarning(const Job& job, std::vector<std::string>& warnings) {
  if (job.bytes_chosen) return;  // announced by itself
  // Tokenized data does not use a tokenizer that nobody named.
  if (job.data->data().has_tokens() && job.config.model.tokenizer_path.empty()) return;
  const std::string problem = VocabularyProblem(*job.codec, job.model->vocab_size());
  if (!problem.empty()) warnings.push_back(problem);
}

}  // namespace

std::string EpochText(const EpochSize& size) {
  return fmt::format("{}, {} tokens", CountOf(size.samples, size.samples_are_counted, size.what),
                     CountText(size.tokens, size.tokens_are_counted));
}

std::string VocabularyProblem(const TextCodec& codec, int64_t vocab_size) {
  // Published models pad their vocabularies by up to 2 %.
  constexpr int64_t kUnusedAtLeast = 256;
  constexpr double kUnusedShare = 0.25;
  const int64_t tokens = codec.vocab_size(), unused = vocab_size - tokens;
  const bool is_larger = unused < 0;
  const bool is_smaller =
      unused > kUnusedAtLeast &&
      static_cast<double>(unused) > kUnusedShare * static_cast<double>(vocab_size);
  if (!is_larger && !is_smaller) return "";
  const auto count = [](int64_t number) { return FormatCount(static_cast<double>(number)); };
  if (is_larger) {
    return fmt::format(
        "tokenizer and vocabulary disagree: '{}' has {} tokens, the model's vocabulary {} entries; "
        "text that contains one of the others ends the run",
        codec.path(), count(tokens), count(vocab_size));
  }
  return fmt::format(
      "tokenizer and vocabulary disagree: '{}' has {} tokens, the model's vocabulary {} entries, "
      "of "
      "which {} are never used; name the tokenizer that the model is for (--model.tokenizer_path), "
      "or lower --model.vocab_size",
      codec.path(), count(tokens), count(vocab_size), count(unused));
}

DataReport ReportData(const Job& job) {
  const EpochSize size = job.data->data().MeasureEpoch();
  const Need need = NeedOf(job, size);
  DataReport report;
  report.lines.push_back(NeedText(need, size));
  if (job.validation) report.lines.push_back(ValidationText(job));
  AddLengthWarnings(job, size, need, report.warnings);
  AddTextWarning(size, report.warnings);
  AddFieldWarning(job, size, report.warnings);
  AddVocabularyWarning(job, report.warnings);
  return report;
}

}  // namespace gt
