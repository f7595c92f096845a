#include "gt/job/config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/config/command_line.h"

namespace gt::config_test {
namespace {

Error ErrorOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return {ErrorCode::kInternal, ""};
}

Error LoadError(std::string_view text) {
  Config config;
  Error error = ErrorOf([&] { LoadToml(text, "job.toml", &config); });
  EXPECT_EQ(config, Config()) << "a config file with errors must not change anything";
  return error;
}

std::vector<Option> AllOptions(Config* config) {
  std::vector<Option> all;
  for (OptionGroup& group : BindConfig(config).groups) {
    all.insert(all.end(), group.options.begin(), group.options.end());
  }
  return all;
}

// Gives the option another allowed value. False for an enum with one name only.
bool Change(Option& option) {
  struct Changer {
    Option& option;
    bool operator()(bool* v) const { return *v = !*v, true; }
    bool operator()(std::int64_t* v) const { return *v += 1, true; }
    // Not representable in few digits, so that the round trip must keep all of them.
    bool operator()(double* v) const { return *v = *v / 3 + 0.1, true; }
    bool operator()(std::string* v) const { return *v += " \"q\" \\ # = [é]\n", true; }
    bool operator()(StringList* v) const { return *v = {"a", "b,c", "\"d"}, true; }
    bool operator()(const EnumBinding& e) const {
      e.set((e.get() + 1) % e.names.size());
      return e.names.size() > 1;
    }
  };
  return std::visit(Changer{option}, option.binding());
}

TEST(Config, DefaultsAreTheEmbeddedJob) {
  const Config config;
  EXPECT_EQ(config.model.name, "llama3");
  EXPECT_EQ(config.model.flavor, "debugmodel");
  EXPECT_EQ(config.training.seq_len, 256);
  EXPECT_EQ(config.training.local_batch_size, 8);
  EXPECT_EQ(config.training.seed, 42);
  EXPECT_EQ(config.optimizer.lr, 8e-4);
  EXPECT_EQ(config.optimizer.beta2, 0.95);
  EXPECT_EQ(config.lr_scheduler.decay_ratio, 0.8);
  EXPECT_EQ(config.compile.mode, CompileMode::kAotFxTrace);
  EXPECT_NO_THROW(Validate(config));
}

TEST(Config, EveryOptionHasAUniquePathAndAHelpText) {
  Config config;
  std::set<std::string> paths;
  for (const Option& option : AllOptions(&config)) {
    EXPECT_TRUE(paths.insert(option.path()).second) << option.path();
    EXPECT_GE(option.help().size(), 5u) << option.path();
    EXPECT_FALSE(option.help().ends_with(".")) << option.path();
  }
  EXPECT_TRUE(paths.contains("training.steps"));
  EXPECT_TRUE(paths.contains("device"));
}

TEST(Config, EveryGroupHasANameAndAHelpText) {
  Config config;
  const std::vector<OptionGroup> groups = BindConfig(&config).groups;
  EXPECT_EQ(groups.front().name, "");
  for (const OptionGroup& group : groups) {
    EXPECT_FALSE(group.help.empty());
    EXPECT_FALSE(group.options.empty()) << group.name;
    for (const Option& option : group.options) {
      EXPECT_TRUE(group.name.empty() || option.path().starts_with(group.name + "."));
    }
  }
}

// The written config must be the whole truth: every option, at any value, survives writing and
// reading.
TEST(Config, WrittenConfigReadsBackEqualForEveryOption) {
  Config changed;
  int changes = 0;
  for (Option& option : AllOptions(&changed)) {
    Config one;
    for (Option& same : AllOptions(&one)) {
      if (same.path() != option.path() || !Change(same)) continue;
      Config read;
      ASSERT_NO_THROW(LoadToml(ToToml(one), "written", &read)) << ToToml(one);
      EXPECT_EQ(read, one) << option.path();
      EXPECT_NE(read, Config()) << option.path();
    }
    changes += Change(option) ? 1 : 0;
  }
  EXPECT_GT(changes, 25);
  Config read;
  ASSERT_NO_THROW(LoadToml(ToToml(changed), "written", &read));
  EXPECT_EQ(read, changed);
  EXPECT_EQ(ToToml(read), ToToml(changed));
}

TEST(Config, WrittenConfigIsReadable) {
  const std::string text = ToToml(Config());
  EXPECT_TRUE(text.starts_with("device = \"auto\"\ndump_folder = \"outputs/{model}-{time}\"\n"))
      << text;
  EXPECT_NE(text.find("\n\n[training]\nsteps = 150\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nlr = 0.0008\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nmax_norm = 1.0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\ndisable_passes = []\n"), std::string::npos) << text;
}

TEST(Config, TheWalkSeesEveryOptionWithItsValue) {
  Config config;
  config.training.steps = 7;
  std::set<std::string> seen;
  ForEachOption(
      config, [&](const Option& option) { seen.insert(option.path() + "=" + option.TomlText()); });
  EXPECT_TRUE(seen.contains("training.steps=7"));
  EXPECT_TRUE(seen.contains("compile.mode=\"aot_fx_trace\""));
  EXPECT_EQ(seen.size(), AllOptions(&config).size());
}

TEST(Config, FilesSetWhatTheyNameAndLeaveTheRest) {
  Config config;
  config.training.seed = 7;
  LoadToml(
      "threads = 2\n"
      "optimizer.lr = 1\n"
      "compile = { mode = \"eager\", disable_passes = [\"dce\", \"cse\"] }\n"
      "[training]\n"
      "steps = 1_000\n"
      "deterministic = true\n",
      "job.toml", &config);
  EXPECT_EQ(config.threads, 2);
  EXPECT_EQ(config.optimizer.lr, 1.0);
  EXPECT_EQ(config.compile.mode, CompileMode::kEager);
  EXPECT_EQ(config.compile.disable_passes, (StringList{"dce", "cse"}));
  EXPECT_EQ(config.training.steps, 1000);
  EXPECT_TRUE(config.training.deterministic);
  EXPECT_EQ(config.training.seed, 7);
}

// Files written before there were lists of paths name one, or none.
TEST(Config, AListOfPathsMayBeOnePath) {
  const auto paths = [](std::string_view value) {
    Config config;
    config.training.dataset_path = {"before"};
    LoadToml(fmt::format("training.dataset_path = {}", value), "job.toml", &config);
    return config.training.dataset_path;
  };
  EXPECT_EQ(paths("\"a, b.txt\""), StringList{"a, b.txt"});
  EXPECT_EQ(paths("[\"a\", \"b\"]"), (StringList{"a", "b"}));
  EXPECT_EQ(paths("\"\""), StringList{});
  EXPECT_EQ(paths("[]"), StringList{});
}

TEST(Config, UnknownKeySuggestsTheNearest) {
  const Error error = LoadError("[training]\nstep = 3");
  EXPECT_EQ(error.code(), ErrorCode::kUnknownOption);
  EXPECT_EQ(error.message(), "job.toml:2: unknown key training.step; did you mean training.steps?");
  EXPECT_EQ(LoadError("steps = 3").message(),
            "job.toml:1: unknown key steps; did you mean training.steps?");
  EXPECT_EQ(LoadError("[model]\nbanana = 3").message(), "job.toml:2: unknown key model.banana");
}

TEST(Config, UnknownSectionIsOneProblem) {
  const Error error = LoadError("[trainig]\nsteps = 3\nseq_len = 4");
  EXPECT_EQ(error.code(), ErrorCode::kUnknownOption);
  EXPECT_EQ(error.message(), "job.toml:1: unknown section [trainig]; did you mean [training]?");
  EXPECT_EQ(LoadError("[banana]").message(), "job.toml:1: unknown section [banana]");
}

TEST(Config, SectionsAndKeysAreNotMixedUp) {
  EXPECT_EQ(LoadError("training = 3").message(),
            "job.toml:1: training is a section, not a key; write [training] and its keys below");
  EXPECT_EQ(LoadError("[training.steps]\nx = 1").message(),
            "job.toml:1: training.steps is a key, not a section; write training.steps = ...");
}

struct BadValue {
  std::string text;
  ErrorCode code;
  std::string message;
};

class BadValueTest : public ::testing::TestWithParam<BadValue> {};

TEST_P(BadValueTest, SaysWhatIsExpectedWhatWasGivenAndWhere) {
  const Error error = LoadError(GetParam().text);
  EXPECT_EQ(error.code(), GetParam().code);
  EXPECT_EQ(error.message(), "job.toml:" + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Toml, BadValueTest,
    ::testing::Values(
        BadValue{"[training]\n\nsteps = \"20\"", ErrorCode::kBadOptionValue,
                 "3: training.steps: expected an integer >= 1, got the string \"20\""},
        BadValue{"training.steps = 20.0", ErrorCode::kBadOptionValue,
                 "1: training.steps: expected an integer >= 1, got the float 20"},
        BadValue{"training.deterministic = 1", ErrorCode::kBadOptionValue,
                 "1: training.deterministic: expected true or false, got the integer 1"},
        BadValue{"optimizer.lr = \"big\"", ErrorCode::kBadOptionValue,
                 "1: optimizer.lr: expected a number >= 0, got the string \"big\""},
        BadValue{"model.name = 3", ErrorCode::kBadOptionValue,
                 "1: model.name: expected text that is not empty, got the integer 3"},
        BadValue{"compile.disable_passes = \"dce\"", ErrorCode::kBadOptionValue,
                 "1: compile.disable_passes: expected a list of names, got the string \"dce\""},
        BadValue{"compile.disable_passes = [1]", ErrorCode::kBadOptionValue,
                 "1: compile.disable_passes: expected a list of names, got a list"},
        BadValue{"training.dataset_path = 3", ErrorCode::kBadOptionValue,
                 "1: training.dataset_path: expected a path or a list of paths, got the integer 3"},
        BadValue{"training.dataset_path = [\"a\", 3]", ErrorCode::kBadOptionValue,
                 "1: training.dataset_path: expected a path or a list of paths, got a list"},
        BadValue{"compile.mode = true", ErrorCode::kBadOptionValue,
                 "1: compile.mode: expected one of eager, aot_fx_trace, got the boolean true"},
        BadValue{"compile.mode = \"eagr\"", ErrorCode::kBadOptionValue,
                 "1: compile.mode: expected one of eager, aot_fx_trace, got \"eagr\"; did you mean "
                 "eager?"},
        BadValue{"training.steps = 0", ErrorCode::kOptionOutOfRange,
                 "1: training.steps: 0 is out of range; expected an integer >= 1"},
        BadValue{"optimizer.beta1 = 1.0", ErrorCode::kOptionOutOfRange,
                 "1: optimizer.beta1: 1.0 is out of range; expected a number in [0, 1)"},
        BadValue{"optimizer.eps = 0", ErrorCode::kOptionOutOfRange,
                 "1: optimizer.eps: 0.0 is out of range; expected a number > 0"},
        BadValue{"lr_scheduler.decay_ratio = 1.5", ErrorCode::kOptionOutOfRange,
                 "1: lr_scheduler.decay_ratio: 1.5 is out of range; expected a number in [0, 1]"},
        BadValue{"model.name = \"\"", ErrorCode::kOptionOutOfRange,
                 "1: model.name: \"\" is out of range; expected text that is not empty"},
        BadValue{"[training]\nsteps = 1\nsteps = 2", ErrorCode::kDuplicateKey,
                 "3: training.steps was already set in line 2"},
        BadValue{"[training\n", ErrorCode::kMalformedToml,
                 "1: expected ] after the section name training, found the end of the line"}),
    [](const auto& test) { return "Case" + std::to_string(test.index); });

TEST(Config, AllProblemsOfAFileAreReportedAtOnce) {
  const Error error = LoadError("[training]\nstep = 3\nseq_len = 0\nseed = \"x\"\n[modle]\n");
  EXPECT_EQ(error.code(), ErrorCode::kSeveralConfigProblems);
  EXPECT_EQ(error.message(),
            "4 problems with flags and config files:\n"
            "  GT-E0100: job.toml:5: unknown section [modle]; did you mean [model]?\n"
            "  GT-E0100: job.toml:2: unknown key training.step; did you mean training.steps?\n"
            "  GT-E0102: job.toml:3: training.seq_len: 0 is out of range; expected an integer in "
            "[1, 16777216]\n"
            "  GT-E0101: job.toml:4: training.seed: expected an integer >= 0, got the string "
            "\"x\"");
}

TEST(Config, ProblemsOfOneKindKeepTheirCode) {
  EXPECT_EQ(LoadError("a = 1\nb = 2").code(), ErrorCode::kUnknownOption);
}

TEST(Config, UnreadableFilesSayWhy) {
  Config config;
  Error error = ErrorOf([&] { LoadTomlFile("/no/such/file.toml", &config); });
  EXPECT_EQ(error.code(), ErrorCode::kConfigFileUnreadable);
  EXPECT_EQ(error.message(),
            "cannot read config file /no/such/file.toml: No such file or directory");
  error = ErrorOf([&] { LoadTomlFile("/tmp", &config); });
  EXPECT_EQ(error.code(), ErrorCode::kConfigFileUnreadable);
  EXPECT_EQ(error.message(), "cannot read config file /tmp: it is a folder");
}

TEST(Config, ValidateChecksRangesOfConfigsMadeInCode) {
  Config config;
  config.training.steps = 0;
  config.optimizer.lr = std::numeric_limits<double>::quiet_NaN();
  const Error error = ErrorOf([&] { Validate(config); });
  EXPECT_EQ(error.code(), ErrorCode::kOptionOutOfRange);
  EXPECT_NE(error.message().find("training.steps: 0 is out of range"), std::string::npos);
  EXPECT_NE(error.message().find("optimizer.lr: nan is out of range"), std::string::npos);
}

TEST(Config, ValidateRejectsMoreTokensThanKernelsCanIndex) {
  Config config;
  config.training.seq_len = 16777216;
  config.training.local_batch_size = 128;
  const Error error = ErrorOf([&] { Validate(config); });
  EXPECT_EQ(error.code(), ErrorCode::kConflictingOptions);
  EXPECT_NE(error.message().find("training.local_batch_size 128"), std::string::npos);
  config.training.local_batch_size = 127;
  EXPECT_NO_THROW(Validate(config));
}

TEST(Config, WarmUpLongerThanTheRunIsAWarning) {
  Config config;
  config.training.steps = 1;
  ::testing::internal::CaptureStderr();
  EXPECT_NO_THROW(Validate(config));
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find("lr_scheduler.warmup_steps 2 is cut to training.steps 1"), std::string::npos);
}

TEST(Config, EveryShippedConfigIsValid) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(GT_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".toml") continue;
    Config config;
    EXPECT_NO_THROW(LoadTomlFile(entry.path(), &config)) << entry.path();
    EXPECT_NO_THROW(Validate(config)) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 1);
}

