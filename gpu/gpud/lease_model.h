// LeaseModel: processes that launch kernels, the gate as gpu/hooks/launch.cc has it, a device that
// slices time (gpu/simulator/execution.h) and the Arbiter, on a virtual clock. Tests and the demo
// of shares run minutes of device time in seconds with it. Delays stand for messages and wake-ups.
// Test code. Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "gpu/gpud/arbiter.h"
#include "gpu/simulator/execution.h"

namespace sublet::gpu {

class LeaseModel {
 public:
  struct Slice {
    LeasePolicy policy;
    Nanoseconds kernel = 1'000'000;
    // Whether the program has something to launch at a time.
    std::function<bool(Nanoseconds)> has_work = [](Nanoseconds) { return true; };
    // Whether the kernel that runs gets on; otherwise it spins, for a partner on another device.
    std::function<bool()> gets_on = [] { return true; };
    std::size_t queue_depth = 16;  // kernels in flight while it is alone
    Nanoseconds done = 0;          // executed so far
    Nanoseconds spun = 0;          // time of the device that brought nothing
    std::uint64_t launched = 0;
    std::uint64_t finished = 0;
    std::uint64_t known_finished = 0;
    Nanoseconds last_done = 0;
    std::deque<Nanoseconds> queue;  // what is left of each kernel under way
    LeaseWord word;                 // as the client sees it
    LeaseWord next_word;
    Nanoseconds next_word_at = 0;
    bool waiting = false;
    bool drained_said = true;
    Nanoseconds first_wait = -1;
    Nanoseconds longest_wait = 0;
  };

  static constexpr Nanoseconds kStep = 20'000;
  static constexpr Nanoseconds kMessage = 30'000;  // a notice, or a word reaching a waiter
  static constexpr Nanoseconds kPoll = 100'000;    // the helper thread's round

  explicit LeaseModel(std::vector<Slice> slices) : slices_(std::move(slices)) {
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      arbiter_.Add(static_cast<int>(i), slices_[i].policy);
    }
  }

