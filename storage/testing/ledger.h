// Ledger: what a store has told the outside world (answers, events, reads), and the check that a
// store reopened after a crash still says the same. Values are those of test_store.h's Put; each
// transaction's text is unique.
// Threads: one at a time; the user locks.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "storage/store.h"

namespace sublet::storage::testing {

// The text inside a value made by Put, published or not; "?" when it is none.
std::string TextOf(std::string_view bytes);

class Ledger {
 public:
  // Somebody was told that `key` was written as `text` (nullopt: deleted) at `revision`.
  void Saw(Revision revision, const std::string& key, std::optional<std::string> text);
  // Transaction `tag` was answered with `revision`.
  void Answered(Revision revision, const std::string& tag);
  void Saw(const Event& event);
  // Somebody is about to delete `key` and may never learn whether it happened; Settled ends the
  // doubt. Matters only for deletions whose own row was compacted since.
  void MayDelete(const std::string& key) { doubtful_.insert(key); }
  void Settled(const std::string& key) { doubtful_.erase(key); }

  // What `store`, opened after a crash, fails to keep; empty = all well.
  std::vector<std::string> Check(Store& store) const;

  Revision newest() const { return newest_; }
  std::size_t size() const { return sights_.size(); }

 private:
  std::map<std::pair<Revision, std::string>, std::optional<std::string>> sights_;
  std::map<Revision, std::string> answers_;
  std::vector<std::string> contradictions_;
  std::set<std::string> doubtful_;
  Revision newest_ = 0;
};

}  // namespace sublet::storage::testing
