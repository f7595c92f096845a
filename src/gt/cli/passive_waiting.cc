#include "gt/cli/passive_waiting.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace gt::cli {
namespace {

bool IsSet(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

bool BindsThreads() {
  const char* value = std::getenv("OMP_PROC_BIND");
  const bool binds = value != nullptr && *value != '\0' && std::string_view(value) != "false" &&
                     std::string_view(value) != "FALSE";
  return binds || IsSet("GOMP_CPU_AFFINITY");
}

bool HasOneThread() {
  const char* value = std::getenv("OMP_NUM_THREADS");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace

void WaitPassively(char** arguments) {
  if (IsSet("OMP_WAIT_POLICY") || IsSet("GOMP_SPINCOUNT") || BindsThreads() || HasOneThread()) {
    return;
  }
  // Set before the program is started again, so that it happens once.
  setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/1);
  execv("/proc/self/exe", arguments);
  // Without /proc threads spin.
}

}  // namespace gt::cli
