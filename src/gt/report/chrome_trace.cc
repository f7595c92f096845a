#include "gt/report/chrome_trace.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace gt {
namespace {

std::string Dump(const nlohmann::json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

// In microseconds, with nanoseconds after the decimal point. JSON has no infinity or NaN.
std::string Time(double us) { return fmt::format("{:.3f}", std::isfinite(us) ? us : 0.0); }

std::string Number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "0"; }

}  // namespace

std::string JsonString(std::string_view text) { return Dump(nlohmann::json(std::string(text))); }

ChromeTrace::ChromeTrace(const std::filesystem::path& path) : file_(path) { file_.Write("[\n"); }

void ChromeTrace::Add(const TraceEvent& event) {
  const int process = ProcessId(event.process);
  const int lane = LaneId(process, event.lane);
  std::string line = fmt::format(
      R"({{"ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{},"dur":{})", JsonString(event.name),
      JsonString(event.category), process, lane, Time(event.start_us), Time(event.duration_us));
  if (event.args) line += ",\"args\":" + Dump(*event.args);
  WriteLine(line + "}");
}

void ChromeTrace::AddCounter(std::string_view name, std::string_view process, double time_us,
                             double value) {
  WriteLine(fmt::format(R"({{"ph":"C","name":{},"pid":{},"ts":{},"args":{{"value":{}}}}})",
                        JsonString(name), ProcessId(process), Time(time_us), Number(value)));
}

void ChromeTrace::Finish() {
  file_.Write("\n]\n");
  file_.Finish();
}

int ChromeTrace::ProcessId(std::string_view process) {
  if (const auto found = processes_.find(process); found != processes_.end()) return found->second;
  const int id = static_cast<int>(processes_.size()) + 1;
  processes_.emplace(process, id);
  WriteName("process", id, 0, process);
  return id;
}

int ChromeTrace::LaneId(int process, std::string_view lane) {
  const auto [place, is_new] = lanes_.try_emplace({process, std::string(lane)}, 0);
  if (is_new) {
    place->second = static_cast<int>(lanes_.size());
    WriteName("thread", process, place->second, lane);
  }
  return place->second;
}

// Viewers sort by name unless they are told an order.
void ChromeTrace::WriteName(std::string_view kind, int process, int lane, std::string_view name) {
  WriteLine(fmt::format(R"({{"ph":"M","name":"{}_name","pid":{},"tid":{},"args":{{"name":{}}}}})",
                        kind, process, lane, JsonString(name)));
  WriteLine(fmt::format(
      R"({{"ph":"M","name":"{}_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})", kind,
      process, lane, kind == "process" ? process : lane));
}

void ChromeTrace::WriteLine(std::string_view line) {
  if (!is_first_) file_.Write(",\n");
  is_first_ = false;
  file_.Write(line);
}

}  // namespace gt
