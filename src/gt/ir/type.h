// What is known about a tensor without its data: dtype, device, sizes and strides. Where it sits in
// its storage is the executor's business and not part of the type.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/ir/dim.h"

namespace gt {

class ShapeEnv;

enum class DType : uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat8E4M3,
  kFloat8E5M2,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
  kUInt64,     // only as the state of a random generator; takes part in no arithmetic
  kUndefined,  // a result that libtorch leaves undefined (a gradient that was not asked for): no
               // data, no uses
};
inline constexpr int kDTypeCount = 16;

std::string_view DTypeName(
    DType dtype);  // "f32", "bf16", "i64", "bool", "c64"; "none" when undefined
std::optional<DType> ParseDType(std::string_view name);
int ItemSize(DType dtype);
bool IsFloating(DType dtype);  // real floating point
bool IsComplex(DType dtype);
bool IsIntegral(DType dtype);  // integers, without bool
// The real dtype of a complex one's parts and the other way round; others are returned as they are.
DType RealOf(DType dtype);
DType ComplexOf(DType dtype);

enum class DeviceKind : uint8_t { kCpu, kCuda, kMeta };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int8_t index = -1;  // -1: the current one
  friend bool operator==(const Device&, const Device&) = default;
};
std::string DeviceName(Device device);  // "cpu", "cuda", "cuda:1"
std::optional<Device> ParseDevice(std::string_view text);

using Shape = std::vector<Dim>;

struct TensorType {
  DType dtype = DType::kFloat32;
  Device device;
  Shape sizes;
  Shape strides;

  bool defined() const { return dtype != DType::kUndefined; }
  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
  Dim numel() const { return Product(sizes); }
  // Bytes a dense tensor of this type takes.
  Dim bytes() const { return numel() * Dim(ItemSize(dtype)); }
  bool Mentions(SymbolId id) const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// Strides of a freshly allocated row-major tensor. As libtorch does, a size of zero counts as one
// here; sizes bound by symbols that may be zero use max(size, 1) unless the range rules zero out.
Shape ContiguousStrides(const Shape& sizes, const ShapeEnv& env);
TensorType ContiguousType(DType dtype, Device device, Shape sizes, const ShapeEnv& env);

}  // namespace gt
