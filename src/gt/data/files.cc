#include "gt/data/files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "gt/base/error.h"
#include "gt/data/path_pattern.h"

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

struct KnownFile {
  DataFile file;
  DataKind kind;
};

// `what` names the group of files: "folder 'data'".
void RefuseMixedKinds(const std::vector<KnownFile>& files, const std::string& what) {
  std::vector<std::string> names[std::size(kEnumNames<DataKind>)];
  for (const KnownFile& known : files) {
    names[static_cast<std::size_t>(known.kind)].push_back(known.file.name);
  }
  std::vector<std::string> groups;
  for (std::size_t kind = 0; kind < std::size(names); ++kind) {
    if (names[kind].empty()) continue;
    groups.push_back(
        fmt::format("{} ({})", EnumName(static_cast<DataKind>(kind)), SomeNames(names[kind])));
  }
  if (groups.size() < 2) return;
  Fail(ErrorCode::kBadData,
       "{} holds data of several kinds: {}; keep one kind, or move the others to folders of their "
       "own",
       what, Join(groups, "; "));
}

// Sorted by name: folders list their files in any order, and batches must not depend on it.
std::vector<KnownFile> FilesInFolder(const fs::path& root) {
  std::vector<KnownFile> files;
  std::vector<std::string> unknown;
  for (const fs::path& path : WalkFolder(root)) {
    std::string name = path.lexically_relative(root).generic_string();
    const NameMeaning meaning = MeaningOf(path.filename());
    if (meaning.kind) {
      files.push_back({MakeFile(path, std::move(name), meaning.compression), *meaning.kind});
    } else {
      unknown.push_back(std::move(name));
    }
  }
  std::sort(unknown.begin(), unknown.end());
  std::sort(files.begin(), files.end(),
            [](const KnownFile& a, const KnownFile& b) { return a.file.name < b.file.name; });
  if (!unknown.empty()) {
    Fail(ErrorCode::kBadData,
         "folder '{}' holds files whose names do not say what is in them: {}; known are .txt, .md, "
         ".jsonl, .json (each also .gz or .zst), .npy and .bin. Rename or remove them",
         root.string(), SomeNames(unknown));
  }
  RefuseMixedKinds(files, fmt::format("folder '{}'", root.string()));
  return files;
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

KnownFile SingleFile(const fs::path& path) {
  const NameMeaning meaning = MeaningOf(path.filename());
  DataFile file = MakeFile(path, path.filename().string(), meaning.compression);
  if (!meaning.kind && meaning.compression == Compression::kNone) RefuseBinary(path);
  return {std::move(file), meaning.kind.value_or(DataKind::kText)};
}

std::vector<KnownFile> FilesOf(const fs::path& path) {
  if (fs::is_directory(path)) return FilesInFolder(path);
  return {SingleFile(path)};
}

// Collects the files of a data set, item by item.
class FileList {
 public:
  // Adds an existing file or folder.
  void AddPath(const fs::path& path) {
    std::vector<KnownFile> files = FilesOf(path);
    if (files.empty()) {
      Fail(ErrorCode::kDataUnreadable, "folder '{}' holds no data files", path.string());
    }
    Add(std::move(files));
  }

  // Adds the matches of a pattern. Names are relative to its fixed part, as they would be in a folder,
  // so that a checkpoint still matches when a folder is rewritten as a pattern. False if no match
  // contains a file.
  bool AddMatches(const std::vector<fs::path>& matches, const fs::path& fixed) {
    bool added = false;
    for (const fs::path& match : matches) {
      const fs::path below = fixed.empty() ? match : match.lexically_relative(fixed);
      const bool is_folder = fs::is_directory(match);
      std::vector<KnownFile> files = FilesOf(match);
      for (KnownFile& known : files) {
        const fs::path name = is_folder ? below / known.file.name : below;
        known.file.name = name.lexically_normal().generic_string();
      }
      added |= !files.empty();
      Add(std::move(files));
    }
    return added;
  }

  const std::vector<KnownFile>& files() const { return files_; }

 private:
  // Skips files that earlier calls added. Files of one folder all count, even if some are links to
  // others: a folder of links may repeat a file on purpose.
  void Add(std::vector<KnownFile> more) {
    std::vector<fs::path> places;
    for (KnownFile& known : more) {
      fs::path place = PlaceOf(known.file.path);
      if (seen_.contains(place)) continue;
      places.push_back(std::move(place));
      files_.push_back(std::move(known));
    }
    seen_.insert(places.begin(), places.end());
  }

  // The same path for a/x and ./a/x.
  fs::path PlaceOf(const fs::path& file) {
    const fs::path folder = file.parent_path();
    auto [found, is_new] = folders_.try_emplace(folder);
    if (is_new) found->second = fs::canonical(folder.empty() ? "." : folder);
    return found->second / file.filename();
  }

  std::vector<KnownFile> files_;
  std::set<fs::path> seen_;
  std::map<fs::path, fs::path> folders_;  // to their canonical paths
};

// Sidecars describe data and are not data themselves.
std::vector<fs::path> DataMatchesOf(const std::string& pattern) {
  if (!IsPathPattern(pattern)) return {};
  std::vector<fs::path> matches = MatchesOf(pattern);
  std::erase_if(matches, IsSidecar);
  return matches;
}

// False if the item matches no file.
bool AddItem(const std::string& item, FileList& list) {
  std::error_code error;
  if (fs::exists(item, error)) {
    list.AddPath(item);
    return true;
  }
  // A list in one text may be longer than any name.
  if (error && error != std::errc::filename_too_long) {
    throw fs::filesystem_error("cannot look for data", item, error);
  }
  return list.AddMatches(DataMatchesOf(item), FixedPart(item));
}

[[noreturn]] void FailPattern(const std::string& pattern) {
  std::vector<std::string> near;
  for (const fs::path& path : NearMissesOf(pattern)) near.push_back(path.generic_string());
  const std::string fixed = FixedPart(pattern).string();
  std::string hint;
  if (!fixed.empty() && !fs::is_directory(fixed)) {
    hint = fmt::format("; there is no folder '{}'{}", fixed, DidYouMean(fixed, near));
  } else if (near.empty()) {
    hint = fmt::format("; there is nothing in '{}'", fixed.empty() ? "." : fixed);
  } else {
    hint = fmt::format("; what is there: {}", SomeNames(near));
  }
  Fail(ErrorCode::kDataUnreadable, "no file matches the pattern '{}'{}", pattern, hint);
}

[[noreturn]] void FailMissing(const std::string& item) {
  if (IsPathPattern(item)) FailPattern(item);
  std::vector<std::string> siblings;
  const fs::path parent = fs::path(item).parent_path();
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent.empty() ? "." : parent, ignored)) {
    siblings.push_back((parent / entry.path().filename()).generic_string());
  }
  Fail(ErrorCode::kDataUnreadable, "there is no file or folder '{}' to read data from{}", item,
       DidYouMean(item, siblings));
}

