// Running a command line and keeping what it says, for tests.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace gt::testing {

struct ShellOutcome {
  int status = -1;     // what $? would be
  std::string output;  // standard output; with "2>&1" in the command, both streams
};

inline ShellOutcome RunInShell(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  ShellOutcome outcome;
  std::array<char, 4096> buffer;
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.output.append(buffer.data(), count);
  }
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

}  // namespace gt::testing
