// What a mask function of attention allows, read off its nested graph: kernels that know the usual masks by
// themselves need not ask for each pair.
#pragma once

#include <cstdint>

#include "gt/ir/graph.h"

namespace gt {

enum class MaskKind : uint8_t {
  kOther,           // anything else: the function is asked
  kAll,             // every pair
  kCausal,          // keys at or before the query
  kDocument,        // keys of the query's document, by a tensor that numbers the documents
  kCausalDocument,  // both
};

struct MaskMeaning {
  MaskKind kind = MaskKind::kOther;
  int32_t documents = -1;  // which captured tensor numbers them
};

// By the truth table of the graph over what a comparison of positions and of documents can say: which
// comparisons it makes, and how they are combined, does not matter. Null: every pair.
MaskMeaning MeaningOf(const Graph* mask);

}  // namespace gt
