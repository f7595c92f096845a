// Timelines in Chrome's trace event format, which ui.perfetto.dev and chrome://tracing open.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "gt/storage/file_writer.h"

namespace gt {

// Something that took time. Events of one lane nest: the one that begins later ends earlier.
struct TraceEvent {
  std::string_view name = {};      // what is written on the bar: an operator
  std::string_view category = {};  // forward, backward, optimizer; the viewers filter by it
  std::string_view process = {};   // groups lanes: "rank 0"
  std::string_view lane = {};      // a row of the picture: "host", "gpu stream 7"
  double start_us = 0;
  double duration_us = 0;
  const nlohmann::json* args = nullptr;  // an object; shown when the bar is clicked
};

// Streams to the disk, so a trace may be larger than memory. The file appears with Finish(); until
// then an older file of that name is kept.
class ChromeTrace {
 public:
  explicit ChromeTrace(const std::filesystem::path& path);
  ChromeTrace(const ChromeTrace&) = delete;
  ChromeTrace& operator=(const ChromeTrace&) = delete;

  // Processes and lanes are shown in order of first appearance.
  void Add(const TraceEvent& event);

  // A value over time, drawn as a curve above the lanes of `process`.
  void AddCounter(std::string_view name, std::string_view process, double time_us, double value);

  void Finish();

 private:
  int ProcessId(std::string_view process);
  int LaneId(int process, std::string_view lane);
  void WriteName(std::string_view kind, int process, int lane, std::string_view name);
  void WriteLine(std::string_view line);

  FileWriter file_;
  bool is_first_ = true;
  std::map<std::string, int, std::less<>> processes_;
  std::map<std::pair<int, std::string>, int> lanes_;
};

// `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
std::string JsonString(std::string_view text);

}  // namespace gt
