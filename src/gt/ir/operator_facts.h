// The facts about an operator that passes, estimates and the executor rely on. Each operator declares
// its own in its one entry in ops/; docs/operators.md lists them. Nothing else may know an operator
// by its name, except to insert it.
#pragma once

#include <cstdint>

namespace gt {

// What running it asks of the device.
enum class Work : uint8_t {
  kUndecided,       // no operator stays so
  kView,            // nothing: the results show an argument's memory
  kPointwise,       // computes each element from those at its place
  kReduction,       // combines elements along dimensions: sums, norms, softmax, sorting
  kProduct,         // multiplies matrices
  kGroupedProduct,  // multiplies matrices, one pair for each group of rows
  kAttention,       // two products, in one kernel with all that is between them
  kClone,           // writes its first argument to fresh memory, with another dtype or layout
  kSelect,          // reads of its first argument only what it returns
  kMove,            // moves elements of its operands: cat, pad, flip
  kScatter,         // writes where its indices say
  kFill,            // takes only the type of its first argument, and writes the result
  kAllocate,        // leaves the result's memory as it is
  kFused,           // what the operators of its nested graph do, in one kernel
  kCollective,
  kTransfer,
  kHost,  // nothing: the host reads a number, or handles a generator's state
};

// Whether results are fresh memory. Goes further than the schema: aten::_unsafe_view and wait_tensor
// return the memory they were given although their schemas promise a fresh tensor.
enum class Aliasing : uint8_t {
  kNone,      // results are fresh memory
  kMayAlias,  // a view where possible, a copy otherwise
  kAlways,    // a view, or a value handed through
};

// What of an argument a view shows.
enum class ViewKind : uint8_t {
  kNone,         // no view
  kReshape,      // elements in row-major order, under the sizes it is given
  kSameOrder,    // elements in row-major order; adds or removes dimensions of size 1
  kGeometry,     // other sizes, strides and offset, and nothing else
  kStrides,      // the sizes and strides it is given
  kStorage,      // as kStrides; its offset counts from the beginning of the storage
  kReinterpret,  // other values: another dtype, or a sign that the next kernel applies
};

// What happens to the order of elements along a dimension.
enum class DimOrder : uint8_t {
  kUndecided,  // no operator stays so
  // A dimension of a result that is as long as one of an operand has its elements in the operand's
  // order. Whole dimensions are reduced, added or change places; elements along them do not.
  kKept,
  // The elements in row-major order, under other sizes: view, reshape.
  kRegrouped,
  // As kKept, except along the dimensions that the argument dim (or dims) names: sort, flip.
  kReordered,
  // The first operand's elements where the indices (all other operands) say. A dimension that
  // indices have is in their order, any other one in that of the first operand.
  kLookedUp,
  // The first operand with elements replaced, or added to, where the indices say.
  kWritten,
  // All elements are equal: zeros, full.
  kConstant,
  // Made from sizes alone; an element depends on its position and nothing else: arange, rand.
  kNumbered,
  // Dimension 0 has the shards of all ranks, or is one of them: all_gather, reduce_scatter,
  // all_to_all.
  kAcrossRanks,
  // Nothing is known.
  kUnknown,
};

// Whether f(a + b) is f(a) + f(b), other arguments being equal: a sum of gradients may then be taken
// before it or after it.
enum class Linearity : uint8_t {
  kNone,         // or nobody relies on it
  kOneOperand,   // where it has one operand: the others, if the schema has them, are numbers
  kAllOperands,  // in all operands together, where none is a number
};

// Which integers an operand may hold for the operator to do its usual work, as timing it needs.
enum class IntegerOperands : uint8_t {
  kUnspecified,
  kIndices,    // any from 0 to below the shortest extent of the first operand
  kGroupEnds,  // ends of groups of the first operand's rows, ascending
};

// What computing the results a second time would cost, against keeping them: memory policies keep
// every class from kPlainProduct on.
enum class RecomputeClass : uint8_t {
  kCheap,         // takes about as long as reading and writing
  kLarge,         // takes long, but the results are too large to keep
  kPlainProduct,  // much arithmetic for each byte; policy `eager` keeps every second of a layer
  kProduct,       // much arithmetic for each byte
  kAttention,     // its time grows with the square of the sequence length
  kWholeTensor,   // reads a whole tensor to make one number
  kRouting,       // small, and everything about where a token goes follows from it
  kExchange,      // would send the data a second time
};

// When the host has a part in every run besides launching kernels, so that no recording of kernels
// can replace it.
enum class HostPart : uint8_t {
  kNone,
  kAlways,
  kUnlessBFloat16,  // only bf16 has a kernel; other dtypes loop over sizes that the host looks up
};

enum class Collective : uint8_t {
  kNone,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kBroadcast,
  kWait
};

// Copies between the device's memory and the host's, side by side with compute.
enum class Transfer : uint8_t {
  kNone,
  kOffload,  // begins a copy to the host
  kReload,   // begins a copy back
  kWait,     // the first argument, after whose copy compute then is; holds on to what is copied
};

}  // namespace gt
