#include "kube/kinds/scale.h"

#include <nlohmann/json.hpp>

#include "kube/label_selector.h"
#include "kube/object.h"

namespace sublet::kube {
namespace {

const Json* At(const Json& object, const std::vector<std::string>& path) {
  const Json* at = &object;
  for (const std::string& key : path) {
    at = at == nullptr ? nullptr : Find(*at, {key});
  }
  return path.empty() ? nullptr : at;
}

std::int64_t Number(const Json* value) {
  return value != nullptr && value->is_number_integer() ? value->get<std::int64_t>() : 0;
}

// A LabelSelector object, a plain map of labels (ReplicationController) or a ready text (CRDs).
std::string SelectorText(const Kind& kind, const Json* selector) {
  if (selector == nullptr) {
    return "";
  }
  if (selector->is_string()) {
    return selector->get<std::string>();
  }
  if (kind.gvk.kind == "ReplicationController") {
    return LabelSelector::FromLabels(selector).Text();
  }
  const auto parsed = LabelSelector::FromJson(selector);
  return parsed.ok() ? parsed->Text() : "";
}

}  // namespace

Json ToScale(const Kind& kind, const Json& object) {
  Json scale = {{"apiVersion", "autoscaling/v1"}, {"kind", "Scale"}};
  Json& metadata = scale["metadata"];
  for (const char* field : {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"}) {
    if (const Json* value = Find(object, {"metadata", field})) {
      metadata[field] = *value;
    }
  }
  scale["spec"] = Json::object();
  if (const std::int64_t replicas = Number(At(object, kind.scale->spec_replicas)); replicas != 0) {
    scale["spec"]["replicas"] = replicas;
  }
  scale["status"] = {{"replicas", Number(At(object, kind.scale->status_replicas))}};
  PutString(&scale["status"], "selector", SelectorText(kind, At(object, kind.scale->selector)));
  return scale;
}

Result<void> ApplyScale(const Kind& kind, const Json& scale, Json* object) {
  const Json* wanted = Find(scale, {"spec", "replicas"});
  if (wanted != nullptr && !wanted->is_number_integer()) {
    return BadRequest("spec.replicas must be an integer");
  }
  const std::int64_t replicas = Number(wanted);
  if (replicas < 0) {
    FieldErrors errors;
    errors.Invalid("spec.replicas", replicas, "must be greater than or equal to 0");
    return Invalid("autoscaling", "Scale", NameOf(*object), errors.Take());
  }
  Json* at = object;
  for (const std::string& key : kind.scale->spec_replicas) {
    if (!at->is_object()) {
      *at = Json::object();
    }
    at = &(*at)[key];
  }
  *at = replicas;
  return Ok();
}

}  // namespace sublet::kube
