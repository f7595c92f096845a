// The program as a user meets it: exit codes, messages, files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "gt/testing/shell.h"

namespace gt::cli_test {
namespace {

namespace fs = std::filesystem;

using testing::RunInShell;
using Outcome = testing::ShellOutcome;

Outcome RunGt(const std::string& arguments, const std::string& environment = "") {
  return RunInShell(environment + "GT_HOME=" GT_SOURCE_DIR " " GT_BINARY " " + arguments + " 2>&1");
}

void ExpectError(const std::string& arguments, const std::string& code, const std::string& part) {
  Outcome outcome = RunGt(arguments);
  EXPECT_EQ(outcome.status, 1) << arguments << "\n" << outcome.output;
  EXPECT_NE(outcome.output.find(code), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
}

std::string FileText(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Cli, MistakesAreAnsweredWithTheNearestName) {
  ExpectError("trian", "GT-E0100", "did you mean");
  ExpectError("train --training.step 3", "GT-E0100", "--training.steps");
  ExpectError("train --training.steps many", "GT-E0101", "many");
  ExpectError("train --training.steps 0", "GT-E0102", "--training.steps");
  ExpectError("train --model.flavor 8b", "GT-E0701", "did you mean 8B?");
  ExpectError("train --training.steps 1 --training.steps 2", "GT-E0105", "given twice");
  ExpectError(
      "train --compile.disable_passes dcee --training.steps 1 --model.flavor tiny "
      "--model.tokenizer_path bytes --dump_folder /tmp/gt_cli_test",
      "GT-E", "dce");
  ExpectError("train --config /does/not/exist.toml", "GT-E0103", "/does/not/exist.toml");
  ExpectError("opt /does/not/exist.gtir", "GT-E", "/does/not/exist.gtir");
  ExpectError("draw step.gtir", "GT-E0107", "--module_fqn");
  ExpectError("draw --module_fqn layers.0 /does/not/exist.gtir", "GT-E0200",
              "/does/not/exist.gtir");
  ExpectError("docs erorrs", "GT-E0100", "errors");
  ExpectError("generate --model /does/not/exist", "GT-E0701", "/does/not/exist");
  ExpectError("generate --top_p 0", "GT-E0102", "--top_p");
  ExpectError("generate --prompt a --prompt_file b", "GT-E0106", "--prompt_file");
  ExpectError("generate --prompt_file /tmp", "GT-E0702", "/tmp");
  ExpectError("generate --prompt_file /dev/zero", "GT-E0702", "larger");
  ExpectError("generate --prompts_file /tmp", "GT-E0702", "--prompts_file");
  ExpectError("info --model.flavor 8B --parallelism.tensor_parallel_degree 16", "GT-E0106",
              "key/value heads");
  ExpectError("info --ranks 3 --parallelism.tensor_parallel_degree 2", "GT-E0801", "");
}

// Command lines written for torchtitan's graph trainer.
TEST(Cli, TorchtitansGraphTrainerIsAnswered) {
  ExpectError("train --module graph_trainer.deepseek_v3 --config graph_trainer_deepseek_v3_16b",
              "GT-E0100", "write --model.name deepseek_v3");
  ExpectError("train --config graph_trainer_deepseek_v3_16b", "GT-E0103", "gt train --config ");
  ExpectError("memory --config llama3_8b", "GT-E0103", "/llama3_8B.toml");
  ExpectError("info --model.name deepseek_v3 --model.flavor 16B_sdpa", "GT-E0701",
              "--model.flavor 16B --model.attn sdpa");
  ExpectError("info --model.flavor debugmodel_flex_attn", "GT-E0701",
              "--model.flavor debugmodel --model.attn flex");
  const Outcome size = RunGt("info --model.flavor 7B");
  EXPECT_EQ(size.output.find("did you mean"), std::string::npos) << size.output;
  EXPECT_NE(size.output.find("known flavors: tiny"), std::string::npos) << size.output;
  // Pass lists must contain what other options need.
  const std::string moe =
      "trace --model.name deepseek_v3 --model.flavor tiny --training.seq_len 16 "
      "--training.local_batch_size 2 ";
  ExpectError(moe + "--compile.ep_overlap.enabled --compile.passes ep_overlap_schedule", "GT-E0106",
              "chunk, concretize: needed by compile.ep_overlap.enabled true");
  ExpectError(moe +
                  "--compile.memory_policy full --compile.disable_passes "
                  "selective_activation_remat_pass",
              "GT-E0106", "rematerialize: needed by compile.memory_policy full");
  // torchtitan's opt-in gives the same graph as gt's option.
  const Outcome theirs = RunGt(moe + "--compile.passes ep_overlap --output /dev/stdout");
  EXPECT_EQ(theirs.status, 0) << theirs.output;
  const auto graph_in = [](const std::string& output) {
    return output.substr(output.find("graph @"));
  };
  EXPECT_EQ(graph_in(theirs.output),
            graph_in(RunGt(moe + "--compile.ep_overlap.enabled --output /dev/stdout").output));
  EXPECT_NE(theirs.output.find("chunk"), std::string::npos);
}

TEST(Cli, HelpIsAnsweredEverywhere) {
  for (const char* command :
       {"--help", "train --help", "generate --help", "info --help", "trace --help", "opt --help",
        "docs --help", "launch --help", "memory --help", "draw --help", "models --help"}) {
    Outcome outcome = RunGt(command);
    EXPECT_EQ(outcome.status, 0) << command;
    EXPECT_GT(outcome.output.size(), 200u) << command;
  }
}

// What OpenMP says of itself when the program starts for the second time.
TEST(Cli, ThreadsWaitPassivelyUnlessTheUserSaysHow) {
  constexpr const char* kShow = "OMP_NUM_THREADS=2 OMP_DISPLAY_ENV=verbose ";
  const auto spins = [&](const std::string& environment) {
    const std::string output = RunGt("train --help", kShow + environment).output;
    const std::string key = "GOMP_SPINCOUNT = '";
    const size_t at = output.rfind(key);  // the first start says it, too
    EXPECT_NE(at, std::string::npos) << output;
    return at == std::string::npos ? -1 : std::stoll(output.substr(at + key.size()));
  };
  EXPECT_EQ(spins(""), 0);
  EXPECT_GT(spins("OMP_WAIT_POLICY=active "), 0);
  EXPECT_GT(spins("OMP_PROC_BIND=true "), 0);
  EXPECT_EQ(spins("OMP_PROC_BIND=false "), 0);
  EXPECT_EQ(spins("GOMP_SPINCOUNT=7 "), 7);
}

TEST(Cli, PlanningEndsWithASummaryAndItsStatus) {
  const std::string job =
      "--device cuda --model.flavor 8B --model.n_layers 2 --ranks 8 --training.local_batch_size 4 "
      "--training.seq_len 8192 --training.mixed_precision_param bfloat16 --tokens 1000000000 ";
  for (const char* command : {"simulate ", "memory ", "place "}) {
    SCOPED_TRACE(command);
    const Outcome fits = RunGt(command + job);
    EXPECT_EQ(fits.status, 0) << fits.output;
    const size_t summary = fits.output.find("\nsummary\n");
    ASSERT_NE(summary, std::string::npos) << fits.output;
    for (const char* row :
         {"fits               yes: ", "of 73.60 GiB", "global batch       32 ", "step ",
          "tokens/s ", " per GPU", "MFU ", "to train ", " GPU hours", "exposed "}) {
      EXPECT_NE(fits.output.find(row, summary), std::string::npos) << row << "\n" << fits.output;
    }
  }
  for (const char* command : {"simulate ", "memory "}) {
    SCOPED_TRACE(command);
    const Outcome too_much = RunGt(command + job + "--training.memory_limit_gb 4");
    EXPECT_EQ(too_much.status, 2) << too_much.output;
    const size_t summary = too_much.output.find("\nsummary\n");
    ASSERT_NE(summary, std::string::npos) << too_much.output;
    for (const char* row : {"fits               no: it needs ", "--compile.memory_policy full"}) {
      EXPECT_NE(too_much.output.find(row, summary), std::string::npos) << too_much.output;
    }
  }
}

TEST(Cli, HelpOfACommandIsItsOwn) {
  for (const char* command : {"train", "opt", "launch", "docs", "models"}) {
    const Outcome asked = RunGt(std::string("help ") + command);
    EXPECT_EQ(asked.status, 0) << asked.output;
    EXPECT_EQ(asked.output, RunGt(std::string(command) + " --help").output);
  }
  EXPECT_EQ(RunGt("help").output, RunGt("--help").output);
  EXPECT_EQ(RunGt("help help").output, RunGt("--help").output);
  EXPECT_EQ(RunGt("--help opt").output, RunGt("opt --help").output);
  EXPECT_EQ(RunGt("help test").output, "./gt test: run every test (--slow: also the long ones)\n");
  ExpectError("help nonsense", "GT-E0100", "there is no command 'nonsense'; 'gt --help' lists");
  ExpectError("help trian", "GT-E0100", "did you mean train?");
  ExpectError("help train opt", "GT-E0108", "train opt");
}

// What once crashed, never ended or was called a defect of the program.
TEST(Cli, HugeAndStrangeValuesAreAnsweredAtOnce) {
  ExpectError(
      "trace --ranks 4 --parallelism.tensor_parallel_degree 4294967296 "
      "--parallelism.context_parallel_degree 4294967296",
      "GT-E0102", "context_parallel_degree");
  ExpectError("train --ranks 8 --parallelism.context_parallel_degree 9223372036854775807",
              "GT-E0102", "context_parallel_degree");
  ExpectError("trace --model.vocab_size 9223372036854775807", "GT-E0102", "vocab_size");
  ExpectError("trace --model.n_layers 1000000000", "GT-E0102", "n_layers");
  ExpectError("trace --model.flavor tiny --compile.costs_file /tmp", "GT-E0375", "folder");
  ExpectError("trace --config /dev/zero", "GT-E0103", "/dev/zero");
  ExpectError("train --device cpu --ranks 1048576", "GT-E0803", "open files");
  ExpectError("trace --model.hf_path /dev", "GT-E0705", "config.json");
}

TEST(Cli, SaysWhichBuildItIs) {
  Outcome outcome = RunGt("--version");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(outcome.output.starts_with("gt 0.")) << outcome.output;
  EXPECT_NE(outcome.output.find("libtorch 2."), std::string::npos) << outcome.output;
}

TEST(Cli, ModelsAreListed) {
  Outcome outcome = RunGt("models");
  EXPECT_EQ(outcome.status, 0);
  for (const char* part : {"--model.name llama3", "--model.name qwen3", "deepseek_v3",
                           "8,030,261,248", "671,026,404,352", "debugmodel", "hf_path"}) {
    EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
  }
}

TEST(Cli, UnknownHostsAreNamed) {
  Outcome outcome =
      RunGt("train --device cpu --comm.init_timeout_seconds 1",
            "RANK=1 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_PORT=29999 MASTER_ADDR=no-such-host.invalid ");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("GT-E0804: the host \"no-such-host.invalid\""), std::string::npos)
      << outcome.output;
  EXPECT_EQ(outcome.output.find("frame #"), std::string::npos) << outcome.output;
}

TEST(Cli, TracedGraphGoesThroughOpt) {
  fs::path folder = fs::temp_directory_path() / ("gt_cli_test_" + std::to_string(getpid()));
  fs::create_directories(folder);
  std::string graph = (folder / "step.gtir").string(), smaller = (folder / "smaller.gtir").string();
  Outcome traced = RunGt(
      "trace --model.flavor tiny --training.seq_len 16 --compile.enable_passes=false --output " +
      graph);
  EXPECT_EQ(traced.status, 0) << traced.output;
  EXPECT_NE(traced.output.find("guards"), std::string::npos) << traced.output;
  Outcome optimized = RunGt("opt --pass=dce,canonicalize,cse " + graph + " -o " + smaller);
  EXPECT_EQ(optimized.status, 0) << optimized.output;
  EXPECT_LT(fs::file_size(smaller), fs::file_size(graph));
  std::string text = FileText(graph);
  std::ofstream(graph) << text.substr(0, text.size() / 2);
  ExpectError("opt --pass=dce " + graph, "GT-E02", "step.gtir");
  fs::remove_all(folder);
}

// What is looked at is what would run: cuDNN's attention has no deterministic backward.
TEST(Cli, DeterministicStepsAreTracedAsSuch) {
  const std::string flags =
      "trace --device cuda --model.flavor tiny --training.seq_len 16 "
      "--training.mixed_precision_param bfloat16 --output /dev/stdout";
  const std::string cudnn = "_scaled_dot_product_cudnn_attention";
  EXPECT_NE(RunGt(flags).output.find(cudnn), std::string::npos);
  const Outcome deterministic = RunGt(flags + " --training.deterministic");
  EXPECT_EQ(deterministic.output.find(cudnn), std::string::npos) << deterministic.output;
  EXPECT_NE(deterministic.output.find("_scaled_dot_product_flash_attention"), std::string::npos);
}

TEST(Cli, TracedGraphIsDrawn) {
  fs::path folder = fs::temp_directory_path() / ("gt_cli_test_" + std::to_string(getpid()));
  fs::create_directories(folder);
  std::string graph = (folder / "step.gtir").string(), picture = (folder / "step.svg").string();
  Outcome traced = RunGt("trace --model.flavor tiny --training.seq_len 16 --output " + graph);
  ASSERT_EQ(traced.status, 0) << traced.output;
  Outcome drawn = RunGt("draw --module_fqn layers.0 --output " + picture + " " + graph);
  EXPECT_EQ(drawn.status, 0) << drawn.output;
  EXPECT_EQ(drawn.output, "");
  std::string svg = FileText(picture);
  EXPECT_NE(svg.find(">attention<"), std::string::npos) << svg;
  EXPECT_EQ(RunGt("draw --module_fqn layers.0 - < " + graph).output, svg);
  ExpectError("draw --module_fqn layers.99 " + graph, "GT-E0101", "layers.99");
  ExpectError("draw --module_fqn layers.0 --phase sideways " + graph, "GT-E0101", "backward");
  fs::remove_all(folder);
}

// Without a file the flags say which step; a placed one says where its values are.
TEST(Cli, ConfiguredStepIsDrawn) {
  const std::string flags =
      " --model.flavor debugmodel --training.seq_len 1024 --training.local_batch_size 2 "
      "--device cuda --ranks 4 ";
  const Outcome plain = RunGt("draw --module_fqn layers.0.feed_forward" + flags);
  EXPECT_EQ(plain.status, 0) << plain.output;
  EXPECT_NE(plain.output.find("<svg"), std::string::npos) << plain.output;
  EXPECT_EQ(plain.output.find("placed "), std::string::npos) << plain.output;
  const Outcome placed = RunGt(
      "draw --module_fqn layers.0.feed_forward --compile.enable_autoparallel --mesh 2x2" + flags);
  EXPECT_EQ(placed.status, 0) << placed.output;
  EXPECT_NE(placed.output.find("placed S(0)"), std::string::npos) << placed.output;
  ExpectError("draw" + flags, "GT-E0107", "--module_fqn");
}

TEST(Cli, LargestModelIsCapturedWithoutItsWeights) {
  Outcome outcome = RunGt("trace --model.flavor 405B --training.seq_len 8192");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("405,8"), std::string::npos) << outcome.output;
}

TEST(Cli, LargestModelsAreDescribedWithoutTheirWeights) {
  Outcome table = RunGt("info --model.name deepseek_v3 --model.flavor 671B");
  EXPECT_EQ(table.status, 0) << table.output;
  EXPECT_NE(table.output.find("671,026,404,352"), std::string::npos) << table.output;
  Outcome json = RunGt("info --model.flavor 405B --json");
  EXPECT_EQ(json.status, 0) << json.output;
  EXPECT_NE(json.output.find("\"parameters\": 405853388800"), std::string::npos) << json.output;
}

// What gt generate prints: lines about the model and the speed before and after the text.
struct GeneratedText {
  std::string before, text, after;
};

GeneratedText Generated(const std::string& flags) {
  Outcome outcome = RunGt("generate --device cpu --max_new_tokens 12 --stop_at_eos=false " + flags);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  size_t begin = outcome.output.find('\n') + 1;
  size_t end = outcome.output.rfind('\n', outcome.output.size() - 2) + 1;
  EXPECT_LT(begin, end) << outcome.output;
  return {outcome.output.substr(0, begin), outcome.output.substr(begin, end - begin),
          outcome.output.substr(end)};
}

// Training leaves weights behind, and generating from them continues the prompts: the same text for
// the same seed, whatever else is generated with it.
TEST(Cli, TrainedModelGenerates) {
  fs::path folder = fs::temp_directory_path() / ("gt_cli_generate_" + std::to_string(getpid()));
  Outcome trained = RunGt(
      "train --device cpu --model.flavor tiny --model.vocab_size 2048 --training.steps 2 "
      "--training.seq_len 16 --dump_folder " +
      folder.string());
  EXPECT_EQ(trained.status, 0) << trained.output;
  const std::string model = " --model " + folder.string(), prompt = " --prompt 'And God said'";
  GeneratedText one = Generated(prompt + model + "/hf --seed 1");
  EXPECT_NE(one.before.find("hf loaded in"), std::string::npos) << one.before;
  EXPECT_EQ(one.text.find("And God said"), 0u) << one.text;
  EXPECT_EQ(one.after.find("12 tokens in"), 0u) << one.after;
  EXPECT_NE(one.after.find("first token after"), std::string::npos) << one.after;
  EXPECT_EQ(Generated(prompt + model + " --seed 1").text, one.text);
  EXPECT_NE(Generated(prompt + model + " --seed 2").text, one.text);

  GeneratedText samples = Generated(prompt + model + " --seed 1 --num_samples 2");
  EXPECT_EQ(samples.text.find("--- sample 1 of 2 ---\n" + one.text), 0u) << samples.text;
  EXPECT_EQ(samples.after.find("24 tokens in"), 0u) << samples.after;
  const std::string file = (folder / "prompts").string();
  std::ofstream(file) << "In the beginning, there was\r\nAnd God said\n";
  std::string both = Generated("--prompts_file " + file + model + " --seed 1").text;
  EXPECT_NE(both.find("--- prompt 2 of 2 ---\n" + one.text), std::string::npos) << both;
  EXPECT_EQ(Generated("--prompt 'In the beginning, there was'" + prompt + model + " --seed 1").text,
            both);
  ExpectError("generate --prompts_file /dev/null" + model, "GT-E0714", "/dev/null");
  fs::remove_all(folder);
}

// A vocabulary of 256 has room for bytes alone: they are taken without being asked for.
TEST(Cli, TheSmallestModelTrainsAndGeneratesWithoutFurtherFlags) {
  fs::path folder = fs::temp_directory_path() / ("gt_cli_tiny_" + std::to_string(getpid()));
  Outcome trained = RunGt(
      "train --device cpu --model.flavor tiny --training.steps 1 --training.seq_len 16 "
      "--dump_folder '" +
      folder.string() + " here'");
  EXPECT_EQ(trained.status, 0) << trained.output;
  EXPECT_NE(trained.output.find("tokens are bytes"), std::string::npos) << trained.output;
  // Suggested commands can be pasted.
  EXPECT_NE(trained.output.find("gt generate --model '" + folder.string() + " here/hf'"),
            std::string::npos)
      << trained.output;
  Outcome text = RunGt("generate --device cpu --prompt God --max_new_tokens 4 --model '" +
                       folder.string() + " here'");
  EXPECT_EQ(text.status, 0) << text.output;
  fs::remove_all(folder.string() + " here");
}

TEST(Cli, DocumentsAreUpToDate) {
  for (std::string page : {"errors", "passes", "torchtitan"}) {
    EXPECT_EQ(FileText(GT_SOURCE_DIR "/docs/" + page + ".md"), RunGt("docs " + page).output)
        << "run: ./gt docs " << page << " > docs/" << page << ".md";
  }
}

}  // namespace
}  // namespace gt::cli_test
