// The models by name: families and their flavors.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gt/nn/module.h"

namespace gt {

// What the trainer needs to know of a model.
class LanguageModel : public nn::Module {
 public:
  explicit LanguageModel(std::source_location where = std::source_location::current())
      : nn::Module(where) {}
  // tokens: [batch, length], int64 -> logits [batch, length, vocab]
  virtual at::Tensor forward(const at::Tensor& tokens) = 0;
  virtual int64_t vocab_size() const = 0;
  // Floating-point operations of forward and backward for one token at this sequence length,
  // recomputation not counted.
  virtual int64_t FlopsPerToken(int64_t length) const = 0;
};

// Built without data. `max_length` is the longest sequence it must handle. Unknown names are errors
// that suggest the nearest.
std::shared_ptr<LanguageModel> BuildModel(const std::string& name, const std::string& flavor,
                                          int64_t max_length);

std::vector<std::string> ModelNames();
std::vector<std::string> FlavorNames(const std::string& model);

}  // namespace gt
