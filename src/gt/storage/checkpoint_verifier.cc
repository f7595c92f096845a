#include "gt/storage/checkpoint_verifier.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "gt/base/error.h"
#include "gt/base/json_text.h"
#include "gt/base/text.h"
#include "gt/storage/checkpoint_manifest.h"
#include "gt/storage/checksum.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

// Compares one step's folder with its manifest and collects what is wrong with it.
class Verifier {
 public:
  Verifier(const fs::path& folder, const Manifest& manifest, VerifyShare share)
      : folder_(folder), manifest_(manifest), share_(share) {}

  // Sets `contents` from what it finds; they are whole if problems() is empty.
  void Run(CheckpointContents& contents) {
    if (!manifest_.files.contains(std::string(kStateFile))) {
      problems_.push_back(fmt::format("{} names no {}", kManifestFile, kStateFile));
    }
    contents.pieces = TensorPieces(manifest_.tensors);
    contents.shards.reserve(manifest_.files.size());
    int64_t index = 0;
    for (const auto& [name, record] : manifest_.files) {
      const bool is_mine = share_.Has(index++);
      if (!HasSize(name, record)) continue;
      if (name == kStateFile) {
        ReadState(record, contents.state);
      } else {
        OpenShard(name, record, is_mine, contents);
      }
    }
    // Only of files that are whole themselves: a hole would be a mere consequence.
    if (problems_.empty()) contents.pieces.Finish(problems_);
    CheckTensors();
  }

  const std::vector<std::string>& problems() const { return problems_; }

 private:
  struct ExpectedTensor {
    std::string file;
    std::string name;
    std::span<const std::byte> bytes;
    uint64_t checksum = 0;
  };

  bool HasSize(const std::string& name, const FileRecord& record) {
    std::error_code error;
    const auto size = fs::file_size(folder_ / name, error);
    if (error) {
      problems_.push_back(fmt::format("{}: cannot be read: {}", name, error.message()));
    } else if (size != static_cast<uintmax_t>(record.size)) {
      problems_.push_back(fmt::format("{}: has {} bytes in place of {}", name, size, record.size));
    } else {
      return true;
    }
    return false;
  }

  void ReadState(const FileRecord& record, nlohmann::json& state) {
    const MappedFile file(folder_ / kStateFile, ErrorCode::kCheckpointDamaged);
    if (Xxh64Of(file.bytes()) != record.checksum) {
      problems_.push_back(fmt::format("{}: the checksum is wrong", kStateFile));
      return;
    }
    const auto* text = reinterpret_cast<const char*>(file.bytes().data());
    try {
      state = ParseJson({text, file.bytes().size()}, kLargeJson);
    } catch (const BadJson& problem) {
      problems_.push_back(fmt::format("{}: is not JSON: {}", kStateFile, problem.what()));
    }
  }

  void OpenShard(const std::string& name, const FileRecord& record, bool is_mine,
                 CheckpointContents& contents) {
    try {
      contents.shards.emplace_back(folder_ / name);
    } catch (const Error& error) {
      problems_.push_back(error.message());
      return;
    }
    const SafetensorsFile& shard = contents.shards.back();
    if (Xxh64Of(shard.header()) != record.checksum) {
      problems_.push_back(fmt::format("{}: the checksum of the header is wrong", name));
      return;
    }
    for (const TensorEntry& tensor : shard.tensors()) {
      const auto found = record.tensors.find(tensor.name);
      if (found == record.tensors.end()) {
        problems_.push_back(
            fmt::format("{}: tensor {} is not in the manifest", name, Quoted(tensor.name)));
        continue;
      }
      contents.pieces.Add(name, tensor, problems_);
      if (is_mine) expected_.push_back({name, tensor.name, tensor.bytes, found->second});
    }
  }

  // One core reads memory slower than several do, and a checkpoint may have hundreds of gigabytes.
  void CheckTensors() {
    std::vector<char> is_wrong(expected_.size());
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      for (size_t i = next++; i < expected_.size(); i = next++) {
        is_wrong[i] = Xxh64Of(expected_[i].bytes) == expected_[i].checksum ? 0 : 1;
      }
    };
    {
      // Ranks that share the work may share the cores too.
      const size_t cores = std::thread::hardware_concurrency() /
                           static_cast<size_t>(std::max<int64_t>(share_.count, 1));
      constexpr size_t kMostThreads = 16;
      const size_t threads = std::min({cores, kMostThreads, expected_.size()});
      std::vector<std::jthread> helpers;
      for (size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
      work();
    }
    for (size_t i = 0; i < expected_.size(); ++i) {
      if (is_wrong[i] == 0) continue;
      problems_.push_back(fmt::format("{}: the checksum of tensor {} is wrong", expected_[i].file,
                                      Quoted(expected_[i].name)));
    }
  }

  const fs::path& folder_;
  const Manifest& manifest_;
  const VerifyShare share_;
  std::vector<ExpectedTensor> expected_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> VerifyCheckpoint(const fs::path& folder, int64_t step, VerifyShare share,
                                          CheckpointContents& contents) {
  GT_CHECK(share.index >= 0 && share.index < std::max<int64_t>(share.count, 1),
           "the share {} of {} of a checkpoint", share.index, share.count);
  try {
    const Manifest manifest = ReadManifest(folder);
    if (manifest.step != step) {
      return {fmt::format("{} says that it is of step {}", kManifestFile, manifest.step)};
    }
    Verifier verifier(folder, manifest, share);
    verifier.Run(contents);
    return verifier.problems();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCheckpointDamaged) throw;
    return {error.message()};
  }
}

}  // namespace gt
