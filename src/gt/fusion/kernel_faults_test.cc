// What can go wrong around the cache of compiled kernels costs time and one line, and nothing else.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "gt/fusion/kernel_compiler.h"
#include "gt/fusion/nvrtc.h"
#include "gt/ir/text.h"
#include "gt/storage/file_writer.h"
#include "gt/testing/temp_folder.h"

namespace gt::kernel_faults_test {
namespace {

namespace fs = std::filesystem;
using fusion::CompiledKernel;
using fusion::KernelSource;
using fusion::KernelStore;

constexpr int kArchitecture = 90;

KernelSource SwiGlu() {
  return *fusion::MakeKernelSource(
      *Parse(R"(graph @f(%a: input "a" bf16[64, 64], %b: input "b" bf16[64, 64]) {
  %s = aten::silu(%a) : bf16[64, 64]
  %m = aten::mul.Tensor(%s, %b) : bf16[64, 64]
  return result "m" %m
})"));
}

CompiledKernel Compile(KernelStore& store) {
  const KernelSource source = SwiGlu();
  const KernelSource* const sources[] = {&source};
  return fusion::CompileKernels(sources, kArchitecture, store)[0];
}

int64_t CountOf(const std::string& text, std::string_view part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Runs the body with stderr kept.
template <typename Body>
std::string LinesOf(const Body& body) {
  ::testing::internal::CaptureStderr();
  body();
  return ::testing::internal::GetCapturedStderr();
}

class KernelFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    if (fusion::Nvrtc::Get() == nullptr) GTEST_SKIP() << fusion::Nvrtc::WhyMissing();
  }
  const testing::TempFolder folder_;
};

// As a disk that is full: files may not grow beyond a page.
TEST_F(KernelFaults, AFullDiskKeepsNothing) {
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit page = {.rlim_cur = 1024, .rlim_max = limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  CompiledKernel first, second;
  const std::string said = LinesOf([&] {
    KernelStore store(folder_.path());
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &page), 0);
    first = Compile(store);
    second = Compile(store);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  });
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(first.cubin.empty());
  EXPECT_EQ(first.cubin, second.cubin);
  EXPECT_FALSE(second.stored);
  EXPECT_EQ(CountOf(said, "kernel cache: generated kernels are not kept for the next run"), 1)
      << said;
  EXPECT_TRUE(fs::is_empty(folder_.path())) << "half a file";
  KernelStore store(folder_.path());
  Compile(store);
  EXPECT_TRUE(Compile(store).stored) << "when there is room again";
}

TEST_F(KernelFaults, AFolderThatCannotBeWrittenKeepsNothing) {
  WriteFile(folder_.path() / "file", "in the way");
  for (const fs::path& place :
       {folder_.path() / "file" / "kernels", fs::path("/proc/none/kernels")}) {
    CompiledKernel kernel;
    const std::string said = LinesOf([&] {
      KernelStore store(place);
      Compile(store);
      kernel = Compile(store);
    });
    EXPECT_FALSE(kernel.cubin.empty());
    EXPECT_EQ(CountOf(said, "kernel cache: "), 1) << said;
  }
}

// By chance, or by a machine that went down while it wrote.
TEST_F(KernelFaults, ADamagedBinaryIsMadeAgain) {
  KernelStore store(folder_.path());
  const CompiledKernel good = Compile(store);
  fs::resize_file(folder_.path() / (good.key + ".cubin"), 1000);
  CompiledKernel again;
  const std::string said = LinesOf([&] {
    KernelStore reader(folder_.path());
    again = Compile(reader);
  });
  EXPECT_FALSE(again.stored);
  EXPECT_EQ(again.cubin, good.cubin);
  EXPECT_EQ(CountOf(said, "is damaged and is made again"), 1) << said;
  EXPECT_TRUE(Compile(store).stored);
}

TEST_F(KernelFaults, ProcessesMayCompileTheSameKernel) {
  constexpr int kProcesses = 3;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      KernelStore store(folder_.path());
      const bool made = !Compile(store).cubin.empty();
      _exit(made && Compile(store).stored ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  KernelStore store(folder_.path());
  EXPECT_TRUE(Compile(store).stored);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1) << "one file, no traces";
}

// In a process of its own, since the library is looked for once.
TEST(WithoutNvrtc, OnlyKernelsThatAreKeptAreThere) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("GT_NO_NVRTC", "1", 1);
        const testing::TempFolder empty;
        KernelStore store(empty.path());
        const CompiledKernel kernel = Compile(store);
        fmt::print(stderr, "cubin of {} bytes: {}\n", kernel.cubin.size(), kernel.error);
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "cubin of 0 bytes: GT_NO_NVRTC is set");
}

}  // namespace
}  // namespace gt::kernel_faults_test
