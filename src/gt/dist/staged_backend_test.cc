// Collectives that go through host memory: on the CPU their results, order and errors, on a GPU also
// their streams.
#include "gt/dist/staged_backend.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "gt/base/error.h"
#include "gt/dist/gloo_backend.h"
#include "gt/dist/idle_backend.h"
#include "gt/job/config.h"
#include "gt/torch_bridge/device.h"

namespace gt::staged_backend_test {
namespace {

using Tensors = std::vector<at::Tensor>;

// One rank of a group, which has each collective twice: straight on the CPU, and staged.
struct Rank {
  int64_t index = 0, size = 0;
  BackendPtr plain, staged;
};

// On as many threads as there are ranks. What a rank throws is thrown.
void OnRanks(int64_t size, const std::function<void(Rank&)>& body) {
  PrepareEnvironment(/*deterministic=*/false);  // libtorch's own record of collectives has no lock
  auto store = c10::make_intrusive<c10d::HashStore>();
  const Config config;
  auto device = MakeGlooDevice("127.0.0.1");
  // A rank that is done must not close its connections while others use theirs.
  std::vector<Rank> ranks(static_cast<size_t>(size));
  std::mutex mutex;
  std::exception_ptr failure;
  auto run = [&](int64_t index) {
    Rank& rank = ranks[static_cast<size_t>(index)];
    rank.index = index;
    rank.size = size;
    Group group;
    group.name = "all";
    group.index = index;
    for (int64_t i = 0; i < size; ++i) group.ranks.push_back(i);
    auto make = [&](const char* prefix) {
      auto own = c10::make_intrusive<c10d::PrefixStore>(prefix, store);
      std::shared_ptr<void> shared = device;
      return MakeBackend(CommBackend::kGloo, {.config = config,
                                              .group = group,
                                              .store = own,
                                              .timeout = std::chrono::seconds(60),
                                              .shared = shared});
    };
    try {
      rank.plain = make("plain");
      rank.staged = MakeStagedBackend(make("staged"), group);
      body(rank);
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int64_t index = 0; index < size; ++index) threads.emplace_back(run, index);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

at::Tensor Random(std::vector<int64_t> sizes, int64_t seed) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  return at::randn(sizes, generator);
}

// Runs `collective` on plain tensors and on their copies on the device, and compares all of them
// afterwards, so that what must not change is looked at as well.
void ExpectAlike(Rank& rank, c10::Device device, const Tensors& tensors,
                 const std::function<void(c10d::Backend&, Tensors&)>& collective,
                 const std::string& what) {
  Tensors here, there;
  for (const at::Tensor& tensor : tensors) {
    here.push_back(tensor.clone());
    there.push_back(tensor.to(device, /*non_blocking=*/false, /*copy=*/true));
  }
  collective(*rank.plain, here);
  collective(*rank.staged, there);
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(there[i].device().type() == device.type());
    EXPECT_TRUE(at::equal(there[i].cpu(), here[i])) << what << ", tensor " << i;
  }
}

// Every collective that a backend must have, for float32 and bf16, and with nothing to send.
void ExpectEveryCollectiveAlike(Rank& rank, c10::Device device) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (int64_t rows : {0, 1, 37}) {
      const int64_t n = rank.size, all = n * rows;
      auto input = [&](int64_t count) { return Random({count, 3}, 100 + rank.index).to(type); };
      auto zeros = [&](int64_t count) { return at::zeros({count, 3}, type); };
      auto expect = [&](const std::string& what, const Tensors& tensors, const auto& collective) {
        ExpectAlike(rank, device, tensors, collective, fmt::format("{} of {} rows", what, rows));
      };
      expect("sum", {input(rows)},
             [](c10d::Backend& backend, Tensors& t) { backend.allreduce(t, {})->wait(); });
      expect("maximum", {input(rows)}, [](c10d::Backend& backend, Tensors& t) {
        c10d::AllreduceOptions options;
        options.reduceOp = c10d::ReduceOp::MAX;
        backend.allreduce(t, options)->wait();
      });
      expect("broadcast", {input(rows)}, [](c10d::Backend& backend, Tensors& t) {
        c10d::BroadcastOptions options;
        options.rootRank = 1;
        backend.broadcast(t, options)->wait();
      });
      expect("gather", {input(rows), zeros(all)}, [](c10d::Backend& backend, Tensors& t) {
        backend._allgather_base(t[1], t[0], {})->wait();
      });
      expect("several gathers", {input(rows), input(2 * rows), zeros(all), zeros(2 * all)},
             [](c10d::Backend& backend, Tensors& t) {
               Tensors inputs = {t[0], t[1]}, outputs = {t[2], t[3]};
               backend.allgather_into_tensor_coalesced(outputs, inputs, {})->wait();
             });
      expect("reduce-scatter", {input(all), zeros(rows)}, [](c10d::Backend& backend, Tensors& t) {
        backend._reduce_scatter_base(t[1], t[0], {})->wait();
      });
      expect("several reduce-scatters", {input(all), input(2 * all), zeros(rows), zeros(2 * rows)},
             [](c10d::Backend& backend, Tensors& t) {
               Tensors inputs = {t[0], t[1]}, outputs = {t[2], t[3]};
               backend.reduce_scatter_tensor_coalesced(outputs, inputs, {})->wait();
             });
      // Rank r sends i + rows rows to rank i, so it receives r + rows from everyone.
      std::vector<int64_t> sent, received;
      int64_t count = 0;
      for (int64_t i = 0; i < n; ++i) {
        sent.push_back(rows == 0 ? 0 : i + rows);
        received.push_back(rows == 0 ? 0 : rank.index + rows);
        count += sent.back();
      }
      expect("exchange", {input(count), zeros(n * received[0])},
             [&](c10d::Backend& backend, Tensors& t) {
               std::vector<int64_t> to = received, from = sent;  // gloo takes them for its own
               backend.alltoall_base(t[1], t[0], to, from, {})->wait();
             });
    }
  }
  rank.staged->barrier({})->wait();
  Tensors message = {at::full({5}, rank.index + 1, at::TensorOptions(device))};
  if (rank.index == 0) rank.staged->send(message, 1, 0)->wait();
  if (rank.index == 1) rank.staged->recv(message, 0, 0)->wait();
  EXPECT_EQ(message[0][4].item<int64_t>(), rank.index <= 1 ? 1 : rank.index + 1);
}

