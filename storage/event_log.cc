#include "storage/event_log.h"

#include <algorithm>

namespace sublet::storage {
namespace {

// What only the log keeps alive: the event, its key, the state before, and the value of a delete.
std::size_t OwnBytes(const StoredEvent& event) {
  std::size_t bytes = sizeof(StoredEvent) + event.key.size();
  if (event.previous) {
    bytes += event.previous->bytes.size() + sizeof(Entry) + sizeof(Value);
  }
  if (event.type == EventType::kDelete) {
    bytes += event.value->bytes.size() + sizeof(Value);
  }
  return bytes;
}

}  // namespace

void EventLog::Append(StoredEventPtr event) {
  if (slots_.empty() || slots_.back().count == kChunkEvents) {
    slots_.push_back({std::make_shared<Chunk>(), 0, 0, 0});
  }
  Slot& slot = slots_.back();
  const std::size_t bytes = OwnBytes(*event);
  slot.last_row = event->row;
  slot.bytes += bytes;
  slot.chunk->events[slot.count++] = std::move(event);
  ++events_;
  bytes_ += bytes;
  while (slots_.size() > 1 && (events_ > limits_.events_max || bytes_ > limits_.bytes_max)) {
    DropOldest();
  }
}

void EventLog::TrimTo(Revision revision) {
  while (!slots_.empty() && RevisionOf(slots_.front().last_row) <= revision) {
    DropOldest();
  }
  floor_ = std::max(floor_, slots_.empty() ? revision : floor_);
}

void EventLog::DropOldest() {
  floor_ = std::max(floor_, RevisionOf(slots_.front().last_row));
  events_ -= slots_.front().count;
  bytes_ -= slots_.front().bytes;
  slots_.pop_front();
}

EventLog::Window EventLog::Look(RowId after) const {
  Window window;
  window.floor_ = floor_;
  const auto first = std::partition_point(
      slots_.begin(), slots_.end(), [after](const Slot& slot) { return slot.last_row <= after; });
  window.parts_.reserve(static_cast<std::size_t>(slots_.end() - first));
  for (auto slot = first; slot != slots_.end(); ++slot) {
    window.parts_.push_back({slot->chunk, slot->count, slot->last_row});
  }
  return window;
}

}  // namespace sublet::storage
