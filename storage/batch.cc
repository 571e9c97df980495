#include "storage/batch.h"

#include <algorithm>

#include "storage/sqlite/row.h"

namespace sublet::storage {

TxnResult Batch::Apply(std::vector<Op> ops, std::int64_t now_unix) {
  TxnResult result;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (!ops[i].expected) {
      continue;
    }
    const Entry* current = tree_.Find(ops[i].key);
    if ((current == nullptr ? 0 : current->mod_revision()) != *ops[i].expected) {
      result.conflict = i;
      result.revision = revision_;
      if (current != nullptr) {
        result.current = current->ToRecord();
      }
      return result;
    }
  }
  result.committed = true;
  result.values.reserve(ops.size());
  RowId row = FirstRow(revision_ + 1);
  for (Op& op : ops) {
    switch (op.kind) {
      case Op::Kind::kPut: Put(op, row++, now_unix, result); break;
      case Op::Kind::kDelete: row += Delete(op, row, result) ? 1 : 0; break;
      case Op::Kind::kCheck: result.values.push_back(nullptr); break;
    }
  }
  // What changed nothing takes no revision.
  if (row != FirstRow(revision_ + 1)) {
    ++revision_;
  }
  result.revision = revision_;
  return result;
}

void Batch::Put(Op& op, RowId row, std::int64_t now_unix, TxnResult& result) {
  const Entry* current = tree_.Find(op.key);
  auto entry = MakeRef<Entry>();
  entry->create_revision = current == nullptr ? RevisionOf(row) : current->create_revision;
  entry->row = row;
  entry->value =
      MakeValue(std::move(op.bytes), op.revision_offset, RevisionOf(row), std::move(op.attachment));
  entry->expires_unix = op.ttl_seconds > 0 ? now_unix + op.ttl_seconds : 0;
  entry->short_history =
      (op.short_history || op.ttl_seconds > 0) && (current == nullptr || current->short_history);
  entry->key = std::move(op.key);
  result.values.push_back(entry->value);
  const EntryRef after(entry.get());
  EntryRef before = tree_.Set(after);
  rows_.push_back({MakeEvent(row, std::move(before), after), after, after->short_history});
  events_.push_back(rows_.back().event);
}

bool Batch::Delete(const Op& op, RowId row, TxnResult& result) {
  EntryRef before = tree_.Remove(op.key);
  if (!before) {
    result.values.push_back(nullptr);
    return false;
  }
  const bool short_history = before->short_history;
  rows_.push_back({MakeEvent(row, std::move(before), nullptr), nullptr, short_history});
  events_.push_back(rows_.back().event);
  result.values.push_back(rows_.back().event->value);
  return true;
}

Result<void> CheckOps(const std::vector<Op>& ops) {
  if (ops.empty() || ops.size() > kOpsMax) {
    return BadRequest("a transaction has 1 to " + std::to_string(kOpsMax) + " operations, not " +
                      std::to_string(ops.size()));
  }
  for (const Op& op : ops) {
    if (op.key.empty() || op.key.size() > kKeyBytesMax) {
      return BadRequest("a key has 1 to " + std::to_string(kKeyBytesMax) + " bytes, not " +
                        std::to_string(op.key.size()));
    }
    if (op.bytes.size() > kValueBytesMax - 20) {
      return Status(Reason::kRequestEntityTooLarge,
                    "a value has at most " + std::to_string(kValueBytesMax) + " bytes");
    }
    if (op.kind == Op::Kind::kPut && op.revision_offset != kNoHole &&
        op.revision_offset > op.bytes.size()) {
      return BadRequest("the place of the revision lies outside the value");
    }
  }
  if (ops.size() > 1) {
    std::vector<std::string_view> keys;
    keys.reserve(ops.size());
    for (const Op& op : ops) {
      keys.push_back(op.key);
    }
    std::sort(keys.begin(), keys.end());
    if (std::adjacent_find(keys.begin(), keys.end()) != keys.end()) {
      return BadRequest("a transaction names a key twice");
    }
  }
  return {};
}

}  // namespace sublet::storage
