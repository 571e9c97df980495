#include "apiserver/openapi/path_text.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "kube/json.h"

namespace sublet::apiserver {
namespace {

struct QueryParameter {
  std::string_view name;
  std::string_view type;
};
constexpr QueryParameter kWrite[] = {
    {"dryRun", "string"}, {"fieldManager", "string"}, {"fieldValidation", "string"}};
constexpr QueryParameter kPatch[] = {{"dryRun", "string"},
                                     {"fieldManager", "string"},
                                     {"fieldValidation", "string"},
                                     {"force", "boolean"}};
constexpr QueryParameter kDelete[] = {
    {"dryRun", "string"},
    {"gracePeriodSeconds", "integer"},
    {"ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"},
    {"orphanDependents", "boolean"},
    {"propagationPolicy", "string"}};
constexpr QueryParameter kList[] = {{"allowWatchBookmarks", "boolean"},
                                    {"continue", "string"},
                                    {"fieldSelector", "string"},
                                    {"labelSelector", "string"},
                                    {"limit", "integer"},
                                    {"resourceVersion", "string"},
                                    {"resourceVersionMatch", "string"},
                                    {"sendInitialEvents", "boolean"},
                                    {"timeoutSeconds", "integer"},
                                    {"watch", "boolean"}};

// "rbac.authorization.k8s.io" -> "RbacAuthorization"; "" -> "Core".
std::string GroupTitle(std::string_view group) {
  if (group.empty()) {
    return "Core";
  }
  if (group.ends_with(".k8s.io")) {
    group.remove_suffix(7);
  }
  std::string out;
  bool upper = true;
  for (const char c : group) {
    if (c == '.' || c == '-') {
      upper = true;
      continue;
    }
    out += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = false;
  }
  return out;
}

std::string Capital(std::string_view text) {
  std::string out(text);
  if (!out.empty()) {
    out[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(out[0])));
  }
  return out;
}

struct PathOperation {
  std::string_view method;   // "get"
  std::string_view action;   // x-kubernetes-action
  std::string_view id_verb;  // "list"
  std::string response;      // definition names
  std::string body;
  bool is_patch = false;
  bool creates = false;
};

class PathWriter {
 public:
  PathWriter(const Resource& resource, const PathSchemas& schemas, const SchemaText& text,
             SpecVersion version, const SpecSink& sink)
      : resource_(resource), schemas_(schemas), text_(text), version_(version), sink_(sink) {
    const std::string group = GroupTitle(resource.group());
    title_ = group + Capital(resource.version());
    tag_ = group + "_" + resource.version();
    tag_[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(tag_[0])));
    base_ = resource.group().empty() ? "/api/" + resource.version()
                                     : "/apis/" + resource.group() + "/" + resource.version();
  }

  void Write() {
    const std::string plural = "/" + resource_.plural();
    const std::string scope = resource_.namespaced() ? "/namespaces/{namespace}" : "";
    scope_title_ = resource_.namespaced() ? "Namespaced" : "";
    Collection(base_ + scope + plural);
    Item(base_ + scope + plural + "/{name}");
    for (const auto& sub : resource_.kind->subresources) {
      Subresource(base_ + scope + plural + "/{name}/" + sub.name, sub);
    }
    if (resource_.namespaced() && resource_.kind->HasVerb("list")) {
      BeginPath(base_ + plural);
      suffix_ = "ForAllNamespaces";
      scope_title_ = "";
      Emit({.method = "get",
            .action = "list",
            .id_verb = "list",
            .response = schemas_.list,
            .body = ""},
           kList, resource_.kind->gvk);
      suffix_.clear();
      EndPath();
    }
  }

 private:
  bool Has(std::string_view verb) const { return resource_.kind->HasVerb(verb); }