// Several under way at the same time, waited for in another order than they were issued, and of views
// with gaps between their elements.
void ExpectOrderAndStrides(Rank& rank, c10::Device device) {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  std::vector<Tensors> sums;
  for (int64_t i = 0; i < 20; ++i) {
    at::Tensor whole =
        at::full({8, 6}, i + rank.index, at::TensorOptions(device).dtype(at::kFloat));
    sums.push_back({i % 2 == 0 ? whole : whole.slice(1, 0, 6, 2)});
    works.push_back(rank.staged->allreduce(sums.back(), {}));
  }
  for (size_t i = works.size(); i-- > 0;) {
    works[i]->wait();
    EXPECT_TRUE(works[i]->isSuccess());
    const int64_t ranks = rank.size * (rank.size - 1) / 2;
    const auto expected = static_cast<double>(rank.size * static_cast<int64_t>(i) + ranks);
    EXPECT_TRUE(sums[i][0].eq(expected).all().item<bool>()) << i;
  }
}

TEST(StagedBackend, GivesTheBitsOfThePlainOne) {
  for (int64_t size : {2, 3, 4}) {
    OnRanks(size, [](Rank& rank) {
      ExpectEveryCollectiveAlike(rank, at::kCPU);
      ExpectOrderAndStrides(rank, at::kCPU);
    });
  }
}

// Fails in the collective itself, where it is in another thread.
class FailingBackend : public IdleBackend {
 public:
  using IdleBackend::IdleBackend;
  WorkPtr allreduce(Tensors&, const c10d::AllreduceOptions&) override {
    throw Error(ErrorCode::kCollectiveFailed, "the cable was pulled");
  }
};