TEST(EpOverlapConfig, IsOffByDefault) {
  const EpOverlapSection overlap;
  EXPECT_EQ(overlap.enabled, AutoSwitch::kFalse);
  EXPECT_EQ(overlap.chunk_dim, ChunkDim::kBatch);
  EXPECT_EQ(overlap.strategy, ChunkStrategy::kGraph);
  EXPECT_EQ(overlap.module_fqn, "layers.*");
  EXPECT_EQ(overlap.num_chunks, 2);
  EXPECT_FALSE(overlap.disable_early_grad_accumulation);
  EXPECT_TRUE(overlap.keep_chunks_across_roots);
}

// A section inside a section: by its own header, by dotted keys, and as flags.
TEST(EpOverlapConfig, IsSetByFilesAndFlags) {
  Config from_file;
  LoadToml(
      "[compile]\nenable_passes = true\n"
      "[compile.ep_overlap]\nenabled = true\nchunk_dim = \"seq\"\nmodule_fqn = "
      "\"layers.*.moe\"\nnum_chunks = 3\ndisable_early_grad_accumulation = "
      "true\nkeep_chunks_across_roots = false\n",
      "job.toml", &from_file);
  const EpOverlapSection& overlap = from_file.compile.ep_overlap;
  EXPECT_EQ(overlap.enabled, AutoSwitch::kTrue);
  EXPECT_EQ(overlap.chunk_dim, ChunkDim::kSeq);
  EXPECT_EQ(overlap.module_fqn, "layers.*.moe");
  EXPECT_EQ(overlap.num_chunks, 3);
  EXPECT_TRUE(overlap.disable_early_grad_accumulation);
  EXPECT_FALSE(overlap.keep_chunks_across_roots);
  EXPECT_NO_THROW(Validate(from_file));

  Config from_keys;
  LoadToml("compile.ep_overlap.strategy = \"eager\"", "job.toml", &from_keys);
  EXPECT_EQ(from_keys.compile.ep_overlap.strategy, ChunkStrategy::kEager);

  Config from_flags;
  CommandLine line("gt train", "trains a model");
  line.WithConfig(&from_flags);
  const std::vector<std::string> flags = {"--compile.ep_overlap.enabled",
                                          "--compile.ep_overlap.chunk_dim=seq",
                                          "--compile.ep_overlap.module_fqn",
                                          "layers.*.moe",
                                          "--compile.ep_overlap.num_chunks=3",
                                          "--compile.ep_overlap.disable_early_grad_accumulation",
                                          "--compile.ep_overlap.keep_chunks_across_roots=false"};
  EXPECT_TRUE(line.Parse(flags));
  EXPECT_EQ(from_flags, from_file);
}

