#include "storage/sqlite/row.h"

#include <string>

namespace sublet::storage {
namespace {

Status Damaged(const RawRow& row, std::string_view column) {
  return InternalError("the database file is damaged: table kv, row " + std::to_string(row.id) +
                       ", column " + std::string(column) + "; restore it from a backup");
}

}  // namespace

Result<void> CheckRow(const RawRow& row) {
  if (row.id < FirstRow(1) || row.id > LastRow(kRevisionMax)) {
    return Damaged(row, "id");
  }
  const Revision revision = RevisionOf(row.id);
  if (row.key.empty() || row.key.size() > kKeyBytesMax) {
    return Damaged(row, "key");
  }
  if (row.created < 1 || row.created > revision) {
    return Damaged(row, "created");
  }
  if ((row.flags & ~(kRowDeleted | kRowShortHistory)) != 0) {
    return Damaged(row, "flags");
  }
  // A creation has no version before it, everything else has one between the two.
  const bool is_creation = !row.deleted() && row.created == revision;
  if (is_creation ? row.prev != 0
                  : row.prev < FirstRow(row.created) || row.prev > LastRow(revision - 1)) {
    return Damaged(row, "prev");
  }
  if (row.expires_unix < 0) {
    return Damaged(row, "expires");
  }
  if (row.value_is_null != row.deleted() || row.value.size() > kValueBytesMax) {
    return Damaged(row, "value");
  }
  if (row.hole == -1) {
    return {};
  }
  const std::string digits = std::to_string(revision);
  if (row.deleted() || row.hole < 0 || row.hole > static_cast<std::int64_t>(row.value.size()) ||
      row.value.substr(static_cast<std::size_t>(row.hole), digits.size()) != digits) {
    return Damaged(row, "hole");
  }
  return {};
}

EntryRef MakeEntry(const RawRow& row, const AttachmentMaker& make_attachment) {
  auto value = std::make_shared<Value>();
  value->bytes = row.value;
  if (row.hole >= 0) {
    value->revision_offset = static_cast<std::uint32_t>(row.hole);
    value->revision_length = static_cast<std::uint32_t>(std::to_string(RevisionOf(row.id)).size());
  }
  if (make_attachment) {
    value->attachment = make_attachment(row.key, value->bytes);
  }
  auto entry = MakeRef<Entry>();
  entry->key = row.key;
  entry->create_revision = row.created;
  entry->row = row.id;
  entry->value = std::move(value);
  entry->expires_unix = row.expires_unix;
  entry->short_history = row.short_history();
  return EntryRef(entry.get());
}

}  // namespace sublet::storage
