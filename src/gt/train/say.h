// Lines of a run on standard output.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "gt/dist/world.h"

namespace gt {

// Prints the line immediately. A line that cannot be written does not end the run.
void SayLine(const std::string& line);

// Of the first rank alone.
template <typename... Args>
void Say(const World& world, fmt::format_string<Args...> format, Args&&... args) {
  if (world.first()) SayLine(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace gt
