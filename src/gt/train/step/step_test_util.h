// Comparing the results of train steps bit by bit, for tests.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cstring>

#include "gt/job/config.h"
#include "gt/models/model.h"
#include "gt/train/step/batch.h"
#include "gt/train/step/step.h"

namespace gt {

inline bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  at::Tensor x = a.contiguous(), y = b.contiguous();
  return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

// Sequences of random tokens, each one document.
inline Batch RandomBatch(const Config& config, int64_t vocab) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  int64_t rows = config.training.local_batch_size, length = config.training.seq_len;
  at::Tensor numbers = at::randint(vocab, {rows, length + 1}, generator, at::kLong);
  Batch batch;
  batch.tokens = numbers.narrow(1, 0, length).contiguous();
  batch.labels = numbers.narrow(1, 1, length).contiguous();
  batch.positions = at::arange(length, at::kLong).expand({rows, length}).contiguous();
  batch.valid_tokens = rows * length;
  return batch;
}

// Every parameter must have a gradient.
inline void ExpectSameBits(const StepResult& expected, const StepResult& actual,
                           LanguageModel& model) {
  EXPECT_TRUE(SameBits(expected.loss, actual.loss))
      << expected.loss.item<double>() << " against " << actual.loss.item<double>();
  ASSERT_EQ(expected.gradients.size(), actual.gradients.size());
  auto names = model.named_parameters().keys();
  for (size_t i = 0; i < names.size(); ++i) {
    ASSERT_TRUE(expected.gradients[i].defined()) << names[i];
    EXPECT_TRUE(SameBits(expected.gradients[i], actual.gradients[i])) << names[i];
  }
}

}  // namespace gt
