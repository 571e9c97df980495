#include <nlohmann/json.hpp>

#include "apiserver/handlers/body.h"
#include "apiserver/handlers/object_writer.h"
#include "apiserver/handlers/respond.h"
#include "apiserver/handlers/subresources.h"
#include "apiserver/handlers/update_object.h"
#include "apiserver/handlers/write_common.h"
#include "apiserver/registry/kind_ops.h"
#include "kube/json_patch.h"
#include "kube/label_selector.h"
#include "kube/object.h"

namespace sublet::apiserver {
namespace {

using kube::Json;

const Json* FindPath(const Json& object, const std::vector<std::string>& path) {
  const Json* at = path.empty() ? nullptr : &object;
  for (const auto& name : path) {
    if (at == nullptr || !at->is_object()) {
      return nullptr;
    }
    const auto it = at->find(name);
    at = it == at->end() ? nullptr : &*it;
  }
  return at;
}

std::int64_t NumberAt(const Json& object, const std::vector<std::string>& path) {
  const Json* value = FindPath(object, path);
  return value != nullptr && value->is_number_integer() ? value->get<std::int64_t>() : 0;
}

void SetPath(Json& object, const std::vector<std::string>& path, std::int64_t value) {
  Json* at = &object;
  for (const auto& name : path) {
    if (!at->is_object()) {
      *at = Json::object();
    }
    at = &(*at)[name];
  }
  *at = value;
}

// The selector's text: a string for custom resources, an object or a map for built-in kinds.
std::string SelectorText(const Json& object, const kube::Kind& kind) {
  const Json* selector = FindPath(object, kind.scale->selector);
  if (selector == nullptr) {
    return "";
  }
  if (selector->is_string()) {
    return selector->get<std::string>();
  }
  if (kind.gvk.group.empty()) {
    return kube::LabelSelector::FromLabels(selector).Text();
  }
  const auto parsed = kube::LabelSelector::FromJson(selector);
  return parsed.ok() ? parsed->Text() : "";
}

Json ScaleOf(const Json& object, const kube::Kind& kind) {
  const Json& metadata = object.at("metadata");
  Json own = Json::object();
  for (const char* field : {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"}) {
    if (const auto it = metadata.find(field); it != metadata.end()) {
      own[field] = *it;
    }
  }
  Json scale = {{"apiVersion", "autoscaling/v1"},
                {"kind", "Scale"},
                {"metadata", std::move(own)},
                {"spec", Json::object()},
                {"status", {{"replicas", NumberAt(object, kind.scale->status_replicas)}}}};
  const auto replicas = NumberAt(object, kind.scale->spec_replicas);
  if (replicas != 0) {
    scale["spec"]["replicas"] = replicas;
  }
  if (const std::string selector = SelectorText(object, kind); !selector.empty()) {
    scale["status"]["selector"] = selector;
  }
  return scale;
}

// Scale as a kind for decoding: it has no resource of its own.
const kube::Kind& ScaleKind() {
  static const kube::Kind kKind = [] {
    kube::Kind kind;
    kind.gvk = {"autoscaling", "v1", "Scale"};
    kind.type = kube::schema::FindType("autoscaling", "v1", "Scale");
    return kind;
  }();
  return kKind;
}

Json TreeOf(const Call& call, const storage::Value& value) {
  return ObjectWriter(*call.resource, call.form, call.context->clock->Now()).TreeOf(value);
}

void Answer(Call& call, int code, const storage::ValuePtr& value) {
  SendTree(call, code, ScaleOf(TreeOf(call, *value), call.kind()));
}

// The live object with the replicas that `scale` asks for.
Result<Json> Fold(Call& call, const Json& live, const Json& scale) {
  const auto version = kube::ResourceVersionOf(scale);
  if (!version.empty() && version != kube::ResourceVersionOf(live)) {
    return Conflict(call.resource->Name(), call.name(), kModifiedMessage);
  }
  const auto replicas = kube::FindInt(scale, {"spec", "replicas"});
  if (replicas < 0) {
    return Invalid(
        "autoscaling", "Scale", call.name(),
        {{"FieldValueInvalid",
          "Invalid value: " + std::to_string(replicas) + ": must be greater than or equal to 0",
          "spec.replicas"}});
  }
  Json object = live;
  SetPath(object, call.kind().scale->spec_replicas, replicas);
  return object;
}

// Apply of a Scale: the replicas belong to the manager as a field of the object itself.
Result<Json> ApplyScaleConfig(Call& call, const Json& scale, const Json& live,
                              const WriteOptions& options) {
  Json config = {{"apiVersion", call.resource->ApiVersion()},
                 {"kind", call.resource->kind_name()},
                 {"metadata", {{"name", std::string(kube::NameOf(scale))}}}};
  if (const Json* replicas = kube::Find(scale, {"spec", "replicas"})) {
    if (!replicas->is_number_integer() || replicas->get<std::int64_t>() < 0) {
      return Invalid(
          "autoscaling", "Scale", call.name(),
          {{"FieldValueInvalid",
            "Invalid value: " + kube::Dump(*replicas) + ": must be greater than or equal to 0",
            "spec.replicas"}});
    }
    SetPath(config, call.kind().scale->spec_replicas, replicas->get<std::int64_t>());
  }
  return ApplyConfig(*call.resource, config, &live, options.field_manager, options.force, "scale",
                     call.context->clock->Now());
}

void UpdateScale(CallPtr call) {
  const auto options = ParseWriteOptions(*call->request, "UpdateOptions");
  if (!options.ok()) {
    return SendError(*call, options.error());
  }
  const BodyTarget target{.kind = &ScaleKind(), .needs_type = false};
  auto scale = DecodeBody(*call, target, options->validation);
  if (!scale.ok()) {
    return SendError(*call, scale.error());
  }
  if (kube::NameOf(*scale) != call->name()) {
    return SendError(*call,
                     BadRequest("the name of the object (" + std::string(kube::NameOf(*scale)) +
                                ") does not match the name on the URL (" + call->name() + ")"));
  }
  auto job = std::make_shared<UpdateJob>();
  job->call = call;
  job->options = *options;
  job->answer = &Answer;
  auto shared = std::make_shared<const Json>(std::move(*scale));
  job->make = [call, shared](const Json* live) { return Fold(*call, *live, *shared); };
  RunUpdate(std::move(job));
}

void PatchScale(CallPtr call) {
  const std::string type = MediaTypeOf(call->request->Header("content-type"));
  const bool is_json = type == "application/json-patch+json";
  const bool is_apply = type == "application/apply-patch+yaml";
  const bool is_merge = type == "application/merge-patch+json" ||
                        type == "application/strategic-merge-patch+json" || is_apply;
  if (!is_json && !is_merge) {
    return SendError(*call, Status(Reason::kUnsupportedMediaType,
                                   "the body of the request was in an unknown format - accepted "
                                   "media types include: application/json-patch+json, "
                                   "application/merge-patch+json, "
                                   "application/strategic-merge-patch+json, "
                                   "application/apply-patch+yaml"));
  }
  const auto options = ParseWriteOptions(*call->request, "PatchOptions", is_apply);
  if (!options.ok()) {
    return SendError(*call, options.error());
  }
  auto patch =
      is_apply ? kube::ParseYaml(call->request->body) : kube::ParseJson(call->request->body);
  if (!patch.ok()) {
    return SendError(*call, BadRequest("error decoding patch: " + patch.error().message()));
  }
  auto job = std::make_shared<UpdateJob>();
  job->call = call;
  job->options = *options;
  job->answer = &Answer;
  auto shared = std::make_shared<const Json>(std::move(*patch));
  if (is_apply) {
    if (!shared->is_object() || kube::KindOf(*shared) != ScaleKind().gvk) {
      return SendError(*call, BadRequest("invalid object type: the configuration is not an "
                                         "autoscaling/v1, Kind=Scale"));
    }
    job->tracks_itself = true;
    job->make = [call, shared, options = *options](const Json* live) {
      return ApplyScaleConfig(*call, *shared, *live, options);
    };
    return RunUpdate(std::move(job));
  }
  job->make = [call, shared, is_json](const Json* live) -> Result<Json> {
    Json scale = ScaleOf(*live, call->kind());
    if (is_json) {
      SUBLET_RETURN_IF_ERROR(kube::ApplyJsonPatch(*shared, &scale));
    } else {
      kube::ApplyMergePatch(*shared, &scale);
    }
    SUBLET_RETURN_IF_ERROR(
        DecodeTree(*call, ScaleKind(), FieldValidation::kIgnore, {}, scale, true));
    return Fold(*call, *live, scale);
  };
  RunUpdate(std::move(job));
}

}  // namespace

void HandleScale(CallPtr call) {
  const auto& verb = call->request->info.verb;
  if (verb == "update") {
    return UpdateScale(std::move(call));
  }
  if (verb == "patch") {
    return PatchScale(std::move(call));
  }
  const auto record = call->context->store->Get(call->Key());
  if (!record) {
    return SendError(*call, NotFound(call->resource->Name(), call->name()));
  }
  Answer(*call, 200, record->value);
}

}  // namespace sublet::apiserver
