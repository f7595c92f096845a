#include "gt/train/say.h"

#include <cstdio>

namespace gt {

void SayLine(const std::string& line) {
  // Not fmt::print, which throws: the program reports a log that cannot be written when it ends.
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);  // a line is news: it must not wait in a pipe's buffer
}

}  // namespace gt
