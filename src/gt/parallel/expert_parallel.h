// Experts spread over the ranks of a group: counts are exchanged first, then rows travel to the ranks
// of their experts and back.
#pragma once

#include <memory>

#include "gt/dist/group.h"
#include "gt/nn/moe.h"

namespace gt {

// `group` outlives the result. Rank r has experts r * n to (r + 1) * n - 1, n of them on every rank.
std::shared_ptr<nn::ExpertExchange> MakeExpertExchange(const Group* group);

}  // namespace gt
