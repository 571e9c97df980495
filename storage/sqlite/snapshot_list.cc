#include "storage/sqlite/snapshot_list.h"

#include <map>

namespace sublet::storage {
namespace {

// The first key that may be listed.
std::string_view StartOf(const ListRequest& request, std::string& storage) {
  if (request.start_after < request.prefix) {
    return request.prefix;
  }
  storage.assign(request.start_after);
  storage.push_back('\0');  // the smallest key after it
  return storage;
}

// What a key was at the old revision: an entry in memory, a row of the file, or nothing.
struct Before {
  EntryRef entry;
  RowId row = 0;
  bool existed() const { return entry || row != 0; }
};
using Changes = std::map<std::string, Before, std::less<>>;

Result<Changes> ChangesSince(const View::SnapshotWithLog& now, const HistoryReader& reader,
                             std::string_view prefix, Revision revision,
                             HistoryReader::Horizon horizon) {
  Changes changes;
  if (now.log.floor() <= revision) {
    now.log.ForEachAfter(LastRow(revision), [&](const StoredEventPtr& event) {
      if (event->key.starts_with(prefix)) {
        changes.try_emplace(event->key, Before{event->before, 0});
      }
      return true;
    });
    return changes;
  }
  SUBLET_TRY(auto rows, reader.RowsBefore(prefix, revision, now.revision, horizon));
  while (!rows.empty()) {
    auto node = rows.extract(rows.begin());
    changes.emplace_hint(changes.end(), std::move(node.key()), Before{nullptr, node.mapped()});
  }
  return changes;
}

// Walks the index and the changes side by side in key order.
class PastCursor {
 public:
  PastCursor(const View::SnapshotWithLog& now, const Changes& changes, std::string_view start,
             std::string_view prefix)
      : prefix_(prefix),
        current_(now.tree, start),
        change_(changes.lower_bound(start)),
        changes_end_(changes.end()) {}

  // The next key that existed then; false at the end. `entry` or `row` is set.
  bool Next(const Entry*& entry, RowId& row) {
    for (;;) {
      const Entry* now = current_.entry();
      if (now != nullptr && !std::string_view(now->key).starts_with(prefix_)) {
        now = nullptr;
      }
      if (change_ == changes_end_ || (now != nullptr && now->key < change_->first)) {
        if (now == nullptr) {
          return false;
        }
        entry = now;
        row = 0;
        current_.Next();
        return true;
      }
      const auto& [key, before] = *change_++;
      if (now != nullptr && now->key == key) {
        current_.Next();
      }
      if (before.existed()) {
        entry = before.entry.get();
        row = before.row;
        return true;
      }
    }
  }

 private:
  const std::string_view prefix_;
  KeyCursor current_;
  Changes::const_iterator change_;
  const Changes::const_iterator changes_end_;
};

// Loads what stands only in the file, and drops what is gone.
Result<void> FillFromFile(std::vector<Record>& records, const std::vector<std::size_t>& places,
                          const std::vector<RowId>& rows, const HistoryReader& reader,
                          Revision revision, HistoryReader::Horizon horizon) {
  if (rows.empty()) {
    return {};
  }
  SUBLET_TRY(const std::vector<EntryRef> entries, reader.ReadEntries(rows, revision, horizon));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const EntryRef& entry = entries[i];
    if (entry && !(entry->short_history && horizon == HistoryReader::Horizon::kHistory)) {
      records[places[i]] = entry->ToRecord();
    }
  }
  std::erase_if(records, [](const Record& record) { return record.value == nullptr; });
  return {};
}

// Entries, keys and values lie scattered, so a list waits for memory most of its time: asking ahead
// for what the next records need halves it.
void Prefetch(const std::vector<const Entry*>& entries, std::size_t i) {
  if (i + 8 < entries.size()) {
    const auto* entry = reinterpret_cast<const char*>(entries[i + 8]);
    __builtin_prefetch(entry);
    __builtin_prefetch(entry + 64);
  }
  if (i + 4 < entries.size()) {
    const Entry* entry = entries[i + 4];
    __builtin_prefetch(entry->key.data());
    // The counter that a copied pointer raises stands before the value.
    __builtin_prefetch(reinterpret_cast<const char*>(entry->value.get()) - 8, 1);
  }
}

}  // namespace

ListResult ListCurrent(View::Snapshot snapshot, const ListRequest& request) {
  ListResult result;
  result.revision = snapshot.revision;
  std::string storage;
  const std::string_view start = StartOf(request, storage);
  const std::string end = PrefixEnd(request.prefix);
  const std::size_t end_rank = end.empty() ? snapshot.tree.size() : snapshot.tree.Rank(end);
  const std::size_t start_rank = snapshot.tree.Rank(start);
  const std::size_t there = end_rank > start_rank ? end_rank - start_rank : 0;
  const std::size_t wanted = request.limit == 0 ? there : std::min(there, request.limit);
  result.more = wanted < there;
  result.remaining = static_cast<std::int64_t>(there - wanted);
  std::vector<const Entry*> found;
  found.reserve(wanted);
  KeyCursor cursor(std::move(snapshot.tree), start);
  for (; found.size() < wanted; cursor.Next()) {
    found.push_back(cursor.entry());
  }
  result.records.reserve(wanted);
  for (std::size_t i = 0; i < wanted; ++i) {
    Prefetch(found, i);
    result.records.push_back(found[i]->ToRecord());
  }
  return result;
}

Result<ListResult> ListPast(const View& view, const HistoryReader& reader,
                            const ListRequest& request, Revision revision,
                            HistoryReader::Horizon horizon) {
  const View::SnapshotWithLog now = view.CurrentWithLog(LastRow(revision));
  if (revision > now.revision) {
    return Timeout("Too large resource version: " + std::to_string(revision) +
                   ", current: " + std::to_string(now.revision));
  }
  const bool whole = horizon == HistoryReader::Horizon::kApi;
  const Revision compacted = whole ? view.compacted() : view.history_compacted();
  if (revision <= compacted) {
    return TooOld(revision, compacted);
  }
  SUBLET_TRY(const Changes changes, ChangesSince(now, reader, request.prefix, revision, horizon));
  std::string storage;
  PastCursor cursor(now, changes, StartOf(request, storage), request.prefix);
  ListResult result;
  result.revision = revision;
  std::vector<std::size_t> places;
  std::vector<RowId> rows;
  const Entry* entry = nullptr;
  RowId row = 0;
  while (cursor.Next(entry, row)) {
    if (request.limit != 0 && result.records.size() == request.limit) {
      result.more = true;
      ++result.remaining;
      continue;
    }
    if (row != 0) {
      places.push_back(result.records.size());
      rows.push_back(row);
      result.records.emplace_back();
    } else if (whole || !entry->short_history) {
      result.records.push_back(entry->ToRecord());
    }
  }
  SUBLET_RETURN_IF_ERROR(FillFromFile(result.records, places, rows, reader, revision, horizon));
  return result;
}

}  // namespace sublet::storage
