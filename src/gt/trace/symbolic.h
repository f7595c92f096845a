// Dims in the shape of libtorch's symbolic integers. A DimNode is a Dim behind c10::SymInt:
// arithmetic on it is arithmetic on the Dim, a comparison that the program branches on becomes a
// question to the graph's ShapeEnv (answered, and remembered as a guard), and a request for a plain
// number is an error that names who asked, never a silently baked constant.
#pragma once

#include <c10/core/SymInt.h>
#include <c10/core/SymNodeImpl.h>

#include <span>

#include "gt/ir/shape_env.h"

namespace gt {

c10::SymInt ToSymInt(const Dim& dim, ShapeEnv& shapes);
// The Dim behind a SymInt; plain integers become constants. A symbolic integer of another tracer is
// an error.
Dim ToDim(const c10::SymInt& value);

// Row-major without gaps? Asks the ShapeEnv; sizes bound by data count as neither 0 nor 1.
bool IsContiguous(std::span<const Dim> sizes, std::span<const Dim> strides, ShapeEnv& shapes);
// Some permutation of the dimensions is row-major without gaps.
bool IsDense(std::span<const Dim> sizes, std::span<const Dim> strides, ShapeEnv& shapes);

}  // namespace gt
