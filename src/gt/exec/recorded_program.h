// A program whose static stretches are recorded once and then replayed, each as one launch; what is between
// them (the host reads token counts, sizes depend on them, tensors travel to the host) runs instruction by
// instruction, as always. analysis/recorded_spans.h says what is recorded.
//
// Recordings read and write fixed addresses in memory that they share: what one has freed, a later one or a
// fixed value takes, as in the run in which they were made. On a replay their results are tensors that own
// nothing. What is made between spans and read by one is copied to its fixed address, or made there.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gt/analysis/recorded_spans.h"
#include "gt/exec/device_graph.h"
#include "gt/exec/program.h"
#include "gt/torch_bridge/recording.h"

namespace gt {

class RecordedProgram {
 public:
  // `varying`: ascending positions of the inputs that are other tensors in every run; the others keep
  // their memory. The program must outlive it.
  using GraphMaker = std::function<std::unique_ptr<DeviceGraphs>()>;
  RecordedProgram(Program& program, const RecordedSpans& spans, std::vector<size_t> varying,
                  GraphMaker make_graphs);

  // As Program::Run. The first run records; its results, and those of later ones, are overwritten by the
  // next run. Inputs of other sizes than at first run instruction by instruction.
  std::vector<at::Tensor> Run(std::span<const at::Tensor> inputs);

  // Why nothing is recorded, once that was tried: names the operator. The run in which it failed, and
  // those after it, give the right results all the same.
  const std::string& failure() const { return failure_; }
  bool recorded() const { return recorded_; }
  // Of the device's memory, held by the recordings.
  int64_t bytes() const { return recorded_ ? graphs_->bytes() : 0; }

 private:
  using Register = Program::Register;

  // A result of an instruction between spans that spans read.
  struct Fixed {
    Register source = -1;
    const TensorType* type = nullptr;
    at::Tensor memory;  // owns nothing
  };
  struct Span {
    std::unique_ptr<DeviceGraph> graph;
    std::vector<std::pair<Register, at::Tensor>> left;  // what later instructions read of it
    std::vector<Register> dropped;                      // last read in it
    std::vector<size_t> loose;                          // instructions that run all the same
    std::vector<Recording::Replayed> calls;
  };
  // One thing after another, in the order of the program.
  struct Action {
    enum Kind : uint8_t {
      kRun,
      kSpan,
      kFix,        // the results of the instruction before are copied
      kWriteInto,  // the instruction writes its results there
    } kind;
    size_t first = 0, last = 0;  // instructions
    size_t index = 0;            // of the span, or the first fixed value
    size_t count = 0;            // of fixed values
  };

  class Planner;

  bool Fits(std::span<const at::Tensor> inputs) const;

  std::vector<at::Tensor> Record(std::span<const at::Tensor> inputs);
  void RecordAction(const Action& action);
  void RecordRun(const Action& action);
  void RecordSpan(const Action& action);
  void RecordFixed(const Action& action);
  void RecordInto(const Action& action);
  void HoldUntilWait(const Program::Instruction& instruction);
  void LetGoAfter(const Node& node);
  void KeepOutputs(const std::vector<at::Tensor>& outputs);
  void GiveUp();

  std::vector<at::Tensor> Replay(std::span<const at::Tensor> inputs);
  void ReplayAction(const Action& action);
  void ReplaySpan(const Action& action);

  // As the program does, without anything recorded.
  void RunOrdinarily(const Action& action);
  void WriteInto(const Action& action, std::span<const at::Tensor> memory);
  std::span<Fixed> FixedOf(const Action& action) {
    return std::span(fixed_).subspan(action.index, action.count);
  }
  at::Tensor Unowned(const at::Tensor& tensor) const;
  at::Tensor& At(Register number) { return program_.registers_[static_cast<size_t>(number)]; }

  Program& program_;
  const GraphMaker make_graphs_;
  std::unique_ptr<DeviceGraphs> graphs_;  // outlives the graphs
  std::vector<size_t> varying_;
  std::vector<Action> actions_;
  std::vector<Span> spans_;
  std::vector<Fixed> fixed_;
  std::vector<at::Tensor> inputs_;  // as recorded: what varies is copied there
  // While recording: what collectives in flight read, with the node that waits for them.
  std::vector<std::pair<const Node*, std::vector<at::Tensor>>> held_;
  bool recorded_ = false;
  std::string failure_;
};

}  // namespace gt
