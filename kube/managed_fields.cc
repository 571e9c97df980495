#include "kube/managed_fields.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "kube/field_error.h"
#include "kube/field_set.h"
#include "kube/object.h"
#include "kube/timestamp.h"
#include "kube/typed.h"

namespace sublet::kube {
namespace {

constexpr std::size_t kUpdateManagersMax = 10;
constexpr std::string_view kLastApplied = "kubectl.kubernetes.io/last-applied-configuration";

// One entry; fields and time are the payload, the rest is the identity.
struct Entry {
  std::string manager;
  bool apply = false;
  std::string api_version;
  std::string subresource;
  std::string time;
  FieldSet fields;

  // Appliers keep one entry whatever version they speak.
  auto Identity() const { return std::tie(manager, apply, subresource); }
  bool SameAs(const Entry& other) const {
    return Identity() == other.Identity() && (apply || api_version == other.api_version);
  }
};
using Entries = std::vector<Entry>;

// Takes a list of entries apart. What clients send is checked: false when some entry is malformed,
// then none counts. What is stored was checked when it came.
bool Decode(Json list, bool trusted, Entries* entries) {
  entries->clear();
  if (!list.is_array()) {
    return true;
  }
  for (Json& one : list) {
    Entry entry;
    entry.manager = FindString(one, {"manager"});
    const std::string_view operation = FindString(one, {"operation"});
    entry.apply = operation == "Apply";
    entry.api_version = FindString(one, {"apiVersion"});
    entry.subresource = FindString(one, {"subresource"});
    entry.time = FindString(one, {"time"});
    Json* fields = Find(one, {"fieldsV1"});
    if ((!entry.apply && operation != "Update") || FindString(one, {"fieldsType"}) != "FieldsV1" ||
        fields == nullptr || !fields->is_object() || (!trusted && !IsFieldSet(*fields))) {
      entries->clear();
      return false;
    }
    entry.fields = std::move(*fields);
    const auto same = std::find_if(entries->begin(), entries->end(),
                                   [&](const Entry& other) { return other.SameAs(entry); });
    if (same != entries->end()) {
      *same = std::move(entry);
    } else {
      entries->push_back(std::move(entry));
    }
  }
  return true;
}

// The same from an object that stays as it is.
Entries DecodeStored(const Json* object) {
  Entries entries;
  if (const Json* list =
          object == nullptr ? nullptr : Find(*object, {"metadata", "managedFields"})) {
    (void)Decode(*list, true, &entries);
  }
  return entries;
}

void Encode(Entries entries, Json* object) {
  Json& metadata = EnsureObject(object, "metadata");
  std::erase_if(entries, [](const Entry& entry) { return IsEmptySet(entry.fields); });
  if (entries.empty()) {
    EraseMember(&metadata, "managedFields");
    return;
  }
  // The texts of times sort as the times do.
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::make_tuple(!a.apply, std::string_view(a.time), std::string_view(a.manager),
                           std::string_view(a.api_version), std::string_view(a.subresource)) <
           std::make_tuple(!b.apply, std::string_view(b.time), std::string_view(b.manager),
                           std::string_view(b.api_version), std::string_view(b.subresource));
  });
  Json list = Json::array();
  for (Entry& entry : entries) {
    Json one = {{"manager", std::move(entry.manager)},
                {"operation", entry.apply ? "Apply" : "Update"},
                {"apiVersion", std::move(entry.api_version)},
                {"fieldsType", "FieldsV1"}};
    one["fieldsV1"] = std::move(entry.fields);
    PutString(&one, "time", entry.time);
    PutString(&one, "subresource", entry.subresource);
    list.push_back(std::move(one));
  }
  metadata["managedFields"] = std::move(list);
}

