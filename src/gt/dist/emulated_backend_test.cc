// Times on emulated links, taken from the record of what the links did: when threads wake up does not
// matter.
#include "gt/dist/emulated_backend.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <thread>

#include "gt/dist/cuda_driver.h"
#include "gt/dist/multiprocessor_claim.h"
#include "gt/sim/cluster_path.h"
#include "gt/torch_bridge/device.h"

namespace gt::emulated_backend_test {
namespace {

Group Ranks(const std::string& name, int64_t count) {
  Group group;
  group.name = name;
  for (int64_t rank = 0; rank < count; ++rank) group.ranks.push_back(rank);
  return group;
}

class EmulatedBackendTest : public ::testing::Test {
 protected:
  EmulatedBackendTest() { setenv("GT_HOME", GT_SOURCE_DIR, 1); }
};

LinkModel Links(const std::string& cluster) { return LinkModel(ReadCluster(ClusterPath(cluster))); }

// Gathers of two groups at once, each of which takes `alone` by itself; what the links did, in the
// order in which they began.
struct TwoAtOnce {
  CollectiveTime alone;
  std::vector<LinkUse> uses;
};

// 16 ranks are two nodes.
TwoAtOnce GatherTwice(bool contention, int64_t first_ranks, int64_t second_ranks) {
  // A transfer of some 300 ms, far longer than threads take to start.
  constexpr int64_t kFloats = 1 << 10;
  constexpr double kMicroseconds = 300e3;
  const int64_t bytes = 16 * kFloats * 4;
  const LinkModel links = Links("slow");
  const double scale =
      kMicroseconds / links.Time(Collective::kAllGather, bytes, {2, 8}).transfer_us;
  auto emulation = MakeEmulation("slow", scale, contention);
  BackendPtr first = MakeEmulatedBackend(emulation, Ranks("first", first_ranks));
  BackendPtr second = MakeEmulatedBackend(emulation, Ranks("second", second_ranks));
  at::Tensor full = at::empty({16 * kFloats}), other_full = at::empty({16 * kFloats});
  at::Tensor part = at::ones({16 * kFloats / first_ranks});
  at::Tensor other_part = at::ones({16 * kFloats / second_ranks});
  ClockOf(emulation).StartRecord();
  auto a = first->_allgather_base(full, part);
  auto b = second->_allgather_base(other_full, other_part);
  a->wait();
  b->wait();
  EXPECT_TRUE(at::equal(full, at::ones_like(full)));
  TwoAtOnce result{links.Time(Collective::kAllGather, bytes, {2, 8}),
                   ClockOf(emulation).TakeRecord()};
  result.alone.latency_us *= scale;
  result.alone.transfer_us *= scale;
  std::sort(result.uses.begin(), result.uses.end(),
            [](const LinkUse& x, const LinkUse& y) { return x.begin_us < y.begin_us; });
  return result;
}

// The network moves both transfers one after another or side by side: the last ends when both are
// moved, and the other earlier by as much as it began earlier.
TEST_F(EmulatedBackendTest, GroupsShareTheNetwork) {
  const TwoAtOnce both = GatherTwice(/*contention=*/true, 16, 16);
  ASSERT_EQ(both.uses.size(), 2u);
  const LinkUse &first = both.uses[0], &second = both.uses[1];
  const double later = second.begin_us - first.begin_us;
  ASSERT_LT(later, both.alone.transfer_us) << "the second began when the first was through";
  const double moved = first.begin_us + both.alone.latency_us + 2 * both.alone.transfer_us;
  EXPECT_NEAR(second.end_us, moved, 1);
  EXPECT_NEAR(first.end_us, moved - later, 1);
}

TEST_F(EmulatedBackendTest, WithoutContentionEachTakesTheTimeItTakesAlone) {
  const TwoAtOnce both = GatherTwice(/*contention=*/false, 16, 16);
  ASSERT_EQ(both.uses.size(), 2u);
  for (const LinkUse& use : both.uses) {
    EXPECT_NEAR(use.end_us - use.begin_us, both.alone.total_us(), 1);
  }
}

TEST_F(EmulatedBackendTest, AGroupInsideANodeDoesNotMeetOneAcrossNodes) {
  const TwoAtOnce both = GatherTwice(/*contention=*/true, 16, 8);
  ASSERT_EQ(both.uses.size(), 2u);
  for (const LinkUse& use : both.uses) {
    EXPECT_NEAR(use.end_us - use.begin_us, use.alone.total_us(), 1) << use.group;
  }
}

// The scale counts for latency and transfer alike; 0 makes collectives free.
TEST_F(EmulatedBackendTest, TimesAreScaled) {
  const LinkModel links = Links("h100");
  for (const double scale : {0.0, 1.0, 7.0}) {
    auto emulation = MakeEmulation("h100", scale, /*contention=*/true);
    BackendPtr backend = MakeEmulatedBackend(emulation, Ranks("tokens", 32));
    ClockOf(emulation).StartRecord();
    at::Tensor input = at::ones({64, 1 << 10}), output = at::empty_like(input);
    std::vector<int64_t> even;
    backend->alltoall_base(output, input, even, even)->wait();
    const std::vector<LinkUse> uses = ClockOf(emulation).TakeRecord();
    ASSERT_EQ(uses.size(), 1u);
    EXPECT_EQ(uses[0].group, "tokens");
    const CollectiveTime alone =
        links.Time(Collective::kAllToAll, static_cast<int64_t>(input.nbytes()), {4, 8});
    EXPECT_DOUBLE_EQ(uses[0].alone.latency_us, scale * alone.latency_us);
    EXPECT_DOUBLE_EQ(uses[0].alone.transfer_us, scale * alone.transfer_us);
    EXPECT_NEAR(uses[0].end_us - uses[0].begin_us, scale * alone.total_us(), 1e-3);
  }
}

// Waiting is never shorter than what the links say.
TEST_F(EmulatedBackendTest, WaitingTakesAsLongAsTheLinks) {
  LinkClock clock(/*contention=*/true);
  const auto start = std::chrono::steady_clock::now();
  const CollectiveTime time{100, 20e3, LinkResource::kNetwork};
  std::vector<std::thread> queues;
  for (int i = 0; i < 3; ++i) {
    queues.emplace_back([&clock, &time] { LinkClock::Passage(clock, "group", time).Wait(); });
  }
  for (std::thread& queue : queues) queue.join();
  const std::chrono::duration<double, std::micro> waited = std::chrono::steady_clock::now() - start;
  EXPECT_GE(waited.count(), 60e3);
}

// A queue that is abandoned in the middle of a collective leaves the others alone.
TEST_F(EmulatedBackendTest, AnAbandonedCollectiveStillUsesTheLinks) {
  LinkClock clock(/*contention=*/true);
  clock.StartRecord();
  const CollectiveTime time{0, 5e3, LinkResource::kNetwork};
  LinkClock::Passage stays(clock, "stays", time);
  { LinkClock::Passage leaves(clock, "leaves", time); }
  stays.Wait();
  const std::vector<LinkUse> uses = clock.TakeRecord();
  ASSERT_EQ(uses.size(), 1u);
  EXPECT_GT(uses[0].end_us - uses[0].begin_us, 7e3);
}

class OnGpu {
 public:
  explicit OnGpu(c10::Device device) : device_(device) {}