  void Collection(const std::string& path) {
    BeginPath(path);
    const auto& kind = resource_.kind->gvk;
    if (Has("list")) {
      Emit({.method = "get",
            .action = "list",
            .id_verb = "list",
            .response = schemas_.list,
            .body = ""},
           kList, kind);
    }
    if (Has("create")) {
      Emit({.method = "post",
            .action = "post",
            .id_verb = "create",
            .response = schemas_.object,
            .body = schemas_.object,
            .is_patch = false,
            .creates = true},
           kWrite, kind);
    }
    if (Has("deletecollection")) {
      Emit({.method = "delete",
            .action = "deletecollection",
            .id_verb = "deleteCollection",
            .response = schemas_.status,
            .body = schemas_.delete_options},
           kDelete, kind);
    }
    EndPath();
  }

  void Item(const std::string& path) {
    BeginPath(path);
    const auto& kind = resource_.kind->gvk;
    if (Has("get")) {
      Emit({.method = "get",
            .action = "get",
            .id_verb = "read",
            .response = schemas_.object,
            .body = ""},
           {}, kind);
    }
    if (Has("update")) {
      Emit({.method = "put",
            .action = "put",
            .id_verb = "replace",
            .response = schemas_.object,
            .body = schemas_.object},
           kWrite, kind);
    }
    if (Has("patch")) {
      Emit({.method = "patch",
            .action = "patch",
            .id_verb = "patch",
            .response = schemas_.object,
            .body = schemas_.patch,
            .is_patch = true},
           kPatch, kind);
    }
    if (Has("delete")) {
      Emit({.method = "delete",
            .action = "delete",
            .id_verb = "delete",
            .response = resource_.returns_deleted_object ? schemas_.object : schemas_.status,
            .body = schemas_.delete_options},
           kDelete, kind);
    }
    EndPath();
  }

  void Subresource(const std::string& path, const kube::Subresource& sub) {
    const auto other = schemas_.subresources.find(sub.name);
    const std::string body = other == schemas_.subresources.end() ? schemas_.object : other->second;
    suffix_ = Capital(sub.name);
    BeginPath(path);
    const auto has = [&](std::string_view verb) {
      return std::find(sub.verbs.begin(), sub.verbs.end(), verb) != sub.verbs.end();
    };
    if (has("get")) {
      Emit({.method = "get", .action = "get", .id_verb = "read", .response = body, .body = ""}, {},
           sub.kind);
    }
    if (has("create")) {
      Emit({.method = "post",
            .action = "post",
            .id_verb = "create",
            .response = body,
            .body = body,
            .is_patch = false,
            .creates = true},
           kWrite, sub.kind);
    }
    if (has("update")) {
      Emit({.method = "put", .action = "put", .id_verb = "replace", .response = body, .body = body},
           kWrite, sub.kind);
    }
    if (has("patch")) {
      Emit({.method = "patch",
            .action = "patch",
            .id_verb = "patch",
            .response = body,
            .body = schemas_.patch,
            .is_patch = true},
           kPatch, sub.kind);
    }
    EndPath();
    suffix_.clear();
  }

  void BeginPath(const std::string& path) {
    path_ = path;
    operations_.clear();
  }

  // A path without operations is left out.
  void EndPath() {
    if (operations_.empty()) {
      return;
    }
    std::string list;
    if (path_.find("{name}") != std::string::npos) {
      PathParameter("name", list);
    }
    if (path_.find("{namespace}") != std::string::npos) {
      PathParameter("namespace", list);
    }
    Parameter({"pretty", "string"}, list);
    sink_(path_, "{" + operations_ + ",\"parameters\":[" + list + "]}");
  }

  void PathParameter(std::string_view name, std::string& list) const {
    list += list.empty() ? "" : ",";
    list += "{\"name\":\"" + std::string(name) + "\",\"in\":\"path\",\"required\":true,";
    list += version_ == SpecVersion::kV3 ? "\"schema\":{\"type\":\"string\",\"uniqueItems\":true}}"
                                         : "\"type\":\"string\",\"uniqueItems\":true}";
  }

  void Parameter(const QueryParameter& parameter, std::string& list) const {
    list += list.empty() ? "" : ",";
    list += "{\"name\":\"";
    list += parameter.name;
    list += "\",\"in\":\"query\",";
    list += version_ == SpecVersion::kV3 ? "\"schema\":{\"type\":\"" : "\"type\":\"";
    list += parameter.type;
    list += version_ == SpecVersion::kV3 ? "\",\"uniqueItems\":true}}" : "\",\"uniqueItems\":true}";
  }

