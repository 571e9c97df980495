#include "controllers/endpoint_slices.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "kube/object.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using kube::Json;

// What makes an endpoint the same one across changes: its address and target.
std::string IdentityOf(const Json& endpoint) {
  const Json* addresses = kube::Find(endpoint, {"addresses"});
  std::string out = addresses != nullptr ? kube::Dump(*addresses) : "";
  return out + std::string(kube::FindString(endpoint, {"targetRef", "uid"}));
}

std::string GroupKey(std::string_view address_type, const Json* ports) {
  return std::string(address_type) + kube::Dump(ports != nullptr ? *ports : Json());
}

struct Existing {
  ObjectPtr object;
  Json value;
  std::vector<Json> endpoints;  // as they should be now
};

Json NewSlice(const SliceOwner& owner, const SliceGroup& group) {
  Json out = {{"metadata",
               {{"generateName", owner.name_prefix + "-"},
                {"namespace", owner.namespace_name},
                {"labels", owner.labels},
                {"ownerReferences", Json::array({owner.owner_reference})}}},
              {"addressType", group.address_type},
              {"ports", group.ports},
              {"endpoints", Json::array()}};
  if (!owner.annotations.is_null() && !owner.annotations.empty()) {
    out["metadata"]["annotations"] = owner.annotations;
  }
  return out;
}

// Fills the group's slices; returns the endpoints that found no place.
std::vector<Json> FillExisting(SliceGroup* group, std::vector<Existing*>* slices) {
  std::map<std::string, Json> wanted;
  for (Json& endpoint : group->endpoints) {
    std::string identity = IdentityOf(endpoint);
    wanted[std::move(identity)] = std::move(endpoint);
  }
  for (Existing* slice : *slices) {
    const Json* present = kube::Find(slice->value, {"endpoints"});
    for (const Json& endpoint :
         present != nullptr && present->is_array() ? *present : Json::array()) {
      const auto found = wanted.find(IdentityOf(endpoint));
      if (found != wanted.end()) {
        slice->endpoints.push_back(std::move(found->second));
        wanted.erase(found);
      }
    }
  }
  std::vector<Json> rest;
  for (auto& [identity, endpoint] : wanted) {
    const auto room = std::find_if(slices->begin(), slices->end(), [](const Existing* slice) {
      return slice->endpoints.size() < kEndpointsPerSlice;
    });
    if (room != slices->end()) {
      (*room)->endpoints.push_back(std::move(endpoint));
    } else {
      rest.push_back(std::move(endpoint));
    }
  }
  return rest;
}

void AddNewSlices(const SliceOwner& owner, const SliceGroup& group, std::vector<Json> rest,
                  SlicePlan* plan) {
  for (std::size_t at = 0; at < rest.size(); at += kEndpointsPerSlice) {
    Json slice = NewSlice(owner, group);
    for (std::size_t i = at; i < std::min(rest.size(), at + kEndpointsPerSlice); ++i) {
      slice["endpoints"].push_back(std::move(rest[i]));
    }
    plan->create.push_back(std::move(slice));
  }
}

void AddUpdate(const SliceOwner& owner, Existing* slice, SlicePlan* plan) {
  Json updated = slice->value;
  updated["endpoints"] = Json(slice->endpoints);
  updated["metadata"]["labels"] = owner.labels;
  Json before = slice->value;
  if (!before.contains("endpoints") || before["endpoints"].is_null()) {
    before["endpoints"] = Json::array();
  }
  if (updated != before) {
    plan->update.push_back(std::move(updated));
  }
}

}  // namespace

Result<SlicePlan> PlanSlices(const SliceOwner& owner, std::vector<SliceGroup> groups,
                             const std::vector<ObjectPtr>& present, bool keep_one) {
  SlicePlan plan;
  std::vector<Existing> existing;
  for (const ObjectPtr& object : present) {
    if (!object->deleting()) {
      SUBLET_TRY(Json value, object->Parse());
      existing.push_back({object, std::move(value), {}});
    }
  }
  std::map<std::string, std::vector<Existing*>> by_group;
  for (Existing& slice : existing) {
    by_group[GroupKey(kube::FindString(slice.value, {"addressType"}),
                      kube::Find(slice.value, {"ports"}))]
        .push_back(&slice);
  }
  for (SliceGroup& group : groups) {
    std::vector<Existing*>& mine = by_group[GroupKey(group.address_type, &group.ports)];
    AddNewSlices(owner, group, FillExisting(&group, &mine), &plan);
  }
  std::size_t left = plan.create.size();
  for (const Existing& slice : existing) {
    left += slice.endpoints.empty() ? 0 : 1;
  }
  bool placeholder = keep_one && left == 0;
  for (Existing& slice : existing) {
    if (!slice.endpoints.empty() || placeholder) {
      placeholder = placeholder && !slice.endpoints.empty();
      AddUpdate(owner, &slice, &plan);
    } else {
      plan.remove.push_back(slice.object);
    }
  }
  if (placeholder) {
    plan.create.push_back(NewSlice(owner, {"IPv4", Json::array(), {}}));
  }
  return plan;
}

Result<void> ApplyPlan(const Collection& slices, const std::string& namespace_name,
                       SlicePlan plan) {
  for (Json& slice : plan.create) {
    auto created = slices.Create(namespace_name, std::move(slice));
    if (!created.ok() && !created.error().Is(Reason::kForbidden)) {
      return std::move(created).error();
    }
  }
  for (const Json& slice : plan.update) {
    SUBLET_RETURN_IF_ERROR(slices.Update(slice));
  }
  for (const ObjectPtr& slice : plan.remove) {
    SUBLET_RETURN_IF_ERROR(slices.Delete(slice->key, slice->uid));
  }
  return Ok();
}

}  // namespace sublet::controllers
