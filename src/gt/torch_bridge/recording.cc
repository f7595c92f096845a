#include "gt/torch_bridge/recording.h"

#include "gt/base/error.h"

namespace gt {
namespace {

Recording*& UnderWay() {
  thread_local Recording* recording = nullptr;
  return recording;
}

}  // namespace

Recording::Recording() {
  GT_CHECK(UnderWay() == nullptr, "a recording inside of another");
  UnderWay() = this;
}

Recording::~Recording() { UnderWay() = nullptr; }

Recording* Recording::Active() { return UnderWay(); }

}  // namespace gt
