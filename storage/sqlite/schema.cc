#include "storage/sqlite/schema.h"

#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <unordered_set>

namespace sublet::storage {
namespace {

constexpr const char* kCreate =
    "CREATE TABLE kv(id INTEGER PRIMARY KEY, key TEXT NOT NULL, created INTEGER NOT NULL,"
    " prev INTEGER NOT NULL, time INTEGER NOT NULL, flags INTEGER NOT NULL,"
    " hole INTEGER NOT NULL, expires INTEGER NOT NULL, value BLOB);"
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE local(key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;";

Result<bool> HasTables(Connection& connection) {
  SUBLET_TRY(const std::int64_t tables, connection.QueryInt("SELECT count(*) FROM sqlite_master"));
  return tables > 0;
}

Result<void> Configure(Connection& connection, const TestHooks* hooks) {
  SUBLET_TRY(const std::string mode, connection.QueryText("PRAGMA journal_mode=WAL"));
  if (mode != "wal") {
    return InternalError("SQLite refused the write-ahead log (journal mode " + mode +
                         "): is the directory on a network file system?");
  }
  // Checkpoints are ours: after the answers, not inside the commit (writer.cc).
  SUBLET_RETURN_IF_ERROR(
      connection.Exec("PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=-1024;"
                      "PRAGMA cell_size_check=ON; PRAGMA journal_size_limit=16777216;"
                      "PRAGMA temp_store=MEMORY"));
  return connection.Exec(hooks != nullptr && hooks->skip_sync ? "PRAGMA synchronous=OFF"
                                                              : "PRAGMA synchronous=FULL");
}

Result<void> CreateTables(Connection& connection) {
  const std::string sql = "BEGIN IMMEDIATE;" + std::string(kCreate) +
                          "PRAGMA application_id=" + std::to_string(kApplicationId) +
                          ";PRAGMA user_version=" + std::to_string(kSchemaVersion) + ";COMMIT";
  auto created = connection.Exec(sql.c_str());
  if (!created.ok() && connection.InTransaction()) {
    (void)connection.Exec("ROLLBACK");
  }
  return created;
}

void RemoveWithLogs(const std::string& path) {
  for (const char* suffix : {"", "-journal", "-wal", "-shm"}) {
    ::unlink((path + suffix).c_str());
  }
}

// A new file under another name, complete and durable with one sync. SQLite's own way would sync
// each of its steps: a dozen times, which is most of a first start.
Result<void> CreateFile(const std::string& path, const char* vfs, const TestHooks* hooks) {
  Connection connection;
  SUBLET_RETURN_IF_ERROR(connection.Open({.path = path, .vfs = vfs}));
  SUBLET_RETURN_IF_ERROR(
      connection.Exec("PRAGMA synchronous=OFF; PRAGMA journal_mode=MEMORY;"
                      // Only possible before the first page is written.
                      "PRAGMA auto_vacuum=INCREMENTAL"));
  SUBLET_RETURN_IF_ERROR(CreateTables(connection));
  SUBLET_TRY(const std::string mode, connection.QueryText("PRAGMA journal_mode=WAL"));
  if (mode != "wal") {
    return InternalError("SQLite refused the write-ahead log (journal mode " + mode +
                         "): is the directory on a network file system?");
  }
  return hooks != nullptr && hooks->skip_sync ? Result<void>() : connection.Sync();
}

// state.db appears whole or not at all: its name is given when its content is durable.
Result<void> CreateDatabase(const std::string& path, const char* vfs, const TestHooks* hooks) {
  const std::string unfinished = path + ".new";
  RemoveWithLogs(unfinished);
  SUBLET_RETURN_IF_ERROR(CreateFile(unfinished, vfs, hooks));
  RemoveWithLogs(path);  // empty: of a start that ended early, nothing was ever answered from it
  if (::rename(unfinished.c_str(), path.c_str()) != 0) {
    return InternalError("cannot name the new database " + path + ": " + std::strerror(errno));
  }
  return {};
}

}  // namespace

Result<void> OpenDatabase(Connection& connection, const std::string& path, const char* vfs,
                          const TestHooks* hooks) {
  const Connection::Options options{.path = path, .vfs = vfs};
  SUBLET_RETURN_IF_ERROR(connection.Open(options));
  SUBLET_TRY(const bool has_tables, HasTables(connection));
  if (!has_tables) {
    connection.Close();
    SUBLET_RETURN_IF_ERROR(CreateDatabase(path, vfs, hooks));
    if (hooks != nullptr && hooks->at) {
      hooks->at("open.schema");
    }
    SUBLET_RETURN_IF_ERROR(connection.Open(options));
  }
  SUBLET_TRY(const std::int64_t application, connection.QueryInt("PRAGMA application_id"));
  if (application != kApplicationId) {
    return InternalError(path + " is not a Sublet database; choose another data directory");
  }
  SUBLET_TRY(const std::int64_t version, connection.QueryInt("PRAGMA user_version"));
  if (version > kSchemaVersion) {
    return BadRequest(path + " was written by a newer version of sublet (format " +
                      std::to_string(version) + ", this one knows up to " +
                      std::to_string(kSchemaVersion) + "); install that version");
  }
  if (sqlite3_db_readonly(connection.handle(), "main") == 1) {
    return SqliteStatus(SQLITE_READONLY, "open", path, "attempt to write a readonly database");
  }
  return Configure(connection, hooks);
}

Result<std::int64_t> ReadMeta(Connection& connection, const char* name) {
  SUBLET_TRY(Statement select, connection.Prepare("SELECT value FROM meta WHERE name = ?"));
  select.BindText(1, name);
  SUBLET_TRY(const bool row, select.Step());
  return row ? select.Int(0) : std::int64_t{0};
}

Result<RawRow> ReadRow(const Statement& statement) {
  RawRow row;
  row.id = statement.Int(0);
  if (!statement.IsText(1)) {
    row.key = {};
  } else {
    row.key = statement.Bytes(1);
  }
  row.created = statement.Int(2);
  row.prev = statement.Int(3);
  row.time_unix_ms = statement.Int(4);
  row.flags = statement.Int(5);
  row.hole = statement.Int(6);
  row.expires_unix = statement.Int(7);
  row.value_is_null = statement.IsNull(8);
  row.value = statement.Bytes(8);
  SUBLET_RETURN_IF_ERROR(CheckRow(row));
  return row;
}

Result<Loaded> LoadRows(Connection& connection, const AttachmentMaker& make_attachment) {
  Loaded loaded;
  SUBLET_TRY(loaded.compacted, ReadMeta(connection, "compacted"));
  SUBLET_TRY(loaded.history_compacted, ReadMeta(connection, "history_compacted"));
  SUBLET_TRY(const std::int64_t floor, ReadMeta(connection, "revision"));
  loaded.revision = std::max<Revision>(1, floor);

  // length() reads the row's header only, so superseded values are not loaded.
  SUBLET_TRY(Statement newest,
             connection.Prepare("SELECT id, key, time, flags, length(value) FROM kv"
                                " ORDER BY id DESC"));
  const std::string by_id = std::string("SELECT ") + kRowColumns + " FROM kv WHERE id = ?";
  SUBLET_TRY(Statement full, connection.Prepare(by_id.c_str()));
  std::unordered_set<std::string> deleted;
  for (;;) {
    SUBLET_TRY(const bool more, newest.Step());
    if (!more) {
      break;
    }
    const RowId id = newest.Int(0);
    if (id < FirstRow(1) || id > LastRow(kRevisionMax)) {
      return InternalError("the database file is damaged: row id " + std::to_string(id) +
                           "; restore it from a backup");
    }
    const std::string key(newest.Bytes(1));
    loaded.revision = std::max(loaded.revision, RevisionOf(id));
    const std::int64_t time = newest.Int(2);
    if (loaded.times.empty() || time / 1000 < loaded.times.back().first / 1000) {
      loaded.times.emplace_back(time, RevisionOf(id));
    }
    if (loaded.tree.Find(key) != nullptr || deleted.contains(key)) {
      loaded.history_bytes += RowBytes(key.size(), static_cast<std::size_t>(newest.Int(4)));
      continue;
    }
    if ((newest.Int(3) & kRowDeleted) != 0) {
      loaded.history_bytes += RowBytes(key.size(), 0);
      deleted.insert(key);
      continue;
    }
    full.Bind(1, id);
    SUBLET_TRY(const bool found, full.Step());
    if (!found) {
      return InternalError("the database file is damaged: row " + std::to_string(id) +
                           " is listed and missing; restore it from a backup");
    }
    SUBLET_TRY(const RawRow row, ReadRow(full));
    EntryRef entry = MakeEntry(row, make_attachment);
    loaded.value_bytes += entry->key.size() + entry->value->bytes.size();
    loaded.tree.Set(std::move(entry));
    full.Reset();
  }
  std::reverse(loaded.times.begin(), loaded.times.end());
  return loaded;
}

}  // namespace sublet::storage
