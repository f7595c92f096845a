// gt generate: samples text from the weights of a Hugging Face folder or of a run.
#include "gt/generate/generate.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/read_file.h"
#include "gt/base/text.h"
#include "gt/cli/commands.h"
#include "gt/config/command_line.h"
#include "gt/torch_bridge/device.h"
#include "gt/train/metrics.h"
#include "gt/train/model_source.h"

namespace gt::cli {
namespace {

struct Request {
  std::string model = "outputs/latest";
  std::string step = "-1";
  std::string tokenizer;
  StringList prompts;
  std::string prompt_file, prompts_file;
  int64_t max_new_tokens = 200;
  SamplingOptions sampling;
  int64_t seed = 42;
  int64_t num_samples = 1;
  int64_t batch_size = 8;
  bool stop_at_eos = true;
  DeviceChoice device = DeviceChoice::kAuto;
  int64_t threads = 0;
};

void AddFlags(CommandLine& line, Request& request) {
  line.Flag("model", &request.model, NotEmpty(),
            "Hugging Face folder, dump folder of a run, folder of checkpoints, or one checkpoint")
      .Flag("step", &request.step, NotEmpty(),
            "the run's checkpoint to use; -1 takes the latest, and best the one with the lowest "
            "validation loss (--checkpoint.keep_best)")
      .Flag("tokenizer", &request.tokenizer,
            "tokenizer.json, a folder that holds one, or bytes; empty: the model's own")
      .Flag("prompt", &request.prompts, WholeItems(),
            "text to continue; may be repeated; empty begins a new one")
      .Flag("prompt_file", &request.prompt_file, "file with one text to continue")
      .Flag("prompts_file", &request.prompts_file, "file with a text to continue in every line")
      .Flag("max_new_tokens", &request.max_new_tokens, Within(1, 16777216),
            "tokens to generate for each text")
      .Flag("temperature", &request.sampling.temperature, AtLeast(0),
            "logits are divided by it: below 1 prefers likely tokens, 0 always takes the likeliest")
      .Flag("top_k", &request.sampling.top_k, AtLeast(0),
            "choose among the k likeliest tokens; 0: among all")
      .Flag("top_p", &request.sampling.top_p, {.min = 0.0, .max = 1.0, .min_excluded = true},
            "choose among the likeliest tokens that together have this chance")
      .Flag("seed", &request.seed, AtLeast(0),
            "the same seed gives a prompt the same text, whatever else is generated")
      .Flag("num_samples", &request.num_samples, Within(1, 1000000),
            "texts to generate for each prompt")
      .Flag("batch_size", &request.batch_size, Within(1, 65536),
            "texts that are generated at the same time; memory for their keys and values grows "
            "with it")
      .Flag("stop_at_eos", &request.stop_at_eos, "end a text where the model ends it")
      .Flag("device", &request.device,
            "where to run; auto takes cuda when a usable GPU is there, else cpu")
      .Flag("threads", &request.threads, Within(0, 1024),
            "threads inside one CPU operator; 0 leaves it to libtorch");
}

int64_t StepOf(const std::string& text) {
  if (text == "best") return kBestStep;
  int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc() || end != text.data() + text.size() || step < -1) {
    Fail(ErrorCode::kBadOptionValue, "--step: expected an integer >= -1 or best, got {}",
         Quoted(text));
  }
  return step;
}

std::string ReadPromptFile(const std::string& path, const char* flag) {
  try {
    return ReadWholeFile(path);
  } catch (const UnreadableFile& error) {
    Fail(ErrorCode::kDataUnreadable, "cannot read the prompt from '{}' ({}): {}", path, flag,
         error.what());
  }
}

// The end of the last line begins no other one.
std::vector<std::string> LinesOf(std::string text, const std::string& path) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.empty()) {
    Fail(ErrorCode::kBadPrompt, "'{}' (--prompts_file) is empty; write one prompt in every line",
         path);
  }
  std::vector<std::string> lines = Split(text, '\n');
  for (std::string& line : lines) {
    if (line.ends_with('\r')) line.pop_back();
  }
  return lines;
}