// Type and system metadata: nobody owns them.
const FieldSet& NeverTracked() {
  static const FieldSet kSet = [] {
    FieldSet set = {{"f:apiVersion", Json::object()}, {"f:kind", Json::object()}};
    Json& metadata = set["f:metadata"];
    metadata["."] = Json::object();
    for (const char* name : {"name", "namespace", "creationTimestamp", "selfLink", "uid",
                             "clusterName", "generation", "managedFields", "resourceVersion"}) {
      metadata[std::string("f:") + name] = Json::object();
    }
    return set;
  }();
  return kSet;
}

// What a write through this (sub)resource cannot change and therefore does not own.
FieldSet ResetFields(const FieldManagerContext& context) {
  if (context.subresource.empty() && context.has_status) {
    return {{"f:status", Json::object()}};
  }
  if (context.subresource != "status") {
    return nullptr;
  }
  if (context.is_custom) {
    // Everything but status; metadata as far as it is tracked at all.
    FieldSet set = {{"f:spec", Json::object()}, {"f:metadata", Json::object()}};
    for (std::size_t i = 0; context.type && i < context.type.field_count(); ++i) {
      const std::string_view name = context.type.field(i).name();
      if (name != "status" && name != "apiVersion" && name != "kind") {
        set[std::string("f:").append(name)] = Json::object();
      }
    }
    return set;
  }
  FieldSet set = {{"f:spec", Json::object()}};
  for (const char* name : {"f:labels", "f:deletionTimestamp", "f:ownerReferences"}) {
    set["f:metadata"][name] = Json::object();
  }
  return set;
}

void Filter(const FieldSet& reset, FieldChanges* changes) {
  SubtractBelow(reset, &changes->added);
  SubtractBelow(reset, &changes->modified);
  SubtractBelow(reset, &changes->removed);
}

void DropUnservedVersions(const FieldManagerContext& context, Entries* entries) {
  if (context.is_served) {
    std::erase_if(*entries,
                  [&](const Entry& entry) { return !context.is_served(entry.api_version); });
  }
}

// Takes the paths of `changed` and `removed` from every entry.
void TakeFromAll(const FieldSet& changed, const FieldSet& removed, Entries* entries) {
  for (Entry& entry : *entries) {
    Subtract(changed, &entry.fields);
    Subtract(removed, &entry.fields);
  }
}

Entry* FindEntry(Entries* entries, const Entry& like) {
  const auto at = std::find_if(entries->begin(), entries->end(),
                               [&](const Entry& entry) { return entry.SameAs(like); });
  return at == entries->end() ? nullptr : &*at;
}

// Folds the oldest Update entries of each version into "ancient-changes" until few are left.
void CapUpdateManagers(Entries* entries) {
  std::vector<std::size_t> updates;
  for (std::size_t i = 0; i < entries->size(); ++i) {
    if (!(*entries)[i].apply && !IsEmptySet((*entries)[i].fields)) {
      updates.push_back(i);
    }
  }
  if (updates.size() <= kUpdateManagersMax) {
    return;
  }
  std::stable_sort(updates.begin(), updates.end(), [&](std::size_t a, std::size_t b) {
    return std::tie((*entries)[a].time, (*entries)[a].manager) <
           std::tie((*entries)[b].time, (*entries)[b].manager);
  });
  std::map<std::string, std::size_t> first_of_version;
  std::size_t left = updates.size();
  for (const std::size_t i : updates) {
    if (left <= kUpdateManagersMax) {
      break;
    }
    Entry& entry = (*entries)[i];
    const auto [first, is_first] = first_of_version.try_emplace(entry.api_version, i);
    if (is_first) {
      continue;
    }
    Entry& bucket = (*entries)[first->second];
    bucket.manager = "ancient-changes";
    bucket.subresource.clear();
    bucket.fields = SetUnion(std::move(bucket.fields), std::move(entry.fields));
    bucket.time = entry.time;
    entry.fields = nullptr;
    --left;
  }
}

