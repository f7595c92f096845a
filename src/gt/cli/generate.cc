// gt generate: samples text from the weights of a Hugging Face folder or of a run.
#include "gt/train/generate.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "gt/base/error.h"
#include "gt/cli/commands.h"
#include "gt/config/command_line.h"
#include "gt/exec/device.h"
#include "gt/train/metrics.h"

namespace gt::cli {
namespace {

struct Request {
  std::string model = "outputs/hf";
  int64_t step = -1;
  std::string tokenizer;
  std::string prompt, prompt_file;
  int64_t max_new_tokens = 200;
  SamplingOptions sampling;
  int64_t seed = 42;
  int64_t num_samples = 1;
  bool stop_at_eos = true;
  DeviceChoice device = DeviceChoice::kAuto;
  int64_t threads = 0;
};

void AddFlags(CommandLine& line, Request& request) {
  line.Flag("model", &request.model, NotEmpty(),
            "Hugging Face folder, dump folder of a run, folder of checkpoints, or one checkpoint")
      .Flag("step", &request.step, AtLeast(-1), "the run's checkpoint to use; -1 takes the latest")
      .Flag("tokenizer", &request.tokenizer,
            "tokenizer.json, a folder that holds one, or bytes; empty: the model's own")
      .Flag("prompt", &request.prompt, "text to continue; empty begins a new one")
      .Flag("prompt_file", &request.prompt_file, "file with the text to continue")
      .Flag("max_new_tokens", &request.max_new_tokens, Within(1, 16777216), "tokens to generate")
      .Flag("temperature", &request.sampling.temperature, AtLeast(0),
            "logits are divided by it: below 1 prefers likely tokens, 0 always takes the likeliest")
      .Flag("top_k", &request.sampling.top_k, AtLeast(0),
            "choose among the k likeliest tokens; 0: among all")
      .Flag("top_p", &request.sampling.top_p, {.min = 0.0, .max = 1.0, .min_excluded = true},
            "choose among the likeliest tokens that together have this chance")
      .Flag("seed", &request.seed, AtLeast(0), "the same seed gives the same text")
      .Flag("num_samples", &request.num_samples, Within(1, 1000000), "texts to generate")
      .Flag("stop_at_eos", &request.stop_at_eos, "end a text where the model ends it")
      .Flag("device", &request.device,
            "where to run; auto takes cuda when a usable GPU is there, else cpu")
      .Flag("threads", &request.threads, Within(0, 1024),
            "threads inside one CPU operator; 0 leaves it to libtorch");
}

std::string PromptOf(const Request& request) {
  if (request.prompt_file.empty()) return request.prompt;
  if (!request.prompt.empty()) {
    Fail(ErrorCode::kConflictingOptions, "--prompt and --prompt_file both give a prompt; use one");
  }
  std::ifstream file(request.prompt_file, std::ios::binary);
  std::error_code error;
  // Opening a folder succeeds; reading from it does not.
  if (!file || std::filesystem::is_directory(request.prompt_file, error)) {
    Fail(ErrorCode::kDataUnreadable, "cannot read the prompt from '{}' (--prompt_file)",
         request.prompt_file);
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Text is news: a reader sees each piece when it is there.
void Show(const std::string& text) {
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
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
  std::string prompt = PromptOf(request);
  SetThreads(request.threads);
  ModelSource source = FindModel(request.model, request.step);
  TextCodec codec = CodecOf(source, request.tokenizer);
  std::vector<int32_t> prompt_tokens = EncodePrompt(codec, prompt);
  ModelPtr model = LoadForGeneration(source, prompt_tokens, request.max_new_tokens,
                                     ChooseDevice(request.device));
  GenerateOptions options{.max_new_tokens = request.max_new_tokens};
  if (request.stop_at_eos) options.stop_token = codec.eos_id();

  auto start = std::chrono::steady_clock::now();
  size_t tokens = 0;
  for (int64_t sample = 0; sample < request.num_samples; ++sample) {
    if (request.num_samples > 1) {
      Show(fmt::format("--- {} of {} ---\n", sample + 1, request.num_samples));
    }
    Show(prompt);
    Sampler sampler(request.sampling, request.seed, sample);
    TextStream text(codec, prompt_tokens);
    tokens += Generate(*model, prompt_tokens, options, sampler, [&text](int32_t token) {
                Show(text.Push(token));
              }).size();
    Show(text.Finish() + "\n");
  }
  std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  fmt::print(stderr, "{} tokens in {:.2f} s, {} tok/s\n", tokens, taken.count(),
             FormatCount(static_cast<double>(tokens) / taken.count()));
  return 0;
}

}  // namespace gt::cli
