#include "gt/ir/type.h"

#include <array>

#include "gt/base/error.h"
#include "gt/ir/shape_env.h"

namespace gt {
namespace {

struct DTypeFacts {
  std::string_view name;
  int size;
};

constexpr std::array<DTypeFacts, kDTypeCount> kDTypes = {{
    {"bool", 1},
    {"u8", 1},
    {"i8", 1},
    {"i16", 2},
    {"i32", 4},
    {"i64", 8},
    {"f8e4m3", 1},
    {"f8e5m2", 1},
    {"f16", 2},
    {"bf16", 2},
    {"f32", 4},
    {"f64", 8},
    {"c64", 8},
    {"c128", 16},
    {"u64", 8},
    {"none", 0},
}};

}  // namespace

std::string_view DTypeName(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }

std::optional<DType> ParseDType(std::string_view name) {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

int ItemSize(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].size; }

bool IsFloating(DType dtype) { return dtype >= DType::kFloat8E4M3 && dtype <= DType::kFloat64; }

bool IsComplex(DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; }

bool IsIntegral(DType dtype) {
  return (dtype >= DType::kUInt8 && dtype <= DType::kInt64) || dtype == DType::kUInt64;
}

DType RealOf(DType dtype) {
  if (dtype == DType::kComplex64) return DType::kFloat32;
  if (dtype == DType::kComplex128) return DType::kFloat64;
  return dtype;
}

DType ComplexOf(DType dtype) {
  if (dtype == DType::kFloat32) return DType::kComplex64;
  if (dtype == DType::kFloat64) return DType::kComplex128;
  return dtype;
}

std::string DeviceName(Device device) {
  std::string name = device.kind == DeviceKind::kCpu    ? "cpu"
                     : device.kind == DeviceKind::kCuda ? "cuda"
                                                        : "meta";
  if (device.index >= 0) name += ":" + std::to_string(device.index);
  return name;
}

std::optional<Device> ParseDevice(std::string_view text) {
  Device device;
  std::string_view kind = text.substr(0, text.find(':'));
  if (kind == "cpu") {
    device.kind = DeviceKind::kCpu;
  } else if (kind == "cuda") {
    device.kind = DeviceKind::kCuda;
  } else if (kind == "meta") {
    device.kind = DeviceKind::kMeta;
  } else {
    return std::nullopt;
  }
  if (kind.size() == text.size()) return device;
  std::string_view index = text.substr(kind.size() + 1);
  if (index.empty() || index.size() > 2) return std::nullopt;
  int value = 0;
  for (char c : index) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  device.index = static_cast<int8_t>(value);
  return device;
}

bool TensorType::Mentions(SymbolId id) const {
  for (const Dim& dim : sizes) {
    if (dim.Contains(id)) return true;
  }
  for (const Dim& dim : strides) {
    if (dim.Contains(id)) return true;
  }
  return false;
}

Shape ContiguousStrides(const Shape& sizes, const ShapeEnv& env) {
  Shape strides(sizes.size(), Dim(1));
  for (size_t i = sizes.size(); i-- > 1;) {
    const Dim& size = sizes[i];
    bool positive = size.is_const() ? *size.as_const() >= 1 : env.Bounds(size).low >= 1;
    strides[i - 1] = strides[i] * (positive ? size : Max(size, Dim(1)));
  }
  return strides;
}

TensorType ContiguousType(DType dtype, Device device, Shape sizes, const ShapeEnv& env) {
  Shape strides = ContiguousStrides(sizes, env);
  return {dtype, device, std::move(sizes), std::move(strides)};
}

}  // namespace gt
