#include "gt/train/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/base/json_text.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/report/progress_bar.h"
#include "gt/storage/file_writer.h"

namespace gt {

namespace {

// The step of a line; nothing: the line is torn, or not gt's.
std::optional<int64_t> StepOfLine(const std::string& line) {
  const std::optional<nlohmann::json> entry = ParseJsonIfGood(line);
  if (!entry || !entry->is_object()) return std::nullopt;
  const auto step = entry->find("step");
  if (step == entry->end() || !step->is_number_integer()) return std::nullopt;
  return step->get<int64_t>();
}

// The lines that belong to steps up to `steps`. A line that a crash cut short costs no other line, and of
// a step that was repeated the last line counts.
std::string LinesUpTo(const std::string& path, int64_t steps) {
  std::ifstream file(path);
  std::vector<std::pair<int64_t, std::string>> kept;
  int64_t torn = 0;
  for (std::string line; std::getline(file, line);) {
    const std::optional<int64_t> step = StepOfLine(line);
    if (!step) ++torn;
    if (!step || *step > steps) continue;
    while (!kept.empty() && kept.back().first >= *step) kept.pop_back();
    kept.emplace_back(*step, std::move(line));
  }
  if (torn > 0) log::Warn("{}: {} cannot be read and left out", path, Counted(torn, "line"));
  std::string text;
  for (const auto& [step, line] : kept) text += line + "\n";
  return text;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& folder, int64_t steps_done) {
  CreateFolders(folder);
  path_ = (std::filesystem::path(folder) / "metrics.jsonl").string();
  WriteFile(path_, steps_done > 0 ? LinesUpTo(path_, steps_done) : "");
  file_.open(path_, std::ios::app);
  if (!file_) FailWriting(path_, "cannot be opened");
}

void MetricsFile::Write(const StepMetrics& m) {
  // JSON has no word for numbers that are not finite.
  auto number = [](double value) {
    return std::isfinite(value) ? fmt::format("{:.17g}", value) : std::string("null");
  };
  file_ << fmt::format(
      "{{\"step\": {}, \"loss\": {}, \"grad_norm\": {}, \"lr\": {}, \"tokens\": {}, "
      "\"tokens_per_second\": {}, \"mfu\": {}, \"memory\": {}, \"data_wait\": {:.6f}, "
      "\"seconds\": {:.6f}",
      m.step, number(m.loss), number(m.grad_norm), number(m.learning_rate), m.tokens,
      number(m.tokens_per_second), m.mfu < 0 ? "null" : number(m.mfu), m.memory_bytes, m.data_wait,
      m.seconds);
  if (m.epoch >= 0) file_ << fmt::format(", \"epoch\": {}", number(m.epoch));
  if (m.validation_loss) {
    file_ << fmt::format(", \"validation_loss\": {}", number(*m.validation_loss));
  }
  if (m.load_imbalance) {
    file_ << fmt::format(", \"load_imbalance\": {}", number(*m.load_imbalance));
  }
  if (m.hashes) {
    file_ << fmt::format(
        ", \"gradient_hash\": \"{:016x}\", \"parameter_hash\": \"{:016x}\", "
        "\"buffer_hash\": \"{:016x}\"",
        m.hashes->gradients, m.hashes->parameters, m.hashes->buffers);
    if (m.hashes->experts) {
      file_ << fmt::format(", \"expert_hash\": \"{:016x}\"", *m.hashes->experts);
    }
  }
  file_ << "}\n";
  file_.flush();
  if (!file_) {
    Fail(ErrorCode::kCannotWrite,
         "writing '{}' failed; is the disk full? Steps up to {} are in the file", path_,
         m.step - 1);
  }
}

std::string FormatCount(double count) {
  std::string digits = fmt::format("{:.0f}", count);
  size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

namespace {

// "8.1 ms", "0.21 s", "12.3 s"
std::string SecondsText(double seconds) {
  if (seconds < 0.1) return fmt::format("{:.1f} ms", 1e3 * seconds);
  return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 2 : 1);
}

}  // namespace

std::string ProgressLine(const StepMetrics& m, int64_t total_steps) {
  size_t width = std::to_string(total_steps).size();
  std::string line = fmt::format(
      "step {:>{}}/{}  {}loss {:<8.5f} grad {:<8.4f} lr {:.2e}  {}  {:>7} tok/s", m.step, width,
      total_steps, m.epoch < 0 ? "" : fmt::format("epoch {:.2f}  ", m.epoch), m.loss, m.grad_norm,
      m.learning_rate, SecondsText(m.seconds), FormatCount(m.tokens_per_second));
  if (m.mfu >= 0) line += fmt::format("  mfu {:.1f}%", m.mfu);
  line += fmt::format("  {}", ByteText(m.memory_bytes));
  line += fmt::format("  data {:.0f} ms", m.data_wait * 1e3);
  if (m.validation_loss) line += fmt::format("  validation {:.5f}", *m.validation_loss);
  return line + fmt::format("  eta {}", DurationText(m.eta_seconds));
}

}  // namespace gt