  // Runs to `until` and returns what each slice executed since the last call.
  std::vector<Nanoseconds> RunTo(Nanoseconds until) {
    std::vector<Nanoseconds> before;
    for (const Slice& slice : slices_) {
      before.push_back(slice.done);
    }
    while (now_ < until) {
      now_ += kStep;
      Device();
      for (std::size_t i = 0; i < slices_.size(); ++i) {
        Client(static_cast<int>(i));
      }
      Daemon();
    }
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      before[i] = slices_[i].done - before[i];
    }
    return before;
  }

  // The daemon looks at the device in the next step.
  void Poke() { wake_ = now_; }

  std::vector<Slice>& slices() { return slices_; }
  Arbiter& arbiter() { return arbiter_; }
  Nanoseconds now() const { return now_; }
  Nanoseconds idle() const { return idle_; }  // time in which nothing executed
  int open_max() const { return open_max_; }

 private:
  void Device() {
    std::uint64_t ran = 0;
    simulator::Execute(
        clock_, static_cast<int>(slices_.size()), 2'000'000, static_cast<std::uint64_t>(now_),
        [&](int i) {
          std::uint64_t pending = 0;
          for (const Nanoseconds left : slices_[static_cast<std::size_t>(i)].queue) {
            pending += static_cast<std::uint64_t>(left);
          }
          return pending;
        },
        [&](int i, std::uint64_t ns) {
          Slice& slice = slices_[static_cast<std::size_t>(i)];
          ran += ns;
          if (!slice.gets_on()) {
            slice.spun += static_cast<Nanoseconds>(ns);
            return;
          }
          slice.done += static_cast<Nanoseconds>(ns);
          auto left = static_cast<Nanoseconds>(ns);
          while (left > 0 && !slice.queue.empty()) {
            const Nanoseconds part = std::min(left, slice.queue.front());
            slice.queue.front() -= part;
            left -= part;
            if (slice.queue.front() == 0) {
              slice.queue.pop_front();
              ++slice.finished;
            }
          }
        });
    idle_ += kStep - static_cast<Nanoseconds>(ran);
  }

  void Client(int index) {
    Slice& slice = slices_[static_cast<std::size_t>(index)];
    if (slice.next_word_at != 0 && now_ >= slice.next_word_at) {
      slice.word = slice.next_word;
      slice.next_word_at = 0;
    }
    const bool was_waiting = slice.waiting;
    slice.waiting = false;
    if (slice.has_work(now_)) {
      Launch(slice);
    }
    // A thread waits either at the gate or for room; both look at marks when they wake.
    if (now_ % kPoll < kStep || slice.waiting) {
      if (slice.known_finished != slice.finished) {
        slice.known_finished = slice.finished;
        slice.last_done = now_;
      }
    }
    if (slice.waiting && !was_waiting) {
      events_.push_back({now_ + kMessage, index, true});
      slice.first_wait = now_;
    }
    if (!slice.waiting && was_waiting) {
      slice.longest_wait = std::max(slice.longest_wait, now_ - slice.first_wait);
    }
    if (!slice.word.is_open && slice.known_finished == slice.launched && !slice.drained_said) {
      slice.drained_said = true;
      events_.push_back({now_ + kMessage, index, false});
    }
  }

  void Launch(Slice& slice) {
    for (int burst = 0; burst < 64; ++burst) {
      if (!slice.word.is_open) {
        slice.waiting = true;
        return;
      }
      const std::uint64_t unfinished =
          slice.launched - (slice.word.is_contended ? slice.known_finished : slice.finished);
      if (slice.word.is_contended) {
        const Nanoseconds left = slice.word.end - now_;
        const auto allowed =
            static_cast<std::uint64_t>(std::max<Nanoseconds>(left / slice.kernel, 1));
        if (left <= 0 || (unfinished != 0 && unfinished >= allowed)) {
          slice.waiting = left <= 0;
          slice.known_finished = slice.finished;
          return;
        }
      } else if (unfinished >= slice.queue_depth) {
        return;
      }
      slice.queue.push_back(slice.kernel);
      ++slice.launched;
      slice.drained_said = false;
    }
  }

  void Daemon() {
    bool due = wake_ != 0 && now_ >= wake_;
    while (!events_.empty() && events_.front().at <= now_) {
      const Event event = events_.front();
      events_.pop_front();
      event.wants ? arbiter_.Want(event.slice) : arbiter_.Idle(event.slice);
      due = true;
    }
    if (!due) {
      return;
    }
    wake_ = arbiter_.Step(
        now_,
        [&](int i) {
          const Slice& slice = slices_[static_cast<std::size_t>(i)];
          return LeaseObservation{.is_waiting = slice.waiting,
                                  .is_unfinished = slice.word.is_contended || !slice.word.is_open
                                                       ? slice.known_finished != slice.launched
                                                       : false,
                                  .launches = slice.launched,
                                  .last_done = slice.last_done};
        },
        [&](int i, const LeaseWord& word) {
          Slice& slice = slices_[static_cast<std::size_t>(i)];
          slice.next_word = word;
          slice.next_word_at = now_ + kMessage;
          published_.resize(slices_.size());
          published_[static_cast<std::size_t>(i)] = word.is_open;
          open_max_ = std::max(
              open_max_, static_cast<int>(std::count(published_.begin(), published_.end(), true)));
        });
  }

  struct Event {
    Nanoseconds at;
    int slice;
    bool wants;
  };
  std::vector<Slice> slices_;
  Arbiter arbiter_;
  simulator::ExecutorClock clock_;
  std::deque<Event> events_;
  std::vector<bool> published_;
  Nanoseconds now_ = 0;
  Nanoseconds wake_ = 0;
  Nanoseconds idle_ = 0;
  int open_max_ = 0;
};

}  // namespace sublet::gpu