// A switch that can also be left to the program: bare it is on, a value may follow with or without =.
TEST(EpOverlapConfig, CanBeLeftToAPrediction) {
  const auto parsed = [](std::vector<std::string> flags) {
    Config config;
    std::string rest;
    CommandLine line("gt train", "trains a model");
    line.OptionalPositional("REST", &rest, "what comes behind").WithConfig(&config);
    EXPECT_TRUE(line.Parse(flags));
    return std::pair(config.compile.ep_overlap.enabled, rest);
  };
  const std::string flag = "--compile.ep_overlap.enabled";
  EXPECT_EQ(parsed({flag}), std::pair(AutoSwitch::kTrue, std::string()));
  EXPECT_EQ(parsed({flag, "auto"}), std::pair(AutoSwitch::kAuto, std::string()));
  EXPECT_EQ(parsed({flag + "=false"}), std::pair(AutoSwitch::kFalse, std::string()));
  EXPECT_EQ(parsed({flag, "file"}), std::pair(AutoSwitch::kTrue, std::string("file")));
}

// The message of what Validate has against it; empty when nothing.
std::string ProblemWith(const std::function<void(Config&)>& change, ErrorCode code) {
  Config config;
  config.compile.ep_overlap.enabled = AutoSwitch::kTrue;
  change(config);
  try {
    Validate(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.message();
  }
  return "";
}

TEST(EpOverlapConfig, TheGraphStrategyNeedsAGraphToRewrite) {
  const auto problem = [](const std::function<void(Config&)>& change) {
    return ProblemWith(change, ErrorCode::kConflictingOptions);
  };
  const auto contains = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_EQ(problem([](Config&) {}), "");
  EXPECT_PRED2(contains, problem([](Config& c) { c.compile.mode = CompileMode::kEager; }),
               "strategy graph rewrites the captured graph, which compile.mode eager leaves out");
  EXPECT_PRED2(contains, problem([](Config& c) { c.compile.enable_passes = false; }),
               "which compile.enable_passes=false leaves out");
  // Neither matters to the other strategy, nor while nothing is cut.
  EXPECT_EQ(problem([](Config& c) {
              c.compile.mode = CompileMode::kEager;
              c.compile.ep_overlap.strategy = ChunkStrategy::kEager;
            }),
            "");
  EXPECT_EQ(problem([](Config& c) {
              c.compile.enable_passes = false;
              c.compile.ep_overlap.enabled = AutoSwitch::kFalse;
            }),
            "");
}

// Its policy rewrites the captured graph and decides about memory, chunks and places of collectives.
TEST(AutoparallelBackendConfig, RefusesWhatDecidesTheSame) {
  const auto problem = [](const std::function<void(Config&)>& change) {
    Config config;
    config.compile.inductor_compilation = InductorCompilation::kAutoparallelBackend;
    change(config);
    try {
      Validate(config);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConflictingOptions) << error.what();
      return error.message();
    }
    return std::string();
  };
  struct Refusal {
    std::function<void(Config&)> change;
    std::string_view names;
  };
  const Refusal refusals[] = {
      {[](Config& c) { c.compile.mode = CompileMode::kEager; }, "compile.mode eager"},
      {[](Config& c) { c.compile.enable_passes = false; }, "compile.enable_passes=false"},
      {[](Config& c) { c.compile.memory_policy = MemoryPolicy::kFull; },
       "compile.memory_policy full"},
      {[](Config& c) { c.compile.enable_fsdp_dense_region_overlap = true; },
       "compile.enable_fsdp_dense_region_overlap"},
      {[](Config& c) { c.compile.ep_overlap.enabled = AutoSwitch::kTrue; },
       "compile.ep_overlap.enabled"},
  };
  for (const Refusal& refusal : refusals) {
    EXPECT_NE(
        problem(refusal.change)
            .find(fmt::format("autoparallel_backend does not go together with {}", refusal.names)),
        std::string::npos)
        << refusal.names;
    // The other values go together with all of them.
    for (InductorCompilation other :
         {InductorCompilation::kNone, InductorCompilation::kRegional, InductorCompilation::kFull}) {
      const std::string said = problem([&](Config& c) {
        refusal.change(c);
        c.compile.inductor_compilation = other;
      });
      EXPECT_EQ(said.find("autoparallel_backend"), std::string::npos) << said;
    }
  }
  EXPECT_EQ(problem([](Config&) {}), "");
  // Chunks that the modules make themselves are in the captured graph, and auto can say no.
  EXPECT_EQ(problem([](Config& c) {
              c.compile.ep_overlap.enabled = AutoSwitch::kTrue;
              c.compile.ep_overlap.strategy = ChunkStrategy::kEager;
            }),
            "");
  EXPECT_EQ(problem([](Config& c) { c.compile.ep_overlap.enabled = AutoSwitch::kAuto; }), "");
}

