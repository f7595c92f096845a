#include "gt/dist/watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "gt/base/logging.h"

namespace gt {
namespace {

using std::chrono::milliseconds;

constexpr const char* kAbortKey = "abort";

std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string Text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::string SignKey(int64_t rank) { return fmt::format("sign/{}", rank); }

}  // namespace

Watch::Watch(c10::intrusive_ptr<c10d::Store> store, FlightRecord& record,
             const WatchOptions& options)
    : store_(std::move(store)),
      record_(record),
      options_(options),
      // Often enough that a stopped rank shows soon, seldom enough for the store of a large job.
      interval_(std::clamp(milliseconds(options.world_size), milliseconds(200),
                           milliseconds(5000))) {
  thread_ = std::thread([this] { Run(); });
}

Watch::~Watch() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watch::Run() {
  std::unique_lock lock(mutex_);
  std::optional<std::chrono::steady_clock::time_point> deadline;
  while (!stop_) {
    lock.unlock();
    try {
      Publish();
      LookAtDevice();
      if (options_.owns_process && !deadline && store_->check({kAbortKey})) {
        // The main thread usually finds out by itself, when its next collective fails.
        deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      }
    } catch (const std::exception&) {
      // The store is gone: its rank has ended, or the job is over. Collectives will tell which.
    }
    if (deadline && std::chrono::steady_clock::now() > *deadline) {
      std::optional<Error> error = Aborted();
      fmt::print(stderr, "gt: rank {}: {}\n", options_.rank, error ? error->what() : "aborted");
      std::fflush(stderr);
      _exit(1);
    }
    lock.lock();
    wake_.wait_for(lock, interval_, [this] { return stop_; });
  }
}

void Watch::Publish() {
  record_.Poll();
  CollectiveRecord last = record_.Last();
  nlohmann::json sign = {{"beats", ++beats_},
                         {"number", last.number},
                         {"last", last.Describe()},
                         {"done", last.done.has_value()}};
  store_->set(SignKey(options_.rank), Bytes(sign.dump()));
}

// Collectives on a GPU never fail where they are waited for: the kernels behind them just do not run.
void Watch::LookAtDevice() {
  std::optional<CollectiveRecord> oldest = record_.OldestPolled();
  if (!oldest || std::chrono::steady_clock::now() - oldest->begun < options_.timeout) return;
  Error error = Explain(*oldest, "it did not complete on the device in time");
  Abort(error);
  fmt::print(stderr, "gt: rank {}: {}\n", options_.rank, error.what());
  std::fflush(stderr);
  _exit(1);
}

void Watch::Abort(const Error& error) {
  try {
    nlohmann::json value = {{"rank", options_.rank},
                            {"code", static_cast<int>(error.code())},
                            {"message", error.message()}};
    store_->compareSet(kAbortKey, {}, Bytes(value.dump()));
  } catch (const std::exception& problem) {
    log::Debug("rank {}: the other ranks could not be told: {}", options_.rank, problem.what());
  }
}

std::optional<Error> Watch::Aborted() {
  try {
    if (!store_->check({kAbortKey})) return std::nullopt;
    nlohmann::json value = nlohmann::json::parse(Text(store_->get(kAbortKey)));
    auto rank = value.at("rank").get<int64_t>();
    auto code = static_cast<ErrorCode>(value.at("code").get<int>());
    auto message = value.at("message").get<std::string>();
    if (rank == options_.rank) return Error(code, message);
    // A lost rank is lost for everybody; other errors belong to the rank that met them.
    if (code == ErrorCode::kRankLost) return Error(code, message);
    return Error(ErrorCode::kRankFailed,
                 fmt::format("rank {} ended the job: {}: {}", rank, CodeName(code), message));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::optional<Watch::Sign> Watch::Read(int64_t rank) {
  if (!store_->check({SignKey(rank)})) return std::nullopt;
  nlohmann::json sign = nlohmann::json::parse(Text(store_->get(SignKey(rank))));
  return Sign{sign.at("beats").get<int64_t>(), sign.at("number").get<int64_t>(),
              sign.at("last").get<std::string>(), sign.at("done").get<bool>()};
}

std::vector<std::optional<Watch::Sign>> Watch::ReadAll() {
  std::vector<std::optional<Sign>> signs;
  for (int64_t rank = 0; rank < options_.world_size; ++rank) signs.push_back(Read(rank));
  return signs;
}

Error Watch::Explain(const CollectiveRecord& failed, const std::string& what) {
  std::string mine = fmt::format("rank {} waited in {}", options_.rank, failed.Describe());
  std::vector<std::optional<Sign>> before, after;
  try {
    before = ReadAll();
    std::this_thread::sleep_for(3 * interval_);
    if (std::optional<Error> first = Aborted()) return *first;
    after = ReadAll();
  } catch (const std::exception& problem) {
    return Error(ErrorCode::kRankLost,
                 fmt::format("{}, and rank 0, which holds the meeting point of the ranks, cannot be "
                             "reached any more: it has ended ({})",
                             mine, what));
  }
  std::vector<std::string> silent, behind;
  for (int64_t rank = 0; rank < options_.world_size; ++rank) {
    const auto &was = before[static_cast<size_t>(rank)], &is = after[static_cast<size_t>(rank)];
    if (rank == options_.rank || !is) continue;
    std::string last = is->number == 0
                           ? "before its first collective"
                           : fmt::format("the last it began was {}, {}", is->last,
                                         is->done ? "which is done" : "which is not done");
    std::string line = fmt::format("rank {} ({})", rank, last);
    if (was && was->beats == is->beats) {
      silent.push_back(line);
    } else if (is->number < failed.number) {
      behind.push_back(line);
    }
  }
  if (!silent.empty()) {
    return Error(ErrorCode::kRankLost,
                 fmt::format("{} and lost {}: no sign of life any more. The backend says: {}", mine,
                             fmt::join(silent, ", "), what));
  }
  if (!behind.empty()) {
    return Error(
        ErrorCode::kRankLost,
        fmt::format("{} for {}, which is alive but has not come that far. The backend says: {}",
                    mine, fmt::join(behind, ", "), what));
  }
  return Error(ErrorCode::kCollectiveFailed,
               fmt::format("{}, which failed on a rank that all others have caught up with: their "
                           "sizes or types disagree, or the network failed. The backend says: {}",
                           mine, what));
}

void Watch::FailCollective(const CollectiveRecord& failed, const std::string& what) {
  std::optional<Error> first = Aborted();
  Error error = first ? *first : Explain(failed, what);
  Abort(error);
  throw error;
}

}  // namespace gt
