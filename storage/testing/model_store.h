// ModelStore: what a store must do, written so that it is obviously right: the whole history as a
// list, and every question answered by replaying it. The contract suite compares an engine with it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "storage/store.h"

namespace sublet::storage::testing {

class ModelStore {
 public:
  struct Version {
    std::string key;
    Revision create_revision = 0;
    Revision mod_revision = 0;
    std::string bytes;  // published
    std::uint32_t offset = kNoHole;
    std::int64_t expires_unix = 0;
    bool short_history = false;
  };
  struct Change {
    Revision revision = 0;
    EventType type = EventType::kCreate;
    std::string key;
    std::string bytes;  // of a delete: the last state at the deletion's revision
    std::optional<std::string> previous;
    std::optional<Version> after;
  };
  struct Answer {
    bool committed = false;
    std::size_t conflict = 0;
    Revision revision = 0;
  };
  using State = std::map<std::string, Version>;

  Answer Transact(const std::vector<Op>& ops, std::int64_t now_unix) {
    State state = At(revision_);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const auto there = state.find(ops[i].key);
      const Revision stands = there == state.end() ? 0 : there->second.mod_revision;
      if (ops[i].expected && *ops[i].expected != stands) {
        return {false, i, revision_};
      }
    }
    bool changed = false;
    for (const Op& op : ops) {
      const auto there = state.find(op.key);
      const bool exists = there != state.end();
      if (op.kind == Op::Kind::kPut) {
        Version next;
        next.key = op.key;
        next.create_revision = exists ? there->second.create_revision : revision_ + 1;
        next.mod_revision = revision_ + 1;
        next.bytes = Published(op.bytes, op.revision_offset, revision_ + 1);
        next.offset = op.revision_offset;
        next.expires_unix = op.ttl_seconds == 0 ? 0 : now_unix + op.ttl_seconds;
        next.short_history =
            (op.short_history || op.ttl_seconds != 0) && (!exists || there->second.short_history);
        changes_.push_back({revision_ + 1, exists ? EventType::kUpdate : EventType::kCreate, op.key,
                            next.bytes, exists ? std::optional(there->second.bytes) : std::nullopt,
                            next});
        changed = true;
      } else if (op.kind == Op::Kind::kDelete && exists) {
        changes_.push_back({revision_ + 1, EventType::kDelete, op.key,
                            Restamped(there->second, revision_ + 1), there->second.bytes,
                            std::nullopt});
        changed = true;
      }
    }
    revision_ += changed ? 1 : 0;
    return {true, 0, revision_};
  }

  // Deletes what is due, one revision each, in order of due time and key.
  void Expire(std::int64_t now_unix) {
    std::map<std::pair<std::int64_t, std::string>, bool> due;
    for (const auto& [key, version] : At(revision_)) {
      if (version.expires_unix != 0 && version.expires_unix <= now_unix) {
        due[{version.expires_unix, key}] = true;
      }
    }
    for (const auto& [when, ignored] : due) {
      Op op;
      op.kind = Op::Kind::kDelete;
      op.key = when.second;
      Transact({op}, now_unix);
    }
  }

  void Rollback(const std::string& prefix, Revision to) {
    const State then = At(to);
    for (const auto& [key, version] : Union(then, At(revision_))) {
      if (!key.starts_with(prefix)) {
        continue;
      }
      const State now = At(revision_);
      const auto here = now.find(key);
      const auto there = then.find(key);
      const bool was = there != then.end() && !there->second.short_history;
      Op op;
      op.key = key;
      if (was) {
        op.bytes = Plain(there->second);
        op.revision_offset = there->second.offset;
        if (here != now.end() && Plain(here->second) == op.bytes) {
          continue;
        }
      } else {
        if (here == now.end() || here->second.short_history) {
          continue;
        }
        op.kind = Op::Kind::kDelete;
      }
      Transact({op}, 0);
    }
  }

  State At(Revision revision) const {
    State state;
    for (const Change& change : changes_) {
      if (change.revision > revision) {
        break;
      }
      if (change.after) {
        state[change.key] = *change.after;
      } else {
        state.erase(change.key);
      }
    }
    return state;
  }

  std::vector<Change> After(const std::string& prefix, Revision after) const {
    std::vector<Change> found;
    for (const Change& change : changes_) {
      if (change.revision > after && change.key.starts_with(prefix)) {
        found.push_back(change);
      }
    }
    return found;
  }

  Revision revision() const { return revision_; }

 private:
  static std::string Published(std::string bytes, std::uint32_t offset, Revision revision) {
    if (offset != kNoHole) {
      bytes.insert(offset, std::to_string(revision));
    }
    return bytes;
  }
  static std::string Plain(const Version& version) {
    std::string bytes = version.bytes;
    if (version.offset != kNoHole) {
      bytes.erase(version.offset, std::to_string(version.mod_revision).size());
    }
    return bytes;
  }
  static std::string Restamped(const Version& version, Revision revision) {
    return Published(Plain(version), version.offset, revision);
  }
  static State Union(State a, const State& b) {
    a.insert(b.begin(), b.end());
    return a;
  }

  Revision revision_ = 1;
  std::vector<Change> changes_;
};

}  // namespace sublet::storage::testing
