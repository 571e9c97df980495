#include "client/kubeconfig.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/base64.h"
#include "client/exec_credential.h"

namespace sublet::client {
namespace {

using kube::Json;

constexpr char kServiceAccount[] = "/var/run/secrets/kubernetes.io/serviceaccount/";

std::string Text(const Json& object, std::string_view key) {
  return std::string(kube::FindString(object, {key}));
}

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return NotFound({"", "files"}, path);
  }
  std::ostringstream out;
  out << file.rdbuf();
  return std::move(out).str();
}

// The value of the entry called `name` in the list `list` ("contexts"), which stands under
// `member`.
const Json* FindEntry(const Json& root, std::string_view list, std::string_view member,
                      std::string_view name) {
  const Json* entries = kube::Find(root, {list});
  if (entries == nullptr || !entries->is_array()) {
    return nullptr;
  }
  for (const Json& entry : *entries) {
    if (kube::FindString(entry, {"name"}) == name) {
      return kube::Find(entry, {member});
    }
  }
  return nullptr;
}

void MakeAbsolute(Json* object, std::string_view key, const std::string& directory) {
  const std::string path = Text(*object, key);
  if (!path.empty() && path[0] != '/') {
    (*object)[std::string(key)] = directory + "/" + path;
  }
}

void MakePathsAbsolute(Json* root, const std::string& directory) {
  for (const auto& [list, member] :
       {std::pair("clusters", "cluster"), std::pair("users", "user")}) {
    Json* entries = kube::Find(*root, {list});
    if (entries == nullptr || !entries->is_array()) {
      continue;
    }
    for (Json& entry : *entries) {
      Json* value = kube::Find(entry, {member});
      if (value == nullptr || !value->is_object()) {
        continue;
      }
      for (const char* key :
           {"certificate-authority", "client-certificate", "client-key", "tokenFile"}) {
        MakeAbsolute(value, key, directory);
      }
      // A command is looked up in PATH unless it is a path itself.
      if (Json* exec = kube::Find(*value, {"exec"});
          exec != nullptr && Text(*exec, "command").find('/') != std::string::npos) {
        MakeAbsolute(exec, "command", directory);
      }
    }
  }
}

// The PEM text of `key`-data, or of the file that `key` names; "" when neither is there.
Result<std::string> DataOrFile(const Json& object, const std::string& key) {
  if (const std::string data = Text(object, key + "-data"); !data.empty()) {
    auto decoded = DecodeBase64(data);
    if (!decoded) {
      return BadRequest("the kubeconfig's " + key + "-data is not base64");
    }
    return std::move(*decoded);
  }
  if (const std::string path = Text(object, key); !path.empty()) {
    auto text = ReadFile(path);
    if (!text.ok()) {
      return BadRequest("the kubeconfig names " + key + " " + path + ", which cannot be read");
    }
    return text;
  }
  return std::string();
}

Result<void> ResolveCluster(const Json& cluster, HttpTransportOptions* out) {
  out->server = Text(cluster, "server");
  if (out->server.empty()) {
    return BadRequest("the kubeconfig's cluster names no server");
  }
  if (!Text(cluster, "proxy-url").empty()) {
    return BadRequest("the kubeconfig's proxy-url is not supported");
  }
  out->insecure = kube::FindBool(cluster, {"insecure-skip-tls-verify"});
  out->tls_server_name = Text(cluster, "tls-server-name");
  SUBLET_TRY(out->ca_pem, DataOrFile(cluster, "certificate-authority"));
  return Ok();
}

Result<void> ResolveUser(const Json& user, const Json& cluster, HttpTransportOptions* out) {
  if (kube::Find(user, {"auth-provider"}) != nullptr) {
    return BadRequest("the kubeconfig's auth-provider is not supported; use an exec plugin");
  }
  SUBLET_TRY(out->credential.certificate_pem, DataOrFile(user, "client-certificate"));
  SUBLET_TRY(out->credential.key_pem, DataOrFile(user, "client-key"));
  out->credential.bearer_token = Text(user, "token");
  out->token_file = Text(user, "tokenFile");
  out->basic_user = Text(user, "username");
  out->basic_password = Text(user, "password");
  if (const Json* exec = kube::Find(user, {"exec"}); exec != nullptr && exec->is_object()) {
    SUBLET_TRY(out->get_credential, MakeExecCredential(*exec, cluster));
  }
  return Ok();
}

}  // namespace

std::vector<std::string> Kubeconfig::Paths(const std::string& explicit_path) {
  if (!explicit_path.empty()) {
    return {explicit_path};
  }
  std::vector<std::string> out;
  if (const char* list = std::getenv("KUBECONFIG"); list != nullptr && *list != '\0') {
    std::istringstream parts(list);
    for (std::string path; std::getline(parts, path, ':');) {
      if (!path.empty()) {
        out.push_back(path);
      }
    }
  }
  if (out.empty()) {
    const char* home = std::getenv("HOME");
    out.push_back(std::string(home != nullptr ? home : "") + "/.kube/config");
  }
  return out;
}

Result<Kubeconfig> Kubeconfig::Parse(std::string_view text, const std::string& directory) {
  Kubeconfig out;
  SUBLET_TRY(out.root_, kube::ParseYaml(text));
  if (out.root_.is_null()) {
    out.root_ = Json::object();
  }
  if (!out.root_.is_object()) {
    return BadRequest("not a kubeconfig: the document is no mapping");
  }
  MakePathsAbsolute(&out.root_, directory);
  return out;
}

