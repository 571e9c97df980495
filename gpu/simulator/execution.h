// How a simulated device spends its time: contexts with unfinished work are served round robin in
// slices of 2 ms, one at a time, as a GPU without partitions does. Pure arithmetic on two numbers
// per context, so that tests of the lease arbiter use the same model on a virtual clock. Depends on
// nothing. Threads: the caller's lock.
#pragma once

#include <cstdint>

namespace sublet::gpu::simulator {

struct ExecutorClock {
  std::uint64_t now_ns = 0;
  std::uint64_t slice_used_ns = 0;
  std::int32_t running = -1;
};

// Executes from clock.now_ns to `to_ns`. work(i) returns {pending ns}, done(i, ns) books execution.
// Returns nothing; clock.now_ns is `to_ns` afterwards. Cost: one step per slice and context switch.
template <typename Pending, typename Book>
void Execute(ExecutorClock& clock, int contexts, std::uint64_t slice_ns, std::uint64_t to_ns,
             Pending pending, Book book) {
  const auto next_after = [&](std::int32_t from) -> std::int32_t {
    for (int step = 1; step <= contexts; ++step) {
      const std::int32_t at = (from + step) % contexts;
      if (pending(at) > 0) {
        return at;
      }
    }
    return -1;
  };
  while (clock.now_ns < to_ns && contexts > 0) {
    if (clock.running < 0 || clock.running >= contexts || pending(clock.running) == 0) {
      clock.running =
          next_after(clock.running < 0 || clock.running >= contexts ? contexts - 1 : clock.running);
      clock.slice_used_ns = 0;
      if (clock.running < 0) {
        break;
      }
    }
    std::uint64_t run = pending(clock.running);
    if (run > slice_ns - clock.slice_used_ns) {
      run = slice_ns - clock.slice_used_ns;
    }
    if (run > to_ns - clock.now_ns) {
      run = to_ns - clock.now_ns;
    }
    book(clock.running, run);
    clock.now_ns += run;
    clock.slice_used_ns += run;
    if (clock.slice_used_ns == slice_ns) {
      clock.running = next_after(clock.running);
      clock.slice_used_ns = 0;
    }
  }
  if (clock.now_ns < to_ns) {
    clock.now_ns = to_ns;
  }
}

}  // namespace sublet::gpu::simulator
