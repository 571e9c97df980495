#include "storage/testing/ledger.h"

#include <algorithm>

namespace sublet::storage::testing {
namespace {

std::string Name(Revision revision, const std::string& key,
                 const std::optional<std::string>& text) {
  return "revision " + std::to_string(revision) + " " + key + " " + text.value_or("(deleted)");
}

}  // namespace

std::string TextOf(std::string_view bytes) {
  const std::size_t start = bytes.find(R"("v":")");
  if (start == std::string_view::npos || bytes.size() < start + 7) {
    return "?";
  }
  return std::string(bytes.substr(start + 5, bytes.size() - start - 7));
}

void Ledger::Saw(Revision revision, const std::string& key, std::optional<std::string> text) {
  newest_ = std::max(newest_, revision);
  const auto [known, is_new] = sights_.try_emplace({revision, key}, text);
  if (!is_new && known->second != text) {
    contradictions_.push_back("told twice: " + Name(revision, key, known->second) + " and " +
                              Name(revision, key, text));
  }
}

void Ledger::Answered(Revision revision, const std::string& tag) {
  newest_ = std::max(newest_, revision);
  const auto [known, is_new] = answers_.try_emplace(revision, tag);
  if (!is_new && known->second != tag) {
    contradictions_.push_back("revision " + std::to_string(revision) + " was given to " +
                              known->second + " and to " + tag);
  }
}

void Ledger::Saw(const Event& event) {
  Saw(event.revision, event.key,
      event.type == EventType::kDelete ? std::nullopt : std::optional(TextOf(event.value->bytes)));
}

std::vector<std::string> Ledger::Check(Store& store) const {
  std::vector<std::string> wrong = contradictions_;
  if (store.CurrentRevision() < newest_) {
    wrong.push_back("the store is at revision " + std::to_string(store.CurrentRevision()) +
                    ", below one that was told: " + std::to_string(newest_));
  }
  const Revision oldest = store.CompactedRevision() + 1;
  auto watch = store.Watch({.prefix = "", .after = oldest});
  if (!watch.ok()) {
    wrong.push_back("cannot watch from " + std::to_string(oldest) + ": " + watch.error().message());
    return wrong;
  }
  Ledger stored;
  std::vector<EventPtr> events;
  for (;;) {
    const auto pulled = (*watch)->Pull(events, 1000);
    if (!pulled.ok()) {
      wrong.push_back("cannot read the events: " + pulled.error().message());
      return wrong;
    }
    if (*pulled == 0) {
      break;
    }
  }
  std::map<std::string, Revision> changed;
  Revision last = oldest;
  for (const EventPtr& event : events) {
    stored.Saw(*event);
    changed[event->key] = event->revision;
    if (event->revision < last) {
      wrong.push_back("events go back to revision " + std::to_string(event->revision));
    }
    last = event->revision;
  }
  std::map<std::string, std::pair<Revision, std::optional<std::string>>> newest_of_key;
  for (const auto& [where, text] : sights_) {
    const auto& [revision, key] = where;
    newest_of_key[key] = {revision, text};
    if (revision <= oldest) {
      continue;
    }
    const auto found = stored.sights_.find(where);
    if (found == stored.sights_.end()) {
      wrong.push_back("lost: " + Name(revision, key, text));
    } else if (found->second != text) {
      wrong.push_back("changed: " + Name(revision, key, text) + " is now " +
                      Name(revision, key, found->second));
    }
  }
  // What is too old to have events must still be the current state, when nothing changed since.
  for (const auto& [key, sight] : newest_of_key) {
    const auto& [revision, text] = sight;
    if (revision > oldest || changed.contains(key)) {
      continue;
    }
    const auto record = store.Get(key);
    const bool same =
        text ? record && record->mod_revision == revision && TextOf(record->value->bytes) == *text
             : !record || record->mod_revision > revision;
    const bool may_be_gone = !record && doubtful_.contains(key);
    if (!same && !may_be_gone && !(record && record->mod_revision > revision)) {
      wrong.push_back("lost: " + Name(revision, key, text));
    }
  }
  return wrong;
}

}  // namespace sublet::storage::testing
