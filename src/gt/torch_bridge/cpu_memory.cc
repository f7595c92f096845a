#include "gt/torch_bridge/cpu_memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <new>

#include "gt/base/byte_text.h"

namespace gt {
namespace {

const std::shared_ptr<MemoryMeter>& MeterOfProcess() {
  // Never destroyed: tensors in static storage are freed after it would be.
  static const auto& meter = *new std::shared_ptr<MemoryMeter>(std::make_shared<MemoryMeter>());
  return meter;
}

std::shared_ptr<MemoryMeter>& MeterOfThread() {
  thread_local std::shared_ptr<MemoryMeter> meter;
  return meter;
}

// In front of every block, so that whoever frees it knows whose it was.
constexpr size_t kAlignment = 64;  // as libtorch's own allocator aligns
struct alignas(kAlignment) Header {
  std::shared_ptr<MemoryMeter> meter;
  int64_t bytes = 0;
};

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &Free, c10::Device(c10::kCPU)};
    std::shared_ptr<MemoryMeter> meter = MeterOfThread() ? MeterOfThread() : MeterOfProcess();
    meter->Add(static_cast<int64_t>(bytes));
    void* block = nullptr;
    if (posix_memalign(&block, kAlignment, sizeof(Header) + bytes) != 0) {
      meter->Remove(static_cast<int64_t>(bytes));
      TORCH_CHECK_WITH(OutOfMemoryError, false, "the system has no ", bytes, " bytes left");
    }
    auto* header = new (block) Header{std::move(meter), static_cast<int64_t>(bytes)};
    void* data = header + 1;
    return {data, data, &Free, c10::Device(c10::kCPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &Free; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void Free(void* data) {
    if (data == nullptr) return;
    Header* header = static_cast<Header*>(data) - 1;
    header->meter->Remove(header->bytes);
    header->~Header();
    std::free(header);
  }
};

// Tensors that already exist are freed by whoever allocated them.
void BeginCounting() {
  static const bool begun = [] {
    static CountingAllocator allocator;
    constexpr uint8_t kAboveDefault = 1;
    c10::SetCPUAllocator(&allocator, kAboveDefault);
    return true;
  }();
  static_cast<void>(begun);
}

}  // namespace

void MemoryMeter::Add(int64_t bytes) {
  const int64_t now = current_ += bytes;
  const int64_t limit = limit_;
  if (limit > 0 && now > limit) {
    current_ -= bytes;
    TORCH_CHECK_WITH(OutOfMemoryError, false, ByteText(bytes), " were asked for while ",
                     ByteText(now - bytes), " of ", ByteText(limit), " are in use");
  }
  int64_t peak = peak_;
  while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
  }
}

MemoryMeter& CurrentMeter() {
  BeginCounting();
  return MeterOfThread() ? *MeterOfThread() : *MeterOfProcess();
}

MeterScope::MeterScope() : outer_(MeterOfThread()) {
  BeginCounting();
  MeterOfThread() = std::make_shared<MemoryMeter>();
}

MeterScope::~MeterScope() { MeterOfThread() = outer_; }

}  // namespace gt
