// Batch: the effect of a group of transactions on the key index, before it is durable. Each sees
// what the earlier ones of the group did. Dropping a Batch undoes everything: the tree it works on
// is a copy. Threads: confined to the writer. Pure: no I/O, no clock.
#pragma once

#include <vector>

#include "storage/entry.h"
#include "storage/key_tree.h"

namespace sublet::storage {

// One row to be written.
struct PendingRow {
  StoredEventPtr event;
  EntryRef after;  // null for a deletion
  bool short_history = false;

  RowId id() const { return event->row; }
  Revision created() const {
    return after ? after->create_revision : event->before->create_revision;
  }
  RowId prev() const { return event->before ? event->before->row : 0; }
};

class Batch {
 public:
  // Starts at the state `tree`, true at `revision`.
  Batch(KeyTree tree, Revision revision) : tree_(std::move(tree)), revision_(revision) {}

  // Applies all ops or none. The ops must have passed CheckOps.
  TxnResult Apply(std::vector<Op> ops, std::int64_t now_unix);

  const KeyTree& tree() const { return tree_; }
  Revision revision() const { return revision_; }
  const std::vector<PendingRow>& rows() const { return rows_; }
  const std::vector<StoredEventPtr>& events() const { return events_; }

 private:
  void Put(Op& op, RowId row, std::int64_t now_unix, TxnResult& result);
  // False: there was nothing to delete.
  bool Delete(const Op& op, RowId row, TxnResult& result);

  KeyTree tree_;
  Revision revision_;
  std::vector<PendingRow> rows_;
  std::vector<StoredEventPtr> events_;
};

// Errors: BadRequest (no ops, too many, an empty or too long key, a key twice, a hole outside the
// bytes), RequestEntityTooLarge (a value above kValueBytesMax of row.h).
Result<void> CheckOps(const std::vector<Op>& ops);

}  // namespace sublet::storage