// The Update rule on entries that are already decoded.
void Track(const FieldManagerContext& context, const Json& live, const Json& object,
           const std::string& manager, const std::string& time, Entries* entries) {
  FieldChanges changes = CompareTyped(context.type, live, object);
  Filter(ResetFields(context), &changes);
  FieldSet changed = SetUnion(std::move(changes.added), std::move(changes.modified));
  TakeFromAll(changed, changes.removed, entries);
  Subtract(NeverTracked(), &changed);
  if (!IsEmptySet(changed)) {
    Entry mine;
    mine.manager = manager.empty() ? "unknown" : manager;
    mine.api_version = context.gvk.ApiVersion();
    mine.subresource = context.subresource;
    mine.time = time;
    if (Entry* entry = FindEntry(entries, mine)) {
      entry->fields = SetUnion(std::move(entry->fields), std::move(changed));
      entry->time = time;
    } else {
      mine.fields = std::move(changed);
      entries->push_back(std::move(mine));
    }
  }
  CapUpdateManagers(entries);
}

bool IsReset(const Json* list) {
  return list != nullptr && list->is_array() &&
         (list->empty() || (list->size() == 1 && list->front().is_object() &&
                            (list->front().empty() ||
                             std::all_of(list->front().begin(), list->front().end(),
                                         [](const Json& v) { return v.is_null() || v == ""; }))));
}

std::string PrintManager(const Entry& entry) {
  std::string text = GoQuote(entry.manager);
  if (!entry.subresource.empty()) {
    text += " with subresource " + GoQuote(entry.subresource);
  }
  if (!entry.apply) {
    text += " using " + entry.api_version;
  }
  return text;
}

struct Conflict {
  std::string manager;  // as printed
  std::string path;
};

Status ConflictStatus(const std::vector<Conflict>& conflicts) {
  StatusDetails details;
  for (const Conflict& conflict : conflicts) {
    details.causes.push_back(
        {"FieldManagerConflict", "conflict with " + conflict.manager, conflict.path});
  }
  std::string message = "Apply failed with " + std::to_string(conflicts.size());
  if (conflicts.size() == 1) {
    message += " conflict: conflict with " + conflicts[0].manager + ": " + conflicts[0].path;
  } else {
    message += " conflicts: ";
    std::string_view last;
    for (const Conflict& conflict : conflicts) {
      if (conflict.manager != last) {
        message += last.empty() ? "" : "\n";
        message += "conflicts with " + conflict.manager + ":";
        last = conflict.manager;
      }
      message += "\n- " + conflict.path;
    }
  }
  return Status(Reason::kConflict, std::move(message)).With(std::move(details));
}

// An apply under way.
class Apply {
 public:
  Apply(const FieldManagerContext& context, const Json& live, const Json& config,
        const std::string& manager)
      : context_(context), live_(live), config_(config) {
    mine_.manager = manager;
    mine_.apply = true;
    mine_.api_version = context.gvk.ApiVersion();
    mine_.subresource = context.subresource;
    mine_.fields = FieldsOf(context.type, config);
    SubtractBelow(ResetFields(context), &mine_.fields);
  }

  // Sets `merged` and `entries` (others' and mine); returns the conflicts, which stand only when
  // `force` is off.
  std::vector<Conflict> Run(Entries entries, bool force, Json* merged, Entries* result) {
    *merged = MergeTyped(context_.type, live_, config_);
    Entry last;
    if (Entry* old = FindEntry(&entries, mine_)) {
      last = std::move(*old);
      entries.erase(entries.begin() + (old - entries.data()));
    }
    // When all that was applied before is applied again there is nothing to remove.
    if (!IsEmptySet(SetDifference(last.fields, mine_.fields))) {
      *merged = Prune(*merged, last.fields, entries);
    }
    FieldChanges changes = CompareTyped(context_.type, live_, *merged);
    Filter(ResetFields(context_), &changes);
    const FieldSet changed = SetUnion(std::move(changes.added), std::move(changes.modified));
    std::vector<Conflict> conflicts;
    if (!force) {
      conflicts = Conflicts(changed, &entries);
    }
    TakeFromAll(changed, changes.removed, &entries);
    Entry mine = mine_;
    Subtract(NeverTracked(), &mine.fields);
    mine.time = last.time;
    entries.push_back(std::move(mine));
    *result = std::move(entries);
    return conflicts;
  }

