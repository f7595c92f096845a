#include "gt/data/files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <optional>

#include "gt/base/error.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

std::string LowerCase(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

struct NameMeaning {
  std::optional<DataKind> kind;  // nothing: the name says nothing
  Compression compression = Compression::kNone;
};

NameMeaning MeaningOf(fs::path name) {
  NameMeaning meaning;
  meaning.compression = CompressionOf(name);
  if (meaning.compression != Compression::kNone) name = name.stem();
  const std::string extension = LowerCase(name.extension().string());
  if (extension == ".txt" || extension == ".md" || extension == ".text") {
    meaning.kind = DataKind::kText;
  } else if (extension == ".jsonl" || extension == ".ndjson" || extension == ".json") {
    meaning.kind = DataKind::kJsonl;
  } else if (extension == ".npy") {
    meaning.kind = DataKind::kNpy;
  } else if (extension == ".bin") {
    meaning.kind = DataKind::kBin;
  }
  return meaning;
}

// "a, b, c and 17 more"
std::string SomeNames(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> shown(names.begin(), names.begin() + std::min(names.size(), kShown));
  std::string text = Join(shown, ", ");
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

bool IsSidecar(const fs::path& path) {
  if (LowerCase(path.extension().string()) != ".json") return false;
  std::error_code ignored;
  const fs::path described = fs::path(path).replace_extension();  // NAME.bin.json or NAME.json
  if (described.extension() == ".bin") return fs::exists(described, ignored);
  return fs::exists(fs::path(path).replace_extension(".bin"), ignored);
}

bool IsHidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::vector<fs::path> WalkFolder(const fs::path& root) {
  std::vector<fs::path> paths;
  // Links are followed: data sets are often folders of links, and skipping one would silently leave
  // out data. A circle of links ends as an error of the file system.
  fs::recursive_directory_iterator walk(root, fs::directory_options::follow_directory_symlink);
  for (; walk != fs::recursive_directory_iterator(); ++walk) {
    if (IsHidden(walk->path())) {
      if (walk->is_directory()) walk.disable_recursion_pending();
    } else if (!walk->is_directory() && !IsSidecar(walk->path())) {
      paths.push_back(walk->path());
    }
  }
  return paths;
}

DataFile MakeFile(const fs::path& path, std::string name, Compression compression) {
  if (!fs::is_regular_file(path)) {
    Fail(ErrorCode::kDataUnreadable, "'{}' is not a regular file", path.string());
  }
  return {path, std::move(name), compression, static_cast<int64_t>(fs::file_size(path))};
}

void RefuseMixedKinds(const fs::path& root, const std::vector<std::string> (&names)[4]) {
  std::vector<std::string> groups;
  for (std::size_t kind = 0; kind < std::size(names); ++kind) {
    if (names[kind].empty()) continue;
    groups.push_back(
        fmt::format("{} ({})", EnumName(static_cast<DataKind>(kind)), SomeNames(names[kind])));
  }
  if (groups.size() < 2) return;
  Fail(ErrorCode::kBadData,
       "folder '{}' holds data of several kinds: {}; keep one kind, or move the others to folders "
       "of their own",
       root.string(), Join(groups, "; "));
}

DataFiles FindInFolder(const fs::path& root) {
  DataFiles found;
  std::vector<std::string> unknown;
  std::vector<std::string> names[4];
  for (const fs::path& path : WalkFolder(root)) {
    std::string name = path.lexically_relative(root).generic_string();
    const NameMeaning meaning = MeaningOf(path.filename());
    if (!meaning.kind) {
      unknown.push_back(std::move(name));
      continue;
    }
    found.kind = *meaning.kind;
    names[static_cast<std::size_t>(*meaning.kind)].push_back(name);
    found.files.push_back(MakeFile(path, std::move(name), meaning.compression));
  }
  // Folders list their files in any order; messages and batches must not depend on it.
  for (auto& group : names) std::sort(group.begin(), group.end());
  std::sort(unknown.begin(), unknown.end());
  if (!unknown.empty()) {
    Fail(ErrorCode::kBadData,
         "folder '{}' holds files whose names do not say what is in them: {}; known are .txt, .md, "
         ".jsonl, .json (each also .gz or .zst), .npy and .bin. Rename or remove them",
         root.string(), SomeNames(unknown));
  }
  RefuseMixedKinds(root, names);
  if (found.files.empty()) {
    Fail(ErrorCode::kDataUnreadable, "folder '{}' holds no data files", root.string());
  }
  std::sort(found.files.begin(), found.files.end(),
            [](const DataFile& a, const DataFile& b) { return a.name < b.name; });
  return found;
}

// A file of any name may be text, but what is given by mistake (a .parquet, a checkpoint) would
// train a model on noise without a word.
void RefuseBinary(const fs::path& path) {
  std::array<char, 4096> begin = {};
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), begin.size());
  const std::string_view bytes(begin.data(), static_cast<std::size_t>(file.gcount()));
  if (bytes.find('\0') == std::string_view::npos) return;
  Fail(ErrorCode::kBadData,
       "'{}' is not text: there are zero bytes in it, and its name does not say what else it is. "
       "Known are .txt, .jsonl (each also .gz or .zst), .npy and .bin",
       path.string());
}

