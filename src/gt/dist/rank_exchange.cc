// What ranks tell each other outside of any step: numbers, texts, decisions, tensors in host memory.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "gt/base/error.h"
#include "gt/dist/store_text.h"
#include "gt/dist/world.h"
#include "gt/job/config.h"

namespace gt {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

}  // namespace

std::vector<double> World::Reduce(std::vector<double> numbers, c10d::ReduceOp how) {
  if (size_ == 1 || pretended()) return numbers;
  std::vector<at::Tensor> tensors = {
      at::from_blob(numbers.data(), {static_cast<int64_t>(numbers.size())}, at::kDouble)};
  c10d::AllreduceOptions options;
  options.reduceOp = how;
  c10d::resolve_process_group(Control().name)->allreduce(tensors, options)->wait();
  return numbers;
}

std::vector<double> World::Sum(std::vector<double> numbers) {
  return Reduce(std::move(numbers), c10d::ReduceOp::SUM);
}

std::vector<double> World::Max(std::vector<double> numbers) {
  return Reduce(std::move(numbers), c10d::ReduceOp::MAX);
}

void World::Barrier() { Sum({0.0}); }

void World::Publish(const std::string& name, const std::string& text) {
  if (store_ != nullptr) store_->set("text/" + name, ToBytes(text));
}

std::string World::DecideForAll(const std::string& what,
                                const std::function<std::string()>& decide) {
  if (size_ == 1 || pretended()) return decide();
  const std::string name = fmt::format("decision {}: {}", decisions_++, what);
  if (!first()) return Read(name, /*writer=*/0);
  std::string decision = decide();
  Publish(name, decision);
  return decision;
}

std::string World::Read(const std::string& name, int64_t writer) {
  using Clock = std::chrono::steady_clock;
  std::string key = "text/" + name;
  auto patience = seconds(config_->comm.init_timeout_seconds);
  Clock::time_point deadline = Clock::now() + patience, next_look = Clock::now();
  int64_t beats = -1;
  try {
    while (!store_->check({key})) {
      if (watch_ && Clock::now() > next_look) {
        if (std::optional<Error> aborted = watch_->Aborted()) throw *aborted;
        if (int64_t now = watch_->BeatsOf(writer); now != beats) {
          beats = now;
          deadline = Clock::now() + patience;
        }
        next_look = Clock::now() + milliseconds(100);
      }
      if (Clock::now() > deadline) {
        Fail(ErrorCode::kRankLost, "rank {} waited {} s for '{}' of rank {} in vain", rank_,
             patience.count(), name, writer);
      }
      std::this_thread::sleep_for(milliseconds(2));
    }
    return ToText(store_->get(key));
  } catch (const c10::Error& error) {
    Fail(ErrorCode::kRankLost,
         "rank {} waited for '{}', but rank 0, which holds the meeting point of the ranks, cannot "
         "be reached any more: it has ended ({})",
         rank_, name, error.what_without_backtrace());
  }
}

void World::Send(const at::Tensor& tensor, int64_t rank) {
  std::vector<at::Tensor> tensors = {tensor};
  c10d::resolve_process_group(Control().name)
      ->send(tensors, static_cast<int>(rank), /*tag=*/0)
      ->wait();
}

void World::Receive(at::Tensor& tensor, int64_t rank) {
  std::vector<at::Tensor> tensors = {tensor};
  c10d::resolve_process_group(Control().name)
      ->recv(tensors, static_cast<int>(rank), /*tag=*/0)
      ->wait();
}

}  // namespace gt
