#include "gt/report/job_summary.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "gt/base/byte_text.h"
#include "gt/base/text.h"

namespace gt {
namespace {

std::string Count(double number) { return WithThousands(std::llround(number)); }

std::string Row(std::string_view name, const std::string& value) {
  return fmt::format("  {:<18} {}\n", name, value);
}

// "84.07 GiB, but a rank may use 73.60 GiB (92 % of 80 GiB of an H100)".
std::string MemoryRows(const JobSummary& summary) {
  const std::string source =
      summary.available_source.empty() ? "" : fmt::format(" ({})", summary.available_source);
  const std::string room = ByteText(summary.available) + source;
  const auto with_graphs = [&](std::string_view verb) {
    return fmt::format("with CUDA graphs {} {}", verb, ByteText(*summary.recorded_peak));
  };
  if (summary.available == 0) {
    std::string needs = ByteText(summary.peak);
    if (summary.recorded_peak) needs += ", " + with_graphs("it needs");
    return Row("memory", needs + "; the device's memory is not known");
  }
  if (!summary.fits()) {
    std::string needs = ByteText(summary.peak);
    if (summary.recorded_peak) needs += ", " + with_graphs("it needs");
    return Row("fits", fmt::format("no: it needs {}, and a rank may use {}", needs, room));
  }
  if (!summary.recorded_peak) {
    return Row("fits", fmt::format("yes: {} of {}", ByteText(summary.peak), room));
  }
  if (*summary.recorded_peak > summary.available) {
    return Row("fits", fmt::format("yes, without CUDA graphs: {} of {}; {}", ByteText(summary.peak),
                                   room, with_graphs("it would need")));
  }
  return Row("fits", fmt::format("yes: {} of {}, {}", ByteText(summary.peak), room,
                                 with_graphs("it needs")));
}

std::string TrainingTime(const JobSummary& summary, double tokens_per_second) {
  constexpr double kHour = 3600, kDay = 24 * kHour;
  const double seconds = static_cast<double>(summary.tokens) / tokens_per_second;
  const double device_hours = seconds / kHour * static_cast<double>(summary.ranks);
  const std::string length = seconds >= kDay ? fmt::format("{:.1f} days", seconds / kDay)
                                             : fmt::format("{:.1f} hours", seconds / kHour);
  return Row("to train",
             fmt::format("{} tokens: {}, {} {} hours", Count(static_cast<double>(summary.tokens)),
                         length, Count(device_hours), summary.device));
}

std::string SpeedRows(const JobSummary& summary) {
  if (!summary.time) {
    return Row("speed", "no estimate: what these CPUs and their links do was not measured");
  }
  const JobSummary::Time& time = *summary.time;
  std::string step = fmt::format("{:.1f} ms", time.step_us / 1e3);
  if (summary.batches > 1) step += fmt::format(" for each of {} batches", summary.batches);
  if (time.update_us > 0) step += fmt::format(", update {:.1f} ms", time.update_us / 1e3);
  std::string text = Row("step", step);
  if (summary.sequences > 0) {
    const auto tokens = static_cast<double>(summary.sequences * summary.sequence_length);
    const double rate = tokens / summary.UpdateSeconds();
    const auto ranks = static_cast<double>(summary.ranks);
    std::string speed = Count(rate);
    if (summary.ranks > 1) speed += fmt::format(", {} per {}", Count(rate / ranks), summary.device);
    text += Row("tokens/s", speed);
    if (summary.peak_flops > 0) {
      const double mfu = rate * summary.flops_per_token / (ranks * summary.peak_flops);
      text += Row("MFU", fmt::format("{:.1f} %", 100 * mfu));
    }
    if (summary.tokens > 0) text += TrainingTime(summary, rate);
  }
  if (summary.ranks > 1) {
    text +=
        Row("exposed", fmt::format("{:.1f} ms of communication, {:.1f} % of the step",
                                   time.exposed_us / 1e3, 100 * time.exposed_us / time.step_us));
  }
  return text;
}

}  // namespace

std::string SummaryText(const JobSummary& summary) {
  std::string text = "summary\n" + MemoryRows(summary);
  if (summary.sequences > 0) {
    text +=
        Row("global batch",
            fmt::format("{} sequences, {} tokens", Count(static_cast<double>(summary.sequences)),
                        Count(static_cast<double>(summary.sequences * summary.sequence_length))));
  }
  text += SpeedRows(summary);
  return summary.fits() ? text : text + summary.cure;
}

}  // namespace gt
