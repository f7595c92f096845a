// Ranks that die, sleep, fail, disagree or cannot find each other: whatever happens, every rank of the
// job ends by itself and says why. The real program runs here, one process for each rank or all as
// threads of one.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "gt/base/error.h"
#include "gt/launch/child_process.h"

namespace gt::faults_test {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

constexpr int64_t kRanks = 4;
// Of the ranks for each other. On a busy machine a healthy rank may be this late, but not more.
constexpr int64_t kTimeoutSeconds = 5;
// A job that takes this long hangs: the ranks that sleep would do so for an hour.
constexpr auto kHang = std::chrono::seconds(90);

void Sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

std::string TextOf(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The program in a process of its own, which does not outlive this object.
class Program {
 public:
  Program(fs::path log, Strings arguments, const Variables& environment = {})
      : log_(std::move(log)) {
    arguments.insert(arguments.begin(), "gt");
    std::vector<char*> texts;
    for (std::string& argument : arguments) texts.push_back(argument.data());
    texts.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    int file = open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    execv(GT_BINARY, texts.data());
    _exit(127);
  }
  // The ranks that gt launch started die with it.
  ~Program() {
    if (Running()) kill(pid_, SIGKILL);
    if (!status_) waitpid(pid_, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  std::string Said() const { return TextOf(log_); }

  bool Running() {
    int status = 0;
    if (!status_ && waitpid(pid_, &status, WNOHANG) == pid_) {
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return !status_;
  }

  // As a shell tells it; nothing if the program hangs.
  std::optional<int> Status() {
    auto end = std::chrono::steady_clock::now() + kHang;
    while (Running() && std::chrono::steady_clock::now() < end) Sleep(0.005);
    EXPECT_TRUE(status_) << "it hangs; so far it said:\n" << Said();
    return status_;
  }

  // What a rank of gt launch, or the only rank of this process, says when it gives up.
  std::string ErrorOf(int64_t rank = 0) const {
    std::istringstream said(Said());
    std::string begin = (rank == 0 ? "" : fmt::format("[rank {}] ", rank)) + "gt: ";
    for (std::string line; std::getline(said, line);) {
      // Rank 0 may have begun its bar of progress in that line.
      size_t place = rank == 0 ? line.find(begin) : line.starts_with(begin) ? 0 : std::string::npos;
      if (place == std::string::npos || line.starts_with("[rank ") != (rank != 0)) continue;
      return line.substr(place + begin.size());
    }
    return "";
  }

 private:
  fs::path log_;
  pid_t pid_ = -1;
  std::optional<int> status_;
};

std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string text = TextOf(entry.path() / "stat");
    size_t place = text.rfind(')');
    if (place == std::string::npos) continue;  // it has ended
    std::istringstream rest(text.substr(place + 1));
    char state;
    pid_t its_parent;
    rest >> state >> its_parent;
    if (its_parent == parent && state != 'Z') children.push_back(std::stoi(name));
  }
  return children;
}

// A port of this machine: free, or kept busy as long as this object lives.
class Port {
 public:
  explicit Port(bool busy = false) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd_.get(), generic, size), 0);
    EXPECT_EQ(getsockname(fd_.get(), generic, &size), 0);
    number_ = ntohs(address.sin_port);
    if (busy) {
      EXPECT_EQ(listen(fd_.get(), 5), 0);
    } else {
      fd_.Close();
    }
  }
  int64_t number() const { return number_; }

 private:
  FileDescriptor fd_;
  int64_t number_ = 0;
};

void ExpectParts(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
  }
}

class FaultsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("gt_faults_test_{}", getpid());
    fs::create_directories(folder_);
    setenv("GT_HOME", GT_SOURCE_DIR, 1);
    // In a file, so that tests can override options with flags.
    std::ofstream(ConfigFile()) << fmt::format(
        "device = \"cpu\"\nthreads = 1\n"
        "[model]\nflavor = \"tiny\"\ntokenizer_path = \"bytes\"\n"
        "[training]\nseq_len = 32\nlocal_batch_size = 2\nsteps = 8\ndeterministic = true\n"
        "[checkpoint]\nlast_save_in_hf = false\n"
        "[comm]\ntrain_timeout_seconds = {}\n",
        kTimeoutSeconds);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string ConfigFile() const { return (folder_ / "tiny.toml").string(); }

  Strings Training(const std::string& name, const Strings& further = {}) const {
    Strings all = {"train", "--dump_folder", (folder_ / name).string(), "--config", ConfigFile()};
    all.insert(all.end(), further.begin(), further.end());
    return all;
  }

  // gt launch with all ranks.
  std::unique_ptr<Program> Launch(const std::string& name, const Strings& further,
                                  const Strings& launcher_flags = {}) const {
    Strings all = {"launch", "-n", std::to_string(kRanks)};
    all.insert(all.end(), launcher_flags.begin(), launcher_flags.end());
    all.emplace_back("--");
    for (std::string& argument : Training(name, further)) all.push_back(std::move(argument));
    return std::make_unique<Program>(folder_ / (name + ".log"), all);
  }

  // One rank, as another launcher would start it.
  std::unique_ptr<Program> StartRank(const std::string& name, int64_t rank, int64_t world_size,
                                     int64_t port, const Strings& further = {}) {
    Variables environment = {{"RANK", std::to_string(rank)},
                             {"LOCAL_RANK", std::to_string(rank)},
                             {"WORLD_SIZE", std::to_string(world_size)},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", std::to_string(port)},
                             {"OMP_NUM_THREADS", "1"}};
    fs::path log = folder_ / fmt::format("{}_{}.log", name, logs_++);
    return std::make_unique<Program>(log, Training(name, further), environment);
  }

  struct Outcome {
    std::vector<double> losses;
    std::string hash;
    friend bool operator==(const Outcome&, const Outcome&) = default;
  };
  Outcome OutcomeOf(const std::string& name) const {
    Outcome outcome;
    std::ifstream file(folder_ / name / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      outcome.losses.push_back(nlohmann::json::parse(line).at("loss"));
    }
    std::smatch match;
    std::string said = TextOf(folder_ / (name + ".log"));
    if (std::regex_search(said, match, std::regex("state hash ([0-9a-f]{16})"))) {
      outcome.hash = match[1];
    }
    return outcome;
  }

  size_t StepsDone(const std::string& name) const {
    std::string text = TextOf(folder_ / name / "metrics.jsonl");
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  // The ranks of a job that was just started or restarted: none of those `before`.
  std::vector<pid_t> WaitForRanks(Program& launcher, const std::set<pid_t>& before) {
    while (launcher.Running()) {
      std::vector<pid_t> ranks = ChildrenOf(launcher.pid());
      bool fresh = std::none_of(ranks.begin(), ranks.end(),
                                [&](pid_t rank) { return before.contains(rank); });
      if (fresh && ranks.size() == kRanks) return ranks;
      Sleep(0.005);
    }
    return {};
  }

  void KillManyTimes(int kills, int64_t steps, int64_t interval, const Strings& further = {},
                     const std::string& group = "fsdp");
  void ExpectFlightRecord(const std::string& name, int64_t rank, bool waited = true) const;

  fs::path folder_;
  int logs_ = 0;
};

