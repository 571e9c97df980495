// Entry: one version of one key as memory holds it; and StoredEvent, one change as the log holds
// it. Made by the writer (or read back from the file), immutable afterwards, shared by all threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "storage/ref.h"
#include "storage/store.h"

namespace sublet::storage {

// A row id carries revision and position in its transaction, so that a transaction of several keys
// has one revision and its rows still have an order: id = revision << 12 | index.
inline constexpr int kRowIndexBits = 12;
inline constexpr std::size_t kOpsMax = std::size_t{1} << kRowIndexBits;
using RowId = std::int64_t;
constexpr RowId FirstRow(Revision revision) { return revision << kRowIndexBits; }
constexpr RowId LastRow(Revision revision) { return FirstRow(revision) | (RowId{kOpsMax} - 1); }
constexpr Revision RevisionOf(RowId id) { return id >> kRowIndexBits; }

struct Entry : RefCounted {
  std::string key;
  Revision create_revision = 0;
  RowId row = 0;
  ValuePtr value;
  std::int64_t expires_unix = 0;  // seconds; 0 = never
  // True when every version since the key's creation was written so: then nothing below the API
  // horizon is kept of it. One version without the flag ends that until the key is created anew.
  bool short_history = false;

  Revision mod_revision() const { return RevisionOf(row); }
  Record ToRecord() const { return Record{key, create_revision, mod_revision(), value}; }
};
using EntryRef = Ref<const Entry>;

// About what the version takes on disk: payload and the row's header and cell.
inline std::int64_t RowBytes(std::size_t key_bytes, std::size_t value_bytes) {
  return static_cast<std::int64_t>(key_bytes + value_bytes) + 40;
}
inline std::int64_t RowBytes(const Entry& entry) {
  return RowBytes(entry.key.size(), entry.value->bytes.size());
}

struct StoredEvent : Event {
  RowId row = 0;
  EntryRef before;  // null for a create
};
using StoredEventPtr = std::shared_ptr<const StoredEvent>;

// The published form of `bytes` at `revision`: the decimal revision inserted at `revision_offset`
// (kNoHole: bytes unchanged). The caller has checked that the offset lies within.
ValuePtr MakeValue(std::string bytes, std::uint32_t revision_offset, Revision revision,
                   std::shared_ptr<const Attachment> attachment);
// `value` with its digits replaced by those of `revision`; shares the attachment.
ValuePtr AtRevision(const Value& value, Revision revision);
// The bytes of `value` without the digits, as an Op carries them.
std::string WithoutRevision(const Value& value);

// The event that turns `before` (null: the key did not exist) into `after` (null: deleted).
// `row` is the change's own row.
StoredEventPtr MakeEvent(RowId row, EntryRef before, EntryRef after);

}  // namespace sublet::storage
