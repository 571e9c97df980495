// Lists: at the current revision straight from the index, at an old one by undoing what changed
// since. Threads: any.
#pragma once

#include "storage/sqlite/history_reader.h"

namespace sublet::storage {

struct ListRequest {
  std::string_view prefix;
  std::string_view start_after;  // exclusive; "" = from the start
  std::size_t limit = 0;         // 0 = all
};

ListResult ListCurrent(View::Snapshot snapshot, const ListRequest& request);

// The list as of `revision`. Cost: one step per change since then, from memory where the log still
// has them, else from the file. By HistoryReader::Horizon::kHistory keys of short history are left
// out. Errors: Expired, Timeout (a revision not reached yet), InternalError (I/O).
Result<ListResult> ListPast(const View& view, const HistoryReader& reader,
                            const ListRequest& request, Revision revision,
                            HistoryReader::Horizon horizon);

}  // namespace sublet::storage