TEST(ShareGpuConfig, NeedsAGpuAndABackendThatShares) {
  const auto problem = [](DeviceChoice device, CommBackend backend) {
    Config config;
    config.debug.share_gpu = true;
    config.device = device;
    config.comm.backend = backend;
    try {
      Validate(config);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConflictingOptions) << error.what();
      return error.message();
    }
    return std::string();
  };
  EXPECT_EQ(problem(DeviceChoice::kAuto, CommBackend::kAuto), "");
  EXPECT_EQ(problem(DeviceChoice::kCuda, CommBackend::kGloo), "");
  EXPECT_NE(problem(DeviceChoice::kCpu, CommBackend::kAuto).find("device is cpu"),
            std::string::npos);
  EXPECT_NE(problem(DeviceChoice::kCuda, CommBackend::kNccl).find("refuses two ranks on one GPU"),
            std::string::npos);
  EXPECT_NE(problem(DeviceChoice::kAuto, CommBackend::kEmulated).find("comm.backend is emulated"),
            std::string::npos);
}

TEST(EpOverlapConfig, PredictionsAndDenseRegionsNeedTheirPasses) {
  const auto problem = [](const std::function<void(Config&)>& change) {
    return ProblemWith(change, ErrorCode::kConflictingOptions);
  };
  // A choice that is left to the program is never a conflict: it can be "no".
  EXPECT_EQ(problem([](Config& c) {
              c.compile.ep_overlap.enabled = AutoSwitch::kAuto;
              c.compile.ep_overlap.strategy = ChunkStrategy::kEager;
              c.compile.mode = CompileMode::kEager;
              c.training.local_batch_size = 1;
            }),
            "");
  const auto dense = [](Config& c) { c.compile.enable_fsdp_dense_region_overlap = true; };
  EXPECT_EQ(problem(dense), "");
  EXPECT_NE(problem([&](Config& c) {
              dense(c);
              c.compile.fsdp_bucketing = false;
            }).find("compile.fsdp_bucketing, which is off"),
            std::string::npos);
}

