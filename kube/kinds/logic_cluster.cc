#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/logic_functions.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::kube::logic {

void TakeMember(const Json& from, const char* key, Json* object) {
  if (const Json* value = Find(from, {key})) {
    (*object)[key] = *value;
  } else {
    EraseMember(object, key);
  }
}

namespace {

const Json::array_t& ConditionsOf(const Json& object) {
  static const Json::array_t kNone;
  const Json* list = Find(object, {"status", "conditions"});
  return list != nullptr && list->is_array() ? list->get_ref<const Json::array_t&>() : kNone;
}

// The old conditions of `type` in place of the sent ones, when there are as many of them.
void KeepConditions(std::string_view type, const Json& old, Json* object) {
  Json* sent = Find(*object, {"status", "conditions"});
  if (sent == nullptr || !sent->is_array()) {
    return;
  }
  const auto is_of_type = [type](const Json& one) { return FindString(one, {"type"}) == type; };
  const auto& before = ConditionsOf(old);
  if (std::count_if(before.begin(), before.end(), is_of_type) !=
      std::count_if(sent->begin(), sent->end(), is_of_type)) {
    return;
  }
  auto from = before.begin();
  for (Json& condition : *sent) {
    if (is_of_type(condition)) {
      from = std::find_if(from, before.end(), is_of_type);
      condition = *from++;
    }
  }
}

// A condition without times is of now; one whose type and status were there keeps its transition.
void FillConditionTimes(const WriteContext& context, const Json& old, Json* object) {
  Json* list = Find(*object, {"status", "conditions"});
  if (list == nullptr || !list->is_array()) {
    return;
  }
  const std::string now = FormatTime(context.now);
  for (Json& condition : *list) {
    if (FindString(condition, {"lastUpdateTime"}).empty()) {
      condition["lastUpdateTime"] = now;
    }
    if (!FindString(condition, {"lastTransitionTime"}).empty()) {
      continue;
    }
    const auto& before = ConditionsOf(old);
    const auto same = std::find_if(before.begin(), before.end(), [&](const Json& one) {
      return FindString(one, {"type"}) == FindString(condition, {"type"}) &&
             FindString(one, {"status"}) == FindString(condition, {"status"}) &&
             !FindString(one, {"lastTransitionTime"}).empty();
    });
    condition["lastTransitionTime"] =
        same != before.end() ? std::string(FindString(*same, {"lastTransitionTime"})) : now;
  }
}

}  // namespace

void PrepareNamespaceCreate(const WriteContext&, Json* object) {
  (*object)["status"] = {{"phase", "Active"}};
  Json& list = EnsureArray(&EnsureObject(object, "spec"), "finalizers");
  if (std::find(list.begin(), list.end(), "kubernetes") == list.end()) {
    list.push_back("kubernetes");
  }
}

void PrepareNamespaceUpdate(const WriteContext&, const Json& old, Json* object) {
  TakeMember(old, "spec", object);  // finalizers change through /finalize only
}

// A status update of a Namespace writes metadata too, its labels included.
void PrepareNamespaceStatus(const WriteContext&, const Json& old, Json* object) {
  TakeMember(old, "spec", object);
}

void PrepareNamespaceSubresource(std::string_view, const WriteContext&, const Json& old,
                                 Json* object) {
  TakeMember(old, "status", object);
}

void PrepareVolumeCreate(const WriteContext& context, Json* object) {
  (*object)["status"] = {{"phase", "Pending"},
                         {"lastPhaseTransitionTime", FormatTime(context.now)}};
}

// One field has two names: each fills the other. The old one takes claims and snapshots only.
namespace {

// What a claim's dataSource names, dataSourceRef names too; clients may know only one of them.
void AgreeOnDataSource(Json* spec) {
  const Json* source = Find(*spec, {"dataSource"});
  const Json* reference = Find(*spec, {"dataSourceRef"});
  if (source != nullptr && reference == nullptr) {
    Json copy = *source;
    (*spec)["dataSourceRef"] = std::move(copy);
  } else if (reference != nullptr && source == nullptr &&
             FindString(*reference, {"namespace"}).empty()) {
    Json copy = *reference;
    EraseMember(&copy, "namespace");
    (*spec)["dataSource"] = std::move(copy);
  }
}

// A dataSource of a kind that was never supported is left out, unless it was stored before.
void DropUnknownDataSource(const Json* old_spec, Json* spec) {
  const Json* source = Find(*spec, {"dataSource"});
  const bool kept = old_spec != nullptr && (Find(*old_spec, {"dataSource"}) != nullptr ||
                                            Find(*old_spec, {"dataSourceRef"}) != nullptr);
  if (source == nullptr || Find(*spec, {"dataSourceRef"}) != nullptr || kept) {
    return;
  }
  const std::string_view kind = FindString(*source, {"kind"});
  const std::string_view group = FindString(*source, {"apiGroup"});
  if (!(kind == "PersistentVolumeClaim" && group.empty()) &&
      !(kind == "VolumeSnapshot" && group == "snapshot.storage.k8s.io")) {
    EraseMember(spec, "dataSource");
  }
}

}  // namespace

