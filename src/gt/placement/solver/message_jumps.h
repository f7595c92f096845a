// Sweeps raise the bound of a large problem slowly, and move costs in much the same direction for a long
// time. Going on in that direction without looking at the tables saves most of these sweeps. It may go
// too far: two sweeps later the bound says so, and everything is put back.
#pragma once

#include "gt/placement/solver/message_passing.h"

namespace gt::placement {

class MessageJumps {
 public:
  // `messages` must outlive it.
  explicit MessageJumps(MessagePassing& messages) : messages_(messages) {}
  MessageJumps(const MessageJumps&) = delete;
  MessageJumps& operator=(const MessageJumps&) = delete;
  // Takes back a jump that has not raised the bound yet.
  ~MessageJumps();

  // To be called after each sweep.
  void AfterSweep();
  // Whether the messages are those of a jump that may be taken back.
  bool trying() const { return trying_; }

 private:
  MessagePassing& messages_;
  MessagePassing::State base_;  // before the jump, or where to measure the next one from
  int sweeps_ = 0;              // since then
  bool known_ = false;          // the base is
  bool trying_ = false;
  double length_ = 1;  // of the next jump, in strides
  double gain_ = 0;    // of the bound in the stride before the jump
};

}  // namespace gt::placement
