#include "gt/launch/host_name.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"

namespace gt {
namespace {

// Empty: the host is known.
std::string WhyUnknown(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (problem != 0) return gai_strerror(problem);
  freeaddrinfo(found);
  return "";
}

}  // namespace

void AwaitHost(const std::string& host, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + patience;
  for (bool said = false;; said = true) {
    const std::string why = WhyUnknown(host);
    if (why.empty()) return;
    if (Clock::now() >= deadline) {
      Fail(ErrorCode::kCannotConnect,
           "the host {}, where the ranks are to meet (MASTER_ADDR), is not known here: {}; name "
           "the machine of rank 0 as this one finds it, or by its address",
           Quoted(host), why);
    }
    if (!said) {
      log::Warn("the host {} (MASTER_ADDR) is not known here: {}; trying again for {} s",
                Quoted(host), why,
                std::chrono::duration_cast<std::chrono::seconds>(patience).count());
    }
    constexpr std::chrono::milliseconds kPause{500};
    std::this_thread::sleep_for(std::min<Clock::duration>(kPause, deadline - Clock::now()));
  }
}

}  // namespace gt
