#include "gt/base/error.h"

int main() { return gt::CodeName(gt::ErrorCode::kInternal) == "GT-E0001" ? 0 : 1; }
