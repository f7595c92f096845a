// Merges the output of many processes into one stream without mixing their lines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gt {

// Rank 0 speaks for the job: its bytes go out as they come, so that a progress bar moves. Of the
// other ranks whole lines go out, each after its "[rank 3] ". While rank 0 is in the middle of a
// line the others wait for its end, or for Break.
//
// Knows nothing of files and clocks: what is to be written is returned.
class LineMerger {
 public:
  explicit LineMerger(std::size_t ranks) : unfinished_(ranks) {}

  // Lines longer than this are cut in pieces, so that a rank that prints no line ends fills no
  // memory.
  static constexpr std::size_t kMaxLine = std::size_t{1} << 16;

  std::string Add(std::size_t rank, std::string_view bytes);
  // The rank prints no more; its last line may lack the end.
  std::string Finish(std::size_t rank);

  // Lines wait for the end of rank 0's.
  bool waiting() const { return !held_.empty(); }
  // Ends rank 0's line where it is, for the sake of those that wait.
  std::string Break();

 private:
  std::string AddRankZero(std::string_view bytes);
  void Hold(std::size_t rank, std::string_view line);
  std::string TakeHeldUnlessInLine();

  std::vector<std::string> unfinished_;  // by rank; what came after its last line end
  std::string held_;
  bool in_line_of_rank_zero_ = false;
};

}  // namespace gt
