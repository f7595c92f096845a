// Runs a module once for each chunk of its inputs, and concatenates the results: the eager
// producer of chunked regions, and the numerical reference of the pass `chunk`. Works in plain eager
// runs and while a step is captured.
//
// Inputs may be tensors, and structs that show their tensors with ForEachTensor; all of them are cut
// along one dimension. Chunks differ by one at the most, larger ones first.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>
#include <c10/util/Type.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gt/base/name.h"
#include "gt/torch_bridge/scope.h"

namespace gt::nn {

struct Chunking {
  int64_t dim = 0;
  int64_t count = 2;
};

// One call of a chunked module.
class ChunkedCall {
 public:
  // `x` is the first input, whose extent is cut.
  ChunkedCall(Name root, const Chunking& chunking, const at::Tensor& x);

  int64_t count() const { return chunking_.count; }
  // What nodes of chunk i are marked with.
  Annotation Body(int64_t i) const { return Marked(ChunkRole::kBody, i); }

  // Of the next input.
  std::vector<at::Tensor> Split(const at::Tensor& input) {
    ++inputs_seen_;
    return Pieces(input);
  }
  template <typename T>
  std::vector<T> Split(const T& input) {
    ++inputs_seen_;
    if constexpr (requires(T parts) { parts.ForEachTensor([](at::Tensor&) {}); }) {
      std::vector<T> parts(static_cast<size_t>(count()), input);
      std::vector<std::vector<at::Tensor*>> places(parts.size());
      for (size_t i = 0; i < parts.size(); ++i) {
        parts[i].ForEachTensor([&](at::Tensor& tensor) { places[i].push_back(&tensor); });
      }
      for (size_t t = 0; t < places[0].size(); ++t) {
        std::vector<at::Tensor> pieces = Pieces(*places[0][t]);
        for (size_t i = 0; i < parts.size(); ++i) *places[i][t] = std::move(pieces[i]);
      }
      return parts;
    } else {
      RejectInput(c10::demangle_type<T>());
    }
  }

  at::Tensor Join(std::vector<at::Tensor> results);
  template <typename T>
  T Join(std::vector<T> results) {
    if constexpr (requires { std::tuple_size<T>::value; }) {
      return JoinEach(std::move(results), std::make_index_sequence<std::tuple_size_v<T>>());
    } else if constexpr (std::is_same_v<T, std::vector<at::Tensor>>) {
      return JoinLists(std::move(results));
    } else {
      RejectResult(c10::demangle_type<T>());
    }
  }

 private:
  template <typename T, size_t... kIndices>
  T JoinEach(std::vector<T> results, std::index_sequence<kIndices...>) {
    auto column = [&]<size_t kIndex>() {
      std::vector<std::tuple_element_t<kIndex, T>> values;
      for (T& result : results) values.push_back(std::get<kIndex>(std::move(result)));
      return Join(std::move(values));
    };
    return T(column.template operator()<kIndices>()...);
  }
  std::vector<at::Tensor> Pieces(const at::Tensor& whole) const;
  std::vector<at::Tensor> JoinLists(std::vector<std::vector<at::Tensor>> results);
  Annotation Marked(ChunkRole role, int64_t id) const;
  [[noreturn]] void RejectInput(const std::string& what) const;
  [[noreturn]] void RejectResult(const std::string& what) const;

  Name root_;
  Chunking chunking_;
  c10::SymInt extent_;
  std::vector<c10::SymInt> sizes_;  // of the chunks
  int inputs_seen_ = 0;
};

template <typename Call, typename... Inputs>
auto InChunks(Name root, const Chunking& chunking, const Call& call, const at::Tensor& x,
              const Inputs&... inputs) {
  ChunkedCall chunks(root, chunking, x);
  // In braces, which are evaluated from left to right.
  std::tuple<std::vector<at::Tensor>, std::vector<Inputs>...> pieces{chunks.Split(x),
                                                                     chunks.Split(inputs)...};
  std::vector<decltype(call(x, inputs...))> results;
  for (int64_t i = 0; i < chunks.count(); ++i) {
    AnnotationGuard body(chunks.Body(i));
    results.push_back(std::apply(
        [&](const auto&... lists) { return call(lists[static_cast<size_t>(i)]...); }, pieces));
  }
  return chunks.Join(std::move(results));
}

}  // namespace gt::nn