// Most kills happen at a step chosen at random, some at a random moment of the start.
void FaultsTest::KillManyTimes(int kills, int64_t steps, int64_t interval, const Strings& further,
                               const std::string& group) {
  Strings flags = {"--model.n_layers",      "1",
                   "--training.steps",      std::to_string(steps),
                   "--checkpoint.enable",   "--checkpoint.interval",
                   std::to_string(interval)};
  flags.insert(flags.end(), further.begin(), further.end());
  auto calm = Launch("calm", flags);
  ASSERT_EQ(calm->Status(), 0) << calm->Said();
  Outcome expected = OutcomeOf("calm");
  ASSERT_EQ(expected.losses.size(), static_cast<size_t>(steps));

  std::mt19937 random(20260 + static_cast<unsigned>(kills));
  auto below = [&](size_t n) { return random() % n; };
  // Ranks that are still assembling when one dies would wait for it long enough.
  auto job = Launch("killed", flags,
                    {"--grace-seconds", "3", "--max-restarts", std::to_string(kills + 10)});
  std::set<pid_t> before;
  size_t reached = 0;
  for (int i = 0; i < kills; ++i) {
    std::vector<pid_t> ranks = WaitForRanks(*job, before);
    ASSERT_EQ(ranks.size(), kRanks) << "it ended after " << i << " kills:\n" << job->Said();
    if (i % 5 == 4) {
      Sleep(static_cast<double>(below(1000)) / 1e3);
    } else {
      // Steps after the last checkpoint are repeated and overwrite their lines.
      size_t until = reached + 1 + below(2);
      while (job->Running() && StepsDone("killed") < until) Sleep(0.001);
      Sleep(static_cast<double>(below(20)) / 1e3);
    }
    reached = std::max(reached, StepsDone("killed"));
    before = {ranks.begin(), ranks.end()};
    ASSERT_EQ(kill(ranks[below(ranks.size())], SIGKILL), 0);
  }
  ASSERT_EQ(job->Status(), 0) << job->Said();
  std::string said = job->Said();
  ExpectParts(said, {fmt::format("killed by SIGKILL, perhaps because memory ran out; restart {} of",
                                 kills)});
  for (const char* crash : {"GT-E0001", "terminate", "Assertion", "SIGABRT", "SIGSEGV"}) {
    EXPECT_EQ(said.find(crash), std::string::npos) << crash << " of a rank that survived:\n"
                                                   << said;
  }
  if (kills >= 20) {  // so many that some happen in the middle of a step
    std::regex in_a_module(
        fmt::format(R"(waited in collective [0-9]+ \([a-z_]+ on '{}', [a-z0-9_.]+\))", group));
    EXPECT_TRUE(std::regex_search(said, in_a_module)) << said;
  }
  EXPECT_EQ(OutcomeOf("killed"), expected);
  EXPECT_LT(reached, static_cast<size_t>(steps)) << "the last kills came too late to matter";
}

TEST_F(FaultsTest, KilledFiveTimesItEndsWithTheSameBits) { KillManyTimes(5, 14, 2); }
TEST_F(FaultsTest, KilledTwentyTimesItEndsWithTheSameBits_slow) { KillManyTimes(20, 45, 1); }

// A rank of a placed job dies in a step, in its start, in its search: it goes on from its checkpoints, with
// the plan of its run folder.
const Strings kPlacedFlags = {"--compile.enable_autoparallel", "--mesh", "2x2",
                              "--training.local_batch_size", "4"};
TEST_F(FaultsTest, KilledUnderAPlanItEndsWithTheSameBits) { KillManyTimes(4, 10, 2, kPlacedFlags); }
TEST_F(FaultsTest, KilledTwentyTimesUnderAPlanItEndsWithTheSameBits_slow) {
  KillManyTimes(20, 45, 1, kPlacedFlags, "mesh_[0-9_]+");
}

// Every line is an object, numbers count up, and a rank that waited did so in one that never ended.
void FaultsTest::ExpectFlightRecord(const std::string& name, int64_t rank, bool waited) const {
  SCOPED_TRACE(fmt::format("flight record of rank {}", rank));
  std::ifstream file(folder_ / name / "comm_traces" / fmt::format("rank_{}.jsonl", rank));
  ASSERT_TRUE(file);
  int64_t last = 0, open = 0, of_modules = 0;
  for (std::string line; std::getline(file, line);) {
    nlohmann::json record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(record.is_object()) << line;
    EXPECT_GT(record.at("number").get<int64_t>(), last);
    last = record.at("number");
    EXPECT_FALSE(record.at("kind").get<std::string>().empty());
    EXPECT_FALSE(record.at("group").get<std::string>().empty());
    if (!record.at("done").get<bool>()) ++open;
    if (record.at("module").get<std::string>().starts_with("layers.")) ++of_modules;
  }
  EXPECT_GT(last, 10);
  EXPECT_GT(of_modules, 0);
  EXPECT_EQ(open > 0, waited);
}

// "collective 57 (all_gather on 'fsdp', layers.1.feed_forward)"
void ExpectLost(const std::string& error, int64_t rank) {
  static const std::regex collective(
      R"(waited in collective [0-9]+ \([a-z_]+ on '[a-z_.]+'(, [a-z0-9_.]+)?\))");
  ExpectParts(error, {"GT-E0806: ", fmt::format("rank {}", rank)});
  EXPECT_TRUE(std::regex_search(error, collective)) << error;
}