// Other list options separate items by commas, so users write paths that way, too.
void AddPartsOf(const std::string& item, FileList& list) {
  const std::vector<std::string> parts = Split(item, ',');
  if (parts.size() < 2) FailMissing(item);
  for (const std::string& part : parts) {
    const std::string name(Trim(part));
    if (name.empty() || !AddItem(name, list)) {
      Fail(ErrorCode::kDataUnreadable,
           "there is no file or folder '{}' to read data from; taken for a list, nothing is called "
           "'{}'",
           item, name);
    }
  }
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

DataFiles FindDataFiles(const std::vector<std::string>& given) {
  if (given.empty()) Fail(ErrorCode::kDataUnreadable, "no file or folder of data was given");
  FileList list;
  for (const std::string& item : given) {
    if (item.empty()) Fail(ErrorCode::kDataUnreadable, "the path of a file or folder is empty");
    try {
      if (!AddItem(item, list)) AddPartsOf(item, list);
    } catch (const fs::filesystem_error& error) {
      Fail(ErrorCode::kDataUnreadable, "cannot look for data in '{}': {}: {}", item,
           error.path1().string(), error.code().message());
    }
  }
  DataFiles found;
  found.name = LastComponent(given[0]);
  if (given.size() > 1) found.name += fmt::format(" and {} more", given.size() - 1);
  RefuseMixedKinds(list.files(), fmt::format("'{}'", found.name));
  found.kind = list.files()[0].kind;
  for (const KnownFile& known : list.files()) found.files.push_back(known.file);
  RefuseCompressedTokens(found);
  return found;
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
