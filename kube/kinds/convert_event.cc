// Event: events.k8s.io/v1 and v1 are two spellings of what is stored once, as v1.
#include <nlohmann/json.hpp>
#include <utility>

#include "kube/kinds/logic_functions.h"
#include "kube/object.h"

namespace sublet::kube::logic {
namespace {

constexpr std::pair<const char*, const char*> kNames[] = {
    // events.k8s.io, core
    {"note", "message"},
    {"regarding", "involvedObject"},
    {"reportingController", "reportingComponent"},
    {"deprecatedSource", "source"},
    {"deprecatedFirstTimestamp", "firstTimestamp"},
    {"deprecatedLastTimestamp", "lastTimestamp"},
    {"deprecatedCount", "count"},
};

void Rename(const char* from, const char* to, Json* object) {
  if (Json* value = Find(*object, {from})) {
    Json moved = std::move(*value);
    EraseMember(object, from);
    (*object)[to] = std::move(moved);
  }
}

}  // namespace

void EventToStorage(Json* event) {
  for (const auto& [other, core] : kNames) {
    Rename(other, core, event);
  }
  (*event)["apiVersion"] = "v1";
  // The core form writes these always.
  for (const char* field : {"involvedObject", "source"}) {
    event->emplace(field, Json::object());
  }
  for (const char* field : {"firstTimestamp", "lastTimestamp", "eventTime"}) {
    event->emplace(field, nullptr);
  }
  for (const char* field : {"reportingComponent", "reportingInstance"}) {
    event->emplace(field, "");
  }
}

void EventFromStorage(Json* event) {
  for (const auto& [other, core] : kNames) {
    Rename(core, other, event);
  }
  (*event)["apiVersion"] = "events.k8s.io/v1";
  for (const char* field : {"reportingController", "reportingInstance"}) {
    if (FindString(*event, {field}).empty()) {
      EraseMember(event, field);
    }
  }
}

}  // namespace sublet::kube::logic
