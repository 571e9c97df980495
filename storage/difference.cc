#include "storage/difference.h"

namespace sublet::storage {

std::vector<Op> DifferenceTo(const ListResult& then, const KeyTree& tree, std::string_view prefix) {
  std::vector<Op> ops;
  const auto remove = [&ops](const Entry& entry) {
    if (!entry.short_history) {
      Op op;
      op.kind = Op::Kind::kDelete;
      op.key = entry.key;
      ops.push_back(std::move(op));
    }
  };
  KeyCursor now(tree, prefix);
  const auto in_range = [&] {
    return now.entry() != nullptr && now.entry()->key.starts_with(prefix);
  };
  for (const Record& record : then.records) {
    for (; in_range() && now.entry()->key < record.key; now.Next()) {
      remove(*now.entry());
    }
    const bool is_there = in_range() && now.entry()->key == record.key;
    Op op;
    op.bytes = WithoutRevision(*record.value);
    const bool same = is_there && (now.entry()->mod_revision() == record.mod_revision ||
                                   WithoutRevision(*now.entry()->value) == op.bytes);
    if (is_there) {
      now.Next();
    }
    if (!same) {
      op.key = record.key;
      op.revision_offset = record.value->revision_offset;
      op.attachment = record.value->attachment;
      ops.push_back(std::move(op));
    }
  }
  for (; in_range(); now.Next()) {
    remove(*now.entry());
  }
  return ops;
}

}  // namespace sublet::storage
