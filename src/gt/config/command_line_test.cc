#include "gt/config/command_line.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gt/base/error.h"
#include "gt/job/config.h"

namespace gt::command_line_test {
namespace {

using Args = std::vector<std::string>;

// A config file that lives as long as the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) : path_(::testing::TempDir() + Name()) {
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  static std::string Name() {
    static int count = 0;
    return fmt::format("gt_config_{}_{}.toml", ::getpid(), count++);
  }
  std::string path_;
};

Config ParseConfig(const Args& args) {
  Config config;
  CommandLine line("gt train", "trains a model");
  line.WithConfig(&config);
  EXPECT_TRUE(line.Parse(args));
  return config;
}

Error ParseError(const Args& args) {
  try {
    ParseConfig(args);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return {ErrorCode::kInternal, ""};
}

TEST(CommandLine, FlagsTakeValuesAfterSpaceOrEquals) {
  EXPECT_EQ(ParseConfig({"--training.steps", "20"}).training.steps, 20);
  EXPECT_EQ(ParseConfig({"--training.steps=20"}).training.steps, 20);
  EXPECT_EQ(ParseConfig({"--optimizer.lr=3e-4"}).optimizer.lr, 3e-4);
  EXPECT_EQ(ParseConfig({"--device", "cpu"}).device, DeviceChoice::kCpu);
  EXPECT_EQ(ParseConfig({"--dump_folder=a=b"}).dump_folder, "a=b");
  EXPECT_EQ(ParseConfig({}), Config());
}

TEST(CommandLine, BooleansNeedNoValue) {
  EXPECT_TRUE(ParseConfig({"--training.deterministic"}).training.deterministic);
  EXPECT_TRUE(ParseConfig({"--training.deterministic=true"}).training.deterministic);
  EXPECT_FALSE(ParseConfig({"--compile.enable_passes=false"}).compile.enable_passes);
  EXPECT_FALSE(ParseConfig({"--compile.enable_passes", "false"}).compile.enable_passes);
  const Config config = ParseConfig({"--training.deterministic", "--training.steps", "3"});
  EXPECT_TRUE(config.training.deterministic);
  EXPECT_EQ(config.training.steps, 3);
}

// Python writes True and False, and so do scripts that were written for torchtitan.
TEST(CommandLine, BooleansAreReadInAnyCase) {
  for (const char* no : {"False", "FALSE", "fAlSe"}) {
    SCOPED_TRACE(no);
    EXPECT_FALSE(ParseConfig({"--compile.enable_passes", no}).compile.enable_passes);
    EXPECT_FALSE(ParseConfig({std::string("--compile.enable_passes=") + no}).compile.enable_passes);
    EXPECT_EQ(ParseConfig({"--compile.ep_overlap.enabled", no}).compile.ep_overlap.enabled,
              AutoSwitch::kFalse);
  }
  EXPECT_TRUE(ParseConfig({"--training.deterministic", "True"}).training.deterministic);
  EXPECT_TRUE(ParseConfig({"--training.deterministic=TRUE"}).training.deterministic);
  EXPECT_EQ(ParseConfig({"--compile.ep_overlap.enabled=True"}).compile.ep_overlap.enabled,
            AutoSwitch::kTrue);
  for (const char* neither : {"1", "0", "yes", "no", "True "}) {
    EXPECT_EQ(ParseError({std::string("--training.deterministic=") + neither}).message(),
              fmt::format("--training.deterministic: expected true or false, got \"{}\"", neither));
  }
}

// torchtitan's own command line negates a boolean this way.
TEST(CommandLine, BooleansAreNegatedByNo) {
  EXPECT_FALSE(ParseConfig({"--compile.no-enable_passes"}).compile.enable_passes);
  EXPECT_FALSE(ParseConfig({"--compile.no_enable_passes"}).compile.enable_passes);
  EXPECT_EQ(ParseConfig({"--compile.ep_overlap.no-enabled"}).compile.ep_overlap.enabled,
            AutoSwitch::kFalse);
  EXPECT_EQ(ParseError({"--compile.no-enable_passes=false"}).message(),
            "--compile.no-enable_passes takes no value; write --compile.enable_passes=true or "
            "=false");
  EXPECT_EQ(ParseError({"--training.no-steps"}).code(), ErrorCode::kUnknownOption);
}

TEST(CommandLine, ARepeatedFlagIsAnError) {
  const Error error = ParseError({"--training.steps=1", "--device=cpu", "--training.steps", "9"});
  EXPECT_EQ(error.code(), ErrorCode::kDuplicateKey);
  EXPECT_EQ(error.message(),
            "--training.steps is given twice, as \"1\" and as \"9\"; keep one of them");
  EXPECT_EQ(ParseError({"--training.deterministic", "--training.deterministic=false"}).message(),
            "--training.deterministic is given twice, as \"true\" and as \"false\"; keep one of "
            "them");
  EXPECT_EQ(ParseError({"--log_level=info", "--log_level=warn"}).code(), ErrorCode::kDuplicateKey);
  // The same under torchtitan's name for an option.
  EXPECT_EQ(ParseError({"--job.dump_folder", "a", "--job.dump_folder=b"}).message(),
            "--job.dump_folder is given twice, as \"a\" and as \"b\"; keep one of them");
  // Each of three is held against the first.
  EXPECT_EQ(ParseError({"--training.steps=1", "--training.steps=2", "--training.steps=3"}).code(),
            ErrorCode::kDuplicateKey);
}

TEST(CommandLine, ListsSplitAtCommasAndGrow) {
  const Config config = ParseConfig(
      {"--compile.disable_passes=dce, cse", "--compile.disable_passes", "canonicalize"});
  EXPECT_EQ(config.compile.disable_passes, (StringList{"dce", "cse", "canonicalize"}));
  EXPECT_TRUE(ParseConfig({"--compile.disable_passes="}).compile.disable_passes.empty());
  EXPECT_EQ(ParseError({"--compile.disable_passes=a,,b"}).code(), ErrorCode::kBadOptionValue);
}

TEST(CommandLine, ListsOfWholeTextsOnlyGrow) {
  StringList prompts;
  CommandLine line("gt generate", "");
  line.Flag("prompt", &prompts, WholeItems(), "text to continue");
  EXPECT_NE(line.Help().find("--prompt TEXT"), std::string::npos) << line.Help();
  ASSERT_TRUE(
      line.Parse(Args{"--prompt", "In the beginning, God", "--prompt=", "--prompt", " a,,b"}));
  EXPECT_EQ(prompts, (StringList{"In the beginning, God", "", " a,,b"}));
}

// A path may have commas and spaces in it.
TEST(CommandLine, PathsGrowByRepeatingTheFlag) {
  const auto paths = [](const Args& args) { return ParseConfig(args).training.dataset_path; };
  EXPECT_EQ(paths({"--training.dataset_path", "a, b.txt", "--training.dataset_path=c/*.txt"}),
            (StringList{"a, b.txt", "c/*.txt"}));
  EXPECT_EQ(paths({"--training.dataset_path="}), StringList{});
  EXPECT_EQ(paths({"--training.dataset_path=", "--training.dataset_path=a"}), StringList{"a"});
  const TemporaryFile file("[training]\ndataset_path = [\"x\", \"y\"]\n");
  EXPECT_EQ(paths({"--config", file.path()}), (StringList{"x", "y"}));
  EXPECT_EQ(paths({"--config", file.path(), "--training.dataset_path=z"}), StringList{"z"});
}

TEST(CommandLine, LaterFilesWinOverEarlierOnesAndFlagsOverAll) {
  const TemporaryFile first(
      "[training]\nsteps = 1\nseq_len = 16\nseed = 3\n"
      "[compile]\ndisable_passes = [\"dce\"]\n");
  const TemporaryFile second("[training]\nsteps = 2\nseq_len = 32\n");
  const Config config =
      ParseConfig({"--training.steps=5", "--compile.disable_passes=cse", "--config", first.path(),
                   "--job.config_file=" + second.path()});
  EXPECT_EQ(config.training.steps, 5);
  EXPECT_EQ(config.training.seq_len, 32);
  EXPECT_EQ(config.training.seed, 3);
  EXPECT_EQ(config.compile.disable_passes, StringList{"cse"});
}

TEST(CommandLine, UnknownFlagSuggestsTheNearest) {
  const Error error = ParseError({"--training.step", "20"});
  EXPECT_EQ(error.code(), ErrorCode::kUnknownOption);
  EXPECT_EQ(error.message(), "unknown flag --training.step; did you mean --training.steps?");
  EXPECT_EQ(ParseError({"--lr=1"}).message(), "unknown flag --lr; did you mean --optimizer.lr?");
  EXPECT_EQ(ParseError({"--training.seq-len=1"}).message(),
            "unknown flag --training.seq-len; did you mean --training.seq_len?");
  EXPECT_EQ(ParseError({"-device", "cpu"}).message(),
            "unknown flag -device; did you mean --device?");
  EXPECT_EQ(ParseError({"--confg", "x"}).message(), "unknown flag --confg; did you mean --config?");
  EXPECT_EQ(ParseError({"--banana"}).message(), "unknown flag --banana");
  EXPECT_EQ(ParseError({"--=3"}).code(), ErrorCode::kUnknownOption);
  EXPECT_EQ(ParseError({"---"}).code(), ErrorCode::kUnknownOption);
}

TEST(CommandLine, BadValuesSayWhatIsExpected) {
  Error error = ParseError({"--training.steps", "many"});
  EXPECT_EQ(error.code(), ErrorCode::kBadOptionValue);
  EXPECT_EQ(error.message(), "--training.steps: expected an integer >= 1, got \"many\"");
  EXPECT_EQ(ParseError({"--training.steps=2.5"}).code(), ErrorCode::kBadOptionValue);
  EXPECT_EQ(ParseError({"--training.steps="}).code(), ErrorCode::kBadOptionValue);
  EXPECT_EQ(ParseError({"--training.steps=99999999999999999999"}).code(),
            ErrorCode::kBadOptionValue);
  EXPECT_EQ(ParseError({"--training.deterministic=maybe"}).message(),
            "--training.deterministic: expected true or false, got \"maybe\"");
  EXPECT_EQ(ParseError({"--compile.mode=jit"}).message(),
            "--compile.mode: expected one of eager, aot_fx_trace, got \"jit\"");
}

TEST(CommandLine, ValuesOutOfRangeNameTheRange) {
  Error error = ParseError({"--training.steps", "-1"});
  EXPECT_EQ(error.code(), ErrorCode::kOptionOutOfRange);
  EXPECT_EQ(error.message(), "--training.steps: \"-1\" is out of range; expected an integer >= 1");
  EXPECT_EQ(ParseError({"--optimizer.lr=inf"}).code(), ErrorCode::kOptionOutOfRange);
  EXPECT_EQ(ParseError({"--optimizer.lr=nan"}).code(), ErrorCode::kOptionOutOfRange);
}

TEST(CommandLine, MissingValuesAndStrayArgumentsAreErrors) {
  Error error = ParseError({"--training.steps"});
  EXPECT_EQ(error.code(), ErrorCode::kMissingArgument);
  EXPECT_EQ(error.message(), "--training.steps needs a value: an integer >= 1");
  EXPECT_EQ(ParseError({"--training.steps", "--device=cpu"}).code(), ErrorCode::kMissingArgument);
  EXPECT_EQ(ParseError({"--config"}).message(), "--config needs a value: the path of a TOML file");
  error = ParseError({"twenty"});
  EXPECT_EQ(error.code(), ErrorCode::kUnexpectedArgument);
  EXPECT_EQ(error.message(),
            "unexpected argument \"twenty\"; flags are written --name=value, see gt train --help");
}

TEST(CommandLine, AllProblemsOfFlagsAndFilesAreReportedAtOnce) {
  const TemporaryFile malformed("[training\n");
  const TemporaryFile wrong("[training]\nsteps = true\n");
  const Error error =
      ParseError({"--training.step=1", "--config", "missing.toml", "--config", malformed.path(),
                  "--config", wrong.path(), "--optimizer.eps=0", "--device=tpu", "stray"});
  EXPECT_EQ(error.code(), ErrorCode::kSeveralConfigProblems);
  const std::string& message = error.message();
  EXPECT_TRUE(message.starts_with("7 problems with flags and config files:")) << message;
  for (const std::string& part :
       {std::string("GT-E0100: unknown flag --training.step;"),
        std::string("GT-E0103: cannot read config file missing.toml"),
        "GT-E0104: " + malformed.path() + ":1: ", "GT-E0101: " + wrong.path() + ":2: ",
        std::string("GT-E0102: --optimizer.eps"),
        std::string("GT-E0101: --device: expected one of"),
        std::string("GT-E0108: unexpected argument \"stray\"")}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
  }
}

TEST(CommandLine, RulesBetweenOptionsAreChecked) {
  EXPECT_EQ(ParseError({"--training.seq_len=16777216", "--training.local_batch_size=1024"}).code(),
            ErrorCode::kConflictingOptions);
}

TEST(CommandLine, HelpMentionsEveryOptionWithItsDefault) {
  Config config;
  CommandLine line("gt train", "trains a model");
  line.WithConfig(&config);
  EXPECT_FALSE(line.Parse(Args{"--nonsense", "--help"}));
  EXPECT_FALSE(line.Parse(Args{"-h"}));
  const std::string help = line.Help();
  EXPECT_TRUE(help.starts_with("gt train: trains a model\n\nusage: gt train [flags]\n")) << help;
  std::size_t position = 0;
  ForEachOption(config, [&](const Option& option) {
    const std::size_t found = help.find("\n  --" + option.path(), position);
    ASSERT_NE(found, std::string::npos) << option.path();
    position = found;
    // Wrapping may break any space, so only the start of the default is looked for.
    EXPECT_NE(help.find("default", position), std::string::npos);
  });
  for (const char* part : {"--config FILE", "--log_level", "--help", "\ntraining: what",
                           "--compile.mode eager|aot_fx_trace", "(>= 1; default 150)"}) {
    EXPECT_NE(help.find(part), std::string::npos) << part << "\n" << help;
  }
  for (const std::string& text : Split(help, '\n')) EXPECT_LE(text.size(), 100u) << text;
}

// A subcommand without a config: only its own flags and arguments.
class OptCommand : public ::testing::Test {
 protected:
  OptCommand() {
    line.Flag("pass", &passes, "passes to run")
        .Flag("batch", &batch, AtLeast(1), "batch size")
        .Positional("FILE", &input, "graph to read")
        .OptionalPositional("OUT", &output, "graph to write");
  }
  Error ErrorFrom(const Args& args) {
    try {
      (void)line.Parse(args);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "no error was thrown";
    return {ErrorCode::kInternal, ""};
  }

  StringList passes;
  std::int64_t batch = 8;
  std::string input;
  std::string output;
  CommandLine line{"gt opt", "runs passes on a graph"};
};

TEST_F(OptCommand, FlagsAndArgumentsMix) {
  ASSERT_TRUE(line.Parse(Args{"in.gtir", "--pass=dce,canonicalize", "out.gtir", "--batch", "2"}));
  EXPECT_EQ(passes, (StringList{"dce", "canonicalize"}));
  EXPECT_EQ(batch, 2);
  EXPECT_EQ(input, "in.gtir");
  EXPECT_EQ(output, "out.gtir");
}

TEST_F(OptCommand, ArgumentsThatLookLikeFlagsFollowTwoDashes) {
  ASSERT_TRUE(line.Parse(Args{"-", "--", "--help"}));
  EXPECT_EQ(input, "-");
  EXPECT_EQ(output, "--help");
}

TEST_F(OptCommand, ErrorsAreThoseOfConfigOptions) {
  EXPECT_EQ(ErrorFrom({"in", "--pas=dce"}).message(), "unknown flag --pas; did you mean --pass?");
  EXPECT_EQ(ErrorFrom({"in", "--batch=0"}).code(), ErrorCode::kOptionOutOfRange);
  EXPECT_EQ(ErrorFrom({"in", "--training.steps=1"}).code(), ErrorCode::kUnknownOption);
  EXPECT_EQ(ErrorFrom({"in", "--config=x"}).code(), ErrorCode::kUnknownOption);
  EXPECT_EQ(ErrorFrom({"a", "b", "c"}).code(), ErrorCode::kUnexpectedArgument);
  const Error missing = ErrorFrom({});
  EXPECT_EQ(missing.code(), ErrorCode::kMissingArgument);
  EXPECT_EQ(missing.message(), "FILE is missing: graph to read; see gt opt --help");
}

// The word after an unknown flag is taken for its value, so nothing more is said about it or about
// what it leaves out.
TEST_F(OptCommand, AnUnknownFlagIsOneProblem) {
  EXPECT_EQ(ErrorFrom({"--pas", "dce"}).code(), ErrorCode::kUnknownOption);
}

TEST_F(OptCommand, HelpShowsArgumentsAndFlags) {
  const std::string help = line.Help();
  EXPECT_NE(help.find("usage: gt opt [flags] FILE [OUT]\n"), std::string::npos) << help;
  EXPECT_NE(help.find("--batch N"), std::string::npos) << help;
  EXPECT_NE(help.find("batch size (>= 1; default 8)"), std::string::npos) << help;
  EXPECT_EQ(help.find("--config"), std::string::npos) << help;
}

TEST(CommandLine, RemainingArgumentsGoToAList) {
  std::string first;
  StringList rest;
  CommandLine line("gt diff", "compares");
  line.Positional("A", &first, "one").Positionals("B", &rest, "others");
  ASSERT_TRUE(line.Parse(Args{"a", "b", "c"}));
  EXPECT_EQ(rest, (StringList{"b", "c"}));
  EXPECT_NE(line.Help().find("usage: gt diff [flags] A [B...]\n"), std::string::npos);
}

TEST(CommandLine, ConfigOptionsAndOwnFlagsCombine) {
  Config config;
  bool dry = false;
  CommandLine line("gt trace", "captures");
  line.Flag("dry", &dry, "do nothing").WithConfig(&config);
  ASSERT_TRUE(line.Parse(Args{"--dry", "--model.flavor=8B"}));
  EXPECT_TRUE(dry);
  EXPECT_EQ(config.model.flavor, "8B");
  // A config file holds options of the job, not flags of one command.
  const TemporaryFile file("dry = true\n");
  EXPECT_THROW((void)line.Parse(Args{"--config", file.path()}), Error);
}

TEST(CommandLine, AFlagCannotBeDefinedTwice) {
  Config config;
  bool flag = false;
  CommandLine line("gt x", "x");
  line.WithConfig(&config);
  EXPECT_THROW(line.Flag("device", &flag, "y"), Error);
}

TEST(CommandLine, LogLevelIsAFlagOfEveryCommand) {
  const log::Level before = log::CurrentLevel();
  CommandLine line("gt x", "x");
  ASSERT_TRUE(line.Parse(Args{"--log_level=error"}));
  EXPECT_EQ(log::CurrentLevel(), log::Level::kError);
  log::SetLevel(before);
  EXPECT_THROW((void)line.Parse(Args{"--log_level=loud"}), Error);
}

TEST(CommandLine, TakesTheArgumentsOfMain) {
  Config config;
  CommandLine line("gt train", "trains");
  line.WithConfig(&config);
  const char* args[] = {"--training.steps", "4"};
  ASSERT_TRUE(line.Parse(2, args));
  EXPECT_EQ(config.training.steps, 4);
}

}  // namespace
}  // namespace gt::command_line_test
