// The ranks of a job, seen from one of them: threads of one process, processes of many machines, or
// one process that stands for all. The rest of the program cannot tell them apart.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "gt/dist/backend_crash.h"
#include "gt/dist/flight_record.h"
#include "gt/dist/group.h"
#include "gt/dist/mesh.h"
#include "gt/dist/watch.h"
#include "gt/job/sections/comm_backend.h"

namespace gt {

struct Config;

class World {
 public:
  // Runs `body` once for every rank that lives in this process: once for a process among others or a
  // job of one rank, and on --ranks threads otherwise. Returns when all have returned. An error of
  // one rank ends the others; the first one is thrown.
  static void Run(const Config& config, const std::function<void(World&)>& body);

  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  // Which GPU of this machine is this rank's.
  int64_t local_rank() const { return local_rank_; }
  // Ranks that live in this process, this one included.
  int64_t ranks_in_process() const { return threads_ ? size_ : 1; }
  // Ranks that may use the memory of this rank's device, this one included.
  int64_t ranks_on_device() const;
  // Ranks on this rank's machine, this one included, as far as the launcher says so.
  int64_t ranks_on_machine() const { return local_size_; }
  bool first() const { return rank_ == 0; }
  CommBackend backend() const { return backend_; }
  // One process stands for all ranks: the others are not there, and nothing can be asked of them.
  bool pretended() const { return FactsOf(backend_).stands_for_all; }
  // "4 ranks as threads, gloo"
  std::string Describe() const;

  // The group of this rank along an axis of the mesh, made on first use; every member must ask for it,
  // all in the same order. Null for an axis of one rank, unless collectives of one are asked for.
  const Group* Along(const Mesh& mesh, MeshAxis axis);
  // By name; null when there is none.
  const Group* Find(const std::string& name) const;
  // A further group; names are unique within a job.
  const Group& MakeGroup(Group group, bool on_device = true);
  // Closes the group that was made last; every member must do so.
  void CloseLastGroup();

  // Sums numbers over all ranks. Waits. Not part of any step: these run over a group of their own.
  std::vector<double> Sum(std::vector<double> numbers);
  // The same with the largest over all ranks of each number.
  std::vector<double> Max(std::vector<double> numbers);
  void Barrier();

  // A text for every rank to see, by name. Reading waits for the rank that writes it as long as that
  // gives signs of life (writing a large checkpoint takes its time), and fails when it is gone.
  void Publish(const std::string& name, const std::string& text);
  std::string Read(const std::string& name, int64_t writer);

  // One decision for all ranks: the first one decides and publishes, the others are given its answer.
  // Every rank must ask in the same order; `what` is for messages. Where one rank stands for all, it
  // decides.
  std::string DecideForAll(const std::string& what, const std::function<std::string()>& decide);

  // Sends a tensor in host memory to another rank, or receives it; they must come in pairs.
  void Send(const at::Tensor& tensor, int64_t rank);
  void Receive(at::Tensor& tensor, int64_t rank);

  // Where flight records go, once the folder of the run is chosen.
  void SetDumpFolder(std::string folder) { dump_folder_ = std::move(folder); }
  FlightRecord& record() { return record_; }
  // When communication is the reason why the job ends.
  void WriteFlightRecord(const Error& reason) const;

 private:
  struct Place;  // how a rank joins: its number, its store
  World(const Config& config, const Place& place);
  static void RunProcess(const Config& config, const Place& place,
                         const std::function<void(World&)>& body);
  static void RunThreads(const Config& config, const std::function<void(World&)>& body);
  void Assemble();
  void TakeSeat();
  void AwaitAll();
  // Tells the other ranks why this one ends.
  void GiveUp(const Error& error);
  Error OnBackendCrash(const std::string& what);
  c10::intrusive_ptr<c10d::Backend> MakeBackend(const Group& group, bool on_device);
  c10::intrusive_ptr<c10d::Backend> Connect(const Group& group, bool on_device);
  // Until all members have connected.
  void AwaitMembers(const Group& group);
  const Group& Control();
  std::vector<double> Reduce(std::vector<double> numbers, c10d::ReduceOp how);

  std::unique_ptr<const Config> config_;
  int64_t rank_ = 0;
  int64_t size_ = 1;
  int64_t local_rank_ = 0;
  int64_t local_size_ = 1;
  bool threads_ = false;
  std::string address_;
  std::string dump_folder_;
  CommBackend backend_ = CommBackend::kGloo;
  c10::intrusive_ptr<c10d::Store> store_;
  FlightRecord record_;
  std::unique_ptr<Watch> watch_;
  std::unique_ptr<BackendCrash> crash_;
  std::deque<Group> groups_;  // addresses stay
  std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> process_groups_;
  const Group* control_ = nullptr;
  int64_t decisions_ = 0;
  std::map<CommBackend, std::shared_ptr<void>> backend_state_;  // what groups of a backend share
};

}  // namespace gt
