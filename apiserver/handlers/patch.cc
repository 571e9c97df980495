#include <nlohmann/json.hpp>

#include "apiserver/handlers/body.h"
#include "apiserver/handlers/respond.h"
#include "apiserver/handlers/update_object.h"
#include "apiserver/handlers/verbs.h"
#include "apiserver/handlers/write_common.h"
#include "apiserver/registry/kind_ops.h"
#include "kube/field_error.h"
#include "kube/go_print.h"
#include "kube/json_patch.h"
#include "kube/object.h"
#include "kube/strategic_merge_patch.h"
#include "kube/typed.h"
#include "kube/yaml_strict.h"

namespace sublet::apiserver {
namespace {

constexpr std::string_view kJsonPatch = "application/json-patch+json";
constexpr std::string_view kMergePatch = "application/merge-patch+json";
constexpr std::string_view kStrategicPatch = "application/strategic-merge-patch+json";
constexpr std::string_view kApplyPatch = "application/apply-patch+yaml";

// Built-in kinds are refused by the route, custom ones by the handler: two texts.
Status UnsupportedPatch(bool is_custom) {
  if (!is_custom) {
    return Status(Reason::kUnsupportedMediaType, "415: Unsupported Media Type").With({});
  }
  std::string types = std::string(kJsonPatch) + ", " + std::string(kMergePatch);
  types += ", " + std::string(kApplyPatch);
  return Status(
      Reason::kUnsupportedMediaType,
      "the body of the request was in an unknown format - accepted media types include: " + types);
}

struct Patch {
  std::string type;
  kube::Json body;
  std::vector<std::string> duplicates;
};

std::string_view JsonTypeName(const kube::Json& value) {
  return value.is_object()   ? "object"
         : value.is_array()  ? "array"
         : value.is_string() ? "string"
         : value.is_number() ? "number"
                             : "bool";
}

Result<Patch> ReadPatch(const Call& call, const WriteOptions& options) {
  Patch patch;
  patch.type = MediaTypeOf(call.request->Header("content-type"));
  const bool strict = options.validation != FieldValidation::kIgnore;
  auto body = strict ? kube::ParseJsonStrict(call.request->body, {}, &patch.duplicates)
                     : kube::ParseJson(call.request->body);
  if (!body.ok()) {
    if (!body.error().Is(Reason::kBadRequest)) {
      return std::move(body).error();
    }
    const bool prefixed = patch.type != kStrategicPatch;
    return BadRequest((prefixed ? "error decoding patch: " : "") + body.error().message());
  }
  for (std::string& field : patch.duplicates) {
    field = "duplicate field \"" + field + "\"";
  }
  patch.body = std::move(*body);
  const std::string refused = "error decoding patch: json: cannot unmarshal " +
                              std::string(JsonTypeName(patch.body)) + " into Go value of type ";
  if (patch.type == kJsonPatch && !patch.body.is_array()) {
    return BadRequest(refused + "[]handlers.jsonPatchOp");
  }
  if (patch.type != kJsonPatch && !patch.body.is_object()) {
    return BadRequest(refused + "map[string]interface {}");
  }
  return patch;
}

// A patch may not make another kind of the object.
Result<void> CheckPatchedType(const Call& call, const Patch& patch, const kube::Json& object) {
  if (patch.type == kStrategicPatch || call.kind().is_custom) {
    return Ok();
  }
  const auto kind = kube::KindOf(object);
  if (kind == call.kind().gvk) {
    return Ok();
  }
  const Resource* other = call.catalog->FindKind(kind.group, kind.version, kind.kind);
  std::string why = "no kind " + kube::GoQuote(kind.kind) + " is registered for version " +
                    kube::GoQuote(kind.ApiVersion()) +
                    " in scheme \"pkg/api/legacyscheme/scheme.go:30\"";
  if (other != nullptr) {
    kube::Json copy = object;
    const auto read_as = kube::NormalizeTyped(other->kind->type, &copy);
    why = !read_as.ok() ? read_as.error().message()
                        : "unable to decode " + call.kind().gvk.kind + " as " + kind.kind;
  }
  return Invalid("", "", "",
                 {{"FieldValueInvalid",
                   "Invalid value: " + kube::GoQuote(kube::Dump(object)) + ": " + why, "patch"}});
}

Result<kube::Json> ApplyTo(Call& call, const Patch& patch, const kube::Json& live,
                           FieldValidation validation) {
  kube::Json object = live;
  if (patch.type == kJsonPatch) {
    SUBLET_RETURN_IF_ERROR(kube::ApplyJsonPatch(patch.body, &object));
  } else if (patch.type == kMergePatch) {
    kube::ApplyMergePatch(patch.body, &object);
  } else {
    SUBLET_RETURN_IF_ERROR(kube::ApplyStrategicMergePatch(call.kind().type, patch.body, &object));
  }
  if (!object.is_object()) {
    return kube::UnprocessablePatch();
  }
  SUBLET_RETURN_IF_ERROR(CheckPatchedType(call, patch, object));
  std::function<std::string()> patched_text;
  if (patch.type == kStrategicPatch) {
    patched_text = [&patch] { return kube::GoPrint(patch.body); };
  }
  SUBLET_RETURN_IF_ERROR(
      DecodeTree(call, call.kind(), validation, patch.duplicates, object, true, patched_text));
  object["apiVersion"] = call.resource->ApiVersion();
  object["kind"] = call.resource->kind_name();
  return object;
}

// Server-side apply: the body is a configuration, not a change; what is absent is created.
void HandleApply(std::shared_ptr<UpdateJob> job) {
  const CallPtr call = job->call;
  const bool checks_keys = job->options.validation != FieldValidation::kIgnore;
  std::vector<std::string> twice;
  auto config = checks_keys ? kube::ParseYamlStrict(call->request->body, {}, &twice)
                            : kube::ParseYaml(call->request->body);
  if (!config.ok()) {
    return SendError(*call, BadRequest("error decoding YAML: " + config.error().message()));
  }
  if (!config->is_object()) {
    return SendError(*call,
                     BadRequest("error decoding YAML: error unmarshaling JSON: while decoding "
                                "JSON: json: cannot unmarshal " +
                                std::string(JsonTypeName(*config)) +
                                " into Go value of type map[string]interface {}"));
  }
  job->allow_create = call->subresource == nullptr;
  job->tracks_itself = true;
  auto shared = std::make_shared<const kube::Json>(std::move(*config));
  const std::string repeated = twice.empty()
                                   ? std::string()
                                   : "error converting YAML to JSON: yaml: unmarshal errors:\n  " +
                                         kube::Join(twice, "\n  ");
  job->make = [call, shared, repeated,
               options = job->options](const kube::Json* live) -> Result<kube::Json> {
    SUBLET_TRY(kube::Json object,
               ApplyConfig(*call->resource, *shared, live, options.field_manager, options.force,
                           call->subresource_name(), call->context->clock->Now()));
    if (!repeated.empty()) {
      if (options.validation == FieldValidation::kStrict) {
        return BadRequest("error strict decoding YAML: " + repeated);
      }
      call->Warn(repeated);
    }
    SUBLET_RETURN_IF_ERROR(
        DecodeTree(*call, call->kind(), FieldValidation::kIgnore, {}, object, true));
    object["apiVersion"] = call->resource->ApiVersion();
    object["kind"] = call->resource->kind_name();
    return object;
  };
  RunUpdate(std::move(job));
}

}  // namespace

void HandlePatch(CallPtr call) {
  const std::string type = MediaTypeOf(call->request->Header("content-type"));
  const bool is_custom = call->kind().is_custom;
  const bool known = type == kJsonPatch || type == kMergePatch || type == kApplyPatch ||
                     (type == kStrategicPatch && !is_custom);
  if (!known) {
    return SendError(*call, UnsupportedPatch(is_custom));
  }
  const auto options = ParseWriteOptions(*call->request, "PatchOptions", type == kApplyPatch);
  if (!options.ok()) {
    return SendError(*call, options.error());
  }
  auto job = std::make_shared<UpdateJob>();
  job->call = call;
  job->options = *options;
  if (type == kApplyPatch) {
    return HandleApply(std::move(job));
  }
  auto patch = ReadPatch(*call, *options);
  if (!patch.ok()) {
    return SendError(*call, patch.error());
  }
  auto shared = std::make_shared<const Patch>(std::move(*patch));
  job->make = [call, shared, validation = options->validation](const kube::Json* live) {
    return ApplyTo(*call, *shared, *live, validation);
  };
  RunUpdate(std::move(job));
}

}  // namespace sublet::apiserver
