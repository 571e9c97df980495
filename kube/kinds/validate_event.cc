// Events in both spellings; the strict rules hold for events.k8s.io only.
#include <nlohmann/json.hpp>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::kube::validate {
namespace {

struct EventFields {
  const char* about;
  const char* controller;
  const char* note;
};
constexpr EventFields kCore{"involvedObject", "reportingComponent", "message"};
constexpr EventFields kEvents{"regarding", "reportingController", "note"};

bool IsTime(const Json& value) { return value.is_string(); }

void Text(const std::string& field, const std::string& value, std::size_t max, bool required,
          FieldErrors* errors) {
  if (required && value.empty()) {
    errors->Required(field);
  }
  if (value.size() > max) {
    errors->Invalid(field, "", "can have at most " + std::to_string(max) + " characters");
  }
}

void Loose(const Json& event, const EventFields& names, bool core, FieldErrors* errors) {
  const std::string space(NamespaceOf(event));
  const std::string about = Str(Get(event, names.about), "namespace");
  const bool dated = IsTime(Get(event, "eventTime"));
  const bool agrees = about.empty()
                          ? space.empty() || space == "default" || (dated && space == "kube-system")
                          : dated || about == space;
  if (!agrees) {
    errors->Invalid("involvedObject.namespace", about, "does not match event.namespace");
  }
  if (!dated) {
    return;
  }
  const std::string field = core ? "reportingComponent" : "reportingController";
  const std::string controller = Str(event, names.controller);
  if (controller.empty()) {
    errors->Required(field);
  }
  Check(Path(field), controller, &IsQualifiedName, errors);
  Text("reportingInstance", Str(event, "reportingInstance"), 128, true, errors);
  Text("action", Str(event, "action"), 128, true, errors);
  Text("reason", Str(event, "reason"), 128, true, errors);
  Text("message", Str(event, names.note), 1024, false, errors);
}

void Series(const Json& event, FieldErrors* errors) {
  const Json& series = Get(event, "series");
  if (!series.is_object()) {
    return;
  }
  if (FindInt(series, {"count"}) < 2) {
    errors->Invalid("series.count", "", "should be at least 2");
  }
  if (!IsTime(Get(series, "lastObservedTime"))) {
    errors->Required("series.lastObservedTime");
  }
}

}  // namespace

void Event(const Json& object, FieldErrors* errors) { Loose(object, kCore, true, errors); }

void EventUpdate(const Json& object, const Json&, FieldErrors* errors) { Event(object, errors); }

void StrictEvent(const Json& object, FieldErrors* errors) {
  Loose(object, kEvents, false, errors);
  Series(object, errors);
  if (!IsTime(Get(object, "eventTime"))) {
    errors->Required("eventTime");
  }
  if (const std::string type = Str(object, "type"); type != "Normal" && type != "Warning") {
    errors->Invalid("type", "", "has invalid value: " + type);
  }
  const auto unset = [&](bool is_set, const char* field) {
    if (is_set) {
      errors->Invalid(field, "", "needs to be unset");
    }
  };
  unset(IsTime(Get(object, "deprecatedFirstTimestamp")), "firstTimestamp");
  unset(IsTime(Get(object, "deprecatedLastTimestamp")), "lastTimestamp");
  unset(FindInt(object, {"deprecatedCount"}) != 0, "count");
  const Json& source = Get(object, "deprecatedSource");
  unset(!Str(source, "component").empty() || !Str(source, "host").empty(), "source");
}

void StrictEventUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  Loose(object, kEvents, false, errors);
  if (!SameMember(object, old, "series")) {
    Series(object, errors);
  }
  static constexpr std::pair<const char*, const char*> kFixed[] = {
      {"regarding", "involvedObject"},
      {"reason", "reason"},
      {"note", "message"},
      {"deprecatedSource", "source"},
      {"deprecatedFirstTimestamp", "firstTimestamp"},
      {"deprecatedLastTimestamp", "lastTimestamp"},
      {"deprecatedCount", "count"},
      {"type", "type"},
      {"eventTime", "eventTime"},
      {"action", "action"},
      {"related", "related"},
      {"reportingController", "reportingController"},
      {"reportingInstance", "reportingInstance"},
  };
  for (const auto& [member, field] : kFixed) {
    if (!SameMember(object, old, member)) {
      errors->Invalid(field, Get(object, member), kImmutable);
    }
  }
}

}  // namespace sublet::kube::validate
