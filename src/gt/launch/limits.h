// What the system allows one process, before it is asked for more.
#pragma once

#include <cstdint>
#include <string_view>

namespace gt {

// Refuses more ranks in this process than it can connect with each other, and raises the limit on
// open files as far as the system lets it. A job that runs out of files in its middle would only say
// that a connection failed.
void RequireRoomForThreads(int64_t ranks);

// Whether a message of a library speaks of the limit on open files.
bool SaysTooManyFiles(std::string_view message);

}  // namespace gt
