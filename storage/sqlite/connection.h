// Connection and Statement: SQLite's handles with our error values. The one place where an SQLite
// result code becomes a Status.
// Threads: a connection and its statements belong to one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace sublet::storage {

// What went wrong, in a form the writer can decide on.
enum class SqliteFailure : std::uint8_t { kNone, kFull, kReadOnly, kCorrupt, kBusy, kIo, kOther };
SqliteFailure ClassifySqliteCode(int code);

// The Status for `code` (an extended SQLite result). `what` names the action ("commit"); `detail`
// is SQLite's own text. Reasons: kFull ServiceUnavailable; kReadOnly Forbidden; kBusy Conflict; the
// rest InternalError. Each message says what to do.
Status SqliteStatus(int code, std::string_view what, std::string_view path,
                    std::string_view detail);

class Connection;

// A prepared statement. Bound text must stay alive until Reset.
class Statement {
 public:
  Statement() = default;
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&& other) noexcept;
  ~Statement();

  void Bind(int index, std::int64_t value);
  void BindNull(int index);
  void BindText(int index, std::string_view text);
  void BindBlob(int index, std::string_view bytes);
  // True: a row is there. False: done.
  Result<bool> Step();
  // Runs to the end and resets.
  Result<void> Run();
  void Reset();

  std::int64_t Int(int column) const;
  bool IsNull(int column) const;
  bool IsText(int column) const;
  bool IsInteger(int column) const;
  // Valid until the next Step or Reset.
  std::string_view Bytes(int column) const;

 private:
  friend class Connection;
  sqlite3_stmt* statement_ = nullptr;
  const Connection* connection_ = nullptr;
};

class Connection {
 public:
  struct Options {
    std::string path;
    const char* vfs = nullptr;
    bool read_only = false;
    int busy_timeout_ms = 5000;
  };
  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { Close(); }

  Result<void> Open(const Options& options);
  // Statements must be gone.
  void Close();
  bool is_open() const { return handle_ != nullptr; }

  Result<void> Exec(const char* sql);
  // The first column of the first row; `none` when there is no row.
  Result<std::int64_t> QueryInt(const char* sql, std::int64_t none = 0);
  Result<std::string> QueryText(const char* sql);
  // The connection must not move while statements exist.
  Result<Statement> Prepare(const char* sql);
  bool InTransaction() const;
  // Makes the database file durable, whatever `synchronous` says. Not the write-ahead log.
  Result<void> Sync();
  // SQLite's code of the last failed call.
  int last_code() const;
  sqlite3* handle() const { return handle_; }

  Status Error(int code, std::string_view what) const;

 private:
  sqlite3* handle_ = nullptr;
  std::string path_;
};

}  // namespace sublet::storage
