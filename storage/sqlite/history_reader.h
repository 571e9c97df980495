// HistoryReader: reads of what memory no longer holds, on a connection of its own: changes for a
// watch that starts far back, versions for a list at an old revision, facts outside the revisions.
//
// Invariant: each call begins its read transaction before it looks at the horizon, and the writer
// moves the horizon before it deletes; so a call that passes the check sees all its rows.
// Threads: any; calls wait for each other. Blocks on the disk.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "storage/sqlite/schema.h"
#include "storage/view.h"
#include "storage/watch_hub.h"

namespace sublet::storage {

class HistoryReader final : public PastEvents {
 public:
  enum class Horizon : std::uint8_t { kApi, kHistory };

  HistoryReader(std::string path, std::shared_ptr<const View> view, AttachmentMaker make_attachment)
      : path_(std::move(path)),
        view_(std::move(view)),
        make_attachment_(std::move(make_attachment)) {}

  Result<Batch> ReadEvents(std::string_view prefix, RowId after, RowId until,
                           std::size_t max) const override SUBLET_EXCLUDES(mutex_);

  // For each key with `prefix` that changed in (`revision`, `until`]: the row of its version at
  // `revision`, 0 when it did not exist then. Errors: Expired (by `horizon`), InternalError.
  Result<std::map<std::string, RowId>> RowsBefore(std::string_view prefix, Revision revision,
                                                  Revision until, Horizon horizon) const
      SUBLET_EXCLUDES(mutex_);
  // The versions in `rows`, in that order; null where the row is gone (compacted short history).
  // `revision` and `horizon` as given to RowsBefore: Expired when it was passed meanwhile.
  Result<std::vector<EntryRef>> ReadEntries(const std::vector<RowId>& rows, Revision revision,
                                            Horizon horizon) const SUBLET_EXCLUDES(mutex_);
  Result<std::vector<std::pair<std::string, std::string>>> ReadLocal(std::string_view prefix) const
      SUBLET_EXCLUDES(mutex_);
  // The newest revision committed at or before `unix_ms`; 0 when none is kept.
  Result<Revision> RevisionAt(std::int64_t unix_ms) const SUBLET_EXCLUDES(mutex_);

  // Closes the connection; later calls answer ServiceUnavailable.
  void Stop() SUBLET_EXCLUDES(mutex_);

 private:
  Result<void> EnsureOpen() const SUBLET_REQUIRES(mutex_);
  Result<void> Begin() const SUBLET_REQUIRES(mutex_);
  Result<void> CheckHorizon(Revision revision, Horizon horizon) const;
  // The version in `row`; null when the row is not there.
  Result<EntryRef> ReadEntry(RowId row) const SUBLET_REQUIRES(mutex_);
  Result<Batch> ScanEvents(std::string_view prefix, RowId after, RowId until, std::size_t max) const
      SUBLET_REQUIRES(mutex_);

  const std::string path_;
  const std::shared_ptr<const View> view_;
  const AttachmentMaker make_attachment_;
  mutable Mutex mutex_;
  mutable bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  mutable Connection connection_ SUBLET_GUARDED_BY(mutex_);
  struct Statements {
    Statement range;
    Statement changes;
    Statement by_id;
  };
  mutable std::optional<Statements> statements_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::storage
