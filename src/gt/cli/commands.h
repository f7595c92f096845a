// The subcommands of gt. Each takes the arguments after its name and returns the exit status;
// errors are thrown.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gt::cli {

using Arguments = std::span<const std::string>;

int RunTrain(Arguments args);
int RunLaunch(Arguments args);
int RunTrace(Arguments args);
int RunMemory(Arguments args);
int RunSimulate(Arguments args);
int RunPlace(Arguments args);
int RunGenerate(Arguments args);
int RunInfo(Arguments args);
int RunModels(Arguments args);
int RunDraw(Arguments args);
int RunDocs(Arguments args);

}  // namespace gt::cli