  void Content(std::string_view definition, std::initializer_list<std::string_view> types) {
    bool first = true;
    operations_ += "\"content\":{";
    for (const auto type : types) {
      operations_ += first ? "\"" : ",\"";
      first = false;
      operations_ += type;
      operations_ += "\":{\"schema\":" + text_.Ref(definition) + "}";
    }
    operations_ += "}";
  }

  void Response(std::string_view code, std::string_view description, std::string_view definition) {
    operations_ +=
        "\"" + std::string(code) + "\":{\"description\":\"" + std::string(description) + "\"";
    if (!definition.empty()) {
      operations_ += ",";
      if (version_ == SpecVersion::kV2) {
        operations_ += "\"schema\":" + text_.Ref(definition);
      } else if (resource_.kind->is_custom) {
        Content(definition, {"application/json", "application/yaml"});
      } else {
        Content(definition,
                {"application/json", "application/vnd.kubernetes.protobuf", "application/yaml"});
      }
    }
    operations_ += "}";
  }

  template <typename List = std::array<QueryParameter, 0>>
  void Emit(const PathOperation& operation, const List& parameters,
            const kube::GroupVersionKind& kind) {
    if (!operations_.empty()) {
      operations_ += ",";
    }
    operations_ += "\"" + std::string(operation.method) + "\":{\"operationId\":\"" +
                   std::string(operation.id_verb) + title_ + scope_title_ + resource_.kind_name() +
                   suffix_ + "\",\"tags\":[\"" + tag_ + "\"],\"parameters\":[";
    std::string list;
    if (version_ == SpecVersion::kV2 && !operation.body.empty()) {
      list = "{\"name\":\"body\",\"in\":\"body\",\"required\":" +
             std::string(operation.method == "delete" ? "false" : "true") +
             ",\"schema\":" + text_.Ref(operation.body) + "}";
    }
    for (const QueryParameter& parameter : parameters) {
      Parameter(parameter, list);
    }
    operations_ += list + "]";
    if (version_ == SpecVersion::kV3 && !operation.body.empty()) {
      operations_ += ",\"requestBody\":{";
      if (operation.is_patch && resource_.kind->is_custom) {
        Content(operation.body, {"application/apply-patch+yaml", "application/json-patch+json",
                                 "application/merge-patch+json"});
      } else if (operation.is_patch) {
        Content(operation.body,
                {"application/apply-patch+yaml", "application/json-patch+json",
                 "application/merge-patch+json", "application/strategic-merge-patch+json"});
      } else {
        Content(operation.body, {"*/*"});
      }
      operations_ += operation.method == "delete" ? "}" : ",\"required\":true}";
    } else if (version_ == SpecVersion::kV2) {
      operations_ +=
          ",\"consumes\":[\"*/*\"],\"produces\":[\"application/json\","
          "\"application/yaml\"],\"schemes\":[\"https\"]";
    }
    operations_ += ",\"responses\":{";
    Response("200", "OK", operation.response);
    if (operation.creates || operation.method == "put" || operation.is_patch) {
      operations_ += ",";
      Response("201", "Created", operation.response);
    }
    operations_ += ",";
    Response("401", "Unauthorized", "");
    operations_ += "},\"x-kubernetes-action\":\"" + std::string(operation.action) +
                   "\",\"x-kubernetes-group-version-kind\":{\"group\":\"" + kind.group +
                   "\",\"kind\":\"" + kind.kind + "\",\"version\":\"" + kind.version + "\"}}";
  }

  const Resource& resource_;
  const PathSchemas& schemas_;
  const SchemaText& text_;
  const SpecVersion version_;
  const SpecSink& sink_;
  std::string title_;
  std::string tag_;
  std::string base_;
  std::string scope_title_;
  std::string suffix_;
  std::string path_;
  std::string operations_;
};

}  // namespace

void EmitPaths(const Resource& resource, const PathSchemas& schemas, const SchemaText& text,
               SpecVersion version, const SpecSink& sink) {
  PathWriter(resource, schemas, text, version, sink).Write();
}

}  // namespace sublet::apiserver