  // Milliseconds that the current stream takes for `body`.
  double Milliseconds(const std::function<void()>& body) const {
    c10::impl::VirtualGuardImpl guard(device_.type());
    c10::Event begin(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    c10::Event end(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    begin.record(guard.getStream(device_));
    body();
    end.record(guard.getStream(device_));
    end.synchronize();
    return begin.elapsedTime(end);
  }

 private:
  c10::Device device_;
};

std::optional<c10::Device> Gpu() {
  const c10::Device device = ChooseDevice(DeviceChoice::kAuto);
  return device.is_cuda() ? std::optional(device) : std::nullopt;
}

// Products of float32 matrices have many small tiles, so their time is inversely proportional to the
// multiprocessors that they find. What those of bfloat16 lose depends on how their last wave comes out,
// and is printed only.
TEST_F(EmulatedBackendTest, TokensTakeMultiprocessorsFromAMatrixProduct_gpu) {
  if (!Gpu()) GTEST_SKIP() << "there is no GPU here";
  const c10::Device device = *Gpu();
  const OnGpu gpu(device);
  at::Tensor tokens = at::ones({1 << 20}, at::device(device)), received = at::empty_like(tokens);
  const double alone_us =
      Links("h200")
          .Time(Collective::kAllToAll, static_cast<int64_t>(tokens.nbytes()), {4, 8})
          .total_us();
  const double share = Links("h200").cluster().ComputeShareTaken(Collective::kAllToAll);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    at::Tensor a = at::randn({8192, 8192}, at::device(device)).to(dtype), product;
    const int repetitions = dtype == at::kFloat ? 8 : 40;
    const auto multiply = [&] {
      for (int i = 0; i < repetitions; ++i) product = at::mm(a, a);
    };
    multiply();
    const double without = gpu.Milliseconds(multiply);
    double slowdown[2] = {0, 0};
    for (const bool contention : {false, true}) {
      // Twice as long as the products may take.
      auto emulation = MakeEmulation("h200", 4e3 * without / alone_us, contention);
      BackendPtr backend = MakeEmulatedBackend(emulation, Ranks("tokens", 32));
      std::vector<int64_t> even;
      auto work = backend->alltoall_base(received, tokens, even, even);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it has begun
      slowdown[contention] = gpu.Milliseconds(multiply) / without;
      EXPECT_FALSE(work->isCompleted()) << "the collective did not last as long as the products";
      work->wait();
      Synchronize(device);
      EXPECT_TRUE(at::equal(received, tokens));
    }
    std::printf(
        "%s: %.1f ms alone; beside a collective %.3f times as long, without contention %.3f"
        " times; %.1f %% of the multiprocessors taken: %.3f times expected\n",
        dtype == at::kFloat ? "float32" : "bfloat16", without, slowdown[1], slowdown[0],
        100 * share, 1 / (1 - share));
    EXPECT_LT(slowdown[0], 1.05);
    if (dtype == at::kFloat) {
      EXPECT_GT(slowdown[1], 1 + 0.4 * share / (1 - share));
      EXPECT_LT(slowdown[1], 1 + 2.0 * share / (1 - share));
    }
  }
}

// More claims at once than the device has multiprocessors: nothing waits for ever, each lasts as long
// as the links say, and the links are shared by those that have begun.
TEST_F(EmulatedBackendTest, MoreClaimsThanMultiprocessorsStillEnd_gpu) {
  if (!Gpu()) GTEST_SKIP() << "there is no GPU here";
  const c10::Device device = *Gpu();
  auto emulation = MakeEmulation("h200", 1, /*contention=*/true);
  ClockOf(emulation).StartRecord();
  constexpr int kGroups = 12, kRounds = 5;
  std::vector<BackendPtr> groups;
  for (int i = 0; i < kGroups; ++i) {
    groups.push_back(MakeEmulatedBackend(emulation, Ranks("group " + std::to_string(i), 32)));
  }
  at::Tensor tokens = at::ones({1 << 20}, at::device(device));
  std::vector<at::Tensor> received(kGroups, at::Tensor());
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  std::vector<int64_t> even;
  at::Tensor product = at::randn({2048, 2048}, at::device(device));
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kGroups; ++i) {
      received[i] = at::empty_like(tokens);
      works.push_back(groups[i]->alltoall_base(received[i], tokens, even, even));
      product = at::mm(product, product).clamp(-1, 1);
    }
  }
  for (auto& work : works) work->wait();
  Synchronize(device);
  for (const at::Tensor& tensor : received) EXPECT_TRUE(at::equal(tensor, tokens));
  const std::vector<LinkUse> uses = ClockOf(emulation).TakeRecord();
  EXPECT_EQ(uses.size(), static_cast<size_t>(kGroups * kRounds));
  double longest = 0;
  for (const LinkUse& use : uses) {
    EXPECT_GE(use.end_us - use.begin_us, use.alone.total_us() - 1);
    longest = std::max(longest, (use.end_us - use.begin_us) / use.alone.total_us());
  }
  std::printf("%d collectives at once: up to %.2f times as long as alone\n", kGroups, longest);
}

// A claim lasts as long as it was told, on a stream that goes on afterwards.
TEST_F(EmulatedBackendTest, AClaimEndsByItself_gpu) {
  if (!Gpu()) GTEST_SKIP() << "there is no GPU here";
  const c10::Device device = *Gpu();
  at::ones({1}, at::device(device));  // makes the device's context
  const auto claim = MultiprocessorClaim::Load();
  ASSERT_TRUE(claim);
  EXPECT_GT(claim->multiprocessors(), 0);
  const auto stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  const auto start = std::chrono::steady_clock::now();
  claim->Launch(stream.native_handle(), 4, /*nanoseconds=*/50'000'000);
  Synchronize(device);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took.count(), 49);
  EXPECT_LT(took.count(), 1000);
}

}  // namespace
}  // namespace gt::emulated_backend_test