// As a process and as a thread, at the same time: both jobs mostly wait.
TEST_F(FaultsTest, ASleepingRankIsNamed) {
  auto processes = Launch("processes", {"--debug.fault", "sleep:2:3"});
  Program threads(folder_ / "threads.log",
                  Training("threads", {"--ranks", "4", "--debug.fault", "sleep:2:3"}));
  EXPECT_EQ(processes->Status(), 1);
  EXPECT_EQ(threads.Status(), 1);
  ExpectLost(threads.ErrorOf(), 2);
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    ExpectLost(processes->ErrorOf(rank), 2);
    ExpectFlightRecord("processes", rank, /*waited=*/rank != 2);
    ExpectFlightRecord("threads", rank, /*waited=*/rank != 2);
  }
}

// A process that was stopped gives no sign of life, but its connections stay open. With rank 0, the
// meeting point stops as well.
TEST_F(FaultsTest, AStoppedProcessIsNamed_slow) {
  for (int64_t victim : {2, 0}) {
    std::string name = fmt::format("stop_{}", victim);
    auto job = Launch(name, {"--training.steps", "100000"}, {"--grace-seconds", "2"});
    std::vector<pid_t> ranks = WaitForRanks(*job, {});
    while (job->Running() && StepsDone(name) < 3) Sleep(0.005);
    kill(ranks.at(static_cast<size_t>(victim)), SIGSTOP);
    EXPECT_EQ(job->Status(), 1);
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      ExpectLost(job->ErrorOf(rank), victim);
      ExpectFlightRecord(name, rank);
    }
  }
}

// Also the one where the ranks meet.
TEST_F(FaultsTest, AKilledProcessIsNamed) {
  for (int64_t victim : {1, 0}) {
    std::string name = fmt::format("kill_{}", victim);
    auto job = Launch(name, {"--debug.fault", fmt::format("kill:{}:2", victim)});
    EXPECT_EQ(job->Status(), 128 + SIGKILL);
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      ExpectLost(job->ErrorOf(rank), victim);
      ExpectFlightRecord(name, rank);
    }
    ExpectParts(job->Said(), {fmt::format("GT-E0812: rank {} was the first to fail", victim)});
  }
}

TEST_F(FaultsTest, AFailingRanksErrorReachesAll) {
  for (int64_t failing : {1, 0}) {
    auto job = Launch("throw", {"--debug.fault", fmt::format("throw:{}:3", failing)});
    EXPECT_EQ(job->Status(), 70);
    std::string own = fmt::format("--debug.fault: rank {} fails at step 3 as asked", failing);
    std::string code = CodeName(ErrorCode::kInternal);
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      if (rank == failing) {
        EXPECT_EQ(job->ErrorOf(rank), code + ": " + own);
      } else {
        EXPECT_EQ(job->ErrorOf(rank),
                  fmt::format("GT-E0808: rank {} ended the job: {}: {}", failing, code, own));
      }
    }
  }
  Program threads(folder_ / "threads.log",
                  Training("threads", {"--ranks", "4", "--debug.fault", "throw:1:3"}));
  EXPECT_EQ(threads.Status(), 70);
  ExpectParts(threads.ErrorOf(), {"--debug.fault: rank 1 fails at step 3 as asked"});
}

// One rank of three is started with another flag: that rank tells the line, the others who it was.
TEST_F(FaultsTest, RanksWithOtherSettingsAreRefused) {
  struct Case {
    std::string flag, value, line;
  };
  for (const Case& c :
       {Case{"--optimizer.lr", "0.0125", "lr = 0.0125"}, Case{"--training.seed", "77", "seed = 77"},
        Case{"--model.n_layers", "1", "n_layers = 1"}}) {
    SCOPED_TRACE(c.flag);
    Port port;
    std::vector<std::unique_ptr<Program>> ranks;
    for (int64_t rank = 0; rank < 3; ++rank) {
      ranks.push_back(StartRank("differs", rank, 3, port.number(),
                                rank == 1 ? Strings{c.flag, c.value} : Strings{}));
    }
    for (int64_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(ranks[static_cast<size_t>(rank)]->Status(), 1);
      std::string error = ranks[static_cast<size_t>(rank)]->ErrorOf();
      ExpectParts(error, {rank == 1 ? "GT-E0805: " : "GT-E0808: rank 1 ended the job: GT-E0805: ",
                          "rank 1 differs from that of rank 0", "'" + c.line + "' here"});
    }
  }
}

