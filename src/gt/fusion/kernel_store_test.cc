// What is stored is found again; what went wrong with the folder never stops a run.
#include "gt/fusion/kernel_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "gt/base/read_file.h"
#include "gt/storage/file_writer.h"
#include "gt/testing/temp_folder.h"

namespace gt::kernel_store_test {
namespace {

namespace fs = std::filesystem;
using fusion::KernelStore;

TEST(KernelStore, FindsWhatWasPut) {
  const testing::TempFolder folder;
  KernelStore store(folder.path() / "kernels");
  EXPECT_FALSE(store.Find("a.cubin"));
  const std::string content("binary\0content", 14);
  store.Put("a.cubin", content);
  EXPECT_EQ(store.Find("a.cubin"), content);
  EXPECT_EQ(KernelStore(folder.path() / "kernels").Find("a.cubin"), content);
  store.Put("empty", "");
  EXPECT_EQ(store.Find("empty"), "");
}

TEST(KernelStore, DamagedEntriesAreMissing) {
  const testing::TempFolder folder;
  KernelStore store(folder.path());
  for (const bool truncated : {false, true}) {
    store.Put("a", "some content");
    const fs::path path = folder.path() / "a";
    std::string text = ReadWholeFile(path);
    if (truncated) {
      text.resize(text.size() / 2);
    } else {
      text.back() ^= 1;
    }
    std::ofstream(path, std::ios::binary) << text;
    EXPECT_FALSE(store.Find("a"));
    EXPECT_FALSE(fs::exists(path)) << "it would be read again by every run";
  }
}

TEST(KernelStore, AFolderThatCannotBeWrittenStoresNothing) {
  const testing::TempFolder folder;
  WriteFile(folder.path() / "file", "in the way");
  KernelStore store(folder.path() / "file" / "kernels");
  store.Put("a", "content");
  EXPECT_FALSE(store.Find("a"));
  KernelStore nowhere("");
  nowhere.Put("a", "content");
  EXPECT_FALSE(nowhere.Find("a"));
}

TEST(KernelStore, DropsTheOldest) {
  const testing::TempFolder folder;
  KernelStore store(folder.path(), /*most_bytes=*/4000);
  const std::string content(900, 'x');
  for (int i = 0; i < 12; ++i) {
    store.Put("entry" + std::to_string(i), content);
    fs::last_write_time(folder.path() / ("entry" + std::to_string(i)),
                        fs::file_time_type::clock::now() + std::chrono::seconds(i - 100));
  }
  EXPECT_FALSE(store.Find("entry0"));
  EXPECT_TRUE(store.Find("entry11"));
  int64_t total = 0;
  for (const auto& file : fs::directory_iterator(folder.path())) {
    total += static_cast<int64_t>(file.file_size());
  }
  EXPECT_LE(total, 4000);
}

TEST(KernelStore, WritersOfTheSameEntryDoNotDisturbEachOther) {
  const testing::TempFolder folder;
  const std::string content(100000, 'k');
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&] {
      KernelStore store(folder.path());
      for (int n = 0; n < 5; ++n) {
        store.Put("a", content);
        EXPECT_EQ(store.Find("a"), content);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
}

}  // namespace
}  // namespace gt::kernel_store_test
