#include "gt/fusion/kernel_files.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "gt/base/text.h"
#include "gt/fusion/kernel_source.h"
#include "gt/ir/text.h"
#include "gt/storage/file_writer.h"

namespace gt::fusion {
namespace {

struct Kernel {
  KernelSource source;
  const Graph* body = nullptr;
  std::vector<std::string> users;  // modules and phases
};

std::string Commented(const std::string& text) {
  std::string result;
  for (const std::string& line : Split(text, '\n')) {
    if (!line.empty()) result += "// " + line + "\n";
  }
  return result;
}

std::string TextOf(const Kernel& kernel) {
  constexpr size_t kShown = 8;
  std::string text =
      fmt::format("// {}: {} group(s) of operators\n", kernel.source.name, kernel.users.size());
  for (size_t i = 0; i < std::min(kShown, kernel.users.size()); ++i) {
    text += "//   " + kernel.users[i] + "\n";
  }
  if (kernel.users.size() > kShown)
    text += fmt::format("//   and {} more\n", kernel.users.size() - kShown);
  text += "//\n" + Commented(Print(*kernel.body)) + "//\n";
  for (size_t i = 0; i < kernel.source.sizes.size(); ++i) {
    text +=
        fmt::format("// s{} is {} here\n", i, kernel.body->shapes().Print(kernel.source.sizes[i]));
  }
  return text + "\n" + kernel.source.text;
}

}  // namespace

KernelFiles WriteKernelFiles(const Graph& graph, const std::filesystem::path& folder) {
  KernelFiles files;
  std::map<std::string, size_t> numbers;  // by text
  std::vector<Kernel> kernels;
  for (const Node* node : graph.nodes()) {
    const Graph* body = FusedBody(*node);
    if (body == nullptr) continue;
    ++files.groups;
    auto source = MakeKernelSource(*body);
    if (!source) continue;
    auto [number, fresh] = numbers.try_emplace(source->text, kernels.size());
    if (fresh) kernels.push_back({std::move(*source), body, {}});
    kernels[number->second].users.push_back(
        fmt::format("{} ({})", node->meta().module.str(), Spelling(node->meta().phase)));
  }
  CreateFolders(folder);
  for (size_t i = 0; i < kernels.size(); ++i) {
    WriteFile(folder / fmt::format("{:02}_{}.cu", i, kernels[i].source.name), TextOf(kernels[i]));
  }
  files.kernels = static_cast<int64_t>(kernels.size());
  return files;
}

}  // namespace gt::fusion
