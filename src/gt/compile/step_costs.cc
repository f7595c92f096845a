#include "gt/compile/step_costs.h"

#include <filesystem>
#include <system_error>

#include "gt/analysis/collectives.h"
#include "gt/base/logging.h"
#include "gt/base/read_file.h"
#include "gt/base/resources.h"
#include "gt/dist/world_groups.h"
#include "gt/exec/measure_costs.h"
#include "gt/passes/placement/shard_geometry.h"
#include "gt/sim/cluster_path.h"
#include "gt/storage/file_writer.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

std::string NameOf(c10::Device device) { return device.is_cuda() ? "cuda" : "cpu"; }

CostTable ReadCosts(const std::string& path, c10::Device device) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  std::string text;
  try {
    text = ReadWholeFile(path);
  } catch (const UnreadableFile& problem) {
    Fail(ErrorCode::kBadCosts, "cannot read the costs in {} (--compile.costs_file): {}", path,
         problem.what());
  }
  CostTable table = CostTable::FromJson(text, path);
  if (!table.device.empty() && table.device != NameOf(device)) {
    Fail(ErrorCode::kBadCosts, "{} holds times of {}, but the step runs on {}", path, table.device,
         NameOf(device));
  }
  return table;
}

void WriteCosts(const CostTable& table, const std::string& path) {
  if (fs::path parent = fs::path(path).parent_path(); !parent.empty()) CreateFolders(parent);
  WriteFile(path, table.ToJson());
}

}  // namespace

StepCosts::StepCosts(const Config& config, World* world, c10::Device device, JobCluster cluster)
    : config_(config),
      world_(world),
      device_(device),
      cluster_(std::move(cluster)),
      file_(config.compile.costs_file.empty() ? config.dump_folder + "/costs.json"
                                              : config.compile.costs_file) {
  uses_table_ = config.compile.costs == CostSource::kMeasured || !config.compile.costs_file.empty();
  if (uses_table_ && decides()) table_ = ReadCosts(file_, device);
  table_.device = NameOf(device);
}

const LinkModel& StepCosts::links() {
  if (!links_) {
    links_.emplace(cluster_.cluster != nullptr ? *cluster_.cluster
                                               : ReadCluster(ClusterPath(config_.comm.cluster)));
  }
  return *links_;
}

// A step that is only looked at is meant for the cluster's GPUs, wherever it was captured.
DeviceSpeed StepCosts::Speed() {
  const bool only_looked_at = FactsOf(config_.comm.backend).sends_nothing;
  const bool is_meant = cluster_.cluster != nullptr || device_.is_cuda() || only_looked_at;
  return is_meant ? SpeedOf(links().cluster()) : SpeedOf("cpu");
}

std::string StepCosts::Describe() {
  const bool measured = table_.size() > 0;
  return fmt::format("compute as {} {}, links of {}", measured ? "measured on" : "estimated for",
                     measured ? table_.device : Speed().name, links().cluster().name);
}

std::unique_ptr<CostModel> StepCosts::For(const Graph& graph) {
  if (config_.compile.costs == CostSource::kMeasured && decides()) Learn(graph);
  CostModelOptions options;
  options.device = Speed();
  options.links = &links();
  const bool emulated = FactsOf(config_.comm.backend).stands_for_all;
  options.link_scale = emulated ? config_.comm.emulated_time_scale : 1;
  options.contention = config_.comm.contention;
  options.groups = SpansOf(graph);
  options.table = table_.size() > 0 ? &table_ : nullptr;
  return MakeCostModel(graph, std::move(options));
}

void StepCosts::Share(const Graph& graph) {
  if (!uses_table_ || world_ == nullptr) return;
  const std::string text = world_->DecideForAll("measured costs", [&] {
    if (config_.compile.costs == CostSource::kMeasured) Learn(graph);
    return table_.ToJson();
  });
  if (!decides()) table_ = CostTable::FromJson(text, "the costs of rank 0");
}

void StepCosts::Learn(const Graph& graph) {
  const int64_t measured = MeasureCosts(graph, device_, &table_);
  if (measured == 0) return;
  WriteCosts(table_, file_);
  log::Info("measured {} operators; their times are in {}", measured, file_);
}

std::map<std::string, GroupSpan, std::less<>> StepCosts::SpansOf(const Graph& graph) {
  std::map<std::string, GroupSpan, std::less<>> spans;
  if (world_ == nullptr && !placed_on_) return spans;
  for (const Node* node : graph.nodes()) {
    if (node->op().group_arg < 0) continue;
    const auto& name = GroupOf(*node);
    if (spans.contains(name)) continue;
    const int64_t gpus_per_node = links().cluster().gpus_per_node;
    if (const Group* group = world_ == nullptr ? nullptr : FindSource(*world_, name)) {
      spans.emplace(name, SlowestSpan(group->ranks, world_->size(), gpus_per_node));
    } else if (placed_on_) {
      placement::AxisMask axes = 0;
      for (int8_t axis : AxesOfMeshGroup(std::string_view(name).substr(0, name.find('.')))) {
        axes = static_cast<placement::AxisMask>(axes | 1 << axis);
      }
      if (axes != 0) spans.emplace(name, placed_on_->Span(axes, gpus_per_node));
    }
  }
  return spans;
}

}  // namespace gt
