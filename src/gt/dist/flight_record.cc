#include "gt/dist/flight_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/storage/file_writer.h"

namespace gt {

using Clock = std::chrono::steady_clock;

std::string CollectiveRecord::Describe() const {
  return fmt::format("collective {} ({} on '{}'{}{})", number, kind.str(), group.str(),
                     module.empty() ? "" : ", ", module.str());
}

FlightRecord::FlightRecord(int64_t capacity)
    : records_(static_cast<size_t>(std::max<int64_t>(capacity, 1))) {}

int64_t FlightRecord::Begin(Name kind, Name group, Name module, int64_t bytes) {
  std::lock_guard lock(mutex_);
  ++last_;
  At(last_) = {last_, kind, group, module, bytes, Clock::now(), {}};
  return last_;
}

void FlightRecord::End(int64_t number) {
  std::lock_guard lock(mutex_);
  CollectiveRecord& record = At(number);
  if (record.number == number) record.done = Clock::now();
}

void FlightRecord::EndWhen(int64_t number, std::function<bool()> is_done) {
  std::lock_guard lock(mutex_);
  polled_.emplace_back(number, std::move(is_done));
}

void FlightRecord::Poll() {
  std::lock_guard lock(mutex_);
  std::erase_if(polled_, [this](const auto& entry) {
    if (!entry.second()) return false;
    CollectiveRecord& record = At(entry.first);
    if (record.number == entry.first) record.done = Clock::now();
    return true;
  });
}

CollectiveRecord FlightRecord::Last() const {
  std::lock_guard lock(mutex_);
  return last_ == 0 ? CollectiveRecord{} : records_[static_cast<size_t>(last_) % records_.size()];
}

std::optional<CollectiveRecord> FlightRecord::Find(int64_t number) const {
  std::lock_guard lock(mutex_);
  const CollectiveRecord& record = records_[static_cast<size_t>(number) % records_.size()];
  if (record.number != number) return std::nullopt;
  return record;
}

std::vector<CollectiveRecord> FlightRecord::Since(int64_t number) const {
  std::lock_guard lock(mutex_);
  auto capacity = static_cast<int64_t>(records_.size());
  std::vector<CollectiveRecord> found;
  for (int64_t i = std::max({number, int64_t{1}, last_ - capacity + 1}); i <= last_; ++i) {
    found.push_back(records_[static_cast<size_t>(i) % records_.size()]);
  }
  return found;
}

std::optional<CollectiveRecord> FlightRecord::OldestPolled() const {
  std::lock_guard lock(mutex_);
  for (const auto& [number, is_done] : polled_) {
    const CollectiveRecord& record = records_[static_cast<size_t>(number) % records_.size()];
    if (record.number == number) return record;
  }
  return std::nullopt;
}

void FlightRecord::Write(const std::string& path) const {
  std::vector<CollectiveRecord> records = Since(1);
  std::string text;
  auto now = Clock::now();
  auto ago = [now](Clock::time_point then) {
    return std::chrono::duration<double>(now - then).count();
  };
  for (const CollectiveRecord& record : records) {
    nlohmann::json line = {
        {"number", record.number},        {"kind", record.kind.str()},
        {"group", record.group.str()},    {"module", record.module.str()},
        {"bytes", record.bytes},          {"begun_seconds_ago", ago(record.begun)},
        {"done", record.done.has_value()}};
    if (record.done) line["done_seconds_ago"] = ago(*record.done);
    text += line.dump() + "\n";
  }
  try {
    CreateFolders(std::filesystem::path(path).parent_path());
    WriteFile(path, text);
  } catch (const Error& error) {
    log::Warn("the flight record is lost: {}", error.message());
  }
}

}  // namespace gt
