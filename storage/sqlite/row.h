// Row: one line of the table kv, as read back from a file that may hold anything.
//   kv(id INTEGER PRIMARY KEY, key TEXT, created, prev, time, flags, hole, expires, value BLOB)
//   id       revision << 12 | index in the transaction (entry.h)
//   created  revision of the key's creation
//   prev     id of the version before; 0 for a creation
//   time     unix milliseconds of the commit
//   flags    1 = deletion (value NULL), 2 = short history
//   hole     offset of the revision's digits in value; -1 = none
//   expires  unix seconds; 0 = never
// Value comes last so that reading the other columns of a long row does not touch its overflow
// pages. Threads: any; pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "storage/entry.h"

namespace sublet::storage {

inline constexpr std::size_t kKeyBytesMax = 4096;
inline constexpr std::size_t kValueBytesMax = 16u << 20;
// Far above what a counter reaches in practice; a row beyond it is damage.
inline constexpr Revision kRevisionMax = Revision{1} << 50;
inline constexpr std::int64_t kRowDeleted = 1;
inline constexpr std::int64_t kRowShortHistory = 2;

// The columns as SQLite hands them out; the texts are valid until its next step.
struct RawRow {
  RowId id = 0;
  std::string_view key;
  Revision created = 0;
  RowId prev = 0;
  std::int64_t time_unix_ms = 0;
  std::int64_t flags = 0;
  std::int64_t hole = -1;
  std::int64_t expires_unix = 0;
  std::string_view value;
  bool value_is_null = false;

  bool deleted() const { return (flags & kRowDeleted) != 0; }
  bool short_history() const { return (flags & kRowShortHistory) != 0; }
};

// Checks everything that later code relies on. Errors: InternalError (names row and column).
Result<void> CheckRow(const RawRow& row);

// The entry of a checked row that is not a deletion.
using AttachmentMaker =
    std::function<std::shared_ptr<const Attachment>(std::string_view key, std::string_view bytes)>;
EntryRef MakeEntry(const RawRow& row, const AttachmentMaker& make_attachment);

}  // namespace sublet::storage
