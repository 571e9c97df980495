// Schema: makes and checks the file, and loads it into memory. The statements that read rows stand
// here too, so that columns and their order are known in one file.
// Threads: any; one connection at a time.
#pragma once

#include <string>
#include <vector>

#include "storage/key_tree.h"
#include "storage/sqlite/connection.h"
#include "storage/sqlite/row.h"
#include "storage/sqlite/test_hooks.h"

namespace sublet::storage {

inline constexpr int kApplicationId = 0x5375624c;  // "SubL"
inline constexpr int kSchemaVersion = 1;

// Columns in RawRow's order.
inline constexpr const char* kRowColumns =
    "id, key, created, prev, time, flags, hole, expires, value";
// Reads and checks the current row of a statement that selects kRowColumns.
// Errors: InternalError (damaged).
Result<RawRow> ReadRow(const Statement& statement);

// Opens `path` for writing, creating file and tables when they are missing.
// Errors: as OpenSqliteStore.
Result<void> OpenDatabase(Connection& connection, const std::string& path, const char* vfs,
                          const TestHooks* hooks);

// Named numbers beside the rows: revision (a floor for the counter: the newest row may have been
// compacted), compacted, history_compacted.
Result<std::int64_t> ReadMeta(Connection& connection, const char* name);

struct Loaded {
  KeyTree tree;
  Revision revision = 1;
  Revision compacted = 0;
  Revision history_compacted = 0;
  std::int64_t history_bytes = 0;  // rows that are not current
  std::size_t value_bytes = 0;     // current keys and values
  // (commit time in unix ms, highest revision of that time), oldest first, at least a second apart.
  std::vector<std::pair<std::int64_t, Revision>> times;
};
// One pass over all rows, newest first. Errors: InternalError (damaged, I/O).
Result<Loaded> LoadRows(Connection& connection, const AttachmentMaker& make_attachment);

}  // namespace sublet::storage