TEST(EpOverlapConfig, OnlyTheGraphStrategyAddsGradientsEarly) {
  const auto eager = [](Config& config) {
    config.compile.ep_overlap.strategy = ChunkStrategy::kEager;
    config.compile.ep_overlap.disable_early_grad_accumulation = true;
  };
  EXPECT_NE(
      ProblemWith(eager, ErrorCode::kConflictingOptions)
          .find("disable_early_grad_accumulation belongs to compile.ep_overlap.strategy graph"),
      std::string::npos);
  const auto graph = [](Config& config) {
    config.compile.ep_overlap.disable_early_grad_accumulation = true;
  };
  EXPECT_EQ(ProblemWith(graph, ErrorCode::kConflictingOptions), "");
}

// Products of degrees once overflowed, and a step was divided by the result.
TEST(Config, NoNumberIsLargeEnoughToOverflow) {
  for (const char* path :
       {"parallelism.tensor_parallel_degree", "parallelism.context_parallel_degree",
        "parallelism.data_parallel_shard_degree", "parallelism.data_parallel_replicate_degree",
        "parallelism.expert_parallel_degree", "parallelism.pipeline_parallel_degree",
        "model.n_layers", "model.vocab_size", "training.global_batch_size",
        "comm.init_timeout_seconds", "comm.train_timeout_seconds", "checkpoint.keep_latest_k"}) {
    EXPECT_EQ(LoadError(fmt::format("{} = 9223372036854775807", path)).code(),
              ErrorCode::kOptionOutOfRange)
        << path;
  }
  EXPECT_EQ(LoadError("parallelism.tensor_parallel_degree = 4294967296").code(),
            ErrorCode::kOptionOutOfRange);
  Config config;
  config.parallelism.tensor_parallel_degree = config.parallelism.context_parallel_degree = 1048576;
  EXPECT_NO_THROW(Validate(config));
}

