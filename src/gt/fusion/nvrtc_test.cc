// Tests of kernels must not be skipped where NVRTC is only in the Python package that comes with libtorch.
#include "gt/fusion/nvrtc.h"

#include <gtest/gtest.h>
#include <link.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace gt::nvrtc_test {
namespace {

namespace fs = std::filesystem;

// Of the libtorch that this was built with; empty where there is none.
fs::path TorchFolder() {
  std::ifstream cache(fs::path(GT_BINARY).parent_path() / "CMakeCache.txt");
  for (std::string line; std::getline(cache, line);) {
    if (line.starts_with("GT_TORCH_DIR:")) return line.substr(line.find('=') + 1);
  }
  return {};
}

fs::path LoadedNvrtc() {
  fs::path found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        const fs::path path(info->dlpi_name);
        if (path.filename().string().starts_with("libnvrtc.so"))
          *static_cast<fs::path*>(data) = path;
        return 0;
      },
      &found);
  return found;
}

TEST(Nvrtc, IsTheOneBesideLibtorch) {
  const fs::path torch = TorchFolder();
  const fs::path beside = torch.parent_path() / "nvidia/cu13/lib/libnvrtc.so.13";
  if (torch.empty() || !fs::exists(beside)) GTEST_SKIP() << "this libtorch came without NVRTC";
  ASSERT_NE(fusion::Nvrtc::Get(), nullptr) << fusion::Nvrtc::WhyMissing();
  EXPECT_TRUE(fs::equivalent(LoadedNvrtc(), beside)) << LoadedNvrtc();
}

}  // namespace
}  // namespace gt::nvrtc_test
