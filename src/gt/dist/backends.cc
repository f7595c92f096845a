#include "gt/dist/backends.h"

#include <map>

#include "gt/base/error.h"

namespace gt {
namespace {

std::map<CommBackend, BackendRegistration::Maker>& BackendMakers() {
  static std::map<CommBackend, BackendRegistration::Maker> makers;
  return makers;
}

}  // namespace

BackendRegistration::BackendRegistration(CommBackend backend, Maker maker) {
  BackendMakers().emplace(backend, maker);
}

BackendPtr MakeBackend(CommBackend backend, const BackendRequest& request) {
  const auto found = BackendMakers().find(backend);
  GT_CHECK(found != BackendMakers().end(), "no backend {} is registered", EnumName(backend));
  return found->second(request);
}

}  // namespace gt
