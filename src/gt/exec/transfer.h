// Moving tensors between the device's memory and the host's while kernels run: what gt::offload,
// gt::reload and gt::wait_transfer do (ops/transfers.cc). On a GPU copies run on their own streams:
// one for each direction, and one for the few bytes of token counts that the host reads (KernelOf
// in torch_bridge/convert.h), which must not wait for gigabytes of activations. A wait lets the
// compute stream continue after the copy; the host never waits. Without a GPU the same nodes copy
// immediately.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

namespace gt {

// The host waits until the copy that writes this tensor is done, if one is under way.
void AwaitTransfer(const at::Tensor& moved);
// How long it has waited so in this process: the rest of a step's time on the host is work.
double SecondsAwaited();

struct TransferStats {
  int64_t bytes_out = 0;   // to the host, token counts included
  int64_t bytes_back = 0;  // to the device
  // How long the copies took, each direction on its own; only while they are timed.
  double seconds_out = 0;
  double seconds_back = 0;
};

// Counts and times what this process moves while it lives. For measurements: timing makes the driver
// do more. One at a time.
class TransferMeter {
 public:
  explicit TransferMeter(c10::Device device);
  ~TransferMeter();
  TransferMeter(const TransferMeter&) = delete;
  TransferMeter& operator=(const TransferMeter&) = delete;

  // Of everything so far; waits for the device.
  TransferStats stats() const;

 private:
  c10::Device device_;
};

}  // namespace gt
