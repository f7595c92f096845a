#include "gt/torch_bridge/tensor_fill.h"

#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ParallelGuard.h>

#include <array>
#include <optional>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/workers.h"
#include "gt/torch_bridge/device.h"

namespace gt {
namespace {

// One worker's way to a GPU: a stream of its own, and two buffers of which one is being copied while
// the other is filled.
class Uploader {
 public:
  explicit Uploader(c10::Device device)
      : stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)) {}

  void Fill(const FillPiece& piece) {
    Buffer& buffer = buffers_[next_++ % buffers_.size()];
    if (buffer.copied) buffer.copied->synchronize();
    at::Tensor host = buffer.Shaped(piece.destination);
    piece.produce(host);
    c10::StreamGuard guard(stream_);
    at::Tensor destination = piece.destination;
    destination.copy_(host, /*non_blocking=*/true);
    if (!buffer.copied) buffer.copied.emplace(stream_.device_type());
    buffer.copied->record(stream_);
  }

  void Wait() {
    for (Buffer& buffer : buffers_) {
      if (buffer.copied) buffer.copied->synchronize();
    }
  }

 private:
  struct Buffer {
    at::Tensor memory;                 // page-locked bytes
    std::optional<c10::Event> copied;  // until then, they are being read

    at::Tensor Shaped(const at::Tensor& like) {
      const auto bytes = static_cast<int64_t>(like.nbytes());
      if (!memory.defined() || memory.numel() < bytes) {
        memory = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
      }
      return memory.narrow(0, 0, bytes).view(like.scalar_type()).view(like.sizes());
    }
  };

  c10::Stream stream_;
  std::array<Buffer, 2> buffers_;
  size_t next_ = 0;
};

// Takes pieces until there are none.
void FillAsWorker(std::vector<FillPiece>& pieces, WorkItems& items) {
  at::NoGradGuard no_gradients;
  c10::ParallelGuard on_this_thread_alone(true);
  std::optional<Uploader> uploader;
  while (const auto item = items.Next()) {
    const FillPiece piece = std::exchange(pieces[static_cast<size_t>(*item)], {});
    GT_CHECK(piece.destination.is_contiguous(), "a piece to be filled is not contiguous");
    if (piece.destination.is_cuda()) {
      if (!uploader) uploader.emplace(piece.destination.device());
      uploader->Fill(piece);
    } else {
      piece.produce(piece.destination);
    }
  }
  if (uploader) uploader->Wait();
}

}  // namespace

void FillTensors(std::vector<FillPiece> pieces) {
  std::erase_if(pieces, [](const FillPiece& piece) { return piece.destination.numel() == 0; });
  std::optional<c10::Device> gpu;
  for (const FillPiece& piece : pieces) {
    if (!piece.destination.is_cuda()) continue;
    GT_CHECK(!gpu || *gpu == piece.destination.device(), "pieces on several GPUs are filled");
    gpu = piece.destination.device();
  }
  // The memory of a tensor may have been another's, which kernels under way still use.
  if (gpu) Synchronize(*gpu);
  RunWorkers(static_cast<int64_t>(pieces.size()),
             [&pieces](WorkItems& items) { FillAsWorker(pieces, items); });
  if (gpu) at::getHostAllocator(gpu->type())->empty_cache();
}

at::Tensor ViewOfBox(const at::Tensor& part, const TensorBox& box, const TensorBox& wanted) {
  at::Tensor view = part;
  for (size_t d = 0; d < wanted.sizes.size(); ++d) {
    view = view.narrow(static_cast<int64_t>(d), wanted.offset[d] - box.offset[d], wanted.sizes[d]);
  }
  return view;
}

}  // namespace gt
