// Kubeconfig: the file that says which API servers there are and who we are there. Read by every
// program outside a pod; the CLI also writes contexts into it and removes them.
// Values kept as trees, so fields this code does not know survive a rewrite.
// Threads: values, confined to their owner; the file functions lock the file as kubectl does.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/http_transport.h"
#include "kube/json.h"

namespace sublet::client {

// Everything a client needs for one context.
struct Connection {
  HttpTransportOptions transport;
  std::string namespace_name;  // "default" when the context names none
  std::string context;         // "" in a cluster
};

class Kubeconfig {
 public:
  Kubeconfig() = default;

  // The files in the order kubectl takes them: `explicit_path` alone if not empty, else
  // $KUBECONFIG's list, else ~/.kube/config.
  static std::vector<std::string> Paths(const std::string& explicit_path);
  // Merges them: the first file that names a cluster, user, context or the current context wins;
  // missing files are skipped, relative paths inside become absolute. An explicit path must exist.
  // Errors: BadRequest (which file, what is wrong), NotFound.
  static Result<Kubeconfig> Load(const std::string& explicit_path = "");
  // `directory` is what relative paths inside are relative to.
  static Result<Kubeconfig> Parse(std::string_view text, const std::string& directory);

  std::string current_context() const;
  void SetCurrentContext(const std::string& name);
  std::vector<std::string> contexts() const;
  bool HasContext(std::string_view name) const;
  // The entry's value ({cluster, user, namespace}), nullptr when absent.
  const kube::Json* FindContext(std::string_view name) const;
  const kube::Json* FindCluster(std::string_view name) const;
  const kube::Json* FindUser(std::string_view name) const;

  // Reads the files that the context points at. `context` "" = the current one.
  // Errors: NotFound (no such context, cluster or user), BadRequest (bad data, unsupported field).
  Result<Connection> Resolve(const std::string& context = "") const;

  const kube::Json& root() const { return root_; }

 private:
  void MergeFrom(const kube::Json& other);
  kube::Json root_;
};

// What a written context consists of.
struct ContextEntry {
  std::string name;    // of context, cluster and user alike
  kube::Json cluster;  // {"server": ..., "certificate-authority-data": ...}
  kube::Json user;     // {"client-certificate-data": ..., ...}
  std::string namespace_name;
  bool make_current = true;
};

// Adds or replaces the three entries in the file at `path` (made with mode 0600, its folder 0700).
// Errors: BadRequest (the file is unreadable as a kubeconfig), InternalError (cannot write),
// Timeout (another process holds PATH.lock for 10 s).
Result<void> WriteContext(const std::string& path, const ContextEntry& entry);
// Removes the context, and its cluster and user where no other context uses them. When it was the
// current one, `next_current` becomes current if it exists, else none. False: there was none.
Result<bool> RemoveContext(const std::string& path, const std::string& name,
                           const std::string& next_current = "");

// The service account of the pod we run in. Errors: NotFound (not in a cluster), BadRequest.
Result<Connection> InClusterConnection();

// What the programs use: the flag's file, else $KUBECONFIG, else in-cluster, else ~/.kube/config.
Result<Connection> FindConnection(const std::string& explicit_path, const std::string& context);

// A client for a connection. Errors: BadRequest.
Result<Client> Connect(const Connection& connection, std::string user_agent);

}  // namespace sublet::client