std::vector<std::string> PromptsOf(const Request& request) {
  int sources = (request.prompts.empty() ? 0 : 1) + (request.prompt_file.empty() ? 0 : 1) +
                (request.prompts_file.empty() ? 0 : 1);
  if (sources > 1) {
    Fail(ErrorCode::kConflictingOptions,
         "--prompt, --prompt_file and --prompts_file all give prompts; use one of them");
  }
  if (!request.prompt_file.empty()) return {ReadPromptFile(request.prompt_file, "--prompt_file")};
  if (!request.prompts_file.empty()) {
    return LinesOf(ReadPromptFile(request.prompts_file, "--prompts_file"), request.prompts_file);
  }
  return request.prompts.empty() ? std::vector<std::string>{""} : request.prompts;
}

// Flushed, so that a reader sees each piece as soon as it is generated.
void Show(const std::string& text) {
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

struct Prompt {
  std::string text;
  std::vector<int32_t> tokens;
};

// The texts that are wanted: every prompt as often as there are samples, one prompt after the other.
class TextList {
 public:
  TextList(std::vector<Prompt> prompts, int64_t samples)
      : prompts_(std::move(prompts)), samples_(static_cast<size_t>(samples)) {}

  size_t size() const { return prompts_.size() * samples_; }
  const Prompt& prompt(size_t text) const { return prompts_[text / samples_]; }
  int64_t sample(size_t text) const { return static_cast<int64_t>(text % samples_); }

  // Which of them this is, by what there are several of.
  std::string Header(size_t text) const {
    std::vector<std::string> numbers;
    if (prompts_.size() > 1) {
      numbers.push_back(fmt::format("prompt {} of {}", text / samples_ + 1, prompts_.size()));
    }
    if (samples_ > 1) {
      numbers.push_back(fmt::format("sample {} of {}", text % samples_ + 1, samples_));
    }
    return fmt::format("--- {} ---\n", Join(numbers, ", "));
  }

 private:
  std::vector<Prompt> prompts_;
  size_t samples_;
};

// Shows a single text as it appears, and each of several when it and all before it are finished.
class TextDisplay {
 public:
  // Of one batch, which begins with text `first`.
  TextDisplay(const TextCodec& codec, const TextList& texts, size_t first, size_t count)
      : texts_(texts), first_(first) {
    for (size_t i = 0; i < count; ++i) {
      states_.push_back({TextStream(codec, texts.prompt(first + i).tokens), ""});
    }
    if (Streams()) Show(texts.prompt(0).text);
  }

  void Push(size_t row, std::optional<int32_t> token) {
    State& state = states_[row];
    std::string piece = token ? state.stream.Push(*token) : state.stream.Finish() + "\n";
    if (Streams()) return Show(piece);
    state.made += piece;
    state.finished = !token;
    for (; shown_ < states_.size() && states_[shown_].finished; ++shown_) {
      size_t text = first_ + shown_;
      Show(texts_.Header(text) + texts_.prompt(text).text + states_[shown_].made);
    }
  }

 private:
  struct State {
    TextStream stream;
    std::string made;
    bool finished = false;
  };
  bool Streams() const { return texts_.size() == 1; }

  const TextList& texts_;
  size_t first_;
  std::vector<State> states_;
  size_t shown_ = 0;
};

// Counts and times of one batch, or of several together.
struct Speed {
  size_t prompt_tokens = 0, new_tokens = 0;
  GenerateTimes times;

  void Add(const Speed& more) {
    // The first token of all is the first of the first batch.
    if (times.total == 0.0) times.first_token = more.times.first_token;
    prompt_tokens += more.prompt_tokens;
    new_tokens += more.new_tokens;
    times.prefill += more.times.prefill;
    times.total += more.times.total;
  }
  std::string Text() const {
    return fmt::format(
        "{} tokens in {:.2f} s, {} tok/s; prompts of {} tokens in {:.3f} s, first token after "
        "{:.3f} "
        "s",
        new_tokens, times.total, FormatCount(static_cast<double>(new_tokens) / times.total),
        prompt_tokens, times.prefill, times.first_token);
  }
};

Speed RunBatch(LanguageModel& model, const TextList& texts, size_t first, size_t count,
               const Request& request, const TextCodec& codec) {
  GenerateOptions options{.max_new_tokens = request.max_new_tokens};
  if (request.stop_at_eos) options.stop_token = codec.eos_id();
  std::vector<TextRequest> batch;
  Speed speed;
  for (size_t text = first; text < first + count; ++text) {
    const std::vector<int32_t>& tokens = texts.prompt(text).tokens;
    batch.push_back({tokens, Sampler(request.sampling, request.seed, texts.sample(text))});
    speed.prompt_tokens += tokens.size();
  }
  TextDisplay display(codec, texts, first, count);
  auto made = Generate(
      model, batch, options,
      [&](size_t row, std::optional<int32_t> token) { display.Push(row, token); }, &speed.times);
  for (const auto& tokens : made) speed.new_tokens += tokens.size();
  return speed;
}

Speed RunBatches(LanguageModel& model, const TextList& texts, const Request& request,
                 const TextCodec& codec) {
  auto size = static_cast<size_t>(request.batch_size);
  size_t batches = (texts.size() + size - 1) / size;
  Speed total;
  for (size_t i = 0; i < batches; ++i) {
    size_t first = i * size, count = std::min(size, texts.size() - first);
    Speed speed = RunBatch(model, texts, first, count, request, codec);
    if (batches > 1) fmt::print(stderr, "batch {} of {}: {}\n", i + 1, batches, speed.Text());
    total.Add(speed);
  }
  return total;
}

ModelPtr LoadFor(const std::vector<Prompt>& prompts, const ModelSource& source,
                 const TextCodec& codec, const Request& request) {
  std::vector<std::vector<int32_t>> tokens;
  for (const Prompt& prompt : prompts) tokens.push_back(prompt.tokens);
  auto start = std::chrono::steady_clock::now();
  ModelPtr model =
      LoadForGeneration(source, tokens, request.max_new_tokens, ChooseDevice(request.device));
  std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  fmt::print(stderr, "{} loaded in {:.2f} s, tokenizer {}\n", TitleOf(source), taken.count(),
             codec.path());
  return model;
}

}  // namespace

int RunGenerate(Arguments args) {
  Request request;
  CommandLine line("gt generate", "samples text from a model that was trained or downloaded");
  AddFlags(line, request);
  if (!line.Parse(args)) {
    fmt::print("{}", line.Help());
    return 0;
  }
  std::vector<Prompt> prompts;
  for (std::string& text : PromptsOf(request)) prompts.push_back({std::move(text), {}});
  SetThreads(request.threads);
  ModelSource source = FindModel(request.model, StepOf(request.step));
  TextCodec codec = CodecOf(source, request.tokenizer);
  for (Prompt& prompt : prompts) prompt.tokens = EncodePrompt(codec, prompt.text);
  try {
    ModelPtr model = LoadFor(prompts, source, codec, request);
    TextList texts(std::move(prompts), request.num_samples);
    fmt::print(stderr, "{}\n", RunBatches(*model, texts, request, codec).Text());
  } catch (const c10::OutOfMemoryError& error) {
    Fail(
        ErrorCode::kDeviceMemoryExhausted,
        "there was no memory for the model or for the keys and values of up to {} texts: {}; lower "
        "--batch_size or --max_new_tokens",
        request.batch_size, error.what_without_backtrace());
  }
  return 0;
}

}  // namespace gt::cli
