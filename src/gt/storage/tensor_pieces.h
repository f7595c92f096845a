// Tensors that are in pieces in several safetensors files, as each rank wrote its own, and are read
// as if they were whole: any box of them, whatever boxes were written.
//
// In a file, a piece has the name of its tensor and the place where it begins ("model.x@16,0"), so
// that the files stay valid for every tool; a tensor in one piece has its plain name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/storage/safetensors.h"
#include "gt/storage/tensor_box.h"

namespace gt {

// Of a whole tensor, however it is stored.
struct TensorInfo {
  DType dtype = DType::kUndefined;
  std::vector<int64_t> sizes;
  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

using TensorIndex = std::map<std::string, TensorInfo, std::less<>>;

// "f32 [64, 32]"
std::string InfoText(const TensorInfo& info);

std::string PieceName(std::string_view tensor, std::span<const int64_t> offset);

struct PiecePlace {
  std::string_view tensor;
  std::vector<int64_t> offset;
};
// The other way round; nothing for a name that PieceName does not give.
std::optional<PiecePlace> ParsePieceName(std::string_view name);

class TensorPieces {
 public:
  TensorPieces() = default;
  // With the tensors that there should be. Without any, there are those that are added, each in one
  // piece.
  explicit TensorPieces(const TensorIndex& index);

  // A tensor of a file; `stored` and its bytes outlive this object. What does not fit the index is
  // not added, but said in `problems`; `file` stands for it there.
  void Add(std::string_view file, const TensorEntry& stored, std::vector<std::string>& problems);

  // After the last Add: says in `problems` which ranges of which tensors are in no file. Where
  // there are none, any box can be read.
  void Finish(std::vector<std::string>& problems);

  // Null when there is none. The pointer lives as long as this object.
  const TensorInfo* Info(std::string_view name) const;

  // Assembles the box, row-major, from the pieces that have a part of it, and touches no other
  // bytes of them. Fails with CheckpointMismatch, naming `where`, if there is no such tensor or it
  // has other sizes than the box says.
  void Read(std::string_view name, const TensorBox& box, std::span<std::byte> destination,
            std::string_view where) const;

 private:
  struct Piece {
    std::vector<int64_t> offset;
    const TensorEntry* stored = nullptr;
  };
  struct Tensor {
    TensorInfo info;
    std::vector<Piece> pieces;  // after Finish: by offset, each box once
  };
  using Tensors = std::map<std::string, Tensor, std::less<>>;

  Tensor* Locate(const TensorEntry& stored, std::vector<int64_t>& offset);
  static TensorBox BoxOf(const Tensor& tensor, const Piece& piece);
  static void SortOut(std::vector<Piece>& pieces);
  static std::optional<std::string> Missing(const Tensor& tensor);

  bool has_index_ = false;
  Tensors tensors_;
};

}  // namespace gt
