#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/kinds/logic_functions.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::kube::logic {
namespace {

void TakeMember(const Json& from, const char* key, Json* object) {
  if (const Json* value = Find(from, {key})) {
    (*object)[key] = *value;
  } else {
    EraseMember(object, key);
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
void PrepareClaimCreate(const WriteContext&, Json* object) {
  (*object)["status"] = {{"phase", "Pending"}};
  Json& spec = EnsureObject(object, "spec");
  const Json* source = Find(spec, {"dataSource"});
  const Json* reference = Find(spec, {"dataSourceRef"});
  if (source != nullptr && reference == nullptr) {
    const std::string_view kind = FindString(*source, {"kind"});
    const std::string_view group = FindString(*source, {"apiGroup"});
    const bool known = (kind == "PersistentVolumeClaim" && group.empty()) ||
                       (kind == "VolumeSnapshot" && group == "snapshot.storage.k8s.io");
    if (known) {
      Json copy = *source;
      spec["dataSourceRef"] = std::move(copy);
    } else {
      EraseMember(&spec, "dataSource");
    }
  } else if (reference != nullptr && source == nullptr &&
             FindString(*reference, {"namespace"}).empty()) {
    Json copy = *reference;
    EraseMember(&copy, "namespace");
    spec["dataSource"] = std::move(copy);
  }
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

void PrepareSigningRequestSubresource(std::string_view, const WriteContext& context,
                                      const Json& old, Json* object) {
  // /approval: only the conditions Approved and Denied may change here.
  Json sent = EnsureArray(&EnsureObject(object, "status"), "conditions");
  TakeMember(old, "spec", object);
  TakeMember(old, "status", object);
  Json& conditions = EnsureArray(&EnsureObject(object, "status"), "conditions");
  for (Json& condition : sent) {
    const std::string type(FindString(condition, {"type"}));
    if (type != "Approved" && type != "Denied") {
      continue;
    }
    if (FindString(condition, {"lastUpdateTime"}).empty()) {
      condition["lastUpdateTime"] = FormatTime(context.now);
    }
    if (FindString(condition, {"lastTransitionTime"}).empty()) {
      condition["lastTransitionTime"] = FormatTime(context.now);
    }
    const auto same = std::find_if(conditions.begin(), conditions.end(), [&](const Json& one) {
      return FindString(one, {"type"}) == type;
    });
    if (same != conditions.end()) {
      *same = condition;
    } else {
      conditions.push_back(condition);
    }
  }
  if (conditions.empty()) {
    EraseMember(Find(*object, {"status"}), "conditions");
  }
}

}  // namespace sublet::kube::logic
