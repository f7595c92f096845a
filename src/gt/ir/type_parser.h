// Types of the text form: f32[s0, 16]{1, s0} @cuda:0.
#pragma once

#include "gt/ir/shape_env.h"
#include "gt/ir/size_parser.h"
#include "gt/ir/token_reader.h"
#include "gt/ir/type.h"

namespace gt {

TensorType ParseType(TokenReader& in, SizeParser& sizes, const ShapeEnv& shapes);

}  // namespace gt
