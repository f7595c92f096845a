#include "gt/dist/backend_crash.h"

#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "gt/dist/last_resort.h"

namespace gt {
namespace {

struct Reports {
  std::mutex mutex;
  std::vector<const std::function<Error(const std::string&)>*> all;
  std::terminate_handler before = nullptr;
};

Reports& TheReports() {
  static auto* reports = new Reports;  // threads of gloo may outlive main
  return *reports;
}

// What gloo said, if it is gloo that ends the program.
std::optional<std::string> WordsOfGloo() {
  try {
    if (std::exception_ptr current = std::current_exception()) std::rethrow_exception(current);
  } catch (const std::exception& error) {
    std::string what = error.what();
    if (what.find("gloo/") != std::string::npos) return what;
  } catch (...) {
  }
  return std::nullopt;
}

[[noreturn]] void OnTerminate() {
  Reports& reports = TheReports();
  if (std::optional<std::string> what = WordsOfGloo()) {
    std::lock_guard lock(reports.mutex);
    std::optional<Error> first;
    for (const auto* report : reports.all) {
      Error error = (*report)(*what);
      if (!first) first = error;
    }
    if (first) EndProcess(*first);
  }
  if (reports.before != nullptr) reports.before();
  std::abort();
}

}  // namespace

BackendCrash::BackendCrash(std::function<Error(const std::string&)> report)
    : report_(std::move(report)) {
  Reports& reports = TheReports();
  std::lock_guard lock(reports.mutex);
  if (reports.before == nullptr) reports.before = std::set_terminate(OnTerminate);
  reports.all.push_back(&report_);
}

BackendCrash::~BackendCrash() {
  Reports& reports = TheReports();
  std::lock_guard lock(reports.mutex);
  std::erase(reports.all, &report_);
}

}  // namespace gt