TEST_F(FaultsTest, AnotherWorldSizeIsRefused) {
  Port port;
  auto zero = StartRank("size", 0, 2, port.number()), one = StartRank("size", 1, 3, port.number());
  EXPECT_EQ(zero->Status(), 1);
  EXPECT_EQ(one->Status(), 1);
  std::string why = "rank 1 was started for a job of 3 ranks, rank 0 for one of 2";
  ExpectParts(one->ErrorOf(), {"GT-E0805: " + why});
  ExpectParts(zero->ErrorOf(), {"GT-E0808: rank 1 ended the job: GT-E0805: " + why});
}

// Which of the two is the right one, nobody knows.
TEST_F(FaultsTest, TwoOfOneRankAreRefused) {
  Port port;
  std::vector<std::unique_ptr<Program>> ranks;
  for (int64_t rank : {0, 1, 1}) ranks.push_back(StartRank("twice", rank, 3, port.number()));
  for (auto& rank : ranks) {
    EXPECT_EQ(rank->Status(), 1);
    bool zero = rank == ranks.front();
    ExpectParts(rank->ErrorOf(), {(zero ? "GT-E0808: rank 1 ended the job: " : "") +
                                  std::string("GT-E0803: two processes were started as rank 1")});
  }
}

TEST_F(FaultsTest, ARankThatNeverComesIsNamed) {
  Port port;
  auto zero = StartRank("alone", 0, 3, port.number(), {"--comm.init_timeout_seconds", "3"});
  auto two = StartRank("alone", 2, 3, port.number(), {"--comm.init_timeout_seconds", "3"});
  for (Program* rank : {zero.get(), two.get()}) {
    EXPECT_EQ(rank->Status(), 1);
    ExpectParts(rank->ErrorOf(), {"GT-E0804", "rank 1"});
  }
}

TEST_F(FaultsTest, AnUnreachableMasterIsNamed) {
  Port port;
  auto rank = StartRank("alone", 1, 2, port.number(), {"--comm.init_timeout_seconds", "2"});
  EXPECT_EQ(rank->Status(), 1);
  ExpectParts(rank->ErrorOf(), {"GT-E0804", "rank 1 waited 2 s for rank 0",
                                fmt::format("127.0.0.1 MASTER_PORT {}", port.number())});
}

TEST_F(FaultsTest, APortInUseIsNamed) {
  Port port(/*busy=*/true);
  auto rank = StartRank("busy", 0, 2, port.number(), {"--comm.init_timeout_seconds", "5"});
  EXPECT_EQ(rank->Status(), 1);
  ExpectParts(rank->ErrorOf(),
              {"GT-E0804", fmt::format("rank 0 cannot open port {}", port.number())});
}

// It was going to run forever; then it continues where it was stopped.
TEST_F(FaultsTest, AJobAskedToStopSavesAndLeaves) {
  auto job = Launch("stopped", {"--training.steps", "100000", "--lr_scheduler.decay_type", "none"});
  while (job->Running() && StepsDone("stopped") < 3) Sleep(0.005);
  kill(job->pid(), SIGTERM);
  EXPECT_EQ(job->Status(), 128 + SIGTERM) << job->Said();
  size_t done = StepsDone("stopped");
  ExpectParts(job->Said(), {fmt::format("stopped by SIGTERM after step {}", done)});
  std::string hash = OutcomeOf("stopped").hash;
  EXPECT_FALSE(hash.empty());

  auto again = Launch("stopped", {"--training.steps", std::to_string(done), "--checkpoint.enable"});
  EXPECT_EQ(again->Status(), 0) << again->Said();
  ExpectParts(again->Said(), {fmt::format("continuing after step {}", done)});
  EXPECT_EQ(OutcomeOf("stopped").hash, hash);
}

}  // namespace
}  // namespace gt::faults_test
