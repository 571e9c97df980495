// EventLog: the recent changes, oldest first, kept in memory so that a watch which starts a little
// in the past and a list at a recent revision need no file. Bounded in events and bytes: past the
// bound the oldest chunk goes and readers of what was in it use the file.
//
// Invariants
//  1. Rows ascend; every change after floor() up to the last Append is here.
//  2. A chunk's filled slots never change; a Window sees the slots filled when it was taken.
// Threads: one appends; a Window may be read by any thread.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "storage/entry.h"

namespace sublet::storage {

class EventLog {
 public:
  static constexpr std::size_t kChunkEvents = 128;
  struct Chunk {
    std::array<StoredEventPtr, kChunkEvents> events;
  };

  // A consistent look at the log.
  class Window {
   public:
    // Changes after this revision are all in the window.
    Revision floor() const { return floor_; }
    // Calls `visit(const StoredEventPtr&)` for each change with row > `after`, in order, until it
    // returns false.
    template <typename Visit>
    void ForEachAfter(RowId after, Visit&& visit) const {
      for (const Part& part : parts_) {
        if (part.last_row <= after) {
          continue;
        }
        for (std::size_t i = 0; i < part.count; ++i) {
          const StoredEventPtr& event = part.chunk->events[i];
          if (event->row > after && !visit(event)) {
            return;
          }
        }
      }
    }

   private:
    friend class EventLog;
    struct Part {
      std::shared_ptr<const Chunk> chunk;
      std::size_t count = 0;
      RowId last_row = 0;
    };
    std::vector<Part> parts_;
    Revision floor_ = 0;
  };

  struct Limits {
    std::size_t events_max = 32768;
    std::size_t bytes_max = 16u << 20;  // of superseded values, which only the log keeps alive
  };

  EventLog(Revision floor, Limits limits) : limits_(limits), floor_(floor) {}

  void Append(StoredEventPtr event);
  // Forgets whole chunks of changes at or below `revision`.
  void TrimTo(Revision revision);
  Revision floor() const { return floor_; }
  std::size_t size() const { return events_; }
  std::size_t bytes() const { return bytes_; }
  // The window of changes with row > `after`.
  Window Look(RowId after) const;

 private:
  struct Slot {
    std::shared_ptr<Chunk> chunk;
    std::size_t count = 0;
    std::size_t bytes = 0;
    RowId last_row = 0;
  };
  void DropOldest();

  const Limits limits_;
  std::deque<Slot> slots_;
  std::size_t events_ = 0;
  std::size_t bytes_ = 0;
  Revision floor_;
};

}  // namespace sublet::storage