TEST(Config, ValidationNeedsItsOwnData) {
  Config config;
  config.validation.enable = true;
  const Error error = ErrorOf([&] { Validate(config); });
  EXPECT_EQ(error.code(), ErrorCode::kMissingArgument);
  EXPECT_NE(error.message().find("validation.dataset_path"), std::string::npos);
  EXPECT_NE(error.message().find("validation.split"), std::string::npos);
  config.validation.dataset_path = {"held_out.txt"};
  EXPECT_NO_THROW(Validate(config));
  config.validation.split = 0.05;
  EXPECT_EQ(ErrorOf([&] { Validate(config); }).code(), ErrorCode::kConflictingOptions);
  config.validation.dataset_path = {};
  EXPECT_NO_THROW(Validate(config));
  config.validation.split = 1;
  EXPECT_EQ(ErrorOf([&] { Validate(config); }).code(), ErrorCode::kOptionOutOfRange);
}

TEST(Config, PrecisionFollowsTheDevice) {
  Config config;
  EXPECT_EQ(ComputeDtypeOf(config), TrainingDtype::kFloat32);
  config.device = DeviceChoice::kCuda;
  EXPECT_EQ(ComputeDtypeOf(config), TrainingDtype::kBfloat16);
  config.training.mixed_precision_param = ComputeDtype::kFloat32;
  EXPECT_EQ(ComputeDtypeOf(config), TrainingDtype::kFloat32);
  // Parameters are never cast up unless somebody asks for it.
  config = Config();
  config.training.dtype = TrainingDtype::kBfloat16;
  EXPECT_EQ(ComputeDtypeOf(config), TrainingDtype::kBfloat16);
}