void PrepareClaimCreate(const WriteContext&, Json* object) {
  (*object)["status"] = {{"phase", "Pending"}};
  Json& spec = EnsureObject(object, "spec");
  DropUnknownDataSource(nullptr, &spec);
  AgreeOnDataSource(&spec);
}

void PrepareClaimUpdate(const WriteContext&, const Json& old, Json* object) {
  Json& spec = EnsureObject(object, "spec");
  DropUnknownDataSource(Find(old, {"spec"}), &spec);
  AgreeOnDataSource(&spec);
}

void PrepareServiceAccount(const WriteContext&, Json* object) {
  if (Json* list = Find(*object, {"secrets"}); list != nullptr && list->is_array()) {
    for (Json& secret : *list) {
      secret = {{"name", std::string(FindString(secret, {"name"}))}};
    }
  }
}

void PrepareServiceAccountUpdate(const WriteContext& context, const Json&, Json* object) {
  PrepareServiceAccount(context, object);
}

void PrepareSigningRequestCreate(const WriteContext& context, Json* object) {
  Json& spec = EnsureObject(object, "spec");
  PutString(&spec, "username", context.user);
  PutString(&spec, "uid", context.user_uid);
  if (context.groups.empty()) {
    EraseMember(&spec, "groups");
  } else {
    spec["groups"] = context.groups;
  }
  EraseMember(&spec, "extra");
}

void PrepareSigningRequestUpdate(const WriteContext&, const Json& old, Json* object) {
  TakeMember(old, "spec", object);
}

void PrepareSigningRequestStatus(const WriteContext& context, const Json& old, Json* object) {
  // What was approved or denied stays as it was; adding or removing such a condition is refused by
  // the validation.
  for (const std::string_view type : {"Approved", "Denied"}) {
    KeepConditions(type, old, object);
  }
  FillConditionTimes(context, old, object);
}

void PrepareSigningRequestSubresource(std::string_view, const WriteContext& context,
                                      const Json& old, Json* object) {
  // /approval: of the status only the conditions are taken, whatever their types.
  FillConditionTimes(context, old, object);
  const Json* sent = Find(*object, {"status", "conditions"});
  Json conditions = sent != nullptr ? *sent : Json();
  TakeMember(old, "spec", object);
  TakeMember(old, "status", object);
  if (conditions.is_array() && !conditions.empty()) {
    EnsureObject(object, "status")["conditions"] = std::move(conditions);
  } else if (Json* status = Find(*object, {"status"})) {
    EraseMember(status, "conditions");
  }
}

namespace {

void KeepMembers(const Json& old, std::initializer_list<const char*> members, Json* object) {
  Json& metadata = EnsureObject(object, "metadata");
  for (const char* member : members) {
    if (const Json* value = Find(old, {"metadata", member})) {
      metadata[member] = *value;
    } else {
      EraseMember(&metadata, member);
    }
  }
}

}  // namespace

void KeepMetadata(const WriteContext&, const Json& old, Json* object) {
  KeepMembers(
      old,
      {"deletionTimestamp", "generation", "labels", "annotations", "finalizers", "ownerReferences"},
      object);
}

// What a device said goes when the claim no longer holds the device.
void PrepareResourceClaimStatus(const WriteContext& context, const Json& old, Json* object) {
  KeepMetadata(context, old, object);
  const auto id = [](const Json& one) {
    return std::string(FindString(one, {"driver"})) + "\n" +
           std::string(FindString(one, {"pool"})) + "\n" +
           std::string(FindString(one, {"device"})) + "\n" +
           std::string(FindString(one, {"shareID"}));
  };
  const auto held = [&id](const Json& claim) {
    std::set<std::string> ids;
    const Json* results = Find(claim, {"status", "allocation", "devices", "results"});
    for (std::size_t i = 0; results != nullptr && i < results->size(); ++i) {
      ids.insert(id((*results)[i]));
    }
    return ids;
  };
  const std::set<std::string> before = held(old);
  const std::set<std::string> now = held(*object);
  Json* devices = Find(*object, {"status", "devices"});
  if (devices == nullptr || !devices->is_array()) {
    return;
  }
  std::erase_if(devices->get_ref<Json::array_t&>(), [&](const Json& device) {
    return before.contains(id(device)) && !now.contains(id(device));
  });
  if (devices->empty()) {
    EraseMember(&(*object)["status"], "devices");
  }
}

void KeepLabels(const WriteContext&, const Json& old, Json* object) {
  KeepMembers(old, {"labels"}, object);
}

}  // namespace sublet::kube::logic
