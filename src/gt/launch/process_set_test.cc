#include "gt/launch/process_set.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <map>

#include "gt/base/error.h"
#include "gt/launch/processes_test_util.h"

namespace gt::process_set_test {
namespace {

class ProcessSetTest : public ::testing::Test {
 protected:
  // Under nohup the signal is ignored, here and in every shell that is started.
  void SetUp() override { std::signal(SIGHUP, SIG_DFL); }

  // Each script finds its own number in $RANK and the folder of the marks in $MARKS.
  std::vector<Command> Shells(const std::vector<std::string>& scripts) const {
    std::vector<Command> commands;
    for (const std::string& script : scripts) {
      commands.push_back({"/bin/sh",
                          {"sh", "-c", script},
                          {{"RANK", std::to_string(commands.size())}, {"MARKS", marks_.folder()}}});
    }
    return commands;
  }

  ProcessSetReport Run(const std::vector<std::string>& scripts) {
    options_.stdout_fd = stdout_.fd();
    options_.stderr_fd = stderr_.fd();
    return RunProcessSet(Shells(scripts), options_);
  }

  std::vector<std::string> SortedLines() const {
    std::vector<std::string> lines = Split(stdout_.Text(), '\n');
    std::sort(lines.begin(), lines.end());
    return lines;
  }