DataFiles FindSingle(const fs::path& path) {
  const NameMeaning meaning = MeaningOf(path.filename());
  DataFiles found;
  found.kind = meaning.kind.value_or(DataKind::kText);
  found.files.push_back(MakeFile(path, path.filename().string(), meaning.compression));
  if (!meaning.kind && meaning.compression == Compression::kNone) RefuseBinary(path);
  return found;
}

std::string LastComponent(const fs::path& path) {
  const fs::path clean = path.lexically_normal();
  return (clean.has_filename() ? clean.filename() : clean.parent_path().filename()).string();
}

void RefuseCompressedTokens(const DataFiles& found) {
  if (!found.IsTokens() || !found.IsCompressed()) return;
  Fail(ErrorCode::kBadData,
       "'{}': compressed tokens cannot be mapped into memory; decompress the files first",
       found.files[0].path.string());
}

}  // namespace

bool DataFiles::IsCompressed() const {
  return std::any_of(files.begin(), files.end(),
                     [](const DataFile& file) { return file.compression != Compression::kNone; });
}

int64_t DataFiles::TotalSize() const {
  int64_t total = 0;
  for (const DataFile& file : files) total += file.size;
  return total;
}

uint64_t DataFiles::Fingerprint() const {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto mix = [&hash](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (const DataFile& file : files) {
    for (char c : file.name) mix(static_cast<unsigned char>(c));
    mix(0);
    for (int shift = 0; shift < 64; shift += 8) {
      mix(static_cast<unsigned char>(static_cast<uint64_t>(file.size) >> shift));
    }
  }
  return hash;
}

DataFiles FindDataFiles(const std::string& path) {
  if (path.empty()) Fail(ErrorCode::kDataUnreadable, "no file or folder of data was given");
  try {
    if (!fs::exists(path)) {
      Fail(ErrorCode::kDataUnreadable, "there is no file or folder '{}' to read data from", path);
    }
    DataFiles found = fs::is_directory(path) ? FindInFolder(path) : FindSingle(path);
    found.name = LastComponent(path);
    RefuseCompressedTokens(found);
    return found;
  } catch (const fs::filesystem_error& error) {
    Fail(ErrorCode::kDataUnreadable, "cannot look for data in '{}': {}: {}", path,
         error.path1().string(), error.code().message());
  }
}

std::filesystem::path SidecarOf(const std::filesystem::path& bin) {
  for (const fs::path& candidate :
       {fs::path(bin.string() + ".json"), fs::path(bin).replace_extension(".json")}) {
    std::error_code ignored;
    if (fs::exists(candidate, ignored)) return candidate;
  }
  return {};
}

}  // namespace gt
