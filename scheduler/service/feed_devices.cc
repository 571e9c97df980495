// Dynamic resource allocation as the engine sees it (scheduler/service/feed.h): claims carry the
// selectors of the classes they name, nodes the number of GPUs that their slices show.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "scheduler/device_selector.h"
#include "scheduler/service/feed.h"

namespace sublet::scheduler {
namespace {

using client::ObjectPtr;
using kube::Json;

constexpr const char* kApiGroup = "resource.k8s.io";
constexpr std::string_view kNodeIndex = "node";
constexpr std::string_view kClassIndex = "class";

}  // namespace

client::InformerOptions InformerOf(const char* group, const char* version, const char* resource,
                                   const char* kind) {
  client::InformerOptions options;
  options.resource = {group, version, resource};
  options.kind = kind;
  options.keep_bytes = false;
  return options;
}

void Feed::WatchDevices(client::InformerFactory& informers) {
  auto slices = InformerOf(kApiGroup, "v1", "resourceslices", "ResourceSlice");
  slices.make_record = [](const Json& object) {
    return std::make_shared<const DeviceSlice>(SliceFromJson(object));
  };
  device_slices_ = &informers.For(slices);
  device_slices_->AddIndex(kNodeIndex, [](const client::CachedObject& slice) {
    return std::vector<std::string>{slice.As<DeviceSlice>().node};
  });
  device_slices_->AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
    const std::string name = (after != nullptr ? after : before)->key.name;
    if (after == nullptr) {
      Put(kSlice, name, [name](Engine& engine) { engine.DeleteSlice(name); });
    } else {
      Put(kSlice, name, [after](Engine& engine) { engine.Apply(after->As<DeviceSlice>()); });
    }
    for (const ObjectPtr& slice : {before, after}) {
      if (slice != nullptr && !slice->As<DeviceSlice>().node.empty()) {
        NodeChanged(slice->As<DeviceSlice>().node);
      }
    }
  });
  auto classes = InformerOf(kApiGroup, "v1", "deviceclasses", "DeviceClass");
  classes.make_record = [](const Json& object) {
    return std::make_shared<const DeviceClassFacts>(DeviceClassFromJson(object));
  };
  device_classes_ = &informers.For(classes);
}

void Feed::WatchClaims(client::InformerFactory& informers) {
  auto claims = InformerOf(kApiGroup, "v1", "resourceclaims", "ResourceClaim");
  claims.make_record = [](const Json& object) {
    return std::make_shared<const ClaimSpec>(ClaimFromJson(object));
  };
  resource_claims_ = &informers.For(claims);
  resource_claims_->AddIndex(kClassIndex, [](const client::CachedObject& claim) {
    return ClassesOf(claim.As<ClaimSpec>());
  });
  // The classes are looked up when the engine takes the claim, so that they are never older than
  // the event that showed it again.
  const auto show = [this](const ObjectPtr& claim) {
    Put(kClaim, claim->key.Text(), [this, claim](Engine& engine) {
      ClaimSpec spec = claim->As<ClaimSpec>();
      ResolveClasses(
          [this](const std::string& name) -> std::optional<DeviceClassFacts> {
            const ObjectPtr found = device_classes_->Get({"", name});
            return found == nullptr ? std::nullopt : std::optional(found->As<DeviceClassFacts>());
          },
          &spec);
      engine.Apply(spec);
    });
  };
  resource_claims_->AddHandler([this, show](const ObjectPtr& before, const ObjectPtr& after) {
    if (after == nullptr) {
      Put(kClaim, before->key.Text(),
          [key = before->key.Text()](Engine& engine) { engine.DeleteClaim(key); });
    } else {
      show(after);
    }
  });
  device_classes_->AddHandler([this, show](const ObjectPtr& before, const ObjectPtr& after) {
    const std::string name = (after != nullptr ? after : before)->key.name;
    for (const ObjectPtr& claim : resource_claims_->ByIndex(kClassIndex, name)) {
      show(claim);
    }
    if (NamesGpu(name)) {
      for (const ObjectPtr& slice : device_slices_->List()) {
        if (!slice->As<DeviceSlice>().node.empty()) {
          NodeChanged(slice->As<DeviceSlice>().node);
        }
      }
    }
  });
}

std::int64_t Feed::GpusInSlices(const std::string& node) const {
  const auto slices = device_slices_->ByIndex(kNodeIndex, node);
  if (slices.empty()) {
    return 0;
  }
  std::vector<ObjectPtr> classes = device_classes_->List();
  std::erase_if(classes, [](const ObjectPtr& known) {
    return !NamesGpu(known->key.name) || !known->As<DeviceClassFacts>().problem.empty();
  });
  std::map<std::pair<std::string, std::string>, std::int64_t> newest;
  for (const ObjectPtr& object : slices) {
    const auto& slice = object->As<DeviceSlice>();
    std::int64_t& generation = newest[{slice.driver, slice.pool}];
    generation = std::max(generation, slice.generation);
  }
  std::int64_t gpus = 0;
  for (const ObjectPtr& object : slices) {
    const auto& slice = object->As<DeviceSlice>();
    if (slice.generation < newest[{slice.driver, slice.pool}]) {
      continue;
    }
    gpus += std::count_if(slice.devices.begin(), slice.devices.end(), [&](const auto& device) {
      return device.usable && device.taints.empty() && device.uses.empty() &&
             std::any_of(classes.begin(), classes.end(), [&](const auto& known) {
               const auto& selectors = known->template As<DeviceClassFacts>().selectors;
               return std::all_of(selectors.begin(), selectors.end(), [&](const auto& selector) {
                 return selector->Matches(slice.driver, device);
               });
             });
    });
  }
  return gpus;
}

}  // namespace sublet::scheduler
