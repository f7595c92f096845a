// What --debug.moe_load says: who decides which experts a token goes to. The weights that follow
// from it are in sim/routing_loads.h.
#pragma once

#include <string>
#include <string_view>

namespace gt {

struct MoeLoad {
  enum class Kind {
    kRouter,    // the model's router
    kBalanced,  // nobody: experts in turn
    kZipf,      // weights that fall with the popularity of an expert
    kFile,      // weights from a file
  };
  Kind kind = Kind::kRouter;
  double exponent = 0.0;  // of kZipf
  std::string path = {};  // of kFile

  friend bool operator==(const MoeLoad&, const MoeLoad&) = default;
};

// Why the text is no load, for a message; empty if it is one. Reads no file.
std::string MoeLoadProblem(std::string_view text);

// "router", "balanced", "zipf:1.2", or a path that ends in .json. Throws BadOptionValue.
MoeLoad ParseMoeLoad(std::string_view text);

}  // namespace gt