  const Entry& mine() const { return mine_; }

 private:
  std::vector<Conflict> Conflicts(const FieldSet& changed, Entries* entries) const {
    std::vector<const Entry*> order;
    for (const Entry& entry : *entries) {
      order.push_back(&entry);
    }
    std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
      return std::tie(a->manager, a->apply, a->api_version, a->subresource) <
             std::tie(b->manager, b->apply, b->api_version, b->subresource);
    });
    std::vector<Conflict> conflicts;
    for (const Entry* entry : order) {
      const std::string manager = PrintManager(*entry);
      ForEachPath(SetIntersection(entry->fields, changed), [&](const std::string& path) {
        conflicts.push_back({manager, path});
      });
    }
    return conflicts;
  }

  // Removes what the last apply owned and this one does not name, unless somebody else owns it.
  Json Prune(const Json& merged, const FieldSet& last, const Entries& others) const {
    const schema::Type type = context_.type;
    const FieldSet last_named = EnsureNamedFields(type, last);
    const Json pruned = RemoveFields(type, merged, last_named);
    FieldSet owned = mine_.fields;
    for (const Entry& entry : others) {
      owned = SetUnion(std::move(owned), entry.fields);
    }
    const FieldSet merged_set = EnsureNamedFields(type, FieldsOf(type, merged));
    const FieldSet pruned_set = EnsureNamedFields(type, FieldsOf(type, pruned));
    const FieldSet lost =
        SetDifference(merged_set, SetUnion(pruned_set, EnsureNamedFields(type, owned)));
    const Json kept = RemoveFields(type, merged, lost);
    // Only what this manager applied before may go; the rest hangs on and comes back.
    const FieldSet kept_set = EnsureNamedFields(type, FieldsOf(type, kept));
    return RemoveFields(type, merged,
                        SetIntersection(SetDifference(merged_set, kept_set), last_named));
  }

  const FieldManagerContext& context_;
  const Json& live_;
  const Json& config_;
  Entry mine_;
};

// The fields that client-side apply wrote last and nobody changed since: kubectl may take them
// over.
FieldSet AllowedByLastApplied(const FieldManagerContext& context, const Json& live) {
  const std::string_view text = AnnotationOf(live, kLastApplied);
  const auto last = ParseJson(text);
  if (text.empty() || !last.ok() || FindString(*last, {"apiVersion"}) != context.gvk.ApiVersion() ||
      !CheckApplied(context.type, *last).ok()) {
    return nullptr;
  }
  const FieldChanges changes = CompareTyped(context.type, *last, live);
  FieldSet set = FieldsOf(context.type, *last);
  set = SetDifference(set, changes.modified);
  set = SetDifference(set, changes.added);
  return SetDifference(set, changes.removed);
}

std::string Described(const FieldManagerContext& context, const Json& config) {
  return std::string(NamespaceOf(config)) + "/" + std::string(NameOf(config)) + "; " +
         context.gvk.group + "/" + context.gvk.version + ", Kind=" + context.gvk.kind;
}

Json WithoutManagedFields(const Json& object) {
  Json copy = object;
  if (Json* metadata = Find(copy, {"metadata"})) {
    EraseMember(metadata, "managedFields");
  }
  return copy;
}

}  // namespace

Json EmptyObject(const FieldManagerContext& context) {
  Json empty = context.is_custom ? Json::object() : ZeroValue(context.type);
  empty["apiVersion"] = context.gvk.ApiVersion();
  empty["kind"] = context.gvk.kind;
  return empty;
}

bool AsksToResetManagedFields(const Json& body) {
  return IsReset(Find(body, {"metadata", "managedFields"}));
}

