// The last lines of a command that plans a job: whether it fits, how fast it is, what it costs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gt {

struct JobSummary {
  // Bytes that a rank needs at its peak.
  int64_t peak = 0;
  std::optional<int64_t> recorded_peak;  // the same with CUDA graphs, if the job uses them
  int64_t available = 0;                 // bytes that a rank may use; 0: not known
  std::string available_source;          // "92 % of 80 GiB of an H100"
  std::string cure;                      // of a step that does not fit: lines of advice

  struct Time {
    double step_us = 0;     // forward and backward of one batch
    double exposed_us = 0;  // of it: communication that compute does not hide
    double update_us = 0;   // of the optimizer
  };
  std::optional<Time> time;    // nothing: there is no estimate
  std::string device = "GPU";  // what a rank runs on, in "tokens/s per GPU"
  int64_t ranks = 1;
  int64_t batches = 1;    // whose gradients are added up before an update
  int64_t sequences = 0;  // of one update over all ranks; 0: the model is not known
  int64_t sequence_length = 0;
  double flops_per_token = 0;
  double peak_flops = 0;  // of one device, as sold; 0: not known
  int64_t tokens = 0;     // to train on in all; 0: not said

  bool fits() const { return available == 0 || peak <= available; }
  // Of one optimizer step. Needs an estimate.
  double UpdateSeconds() const {
    return (static_cast<double>(batches) * time->step_us + time->update_us) / 1e6;
  }
};

// A line for each question, and the advice where the step does not fit. Ends in a newline.
std::string SummaryText(const JobSummary& summary);

}  // namespace gt
