#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  std::chrono::milliseconds getTimeout() const;
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport

}  // namespace gloo
