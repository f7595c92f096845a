// The blocks of a graph that say what is known about its symbols and modules. Each is read from its
// opening brace on.
#pragma once

#include "gt/ir/modules.h"
#include "gt/ir/shape_env.h"
#include "gt/ir/size_parser.h"
#include "gt/ir/token_reader.h"

namespace gt {

void ParseSymbols(TokenReader& in, SizeParser& sizes, ShapeEnv& shapes);
void ParseFacts(TokenReader& in, SizeParser& sizes, ShapeEnv& shapes);
void ParseGuards(TokenReader& in, SizeParser& sizes, ShapeEnv& shapes);
void ParseModules(TokenReader& in, ModuleTable& modules);

}  // namespace gt
