#include "gt/testing/interpreter.h"

#include <algorithm>

#include "gt/analysis/aliasing.h"
#include "gt/base/error.h"

namespace gt::testing {
namespace {

std::vector<int64_t> Numbers(const Shape& shape) {
  std::vector<int64_t> numbers;
  for (const Dim& dim : shape) {
    GT_CHECK(dim.is_const(), "the interpreter needs sizes that are numbers");
    numbers.push_back(*dim.as_const());
  }
  return numbers;
}

size_t DimArg(const Node& node, int32_t arg) {
  return static_cast<size_t>(*std::get<Dim>(node.arg(arg)).as_const());
}

bool HandsThrough(const Node& node) {
  return node.op().is_view() || node.op().aliasing == Aliasing::kAlways;
}

}  // namespace

int64_t Interpreter::Tensor::numel() const {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return count;
}

double& Interpreter::Tensor::at(int64_t i) const {
  int64_t position = offset;
  for (size_t d = sizes.size(); d-- > 0; i /= sizes[d]) position += i % sizes[d] * strides[d];
  return (*storage)[static_cast<size_t>(position)];
}

double& Interpreter::Tensor::Broadcast(int64_t i, const std::vector<int64_t>& to) const {
  int64_t position = offset;
  const size_t added = to.size() - sizes.size();
  for (size_t d = to.size(); d-- > 0; i /= to[d]) {
    if (d >= added && sizes[d - added] != 1) position += i % to[d] * strides[d - added];
  }
  return (*storage)[static_cast<size_t>(position)];
}

Interpreter::Interpreter(const Graph& graph, int ranks) : ranks_(static_cast<size_t>(ranks)) {
  for (const auto& input : graph.inputs()) {
    OfRanks& tensors = values_[&input->value];
    for (size_t rank = 0; rank < ranks_; ++rank) {
      tensors.push_back(Fresh(input->value.type()));
      for (int64_t i = 0; i < tensors.back().numel(); ++i) tensors.back().at(i) = Draw();
    }
    inputs_.push_back(tensors);
  }
  for (const Node* node : graph.nodes()) Run(*node);
  for (const auto& output : graph.outputs()) outputs_.push_back(values_.at(output->value()));
}

std::vector<std::vector<std::vector<double>>> Interpreter::Outputs() const {
  std::vector<std::vector<std::vector<double>>> all;
  for (const OfRanks& output : outputs_) {
    all.emplace_back();
    for (const Tensor& tensor : output) {
      all.back().emplace_back();
      for (int64_t i = 0; i < tensor.numel(); ++i) all.back().back().push_back(tensor.at(i));
    }
  }
  return all;
}

std::vector<bool> Interpreter::Sharing() const {
  std::vector<bool> sharing;
  for (const OfRanks& a : outputs_) {
    for (const OfRanks& b : outputs_) sharing.push_back(a[0].storage == b[0].storage);
    for (const OfRanks& b : inputs_) sharing.push_back(a[0].storage == b[0].storage);
  }
  return sharing;
}

Interpreter::Tensor Interpreter::Fresh(const TensorType& type) {
  Tensor tensor{nullptr, 0, Numbers(type.sizes), Numbers(type.strides)};
  int64_t length = 1;
  for (size_t d = 0; d < tensor.sizes.size(); ++d) {
    length += std::max<int64_t>(tensor.sizes[d] - 1, 0) * tensor.strides[d];
  }
  tensor.storage = std::make_shared<std::vector<double>>(static_cast<size_t>(length));
  return tensor;
}

double Interpreter::Draw() {
  return static_cast<double>(std::uniform_int_distribution<int>(-8, 8)(generator_)) / 8;
}

void Interpreter::Run(const Node& node) {
  const std::string& op = node.op().name.str();
  if (const Graph* body = FusedBody(node)) {
    for (const auto& input : body->inputs()) {
      values_[&input->value] = values_.at(node.operand(input->value.index()));
    }
    for (const Node* inner : body->nodes()) Run(*inner);
    for (int32_t i = 0; i < node.result_count(); ++i) {
      values_[node.result(i)] = values_.at(body->outputs()[static_cast<size_t>(i)]->value());
    }
    return;
  }
  if (const Value* viewed = HandsThrough(node) ? ViewedValue(*node.result()) : nullptr) {
    return View(node, *viewed);
  }
  if (node.op().collective != Collective::kNone) return Communicate(node);
  for (size_t rank = 0; rank < ranks_; ++rank) {
    if (op == "aten::split_with_sizes_copy") {
      Split(node, rank);
      continue;
    }
    Tensor result = Fresh(node.result()->type());
    if (op == "aten::cat") {
      Cat(node, rank, result);
    } else if (op == "aten::constant_pad_nd") {
      Pad(node, rank, result);
    } else {
      for (int64_t i = 0; i < result.numel(); ++i) {
        result.at(i) = Element(node, op, rank, result, i);
      }
    }
    values_[node.result()].push_back(std::move(result));
  }
}

void Interpreter::View(const Node& node, const Value& viewed) {
  for (int32_t i = 0; i < node.result_count(); ++i) {
    const TensorType& type = node.result(i)->type();
    const auto offsets = node.view_offsets();
    const Dim offset = offsets.empty() ? Dim(0) : offsets[static_cast<size_t>(i)];
    for (const Tensor& whole : values_.at(&viewed)) {
      values_[node.result(i)].push_back({whole.storage, whole.offset + *offset.as_const(),
                                         Numbers(type.sizes), Numbers(type.strides)});
    }
  }
}

void Interpreter::Communicate(const Node& node) {
  const OfRanks& in = In(node);
  const int64_t count = in[0].numel();
  OfRanks& out = values_[node.result()];
  for (size_t rank = 0; rank < ranks_; ++rank) {
    out.push_back(Fresh(node.result()->type()));
    const Tensor& result = out.back();
    auto sum = [&](int64_t i) {
      double total = 0;
      for (const Tensor& part : in) total += part.at(i);
      return total;
    };
    switch (node.op().collective) {
      case Collective::kAllGather:
        for (int64_t i = 0; i < result.numel(); ++i) {
          result.at(i) = in[static_cast<size_t>(i / count)].at(i % count);
        }
        break;
      case Collective::kAllReduce:
        for (int64_t i = 0; i < count; ++i) result.at(i) = sum(i);
        break;
      case Collective::kReduceScatter:
        for (int64_t i = 0; i < result.numel(); ++i) {
          result.at(i) = sum(static_cast<int64_t>(rank) * result.numel() + i);
        }
        break;
      default:
        Fail(ErrorCode::kMalformedCheck, "the interpreter does not know {}", node.op().name.str());
    }
  }
}

// A result's element at (outer, inner) is the operand's at (outer, offset + inner).
void Interpreter::Split(const Node& node, size_t rank) {
  const Tensor& in = In(node)[rank];
  const size_t dim = DimArg(node, 2);
  int64_t inner = 1, offset = 0;
  for (size_t d = dim + 1; d < in.sizes.size(); ++d) inner *= in.sizes[d];
  for (int32_t r = 0; r < node.result_count(); ++r) {
    Tensor out = Fresh(node.result(r)->type());
    const int64_t length = out.sizes[dim] * inner;
    for (int64_t i = 0; i < out.numel(); ++i) {
      out.at(i) = in.at(i / length * in.sizes[dim] * inner + offset + i % length);
    }
    offset += length;
    values_[node.result(r)].push_back(std::move(out));
  }
}

void Interpreter::Cat(const Node& node, size_t rank, Tensor& result) {
  const size_t dim = DimArg(node, 1);
  int64_t inner = 1, offset = 0;
  for (size_t d = dim + 1; d < result.sizes.size(); ++d) inner *= result.sizes[d];
  for (int32_t k = 0; k < node.operand_count(); ++k) {
    const Tensor& in = In(node, k)[rank];
    const int64_t length = in.sizes[dim] * inner;
    for (int64_t i = 0; i < in.numel(); ++i) {
      result.at(i / length * result.sizes[dim] * inner + offset + i % length) = in.at(i);
    }
    offset += length;
  }
}

// Padding is listed from the last dimension on, and only added after the existing elements.
void Interpreter::Pad(const Node& node, size_t rank, Tensor& result) {
  const Tensor& in = In(node)[rank];
  for (int64_t i = 0; i < result.numel(); ++i) {
    int64_t rest = i, from = 0, stride = 1;
    bool inside = true;
    for (size_t d = result.sizes.size(); d-- > 0; rest /= result.sizes[d]) {
      inside = inside && rest % result.sizes[d] < in.sizes[d];
      from += rest % result.sizes[d] * stride;
      stride *= in.sizes[d];
    }
    result.at(i) = inside ? in.at(from) : 0;
  }
}

double Interpreter::Element(const Node& node, const std::string& op, size_t rank,
                            const Tensor& result, int64_t i) {
  if (op == "aten::zeros") return 0;
  const Tensor& a = In(node)[rank];
  if (op == "aten::sum") {
    double sum = 0;
    for (int64_t k = 0; k < a.numel(); ++k) sum += a.at(k);
    return sum;
  }
  if (op == "aten::mul.Tensor" || op == "aten::add.Tensor") {
    const double left = a.Broadcast(i, result.sizes);
    const double right = In(node, 1)[rank].Broadcast(i, result.sizes);
    return op == "aten::mul.Tensor" ? left * right : left + right;
  }
  if (op == "aten::neg") return -a.at(i);
  if (op == "aten::relu") return std::max(a.at(i), 0.0);
  if (op == "aten::bernoulli") return Draw() < a.at(i) ? 1 : 0;
  if (op == "aten::clone" || op == "aten::_to_copy" || op == "aten::contiguous") return a.at(i);
  Fail(ErrorCode::kMalformedCheck, "the interpreter does not know {}", op);
}

std::optional<std::string> DifferenceOf(const Interpreter& before, const Interpreter& after) {
  const auto expected = before.Outputs(), actual = after.Outputs();
  if (expected.size() != actual.size()) return "another number of outputs";
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] != actual[i]) return fmt::format("output {} has other values", i);
  }
  const std::vector<bool> was = before.Sharing(), is = after.Sharing();
  for (size_t i = 0; i < was.size(); ++i) {
    if (is[i] && !was[i]) return "an output shares memory that it did not share";
  }
  return std::nullopt;
}

}  // namespace gt::testing
