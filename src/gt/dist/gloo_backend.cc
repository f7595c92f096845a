#include "gt/dist/gloo_backend.h"

#include "gt/dist/backends.h"
#include "gt/dist/ordered_gloo.h"
#include "gt/dist/staged_backend.h"

namespace gt {

using c10d::ProcessGroupGloo;

std::shared_ptr<void> MakeGlooDevice(const std::string& address) {
  return address.empty() ? ProcessGroupGloo::createDefaultDevice()
                         : ProcessGroupGloo::createDeviceForHostname(address);
}

namespace {

const BackendRegistration kGlooBackend(CommBackend::kGloo, [](const BackendRequest& request) {
  if (!request.shared) request.shared = MakeGlooDevice(request.address);
  auto options = ProcessGroupGloo::Options::create(request.timeout);
  options->devices.push_back(std::static_pointer_cast<::gloo::transport::Device>(request.shared));
  options->threads = 1;  // one queue: collectives of a group run in the order they were issued
  options->group_name = request.group.name;
  options->group_desc = request.group.description;
  BackendPtr gloo =
      c10::make_intrusive<OrderedGloo>(request.store, static_cast<int>(request.group.index),
                                       static_cast<int>(request.group.size()), options);
  return request.on_gpu ? MakeStagedBackend(std::move(gloo), request.group) : gloo;
});

}  // namespace
}  // namespace gt
