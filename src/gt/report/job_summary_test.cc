#include "gt/report/job_summary.h"

#include <gtest/gtest.h>

namespace gt::job_summary_test {
namespace {

constexpr int64_t kGibi = int64_t{1} << 30;

// 8 ranks, 2 batches of 4 sequences of 1,000 tokens each: 64,000 tokens in 0.8 s.
JobSummary Job() {
  JobSummary job;
  job.peak = 60 * kGibi;
  job.available = 70 * kGibi;
  job.available_source = "of the device";
  job.time = {.step_us = 350e3, .exposed_us = 70e3, .update_us = 100e3};
  job.ranks = 8;
  job.batches = 2;
  job.sequences = 64;
  job.sequence_length = 1000;
  job.flops_per_token = 2e9;
  job.peak_flops = 100e12;
  return job;
}

void ExpectRow(const JobSummary& job, const std::string& row) {
  const std::string text = SummaryText(job);
  EXPECT_NE(text.find("\n  " + row + "\n"), std::string::npos) << row << "\n" << text;
}

TEST(JobSummary, SaysWhatAJobTakes) {
  JobSummary job = Job();
  ExpectRow(job, "fits               yes: 60.00 GiB of 70.00 GiB (of the device)");
  ExpectRow(job, "global batch       64 sequences, 64,000 tokens");
  ExpectRow(job, "step               350.0 ms for each of 2 batches, update 100.0 ms");
  ExpectRow(job, "tokens/s           80,000, 10,000 per GPU");
  ExpectRow(job, "MFU                20.0 %");  // 160 of 800 TFLOP/s
  ExpectRow(job, "exposed            70.0 ms of communication, 20.0 % of the step");
  EXPECT_EQ(SummaryText(job).find("to train"), std::string::npos);
  job.tokens = 80'000LL * 3600 * 36;
  ExpectRow(job, "to train           10,368,000,000 tokens: 1.5 days, 288 GPU hours");
}

TEST(JobSummary, SaysWhetherItFits) {
  JobSummary job = Job();
  job.recorded_peak = 65 * kGibi;
  ExpectRow(job,
            "fits               yes: 60.00 GiB of 70.00 GiB (of the device), with CUDA graphs it "
            "needs 65.00 GiB");
  job.recorded_peak = 75 * kGibi;
  EXPECT_TRUE(job.fits());
  ExpectRow(job,
            "fits               yes, without CUDA graphs: 60.00 GiB of 70.00 GiB (of the device); "
            "with CUDA graphs it would need 75.00 GiB");
  job.available = 50 * kGibi;
  job.cure = "  a cure\n";
  EXPECT_FALSE(job.fits());
  ExpectRow(job,
            "fits               no: it needs 60.00 GiB, with CUDA graphs it needs 75.00 GiB, and a "
            "rank may use 50.00 GiB (of the device)");
  EXPECT_TRUE(SummaryText(job).ends_with("\n  a cure\n"));
  job.available = 0;
  job.recorded_peak.reset();
  EXPECT_TRUE(job.fits());
  ExpectRow(job, "memory             60.00 GiB; the device's memory is not known");
}

// No figure is made up: not of a step without an estimate, nor of a graph without a model.
TEST(JobSummary, SaysWhatIsNotKnown) {
  JobSummary job = Job();
  job.sequences = 0;
  ExpectRow(job, "step               350.0 ms for each of 2 batches, update 100.0 ms");
  EXPECT_EQ(SummaryText(job).find("tokens"), std::string::npos);
  job = Job();
  job.peak_flops = 0;
  EXPECT_EQ(SummaryText(job).find("MFU"), std::string::npos);
  job.tokens = 1000;
  job.time.reset();
  ExpectRow(job,
            "speed              no estimate: what these CPUs and their links do was not measured");
  for (const char* row : {"step  ", "tokens/s", "to train", "exposed"}) {
    EXPECT_EQ(SummaryText(job).find(row), std::string::npos) << row;
  }
}

}  // namespace
}  // namespace gt::job_summary_test
