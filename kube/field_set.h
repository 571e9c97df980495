// Sets of field paths in the form in which managedFields store them (FieldsV1), and how values of a
// schema are turned into them, compared, merged and cut by them. A set is a JSON object:
//   "f:name", "k:{...}", "v:...", "i:0" are steps; {} or a member "." says that the path itself is
//   in the set. A null value is the empty set.
// Working on the stored form means that an update that touches three fields reads and writes three
// paths, not every manager's set.
// Threads: any. Source: sigs.k8s.io/structured-merge-diff (semantics), KEP-555.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kube/json.h"
#include "kube/schema/schema.h"

namespace sublet::kube {

using FieldSet = Json;

inline bool IsEmptySet(const FieldSet& set) { return !set.is_object() || set.empty(); }
// What is in `a` and not in `b`; in both; in either.
FieldSet SetDifference(const FieldSet& a, const FieldSet& b);
FieldSet SetIntersection(const FieldSet& a, const FieldSet& b);
// Takes both apart; the cheaper order is found by the caller: what is moved costs nothing.
FieldSet SetUnion(FieldSet a, FieldSet b);
// The same in place; costs what `b` holds, not what `a` does.
void Subtract(const FieldSet& b, FieldSet* a);
// Drops the paths of `b` and everything below them.
void SubtractBelow(const FieldSet& b, FieldSet* a);
// Adds a parent to the set for every named field that has something below it.
FieldSet EnsureNamedFields(schema::Type type, const FieldSet& set);
// Every path, members of a level before what is below it: ".spec.ports[port=80]".
void ForEachPath(const FieldSet& set, const std::function<void(const std::string&)>& visit);
// True when `json` has the form of a set.
bool IsFieldSet(const Json& json);

// All fields that `value` holds, as an Apply owns them.
FieldSet FieldsOf(schema::Type type, const Json& value);

struct FieldChanges {
  FieldSet added;
  FieldSet modified;
  FieldSet removed;
};
// What changes between two values. Null stands for an absent value.
FieldChanges CompareTyped(schema::Type type, const Json& before, const Json& after);

// `over` merged onto `base`: lists with keys item by item in the order of both, sets united, atomic
// values replaced. `over` has no duplicate keys (CheckApplied).
Json MergeTyped(schema::Type type, const Json& base, const Json& over);

// `value` without the paths of `set`.
Json RemoveFields(schema::Type type, const Json& value, const FieldSet& set);

// What an applied object may be: known fields, values of their types, no two items with one key.
// Errors: Unknown with code 500 and the sentence of upstream's converter.
Result<void> CheckApplied(schema::Type type, const Json& value);

}  // namespace sublet::kube
