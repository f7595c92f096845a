#include "gt/train/fault.h"

#include <signal.h>

#include <charconv>
#include <chrono>
#include <thread>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/torch_bridge/device.h"

namespace gt {

template <>
inline constexpr std::array<std::string_view, 4> kEnumNames<Fault::Kind> = {"kill", "sleep",
                                                                            "throw", "memory"};

void Fault::Strike(int64_t at_rank, int64_t at_step, c10::Device device) const {
  if (at_rank != rank || at_step != step) return;
  switch (kind) {
    case Kind::kKill:
      kill(getpid(), SIGKILL);
      break;
    case Kind::kSleep:
      std::this_thread::sleep_for(std::chrono::hours(1));
      break;
    case Kind::kMemory: {
      constexpr int64_t kBatch = 16 << 10;  // allocated before the step's first large tensor
      LimitMemory(device, MemoryOf(device).current + kBatch);
      break;
    }
    case Kind::kThrow:
      Fail(ErrorCode::kInternal, "--debug.fault: rank {} fails at step {} as asked", rank, step);
  }
}

std::optional<Fault> ParseFault(const std::string& text) {
  if (text.empty()) return std::nullopt;
  Fault fault;
  size_t first = text.find(':');
  size_t second = first == std::string::npos ? first : text.find(':', first + 1);
  std::string kind = text.substr(0, first);
  auto number = [&](size_t begin, size_t end, int64_t* value) {
    auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, *value);
    return error == std::errc() && stop == text.data() + end;
  };
  std::optional<Fault::Kind> known = EnumFromName<Fault::Kind>(kind);
  if (!known || second == std::string::npos || !number(first + 1, second, &fault.rank) ||
      !number(second + 1, text.size(), &fault.step)) {
    Fail(ErrorCode::kBadOptionValue,
         "debug.fault = '{}' must be kind:rank:step with kill, sleep, throw or memory as kind, "
         "such as sleep:1:3",
         text);
  }
  fault.kind = *known;
  return fault;
}

}  // namespace gt
