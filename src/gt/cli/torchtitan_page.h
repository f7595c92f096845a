// docs/torchtitan.md: for who comes from torchtitan.
#pragma once

#include <string>

namespace gt::cli {

std::string TorchtitanMarkdown();

}  // namespace gt::cli