TEST(Config, SettledPrecisionDoesNotDependOnTheReader) {
  Config config;
  SettlePrecision(&config, /*on_gpu=*/true);
  EXPECT_EQ(config.training.mixed_precision_param, ComputeDtype::kBfloat16);
  SettlePrecision(&config, /*on_gpu=*/false);  // what is settled stays
  EXPECT_EQ(config.training.mixed_precision_param, ComputeDtype::kBfloat16);
  config = Config();
  SettlePrecision(&config, /*on_gpu=*/false);
  EXPECT_EQ(config.training.mixed_precision_param, ComputeDtype::kFloat32);
}

// Reading ends somewhere, whatever the file is.
TEST(Config, FilesThatAreNoneAreRefused) {
  Config config;
  const auto problem = [&](const std::string& path) {
    const Error error = ErrorOf([&] { LoadTomlFile(path, &config); });
    EXPECT_EQ(error.code(), ErrorCode::kConfigFileUnreadable);
    return error.message();
  };
  EXPECT_NE(problem("/dev/zero").find("larger than 64"), std::string::npos);
  EXPECT_NE(problem("/tmp").find("folder"), std::string::npos);
  EXPECT_NE(problem("/does/not/exist.toml").find("No such file"), std::string::npos);
}

TEST(EpOverlapConfig, ThePatternMustBeOne) {
  const auto problem = [](const std::string& pattern, ErrorCode code) {
    return ProblemWith([&](Config& config) { config.compile.ep_overlap.module_fqn = pattern; },
                       code);
  };
  EXPECT_EQ(problem("layers.*.moe", ErrorCode::kBadOptionValue), "");
  EXPECT_EQ(problem("**.moe", ErrorCode::kBadOptionValue), "");
  EXPECT_NE(problem("", ErrorCode::kOptionOutOfRange).find("text that is not empty"),
            std::string::npos);
  EXPECT_NE(problem("layers..moe", ErrorCode::kBadOptionValue)
                .find("compile.ep_overlap.module_fqn 'layers..moe': a component between two dots"),
            std::string::npos);
  EXPECT_NE(problem("layers.x*", ErrorCode::kBadOptionValue).find("'x*' is neither a name nor *"),
            std::string::npos);
}

TEST(EpOverlapConfig, RejectsBadValues) {
  const auto problem = [](std::string_view line) {
    return LoadError(fmt::format("[compile.ep_overlap]\n{}\n", line));
  };
  EXPECT_EQ(problem("num_chunks = 1").code(), ErrorCode::kOptionOutOfRange);
  EXPECT_EQ(problem("num_chunks = 1").message(),
            "job.toml:2: compile.ep_overlap.num_chunks: 1 is out of range; expected an integer in "
            "[2, 1024]");
  EXPECT_EQ(problem("strategy = \"grahp\"").code(), ErrorCode::kBadOptionValue);
  EXPECT_NE(problem("strategy = \"grahp\"").message().find("one of eager, graph"),
            std::string::npos);
  EXPECT_EQ(problem("chunk_dim = \"head\"").code(), ErrorCode::kBadOptionValue);
  EXPECT_NE(problem("chunk_dim = \"head\"").message().find("one of batch, seq"), std::string::npos);
  EXPECT_EQ(problem("chunks = 2").code(), ErrorCode::kUnknownOption);
}

}  // namespace
}  // namespace gt::config_test
