// Collectives that are under way at the same time and share links.
//
// Each collective first spends its latency, in which it disturbs nobody and nobody disturbs it, and
// then its transfer at an equal share of its resource: with n transfers on one resource each advances
// at 1/n of the speed it has alone, and a transfer that begins or ends changes the speed of the others
// at that moment. No bandwidth is lost by sharing.
//
// Why an equal share, whatever the groups look like: times are those of one GPU, whose own links are
// the resource. Clusters with a network card per GPU connect card i of every node to the same switches
// (rails), so a group with one rank per node and one with eight per node send this GPU's bytes through
// the same card. Cards, switches and NVLink serve the queues that have something to send in turn, and
// queue lengths do not matter as long as none runs dry. All kinds of collectives send and receive at
// the same time, so there is one resource and not one for each direction. Where the GPUs of a node
// share a link (SimpleLinks), all of them take part in both collectives, and the same holds for the
// node.
//
// What this leaves out: a ring over whole nodes also fills most of the links inside the nodes, and
// does not slow down a collective there; congestion above the cards, in the network's upper switches;
// groups whose other ranks are busy elsewhere, and which therefore do not use their share.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "gt/sim/link_model.h"

namespace gt {

// Times are microseconds on any clock. Calls allocate only to make room for more concurrent
// collectives than there have been before. Copies are independent. Not thread-safe, not even the
// const functions: they share a scratch space.
class SharedLinks {
 public:
  // Without contention nobody slows anybody down: every collective ends total_us after its beginning.
  explicit SharedLinks(bool contention = true) : contention_(contention) {}

  // Forgets all collectives and the time.
  void Reset();

  // `now` is not before any time given so far. The id is reused after the end was reported.
  std::int32_t Begin(double now, const CollectiveTime& time);

  // When the first of them ends, if no other begins; +infinity without any. Knows that those that
  // still spend their latency will transfer later. If an end that has passed was not yet reported: the
  // time of that end.
  double NextEnd() const;

  // When this one ends, if no other begins: exact, with all ends and latencies on the way. Takes the
  // square of active(). The id's end must not have been reported.
  double EndOf(std::int32_t id) const;

  // Replaces *ended by the ids and times of those that ended up to and including `now` and were not
  // reported before, in the order of their ends; those that end together in the order they began.
  void AdvanceTo(double now, std::vector<std::pair<std::int32_t, double>>* ended);

  // How many began whose end was not reported.
  int active() const { return static_cast<int>(state_.items.size() + unreported_.size()); }
  bool idle() const { return active() == 0; }

 private:
  struct Item {
    std::int32_t id;
    LinkResource resource;  // kNone: shares with nobody
    bool transfers;         // takes a share of its resource now
    double transfer_begin;
    double end;  // if it had its resource for itself from the last change of its users on
  };
  struct Resource {
    std::int32_t users = 0;
    double changed = 0;  // when the number of users was last another one
  };
  struct Event {
    std::size_t item;
    double time;
    bool ends;  // otherwise its transfer begins
  };
  struct State {
    std::vector<Item> items;  // in the order they began
    std::array<Resource, 3> resources;

    Event Next() const;  // there is at least one item
    void Apply(const Event& event);
    void ChangeUsers(LinkResource which, double time, std::int32_t by);
  };

  void Run(double now);  // moves those that end up to `now` to unreported_

  static constexpr double kForever = std::numeric_limits<double>::infinity();

  bool contention_;
  double now_ = -kForever;
  State state_;
  double next_event_ = kForever;                       // of state_
  mutable std::optional<double> next_end_ = kForever;  // of state_; nothing: not computed yet
  std::vector<std::pair<std::int32_t, double>> unreported_;
  std::vector<std::int32_t> free_ids_;
  std::int32_t ids_ = 0;
  mutable State scratch_;
};

}  // namespace gt
