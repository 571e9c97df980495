#include "apiserver/openapi/open_api.h"

#include <cstdio>

#include "apiserver/handlers/respond.h"
#include "apiserver/openapi/path_text.h"
#include "apiserver/openapi/protobuf_v2.h"
#include "kube/json.h"
#include "kube/schema/builtin_schema.h"
#include "kube/timestamp.h"

namespace sublet::apiserver {
namespace {

constexpr std::string_view kIndexPath = "/openapi/v3";
constexpr std::string_view kV2Path = "/openapi/v2";
// The first name is what clients have always asked for, the second what the answer is called: Go's
// newer readers of media types refuse an '@'.
constexpr std::string_view kProtobufV2Asked = "com.github.proto-openapi.spec.v2@v1.0+protobuf";
constexpr std::string_view kProtobufV2 =
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

std::uint64_t Mix(std::uint64_t hash, std::string_view bytes) {
  for (const char c : bytes) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  }
  return hash;
}

// Of the built-in schema tables: changes with the program only.
std::uint64_t TablesHash() {
  static const std::uint64_t kHash = [] {
    const auto& tables = kube::schema::kBuiltinTables;
    // What is written of the tables: another number when that changes, for clients that keep
    // documents.
    std::uint64_t hash = Mix(14695981039346656037ull, "form 2");
    const auto mix = [&hash](const auto& rows) {
      hash = Mix(hash, {reinterpret_cast<const char*>(rows.data()), rows.size_bytes()});
    };
    mix(tables.types);
    mix(tables.fields);
    return hash;
  }();
  return kHash;
}

std::string HashOf(const Catalog& catalog, const std::vector<ResourcePtr>& resources,
                   std::string_view salt) {
  std::uint64_t hash = Mix(TablesHash(), salt);
  for (const auto& resource : resources) {
    hash = Mix(hash, resource->plural());
    hash = Mix(hash, resource->schema_hash);
  }
  // DeleteOptions name every group version.
  for (const auto& group : catalog.groups()) {
    hash = Mix(hash, group.group);
    for (const auto& version : group.versions) {
      hash = Mix(hash, version);
    }
  }
  char text[40];
  std::snprintf(text, sizeof(text), "%016llX%016llX", static_cast<unsigned long long>(hash),
                static_cast<unsigned long long>(Mix(hash, "second half")));
  return text;
}

std::string PathOf(const kube::GroupVersion& name) {
  return name.group.empty() ? "api/" + name.version : "apis/" + name.group + "/" + name.version;
}

// Joins pieces to the members of one JSON object.
class MemberText {
 public:
  SpecSink Sink() {
    return [this](std::string_view name, std::string_view json) {
      text_ += text_.empty() ? "" : ",";
      kube::AppendJsonString(name, &text_);
      text_ += ":";
      text_ += json;
    };
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void EmitResource(const Resource& resource, const ApiContext& context, SpecVersion version,
                  SchemaText& schemas, const SpecSink& paths, const SpecSink& definitions) {
  const auto& gvk = resource.kind->gvk;
  PathSchemas names;
  names.delete_options = schemas.Need({"meta.k8s.io", "v1", "DeleteOptions"});
  names.status = schemas.Need({"meta.k8s.io", "v1", "Status"});
  names.patch = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
  if (resource.kind->is_custom) {
    names.object = CustomDefinitionName(gvk);
    names.list = CustomDefinitionName({gvk.group, gvk.version, resource.kind->list_kind});
    const std::string metadata = schemas.Ref(schemas.Need({"meta.k8s.io", "v1", "ObjectMeta"}));
    const std::string list_metadata = schemas.Ref(schemas.Need({"meta.k8s.io", "v1", "ListMeta"}));
    definitions(names.object, CustomSchemaText(resource, context, version, metadata));
    definitions(names.list,
                "{\"type\":\"object\",\"required\":[\"items\"],\"properties\":{\"apiVersion\":{"
                "\"type\":\"string\"},\"kind\":{\"type\":\"string\"},\"metadata\":" +
                    list_metadata +
                    ",\"items\":{\"type\":\"array\",\"items\":" + schemas.Ref(names.object) +
                    "}},\"x-kubernetes-group-version-kind\":[{\"group\":\"" + gvk.group +
                    "\",\"kind\":\"" + resource.kind->list_kind + "\",\"version\":\"" +
                    gvk.version + "\"}]}");
  } else {
    names.object = schemas.Need(gvk);
    names.list = schemas.Need({gvk.group, gvk.version, resource.kind->list_kind});
  }
  for (const auto& sub : resource.kind->subresources) {
    if (sub.kind == gvk) {
      continue;
    }
    names.subresources[sub.name] = schemas.Need(sub.kind);
  }
  EmitPaths(resource, names, schemas, version, paths);
}

void SendCached(Call& call, std::string_view etag, bool immutable, Response& response) {
  response.headers.emplace_back("ETag", etag);
  response.headers.emplace_back("Vary", "Accept");
  if (immutable) {
    response.headers.emplace_back("Cache-Control", "public, immutable");
    response.headers.emplace_back(
        "Expires", kube::FormatTime(call.context->clock->Now() + std::chrono::hours(24 * 365)));
  } else {
    response.headers.emplace_back("Cache-Control", "no-cache, private");
  }
  call.responder->Send(std::move(response));
}

bool AnswerNotModified(Call& call, const std::string& etag) {
  if (call.request->Header("if-none-match") != etag) {
    return false;
  }
  Response response;
  response.code = 304;
  response.headers.emplace_back("ETag", etag);
  call.responder->Send(std::move(response));
  return true;
}

void ServeIndex(Call& call) {
  MemberText paths;
  const auto sink = paths.Sink();
  for (const auto& group : call.catalog->groups()) {
    for (const auto& version : group.versions) {
      const std::string path = PathOf({group.group, version});
      const std::string hash =
          HashOf(*call.catalog, call.catalog->ResourcesOf(group.group, version), path);
      sink(path, "{\"serverRelativeURL\":\"/openapi/v3/" + path + "?hash=" + hash + "\"}");
    }
  }
  SendText(call, 200, "application/json", "{\"paths\":{" + paths.text() + "}}");
}

bool ServeGroupVersion(Call& call, std::string_view path) {
  kube::GroupVersion name;
  if (path.starts_with("api/")) {
    name.version = path.substr(4);
  } else if (path.starts_with("apis/") && path.find('/', 5) != std::string_view::npos) {
    name.group = path.substr(5, path.find('/', 5) - 5);
    name.version = path.substr(path.find('/', 5) + 1);
  }
  if (!call.catalog->HasGroupVersion(name.group, name.version)) {
    return false;
  }
  const auto resources = call.catalog->ResourcesOf(name.group, name.version);
  const std::string hash = HashOf(*call.catalog, resources, PathOf(name));
  const auto asked = call.request->query.Get("hash");
  if (!asked.empty() && asked != hash) {
    Response response;
    response.code = 301;
    response.headers.emplace_back("Location", "/openapi/v3/" + PathOf(name) + "?hash=" + hash);
    call.responder->Send(std::move(response));
    return true;
  }
  const std::string etag = "\"" + hash + "\"";
  if (AnswerNotModified(call, etag)) {
    return true;
  }
  MemberText paths;
  MemberText definitions;
  EmitOpenApi(*call.catalog, *call.context, SpecVersion::kV3, name, paths.Sink(),
              definitions.Sink());
  Response response;
  response.body.Append(
      "{\"openapi\":\"3.0.0\",\"info\":{\"title\":\"Kubernetes\",\"version\":\"v1.36.1\"},"
      "\"paths\":{");
  response.body.Append(paths.text());
  response.body.Append("},\"components\":{\"schemas\":{");
  response.body.Append(definitions.text());
  response.body.Append(
      "},\"securitySchemes\":{\"BearerToken\":{\"type\":\"apiKey\",\"name\":\"authorization\","
      "\"in\":\"header\"}}}}");
  SendCached(call, etag, !asked.empty(), response);
  return true;
}

void ServeV2(Call& call) {
  const bool protobuf = [&] {
    for (const auto& clause : ParseAccept(call.request->Header("accept"))) {
      if (clause.IsJson()) {
        return false;
      }
      if (clause.type == "application" &&
          (kProtobufV2.substr(12) == clause.subtype || kProtobufV2Asked == clause.subtype)) {
        return true;
      }
    }
    return false;
  }();
  const std::string etag =
      "\"" + HashOf(*call.catalog, call.catalog->resources(), protobuf ? "v2p" : "v2") + "\"";
  if (AnswerNotModified(call, etag)) {
    return;
  }
  Response response;
  if (protobuf) {
    ProtobufV2Writer writer;
    EmitOpenApi(*call.catalog, *call.context, SpecVersion::kV2, {}, writer.PathSink(),
                writer.DefinitionSink());
    response.content_type = std::string(kProtobufV2);
    response.body.Append(writer.Finish("v1.36.1"));
  } else {
    MemberText paths;
    MemberText definitions;
    EmitOpenApi(*call.catalog, *call.context, SpecVersion::kV2, {}, paths.Sink(),
                definitions.Sink());
    response.body.Append(
        "{\"swagger\":\"2.0\",\"info\":{\"title\":\"Kubernetes\",\"version\":\"v1.36.1\"},"
        "\"paths\":{");
    response.body.Append(paths.text());
    response.body.Append("},\"definitions\":{");
    response.body.Append(definitions.text());
    response.body.Append(
        "},\"securityDefinitions\":{\"BearerToken\":{\"type\":\"apiKey\",\"name\":"
        "\"authorization\",\"in\":\"header\"}},\"security\":[{\"BearerToken\":[]}]}");
  }
  SendCached(call, etag, false, response);
}

}  // namespace

void EmitOpenApi(const Catalog& catalog, const ApiContext& context, SpecVersion version,
                 const kube::GroupVersion& group_version, const SpecSink& paths,
                 const SpecSink& definitions) {
  SchemaText schemas(version, catalog);
  for (const auto& resource : catalog.resources()) {
    if (version == SpecVersion::kV2 || (resource->group() == group_version.group &&
                                        resource->version() == group_version.version)) {
      EmitResource(*resource, context, version, schemas, paths, definitions);
    }
  }
  definitions("io.k8s.apimachinery.pkg.apis.meta.v1.Patch", "{\"type\":\"object\"}");
  schemas.EmitDefinitions(definitions);
}

bool ServeOpenApi(Call& call) {
  std::string_view path = call.request->path;
  while (path.size() > 1 && path.back() == '/') {
    path.remove_suffix(1);
  }
  if (path == kIndexPath) {
    ServeIndex(call);
    return true;
  }
  if (path == kV2Path) {
    ServeV2(call);
    return true;
  }
  if (path.starts_with(kIndexPath) && path.size() > kIndexPath.size() + 1) {
    return ServeGroupVersion(call, path.substr(kIndexPath.size() + 1));
  }
  return false;
}

}  // namespace sublet::apiserver