  QuietLog quiet_;
  Marks marks_;
  CollectedOutput stdout_;
  CollectedOutput stderr_;
  ProcessSetOptions options_;
};

// Ends with the given status once the mark exists.
std::string EndAfter(const std::string& mark, const std::string& end) {
  return fmt::format("while [ ! -e $MARKS/{} ]; do sleep 0.01; done; {}", mark, end);
}

// On SIGTERM does `action`; leaves a mark when it is ready for that.
std::string OnTerm(const std::string& action) {
  return fmt::format("trap '{}' TERM; : > $MARKS/ready$RANK; while :; do sleep 0.02; done", action);
}

TEST_F(ProcessSetTest, PassesOutputOn) {
  const ProcessSetReport report =
      Run({R"(printf 'step 1\rstep 2\n'; echo zero >&2)", R"(printf 'a\nb'; echo one >&2)"});
  EXPECT_EQ(report.ExitStatus(), 0);
  EXPECT_FALSE(report.first_failure);
  EXPECT_EQ(report.forwarded_signal, 0);
  EXPECT_EQ(SortedLines(),
            (std::vector<std::string>{"", "[rank 1] a", "[rank 1] b", "step 1\rstep 2"}));
  EXPECT_NE(stderr_.Text().find("[rank 1] one\n"), std::string::npos);
  EXPECT_NE(stderr_.Text().find("zero\n"), std::string::npos);
  EXPECT_EQ(stderr_.Text().find("[rank 0]"), std::string::npos);
}

// Every process writes its lines in two halves, which would mix if they were not put together.
TEST_F(ProcessSetTest, LinesOfManyRanksStayWhole) {
  constexpr int kRanks = 6;
  constexpr int kLines = 200;
  Run(std::vector<std::string>(
      kRanks, "i=0; while [ $i -lt 200 ]; do printf left; printf 'right\\n'; i=$((i+1)); done"));
  std::map<std::string, int> counts;
  for (const std::string& line : Split(stdout_.Text(), '\n')) ++counts[line];
  EXPECT_EQ(counts["leftright"], kLines);
  for (int rank = 1; rank < kRanks; ++rank) {
    EXPECT_EQ(counts[fmt::format("[rank {}] leftright", rank)], kLines);
  }
  EXPECT_EQ(counts.size(), kRanks + 1U);  // and the nothing after the last line end
}

TEST_F(ProcessSetTest, LinesDoNotWaitForEverForRankZero) {
  Run({"printf begun; : > $MARKS/begun; " + EndAfter("shown", "echo ' ended'"),
       EndAfter("begun", "echo x; sleep 0.2; : > $MARKS/shown")});
  EXPECT_EQ(stdout_.Text(), "begun\n[rank 1] x\n ended\n");
}

TEST_F(ProcessSetTest, ManyRanks) {
  const ProcessSetReport report = Run(std::vector<std::string>(100, "echo $RANK"));
  EXPECT_EQ(report.ExitStatus(), 0);
  const std::vector<std::string> lines = SortedLines();
  ASSERT_EQ(lines.size(), 101U);
  EXPECT_EQ(lines[100], "[rank 9] 9");
  EXPECT_EQ(lines[99], "[rank 99] 99");
}

TEST_F(ProcessSetTest, NothingOfALotOfOutputIsLost) {
  Run({"exit 0", "head -c 3000000 /dev/zero | tr '\\0' x | fold -w 1000"});
  const std::string text = stdout_.Text();
  EXPECT_EQ(std::count(text.begin(), text.end(), 'x'), 3000000);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3000);
}

// What left the group holds the pipes open; the output is complete all the same.
TEST_F(ProcessSetTest, TheLastOutputIsReadThoughThePipeStaysOpen) {
  Run({"exit 0", "setsid sleep 1 & printf tail"});
  EXPECT_EQ(stdout_.Text(), "[rank 1] tail\n");
}

TEST_F(ProcessSetTest, StdinIsEmpty) {
  Run({"read line || echo end"});
  EXPECT_EQ(stdout_.Text(), "end\n");
}

TEST_F(ProcessSetTest, ReportsHowEachEndedAndWhoFailedFirst) {
  options_.grace_seconds = 60;
  const ProcessSetReport report =
      Run({EndAfter("late", "exit 4"), "exit 0", ": > $MARKS/early; kill -SEGV $$",
           EndAfter("early", "sleep 0.1; : > $MARKS/late; exit 5")});
  EXPECT_EQ(report.first_failure, 2U);
  EXPECT_EQ(report.ExitStatus(), 128 + SIGSEGV);
  EXPECT_EQ(Describe(report.ends[0]), "ended with exit status 4");
  EXPECT_TRUE(report.ends[1].clean());
  EXPECT_EQ(Describe(report.ends[2]), "was killed by SIGSEGV");
  EXPECT_EQ(report.ends[3].ShellStatus(), 5);
}

TEST_F(ProcessSetTest, OthersMayEndByThemselvesAfterAFailure) {
  options_.grace_seconds = 60;
  const ProcessSetReport report =
      Run({EndAfter("ready1", "exit 3"),
           "trap 'exit 9' TERM; : > $MARKS/ready1; sleep 0.1; echo why >&2; exit 6"});
  EXPECT_EQ(report.ExitStatus(), 3);
  EXPECT_EQ(report.ends[1].exit_status, 6);
  EXPECT_EQ(stderr_.Text(), "[rank 1] why\n");
}

TEST_F(ProcessSetTest, AfterTheGraceComesSigterm) {
  options_.grace_seconds = 0.05;
  options_.kill_seconds = 60;
  const ProcessSetReport report = Run({EndAfter("ready1", "exit 3"), OnTerm("echo bye; exit 7")});
  EXPECT_EQ(report.first_failure, 0U);
  EXPECT_EQ(report.ends[1].exit_status, 7);
  EXPECT_EQ(stdout_.Text(), "[rank 1] bye\n");
}

TEST_F(ProcessSetTest, AfterSigtermComesSigkill) {
  options_.grace_seconds = 0.02;
  options_.kill_seconds = 0.05;
  const ProcessSetReport report = Run({EndAfter("ready1", "exit 3"), OnTerm("")});
  EXPECT_EQ(report.ExitStatus(), 3);
  EXPECT_EQ(report.ends[1].signal, SIGKILL);
}

// A process that ends well while others go on is no failure.
TEST_F(ProcessSetTest, ACleanEndStopsNobody) {
  options_.grace_seconds = 0;
  const ProcessSetReport report = Run({"exit 0", "sleep 0.1; echo on"});
  EXPECT_EQ(report.ExitStatus(), 0);
  EXPECT_EQ(stdout_.Text(), "[rank 1] on\n");
}

// Rank 0 needs longer to stop than the grace after a failure. Were it signalled again, for any
// reason, it would end with 9.
TEST_F(ProcessSetTest, ASignalIsPassedOnOnce) {
  options_.grace_seconds = 0.02;
  std::thread user([this] {
    EXPECT_TRUE(Eventually([this] { return marks_.Has("ready0") && marks_.Has("ready1"); }));
    kill(getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    kill(getpid(), SIGTERM);  // as a wrapper passes it on that the terminal had signalled as well
  });
  const ProcessSetReport report =
      Run({OnTerm("trap \"exit 9\" TERM; sleep 0.2; echo saved; exit 143"), OnTerm("exit 143")});
  user.join();
  EXPECT_EQ(report.forwarded_signal, SIGTERM);
  EXPECT_EQ(report.ExitStatus(), 143);
  EXPECT_EQ(report.ends[0].exit_status, 143);
  EXPECT_EQ(report.ends[1].exit_status, 143);
  EXPECT_EQ(stdout_.Text(), "saved\n");
}

// A terminal that closes, and SLURM's warning that the time is nearly up.
TEST_F(ProcessSetTest, TheSignalItselfIsPassedOn) {
  for (const auto& [signal, name] : {std::pair{SIGHUP, "HUP"}, std::pair{SIGUSR1, "USR1"}}) {
    const std::string ready = fmt::format("ready{}", name);
    std::thread user([this, signal = signal, ready] {
      EXPECT_TRUE(Eventually([&] { return marks_.Has(ready); }));
      kill(getpid(), signal);
    });
    const ProcessSetReport report =
        Run({fmt::format("trap 'exit {}' {}; : > $MARKS/{}; while :; do sleep 0.02; done",
                         128 + signal, name, ready)});
    user.join();
    EXPECT_EQ(report.forwarded_signal, signal);
    EXPECT_EQ(report.ExitStatus(), 128 + signal);
  }
}

TEST_F(ProcessSetTest, TheSecondSignalKills) {
  std::thread user([this] {
    EXPECT_TRUE(Eventually([this] { return marks_.Has("ready0") && marks_.Has("ready1"); }));
    kill(getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    kill(getpid(), SIGTERM);
  });
  const ProcessSetReport report = Run({OnTerm(""), OnTerm("")});
  user.join();
  EXPECT_EQ(report.forwarded_signal, SIGTERM);
  EXPECT_EQ(report.ends[0].signal, SIGKILL);
  EXPECT_EQ(report.ends[1].signal, SIGKILL);
}

TEST_F(ProcessSetTest, HandlersAreAsBefore) {
  Run({"exit 0"});
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGPIPE}) {
    struct sigaction action;
    sigaction(signal, nullptr, &action);
    EXPECT_TRUE(action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) << signal;
  }
}

// The pipe is never read and soon full. Signals must get through all the same.
TEST_F(ProcessSetTest, AStuckReaderDoesNotHoldUpSignals) {
  const Pipe stuck = MakePipe();
  options_.stdout_fd = stuck.write.get();
  options_.stderr_fd = stderr_.fd();
  std::thread user([this] {
    EXPECT_TRUE(Eventually([this] { return marks_.Has("ready1"); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    kill(getpid(), SIGTERM);
    EXPECT_TRUE(Eventually([this] { return marks_.Has("got"); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    kill(getpid(), SIGTERM);
  });
  const ProcessSetReport report =
      RunProcessSet(Shells({"while :; do echo 0123456789012345678901234567890123456789; done",
                            OnTerm(": > $MARKS/got; exit 143")}),
                    options_);
  user.join();
  EXPECT_EQ(report.ends[0].signal, SIGTERM);
  EXPECT_EQ(report.ends[1].exit_status, 143);
}

TEST_F(ProcessSetTest, TheJobOutlivesTheReaderOfItsOutput) {
  Pipe closed = MakePipe();
  closed.read.Close();
  options_.stdout_fd = closed.write.get();
  const ProcessSetReport report =
      RunProcessSet(Shells({"echo x; sleep 0.05; echo y; : > $MARKS/done"}), options_);
  EXPECT_EQ(report.ExitStatus(), 0);
  EXPECT_TRUE(marks_.Has("done"));
}

TEST_F(ProcessSetTest, LeavesNoZombiesAndNoOpenFiles) {
  const std::set<int> before = OpenFiles();
  Run({"exit 0", "exit 1", "kill -9 $$"});
  EXPECT_EQ(OpenFiles(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(ProcessSetTest, ProcessesInheritNoFilesOfOurs) {
  std::set<int> expected = {0, 1, 2};
  for (const int fd : OpenFiles()) {
    if ((fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0) expected.insert(fd);
  }
  Run({"sleep 0.05", "ls /proc/$$/fd"});
  const std::vector<std::string> lines = SortedLines();
  ASSERT_GE(lines.size(), 4U) << stdout_.Text();
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const int fd = std::stoi(lines[i].substr(lines[i].find(']') + 1));
    EXPECT_TRUE(expected.contains(fd)) << lines[i];
  }
}

TEST_F(ProcessSetTest, WhatAProcessLeftBehindIsKilled) {
  Run({"sleep 300 & echo $!"});
  const std::string pid(Trim(stdout_.Text()));
  ASSERT_FALSE(pid.empty());
  EXPECT_TRUE(Eventually([&] { return !Lives(pid); }));
}

TEST_F(ProcessSetTest, AProgramThatDoesNotStartIsAnErrorAndLeavesNothing) {
  const std::set<int> before = OpenFiles();
  std::vector<Command> commands = Shells({"sleep 300", "sleep 300"});
  commands.back().program = "/no/such/program";
  try {
    RunProcessSet(commands, options_);
    ADD_FAILURE() << "started";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kLaunchFailed);
    EXPECT_NE(error.message().find("\"/no/such/program\": No such file"), std::string::npos)
        << error.message();
  }
  EXPECT_EQ(OpenFiles(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

// Nobody can catch SIGKILL: it is the kernel that ends the processes.
TEST_F(ProcessSetTest, ProcessesDieWithTheirLauncher) {
  const pid_t launcher = fork();
  if (launcher == 0) {
    RunProcessSet(
        Shells(std::vector<std::string>(
            3, "echo $$ > $MARKS/p$RANK; mv $MARKS/p$RANK $MARKS/pid$RANK; exec sleep 300")),
        options_);
    _exit(0);
  }
  for (const char* mark : {"pid0", "pid1", "pid2"}) {
    ASSERT_TRUE(Eventually([&] { return marks_.Has(mark); }));
    EXPECT_TRUE(Lives(marks_.Read(mark)));
  }
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  for (const char* mark : {"pid0", "pid1", "pid2"}) {
    EXPECT_TRUE(Eventually([&] { return !Lives(marks_.Read(mark)); }));
  }
}

}  // namespace
}  // namespace gt::process_set_test
