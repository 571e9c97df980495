#include "storage/sqlite/connection.h"

#include <sqlite3.h>

#include <mutex>
#include <utility>

#include "base/check.h"

namespace sublet::storage {

SqliteFailure ClassifySqliteCode(int code) {
  switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE: return SqliteFailure::kNone;
    case SQLITE_FULL: return SqliteFailure::kFull;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH: return SqliteFailure::kReadOnly;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT: return SqliteFailure::kCorrupt;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return SqliteFailure::kBusy;
    case SQLITE_IOERR: return SqliteFailure::kIo;
    default: return SqliteFailure::kOther;
  }
}

Status SqliteStatus(int code, std::string_view what, std::string_view path,
                    std::string_view detail) {
  const std::string where = std::string(what) + " in " + std::string(path) + ": ";
  const std::string tail = " (SQLite " + std::to_string(code) + ": " + std::string(detail) + ")";
  switch (ClassifySqliteCode(code)) {
    case SqliteFailure::kFull:
      return ServiceUnavailable(where + "the disk is full; free space on it, writes go on then" +
                                tail);
    case SqliteFailure::kReadOnly:
      return Status(Reason::kForbidden,
                    where +
                        "no permission to write; check the owner and mode of the file and "
                        "its directory, and that the volume is not mounted read-only" +
                        tail);
    case SqliteFailure::kCorrupt:
      return InternalError(where +
                           "the file is damaged; restore it from a backup, or look at it "
                           "with `sqlite3 FILE 'PRAGMA integrity_check'`" +
                           tail);
    case SqliteFailure::kBusy:
      return Status(Reason::kConflict,
                    where + "another program holds a write lock on the file; end it" + tail);
    case SqliteFailure::kIo:
      return InternalError(where + "the disk reports an I/O error; look at the kernel's log" +
                           tail);
    default: break;
  }
  return InternalError(where + "failed" + tail);
}

Statement::Statement(Statement&& other) noexcept
    : statement_(std::exchange(other.statement_, nullptr)), connection_(other.connection_) {}

Statement& Statement::operator=(Statement&& other) noexcept {
  std::swap(statement_, other.statement_);
  std::swap(connection_, other.connection_);
  return *this;
}

Statement::~Statement() { sqlite3_finalize(statement_); }

// Binding fails only for a wrong index or no memory: both are ours, neither is input.
void Statement::Bind(int index, std::int64_t value) {
  SUBLET_CHECK(sqlite3_bind_int64(statement_, index, value) == SQLITE_OK);
}
void Statement::BindNull(int index) {
  SUBLET_CHECK(sqlite3_bind_null(statement_, index) == SQLITE_OK);
}
void Statement::BindText(int index, std::string_view text) {
  SUBLET_CHECK(sqlite3_bind_text64(statement_, index, text.data(), text.size(), SQLITE_STATIC,
                                   SQLITE_UTF8) == SQLITE_OK);
}
void Statement::BindBlob(int index, std::string_view bytes) {
  // A null pointer would bind NULL; an empty value is not that.
  const char* data = bytes.data() == nullptr ? "" : bytes.data();
  SUBLET_CHECK(sqlite3_bind_blob64(statement_, index, data, bytes.size(), SQLITE_STATIC) ==
               SQLITE_OK);
}

Result<bool> Statement::Step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) {
    return true;
  }
  if (code == SQLITE_DONE) {
    return false;
  }
  Status error =
      connection_->Error(sqlite3_extended_errcode(connection_->handle()), sqlite3_sql(statement_));
  sqlite3_reset(statement_);
  return error;
}

Result<void> Statement::Run() {
  for (;;) {
    SUBLET_TRY(const bool row, Step());
    if (!row) {
      Reset();
      return {};
    }
  }
}

// The code repeats the last Step's, which was reported there.
void Statement::Reset() { sqlite3_reset(statement_); }

std::int64_t Statement::Int(int column) const { return sqlite3_column_int64(statement_, column); }
bool Statement::IsNull(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}
bool Statement::IsText(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_TEXT;
}
bool Statement::IsInteger(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_INTEGER;
}
std::string_view Statement::Bytes(int column) const {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  return {data == nullptr ? "" : data,
          static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

Result<void> Connection::Open(const Options& options) {
  static std::once_flag once;
  std::call_once(once, [] {
    // Saves a process-wide lock at each allocation. Refused once SQLite runs, which is harmless.
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    sqlite3_initialize();
  });
  path_ = options.path;
  const int flags =
      SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
      (options.read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  const int code = sqlite3_open_v2(path_.c_str(), &handle_, flags, options.vfs);
  if (code != SQLITE_OK) {
    Status error = Error(code, "open");
    Close();
    return error;
  }
  sqlite3_busy_timeout(handle_, options.busy_timeout_ms);
  // Triggers or views planted in the file cannot run code, and SQL cannot damage it.
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  return {};
}

void Connection::Close() {
  if (handle_ != nullptr) {
    SUBLET_CHECK(sqlite3_close(handle_) == SQLITE_OK);
    handle_ = nullptr;
  }
}

Result<void> Connection::Exec(const char* sql) {
  const int code = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) {
    return Error(sqlite3_extended_errcode(handle_), sql);
  }
  return {};
}

Result<std::int64_t> Connection::QueryInt(const char* sql, std::int64_t none) {
  SUBLET_TRY(Statement statement, Prepare(sql));
  SUBLET_TRY(const bool row, statement.Step());
  return row && !statement.IsNull(0) ? statement.Int(0) : none;
}

Result<std::string> Connection::QueryText(const char* sql) {
  SUBLET_TRY(Statement statement, Prepare(sql));
  SUBLET_TRY(const bool row, statement.Step());
  return row ? std::string(statement.Bytes(0)) : std::string();
}

Result<Statement> Connection::Prepare(const char* sql) {
  Statement statement;
  statement.connection_ = this;
  const int code = sqlite3_prepare_v3(handle_, sql, -1, SQLITE_PREPARE_PERSISTENT,
                                      &statement.statement_, nullptr);
  if (code != SQLITE_OK) {
    return Error(sqlite3_extended_errcode(handle_), sql);
  }
  return statement;
}

bool Connection::InTransaction() const { return sqlite3_get_autocommit(handle_) == 0; }

Result<void> Connection::Sync() {
  sqlite3_file* file = nullptr;
  int code = sqlite3_file_control(handle_, "main", SQLITE_FCNTL_FILE_POINTER, &file);
  if (code == SQLITE_OK && file != nullptr && file->pMethods != nullptr) {
    code = file->pMethods->xSync(file, SQLITE_SYNC_NORMAL);
  }
  return code == SQLITE_OK ? Result<void>() : Error(code, "sync");
}

int Connection::last_code() const { return sqlite3_extended_errcode(handle_); }

Status Connection::Error(int code, std::string_view what) const {
  return SqliteStatus(code, what, path_,
                      handle_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(handle_));
}

}  // namespace sublet::storage
