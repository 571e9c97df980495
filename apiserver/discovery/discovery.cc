#include "apiserver/discovery/discovery.h"

#include <nlohmann/json.hpp>

#include "apiserver/discovery/documents.h"
#include "apiserver/handlers/negotiate.h"
#include "apiserver/handlers/respond.h"

namespace sublet::apiserver {
namespace {

// FNV-1a, 64 bit: documents are told apart, nobody is kept from forging one.
std::string HashText(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  }
  char out[17];
  std::snprintf(out, sizeof(out), "%016llX", static_cast<unsigned long long>(hash));
  return out;
}

// "v2", "v2beta1" or "" (legacy), as the client prefers; only /api and /apis have the first two.
std::string_view AggregatedForm(const Request& request) {
  for (const auto& clause : ParseAccept(request.Header("accept"))) {
    if (!clause.IsJson()) {
      continue;
    }
    if (clause.Parameter("as") == "APIGroupDiscoveryList" &&
        clause.Parameter("g") == "apidiscovery.k8s.io") {
      if (clause.Parameter("v") == "v2") {
        return "v2";
      }
      if (clause.Parameter("v") == "v2beta1") {
        return "v2beta1";
      }
      continue;
    }
    if (clause.Parameter("as").empty()) {
      return "";
    }
  }
  return "";
}

std::string ContentType(std::string_view form) {
  if (form.empty()) {
    return "application/json";
  }
  return "application/json;g=apidiscovery.k8s.io;v=" + std::string(form) +
         ";as=APIGroupDiscoveryList";
}

std::string RootDocument(const Catalog& catalog) {
  kube::Json paths = {"/.well-known/openid-configuration", "/api", "/api/v1", "/apis"};
  for (const auto& group : catalog.groups()) {
    if (group.group.empty()) {
      continue;
    }
    paths.push_back("/apis/" + group.group);
    for (const auto& version : group.versions) {
      paths.push_back("/apis/" + group.group + "/" + version);
    }
  }
  for (const char* path : {"/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3",
                           "/openid/v1/jwks", "/readyz", "/version"}) {
    paths.push_back(path);
  }
  return kube::DumpPretty({{"paths", std::move(paths)}});
}

std::string_view TrimSlash(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') {
    path.remove_suffix(1);
  }
  return path;
}

}  // namespace

std::string VersionJson() {
  // Helm reads gitVersion as a semantic version; what follows '+' does not count in comparisons.
  return kube::DumpPretty({{"major", "1"},
                           {"minor", "36"},
                           {"emulationMajor", "1"},
                           {"emulationMinor", "36"},
                           {"minCompatibilityMajor", "1"},
                           {"minCompatibilityMinor", "35"},
                           {"gitVersion", "v1.36.1+sublet"},
                           {"gitCommit", ""},
                           {"gitTreeState", "clean"},
                           {"buildDate", "1970-01-01T00:00:00Z"},
                           {"goVersion", "none"},
                           {"compiler", "gcc"},
                           {"platform", "linux/amd64"}});
}

Discovery::Discovery(std::string server_address) : server_address_(std::move(server_address)) {}

std::string Discovery::Make(const Catalog& catalog, std::string_view path,
                            std::string_view form) const {
  if (path == "/api") {
    return kube::Dump(form.empty() ? ApiVersionsDocument(server_address_)
                                   : AggregatedDocument(catalog, true, form));
  }
  if (path == "/apis") {
    return kube::Dump(form.empty() ? ApiGroupListDocument(catalog)
                                   : AggregatedDocument(catalog, false, form));
  }
  if (path == "/") {
    return RootDocument(catalog);
  }
  if (path == "/api/v1") {
    return kube::Dump(ApiResourceListDocument(catalog, "", "v1"));
  }
  if (!path.starts_with("/apis/")) {
    return "";
  }
  path.remove_prefix(6);
  const auto slash = path.find('/');
  const auto group = path.substr(0, slash);
  if (slash == std::string_view::npos) {
    const GroupEntry* entry = catalog.FindGroup(group);
    return entry == nullptr ? "" : kube::Dump(ApiGroupDocument(*entry, true));
  }
  const auto version = path.substr(slash + 1);
  if (group.empty() || !catalog.HasGroupVersion(group, version)) {
    return "";
  }
  return kube::Dump(ApiResourceListDocument(catalog, group, version));
}

Discovery::Document Discovery::Get(const Catalog& catalog, const std::string& path,
                                   std::string_view form) {
  const std::string key = path + "|" + std::string(form);
  {
    MutexLock lock(mutex_);
    if (generation_ != catalog.generation()) {
      documents_.clear();
      generation_ = catalog.generation();
    }
    if (const auto it = documents_.find(key); it != documents_.end()) {
      return it->second;
    }
  }
  std::string text = Make(catalog, path, form);
  if (text.empty()) {
    return {};
  }
  Document document;
  document.etag = "\"" + HashText(text) + "\"";
  document.text = std::make_shared<const std::string>(std::move(text));
  MutexLock lock(mutex_);
  if (generation_ == catalog.generation()) {
    documents_[key] = document;
  }
  return document;
}

void Discovery::Send(Call& call, const Document& document, std::string_view form) {
  Response response;
  response.content_type = ContentType(form);
  response.headers.emplace_back("Vary", "Accept");
  response.headers.emplace_back("Cache-Control", "no-cache, private");
  if (!form.empty()) {
    response.headers.emplace_back("ETag", document.etag);
    if (call.request->Header("if-none-match") == document.etag) {
      response.code = 304;
      return call.responder->Send(std::move(response));
    }
  }
  response.body.AppendShared(document.text, *document.text);
  call.responder->Send(std::move(response));
}

bool Discovery::Serve(Call& call) {
  const std::string path(TrimSlash(call.request->path));
  if (path == "/version") {
    SendText(call, 200, "application/json", VersionJson());
    return true;
  }
  if (call.request->method != "GET" && call.request->method != "HEAD") {
    return false;
  }
  const bool has_aggregated = path == "/api" || path == "/apis";
  const std::string_view form = has_aggregated ? AggregatedForm(*call.request) : "";
  const Document document = Get(*call.catalog, path, form);
  if (document.text == nullptr) {
    return false;
  }
  Send(call, document, form);
  return true;
}

}  // namespace sublet::apiserver