TEST(StagedBackend, HandsErrorsToWhoeverWaits) {
  Group group;
  group.name = "all";
  group.ranks = {0, 1};
  BackendPtr backend = MakeStagedBackend(c10::make_intrusive<FailingBackend>(0, 2), group);
  Tensors tensors = {at::ones({4})};
  auto failed = backend->allreduce(tensors, {});
  try {
    failed->wait();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("cable"), std::string::npos);
  }
  EXPECT_TRUE(failed->isCompleted());
  EXPECT_FALSE(failed->isSuccess());
  EXPECT_TRUE(backend->barrier({})->wait()) << "the next one runs";
}

// A collective that ends when the test says so.
class SlowBackend : public IdleBackend {
 public:
  SlowBackend(int rank, int size, std::shared_ptr<std::mutex> gate)
      : IdleBackend(rank, size), gate_(std::move(gate)) {}
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    std::lock_guard wait(*gate_);
    return IdleBackend::allreduce(tensors, options);
  }

 private:
  std::shared_ptr<std::mutex> gate_;
};

TEST(StagedBackend, ClosesWithoutRunningWhatHasNotBegun) {
  auto gate = std::make_shared<std::mutex>();
  Group group;
  group.name = "all";
  group.ranks = {0, 1};
  BackendPtr backend = MakeStagedBackend(c10::make_intrusive<SlowBackend>(0, 2, gate), group);
  Tensors tensors = {at::ones({4})};
  std::unique_lock closed(*gate);
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (int i = 0; i < 3; ++i) works.push_back(backend->allreduce(tensors, {}));
  EXPECT_FALSE(works[0]->isCompleted());
  std::thread destroyer([backend = std::move(backend)]() mutable { backend.reset(); });
  // The last one is dropped while the first still runs.
  EXPECT_THROW(works[2]->wait(), Error);
  closed.unlock();
  destroyer.join();
  EXPECT_TRUE(works[0]->isCompleted());
  EXPECT_TRUE(works[1]->isCompleted());
}

class StagedBackendOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    // libtorch looks once in a process, at the first product, whether they can be deterministic.
    PrepareEnvironment(/*deterministic=*/true);
    device_ = ChooseDevice(DeviceChoice::kAuto);
    if (!device_.is_cuda()) GTEST_SKIP() << "there is no GPU";
  }
  c10::Device device_ = at::kCPU;
};

TEST_F(StagedBackendOnGpu, GivesTheBitsOfThePlainOne_gpu) {
  for (int64_t size : {2, 4}) {
    OnRanks(size, [this](Rank& rank) {
      ExpectEveryCollectiveAlike(rank, device_);
      ExpectOrderAndStrides(rank, device_);
    });
  }
}

// Operands come from kernels that still run when the collective is issued, results are used by kernels
// that are issued at once, and memory is handed from one to the next: a copy on the wrong stream, or a
// tensor that is freed too early, shows as a wrong sum.
TEST_F(StagedBackendOnGpu, FollowsTheStreams_gpu) {
  OnRanks(4, [this](Rank& rank) {
    auto options = at::TensorOptions(device_).dtype(at::kFloat);
    constexpr int64_t kCount = 1 << 18;
    at::Tensor slow = at::eye(2048, options), ok = at::ones({}, options.dtype(at::kBool));
    at::Tensor indices = at::arange(4, options).view({4, 1});
    for (int64_t round = 0; round < 60; ++round) {
      at::Tensor x = at::full({kCount}, static_cast<double>(round + rank.index), options);
      // Takes a while and leaves x as it is.
      at::Tensor product = slow;
      for (int i = 0; i < 4; ++i) product = product.matmul(slow);
      x = x * product[0][0] + product[0][1];
      at::Tensor gathered = at::empty({4 * kCount}, options);
      auto work = rank.staged->_allgather_base(gathered, x, {});
      x.reset();
      // Would be where x was if that were free already.
      at::Tensor garbage = at::full({kCount}, -1.0, options) * product[1][1];
      work->wait();
      ok = at::logical_and(
          ok, gathered.view({4, kCount}).eq(indices + static_cast<double>(round)).all());
    }
    EXPECT_TRUE(ok.item<bool>());
  });
}

}  // namespace
}  // namespace gt::staged_backend_test