Result<Kubeconfig> Kubeconfig::Load(const std::string& explicit_path) {
  Kubeconfig out;
  out.root_ = Json::object();
  for (const std::string& path : Paths(explicit_path)) {
    const auto text = ReadFile(path);
    if (!text.ok()) {
      if (!explicit_path.empty()) {
        return NotFound({"", "kubeconfig"}, path);
      }
      continue;
    }
    std::error_code ignored;
    const auto directory = std::filesystem::absolute(path, ignored).parent_path();
    auto parsed = Parse(*text, directory.string());
    if (!parsed.ok()) {
      return std::move(parsed).error().Prefixed(path);
    }
    out.MergeFrom(parsed->root_);
  }
  return out;
}

void Kubeconfig::MergeFrom(const Json& other) {
  for (const char* list : {"clusters", "users", "contexts"}) {
    const Json* entries = kube::Find(other, {list});
    if (entries == nullptr || !entries->is_array()) {
      continue;
    }
    Json& mine = root_[list];
    if (!mine.is_array()) {
      mine = Json::array();
    }
    for (const Json& entry : *entries) {
      const bool known = std::any_of(mine.begin(), mine.end(), [&](const Json& present) {
        return Text(present, "name") == Text(entry, "name");
      });
      if (!known) {
        mine.push_back(entry);
      }
    }
  }
  for (const auto& [key, value] : other.items()) {
    if (!root_.contains(key) || (key == "current-context" && current_context().empty())) {
      root_[key] = value;
    }
  }
}

std::string Kubeconfig::current_context() const { return Text(root_, "current-context"); }

void Kubeconfig::SetCurrentContext(const std::string& name) { root_["current-context"] = name; }

std::vector<std::string> Kubeconfig::contexts() const {
  std::vector<std::string> out;
  if (const Json* entries = kube::Find(root_, {"contexts"}); entries && entries->is_array()) {
    for (const Json& entry : *entries) {
      out.push_back(Text(entry, "name"));
    }
  }
  return out;
}

bool Kubeconfig::HasContext(std::string_view name) const { return FindContext(name) != nullptr; }

const Json* Kubeconfig::FindContext(std::string_view name) const {
  return FindEntry(root_, "contexts", "context", name);
}
const Json* Kubeconfig::FindCluster(std::string_view name) const {
  return FindEntry(root_, "clusters", "cluster", name);
}
const Json* Kubeconfig::FindUser(std::string_view name) const {
  return FindEntry(root_, "users", "user", name);
}

Result<Connection> Kubeconfig::Resolve(const std::string& context) const {
  Connection out;
  out.context = context.empty() ? current_context() : context;
  if (out.context.empty()) {
    return Status(Reason::kNotFound, "no Kubernetes context is set");
  }
  const Json* entry = FindContext(out.context);
  if (entry == nullptr) {
    return NotFound({"", "contexts"}, out.context);
  }
  const Json* cluster = FindCluster(Text(*entry, "cluster"));
  if (cluster == nullptr) {
    return NotFound({"", "clusters"}, Text(*entry, "cluster"));
  }
  SUBLET_RETURN_IF_ERROR(ResolveCluster(*cluster, &out.transport));
  if (const std::string user = Text(*entry, "user"); !user.empty()) {
    const Json* found = FindUser(user);
    if (found == nullptr) {
      return NotFound({"", "users"}, user);
    }
    SUBLET_RETURN_IF_ERROR(ResolveUser(*found, *cluster, &out.transport));
  }
  out.namespace_name = kube::FindString(*entry, {"namespace"}, "default");
  return out;
}

Result<Connection> InClusterConnection() {
  const char* host = std::getenv("KUBERNETES_SERVICE_HOST");
  const char* port = std::getenv("KUBERNETES_SERVICE_PORT");
  if (host == nullptr || port == nullptr || *host == '\0' || *port == '\0') {
    return NotFound({"", "environment"}, "KUBERNETES_SERVICE_HOST");
  }
  Connection out;
  const bool v6 = std::string_view(host).find(':') != std::string_view::npos;
  out.transport.server =
      std::string("https://") + (v6 ? "[" : "") + host + (v6 ? "]:" : ":") + port;
  out.transport.token_file = std::string(kServiceAccount) + "token";
  SUBLET_TRY(out.transport.ca_pem, ReadFile(std::string(kServiceAccount) + "ca.crt"));
  auto name = ReadFile(std::string(kServiceAccount) + "namespace");
  out.namespace_name = name.ok() ? *name : "default";
  return out;
}

Result<Connection> FindConnection(const std::string& explicit_path, const std::string& context) {
  const char* list = std::getenv("KUBECONFIG");
  if (explicit_path.empty() && (list == nullptr || *list == '\0')) {
    if (auto inside = InClusterConnection(); inside.ok()) {
      return inside;
    }
  }
  SUBLET_TRY(const Kubeconfig config, Kubeconfig::Load(explicit_path));
  return config.Resolve(context);
}

Result<Client> Connect(const Connection& connection, std::string user_agent) {
  SUBLET_TRY(auto transport, MakeHttpTransport(connection.transport));
  return Client(std::move(transport), std::move(user_agent));
}

}  // namespace sublet::client
