// Metadata of the text form: {module = "layers.0", seq = 3, chunk = {id = 1}}.
#pragma once

#include "gt/ir/meta.h"
#include "gt/ir/token_reader.h"

namespace gt {

Meta ParseMeta(TokenReader& in);

}  // namespace gt
