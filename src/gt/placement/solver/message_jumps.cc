#include "gt/placement/solver/message_jumps.h"

#include <algorithm>
#include <utility>

namespace gt::placement {
namespace {

constexpr int kStride = 5;  // sweeps that show a direction
constexpr int kTrial =
    2;  // sweeps after which a jump must have been better than as many without it
constexpr double kLongest = 16, kShortest = 0.5;

}  // namespace

MessageJumps::~MessageJumps() {
  if (trying_ && messages_.bound() < base_.bound) messages_.Restore(base_);
}

void MessageJumps::AfterSweep() {
  ++sweeps_;
  if (trying_) {
    if (sweeps_ < kTrial) return;
    trying_ = false;
    if (messages_.bound() > base_.bound + gain_ * kTrial / kStride) {
      length_ = std::min(2 * length_, kLongest);
      base_ = messages_.state();
    } else {
      length_ = std::max(length_ / 4, kShortest);
      messages_.Restore(base_);
    }
    sweeps_ = 0;
    return;
  }
  if (sweeps_ < kStride) return;
  sweeps_ = 0;
  const MessagePassing::State before = std::exchange(base_, messages_.state());
  // The first sweeps mend what is wrong at new costs, which is not a direction to go on in.
  if (!std::exchange(known_, true)) return;
  gain_ = base_.bound - before.bound;
  messages_.GoOn(before, length_);
  trying_ = true;
}

}  // namespace gt::placement
