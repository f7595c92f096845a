// Runs every command of README.md and docs/, page by page, as a reader would who follows along in an
// empty folder.
//
// Commands are all lines of code blocks without a language of which one begins with ./gt. A comment
// after one that names an error ("# GT-E0806: ...") says that the command is meant to fail so. What
// works on the checkout itself (test, bench, build, fuzz, format) is not run from within a test; such
// a line must name a script and, for bench, a benchmark that exist.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "gt/testing/shell.h"
#include "gt/testing/slow_tests.h"
#include "gt/testing/temp_folder.h"

namespace gt::documentation_test {
namespace {

namespace fs = std::filesystem;
using Outcome = testing::ShellOutcome;
using testing::TempFolder;

const fs::path kSource = GT_SOURCE_DIR;

struct Command {
  int line = 0;
  std::string text;
  std::string error;  // the code it ends with; empty: it succeeds
};

Command Parse(int line, const std::string& text) {
  Command command{line, text, {}};
  size_t comment = text.find("  # ");
  size_t code = comment == std::string::npos ? comment : text.find("GT-E", comment);
  if (code != std::string::npos) command.error = text.substr(code, 8);
  return command;
}

bool CallsGt(const Command& command) { return command.text.starts_with("./gt "); }

std::vector<Command> CommandsOf(const fs::path& page) {
  std::vector<Command> commands, block;
  std::ifstream file(page);
  bool in_block = false, has_language = false;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (!line.starts_with("```")) {
      if (in_block && !line.empty()) block.push_back(Parse(number, line));
      continue;
    }
    in_block = !in_block;
    if (in_block) {
      has_language = line != "```";
    } else if (!has_language && std::any_of(block.begin(), block.end(), CallsGt)) {
      commands.insert(commands.end(), block.begin(), block.end());
    }
    block.clear();
  }
  return commands;
}

std::vector<std::string> WordsOf(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

// Whether the line is for working on gt itself; says what is wrong with it.
bool IsForDevelopers(const Command& command) {
  const std::vector<std::string> words = WordsOf(command.text);
  if (!CallsGt(command) || !fs::exists(kSource / "scripts" / words[1])) return false;
  if (words[1] == "bench" && words.size() > 2) {
    EXPECT_TRUE(fs::exists(kSource / "bench" / (words[2] + "_bench.cc"))) << words[2];
  }
  return true;
}

Outcome RunLine(const std::string& line, const fs::path& folder) {
  return testing::RunInShell("cd '" + folder.string() + "' && { " + line + "\n} 2>&1 < /dev/null");
}

// A folder that looks like a checkout to a reader. Training that leaves the number of steps to the
// defaults makes two, unless slow tests are wanted: what is tried here is the command.
void MakeCheckout(const fs::path& folder) {
  for (const char* name : {"configs", "data", "tests"}) {
    fs::create_directory_symlink(kSource / name, folder / name);
  }
  const std::string fewer_steps = testing::SlowTestsWanted() ? "" : R"(
case "$*" in
  *--training.steps*) ;;
  train | "train "*) set -- "$@" --training.steps 2 ;;
esac
)";
  testing::WriteText(folder / "gt", "#!/bin/sh\n" + fewer_steps + "GT_HOME='" + kSource.string() +
                                        "' exec '" GT_BINARY "' \"$@\"\n");
  fs::permissions(folder / "gt", fs::perms::owner_all);
}

class Documentation : public ::testing::TestWithParam<std::string> {};

TEST_P(Documentation, CommandsRun) {
  const std::vector<Command> commands = CommandsOf(kSource / GetParam());
  TempFolder folder;
  MakeCheckout(folder.path());
  for (const Command& command : commands) {
    SCOPED_TRACE(GetParam() + ":" + std::to_string(command.line) + ": " + command.text);
    if (IsForDevelopers(command)) continue;
    const Outcome outcome = RunLine(command.text, folder.path());
    if (command.error.empty()) {
      EXPECT_EQ(outcome.status, 0) << outcome.output;
    } else {
      EXPECT_NE(outcome.status, 0) << outcome.output;
      EXPECT_NE(outcome.output.find(command.error), std::string::npos) << outcome.output;
    }
    if (HasFailure()) return;  // what follows may need what this one was to leave behind
  }
}

std::vector<std::string> Pages() {
  std::vector<std::string> pages = {"README.md"};
  std::error_code error;  // the tests may have been carried to a machine without sources
  for (const auto& entry : fs::directory_iterator(kSource / "docs", error)) {
    if (entry.path().extension() != ".md" || CommandsOf(entry.path()).empty()) continue;
    pages.push_back("docs/" + entry.path().filename().string());
  }
  std::sort(pages.begin() + 1, pages.end());
  return pages;
}

INSTANTIATE_TEST_SUITE_P(Pages, Documentation, ::testing::ValuesIn(Pages()),
                         [](const auto& page) { return fs::path(page.param).stem().string(); });

}  // namespace
}  // namespace gt::documentation_test
