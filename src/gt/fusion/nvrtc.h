// NVIDIA's run-time compiler, loaded when it is first asked for. It needs neither a GPU nor a driver.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gt::fusion {

class Nvrtc {
 public:
  // Null where the library is not on this machine; the reason is in `WhyMissing`.
  static const Nvrtc* Get();
  static const std::string& WhyMissing();

  struct Result {
    std::string cubin;  // empty: it does not compile
    std::string log;
  };
  // For one architecture, such as 90. Safe to call from several threads.
  Result Compile(std::string_view source, std::string_view name, int architecture) const;

  std::string version() const;

 private:
  friend struct NvrtcLoader;
  struct Functions;
  const Functions* functions_ = nullptr;
  int major_ = 0, minor_ = 0;
};

}  // namespace gt::fusion
