// Where the ranks of a job meet, by name.
#pragma once

#include <chrono>
#include <string>

namespace gt {

// Returns once `host` has an address. The names of machines that are just being started may take a
// while to be known, so that the first failure is a warning and only the last an error.
void AwaitHost(const std::string& host, std::chrono::milliseconds patience);

}  // namespace gt
