#include "gt/dist/watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "gt/base/json_text.h"
#include "gt/base/logging.h"
#include "gt/dist/store_text.h"
#include "gt/launch/limits.h"

namespace gt {
namespace {

using std::chrono::milliseconds;

constexpr const char* kAbortKey = "abort";
constexpr const char* kStoreGone =
    "rank 0, which holds the meeting point of the ranks: it has ended";
// Missed signs of life after which a rank counts as dead.
constexpr int kSilence = 3;
// For a rank that has learnt that the job failed to end by itself.
constexpr auto kGrace = std::chrono::seconds(5);

std::string SignKey(int64_t rank) { return fmt::format("sign/{}", rank); }

}  // namespace

std::string AbortText(int64_t rank, const Error& error) {
  nlohmann::json value = {
      {"rank", rank}, {"code", static_cast<int>(error.code())}, {"message", error.message()}};
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Error ErrorFromAbort(const std::string& text, int64_t rank) {
  nlohmann::json value = ParseJson(text);
  auto whose = value.at("rank").get<int64_t>();
  auto code = static_cast<ErrorCode>(value.at("code").get<int>());
  auto message = value.at("message").get<std::string>();
  // A lost rank is lost for everybody; other errors belong to the rank that met them.
  bool shared = code == ErrorCode::kRankLost || code == ErrorCode::kCannotConnect;
  if (whose == rank || shared) return Error(code, message);
  return Error(ErrorCode::kRankFailed,
               fmt::format("rank {} ended the job: {}: {}", whose, CodeName(code), message));
}

Watch::Watch(c10::intrusive_ptr<c10d::Store> store, FlightRecord& record,
             const WatchOptions& options)
    : store_(std::move(store)),
      record_(record),
      options_(options),
      // Often enough that a stopped rank shows soon, seldom enough for the store of a large job.
      interval_(
          std::clamp(milliseconds(options.world_size), milliseconds(200), milliseconds(5000))),
      last_resort_(kGrace + 4 * interval_, options.last_words) {
  thread_ = std::thread([this] { Run(); });
}

Watch::~Watch() {
  Stop();
  last_resort_.Disarm();
}

void Watch::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watch::Run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    try {
      LookAround();
    } catch (const std::exception&) {
      // Usually because the job is over. If it is not, the next collective tells.
      Error gone(ErrorCode::kRankLost, fmt::format("rank {} lost {}", options_.rank, kStoreGone));
      EndSoon(Aborted().value_or(gone));
      return;
    }
    lock.lock();
    wake_.wait_for(lock, interval_, [this] { return stop_; });
  }
}

void Watch::LookAround() {
  Publish();
  LookAtDevice();
  // The main thread usually finds out by itself, when its next collective fails.
  if (std::optional<Error> error = Aborted()) EndSoon(*error);
}

void Watch::EndSoon(const Error& reason) {
  if (options_.owns_process) last_resort_.Arm(reason);
}

void Watch::Publish() {
  record_.Poll();
  CollectiveRecord last = record_.Last();
  bool knows;
  {
    std::lock_guard lock(mutex_);
    knows = aborted_.has_value();
  }
  nlohmann::json sign = {{"beats", ++beats_},
                         {"number", last.number},
                         {"last", last.Describe()},
                         {"done", last.done.has_value()},
                         {"knows", knows}};
  store_->set(SignKey(options_.rank), ToBytes(sign.dump()));
}

// Collectives on a GPU never fail where they are waited for: the kernels after them do not run.
void Watch::LookAtDevice() {
  std::optional<CollectiveRecord> oldest = record_.OldestPolled();
  if (!oldest || std::chrono::steady_clock::now() - oldest->begun < options_.timeout) return;
  Error error = Explain(*oldest, "it did not complete on the device in time");
  Abort(error);
  options_.last_words(error);
  if (options_.rank == 0) AwaitOthers();
  EndProcess(error);
}

void Watch::Abort(const Error& error) {
  EndSoon(error);
  {
    std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = error;
  }
  try {
    store_->compareSet(kAbortKey, {}, ToBytes(AbortText(options_.rank, error)));
  } catch (const std::exception& problem) {
    log::Debug("rank {}: the other ranks could not be told: {}", options_.rank, problem.what());
  }
}

std::optional<Error> Watch::Aborted() {
  {
    std::lock_guard lock(mutex_);
    if (aborted_) return aborted_;
  }
  try {
    if (!store_->check({kAbortKey})) return std::nullopt;
    Error error = ErrorFromAbort(ToText(store_->get(kAbortKey)), options_.rank);
    std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = error;
    return aborted_;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void Watch::Leave() {
  Stop();
  try {
    Publish();
    if (options_.rank == 0) AwaitOthers();
  } catch (const std::exception& problem) {
    log::Debug("rank {}: the store of the ranks is gone: {}", options_.rank, problem.what());
  }
  last_resort_.Disarm();
}

// Until each has read why the job ends, or gives no sign of life any more.
void Watch::AwaitOthers() {
  auto count = static_cast<size_t>(options_.world_size);
  std::vector<int64_t> beats(count, -1), silent(count, 0);
  for (int round = 0; round < 10; ++round) {
    bool all = true;
    for (size_t i = 0; i < count; ++i) {
      std::optional<Sign> sign = Read(static_cast<int64_t>(i));
      if (static_cast<int64_t>(i) == options_.rank || !sign || sign->knows) continue;
      silent[i] = sign->beats == beats[i] ? silent[i] + 1 : 0;
      beats[i] = sign->beats;
      if (silent[i] < kSilence) all = false;
    }
    if (all) return;
    std::this_thread::sleep_for(interval_);
  }
}

std::optional<Watch::Sign> Watch::Read(int64_t rank) {
  if (!store_->check({SignKey(rank)})) return std::nullopt;
  nlohmann::json sign = ParseJson(ToText(store_->get(SignKey(rank))));
  return Sign{sign.at("beats").get<int64_t>(), sign.at("number").get<int64_t>(),
              sign.at("last").get<std::string>(), sign.at("done").get<bool>(),
              sign.at("knows").get<bool>()};
}

int64_t Watch::BeatsOf(int64_t rank) {
  std::optional<Sign> sign = Read(rank);
  return sign ? sign->beats : 0;
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
    std::this_thread::sleep_for(kSilence * interval_);
    if (std::optional<Error> first = Aborted()) return *first;
    after = ReadAll();
  } catch (const std::exception& problem) {
    return Error(ErrorCode::kRankLost,
                 fmt::format("{} and lost {}. The backend says: {}", mine, kStoreGone, what));
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
  if (SaysTooManyFiles(what)) {
    return Error(
        ErrorCode::kCollectiveFailed,
        fmt::format("{}, and this process may not open as many connections; raise the limit "
                    "on open files (ulimit -n) or use fewer ranks. The backend says: {}",
                    mine, what));
  }
  return Error(ErrorCode::kCollectiveFailed,
               fmt::format("{}, which failed on a rank that all others have caught up with: their "
                           "sizes or types disagree, or the network failed. The backend says: {}",
                           mine, what));
}

void Watch::FailCollective(const CollectiveRecord& failed, const std::string& what) {
  // Asking the others takes a store that answers; its process may have been stopped.
  EndSoon(
      Error(ErrorCode::kRankLost,
            fmt::format("rank {} waited in {}, and rank 0, which holds the meeting point of the "
                        "ranks, does not answer. The backend says: {}",
                        options_.rank, failed.Describe(), what)));
  std::optional<Error> first = Aborted();
  Error error = first ? *first : Explain(failed, what);
  Abort(error);
  throw error;
}

}  // namespace gt