void TrackUpdate(const FieldManagerContext& context, const Json* live, const std::string& manager,
                 Json* object) {
  const Json* stored = live == nullptr ? nullptr : Find(*live, {"metadata", "managedFields"});
  Json& metadata = EnsureObject(object, "metadata");
  Json sent;
  if (Json* list = Find(metadata, {"managedFields"})) {
    sent = std::move(*list);
    EraseMember(&metadata, "managedFields");
  }
  Entries entries;
  const bool main_resource = context.subresource.empty();
  if (!main_resource || !IsReset(&sent)) {
    // Most writers send back what they read: then the entries are known to be good.
    const bool unchanged = stored != nullptr && sent == *stored;
    const bool valid = (main_resource || unchanged) &&
                       Decode(std::move(sent), unchanged, &entries) && !entries.empty();
    if (!valid) {
      entries = DecodeStored(live);
    }
  }
  // An object without entries is not tracked from the middle of its life.
  const bool tracked = !entries.empty() || live == nullptr;
  if (!tracked) {
    return;
  }
  DropUnservedVersions(context, &entries);
  // The stored entries themselves show up as removed; nobody owns them, so that says nothing.
  const std::string now = FormatTime(context.now);
  if (live == nullptr) {
    Track(context, EmptyObject(context), *object, manager, now, &entries);
  } else {
    Track(context, *live, *object, manager, now, &entries);
  }
  Encode(std::move(entries), object);
}

Result<Json> ApplyObject(const FieldManagerContext& context, const Json* live, const Json& config,
                         const std::string& manager, bool force) {
  const GroupVersionKind kind = KindOf(config);
  if (kind != context.gvk) {
    return BadRequest("invalid object type: " + kind.group + "/" + kind.version +
                      ", Kind=" + kind.kind);
  }
  if (Find(config, {"metadata", "managedFields"}) != nullptr) {
    return BadRequest("metadata.managedFields must be nil");
  }
  if (const auto checked = CheckApplied(context.type, config); !checked.ok()) {
    return {Status(Reason::kUnknown, 500,
                   "failed to create typed patch object (" + Described(context, config) +
                       "): " + checked.error().message())};
  }
  const Json before = live == nullptr ? EmptyObject(context) : WithoutManagedFields(*live);
  Entries stored = DecodeStored(live);
  const std::string now = FormatTime(context.now);
  if (stored.empty() && live != nullptr) {
    Track(context, EmptyObject(context), before, "before-first-apply", now, &stored);
  }
  DropUnservedVersions(context, &stored);
  Apply apply(context, before, config, manager);
  Json merged;
  Entries entries;
  std::vector<Conflict> conflicts = apply.Run(std::move(stored), force, &merged, &entries);
  if (!conflicts.empty() && manager == "kubectl") {
    std::vector<std::string> allowed;
    ForEachPath(AllowedByLastApplied(context, before),
                [&](const std::string& path) { allowed.push_back(path); });
    std::erase_if(conflicts, [&](const Conflict& conflict) {
      return std::find(allowed.begin(), allowed.end(), conflict.path) != allowed.end();
    });
  }
  if (!conflicts.empty()) {
    return ConflictStatus(conflicts);
  }
  const bool same_object = merged == before;
  if (manager == "kubectl" && !AnnotationOf(merged, kLastApplied).empty()) {
    Json last = config;
    EraseMember(Find(last, {"metadata", "annotations"}), kLastApplied);
    SetAnnotation(&merged, kLastApplied, Dump(last) + "\n");
  }
  if (!same_object || live == nullptr) {
    FindEntry(&entries, apply.mine())->time = now;
  }
  if (!context.is_custom) {
    if (auto typed = NormalizeTyped(context.type, &merged); !typed.ok()) {
      return {Status(Reason::kUnknown, 500,
                     "failed to convert new typed object (" + Described(context, config) +
                         ") to object: " + typed.error().message())};
    }
  }
  Encode(std::move(entries), &merged);
  // Times of entries that did not change are kept, so an apply without effect equals what is
  // stored.
  return merged;
}

}  // namespace sublet::kube
