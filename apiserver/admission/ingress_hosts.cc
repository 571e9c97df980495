// IngressHosts: on a host of tenants, an Ingress host belongs to the namespace that claimed it
// first. A tenant's Ingress (it carries the syncer's label) is refused when another namespace holds
// the same host; the administrator's own Ingresses may share as they like. Differs: Kubernetes
// leaves this to whoever watches Ingresses; a tenant could take over another's traffic with a more
// exact path. Threads: as admission.h; two claims that race meet at the companion key, of which one
// is written.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "apiserver/admission/registry.h"
#include "apiserver/registry/object_codec.h"
#include "kube/object.h"

namespace sublet::apiserver {
namespace {

using kube::Json;

constexpr std::string_view kTenantLabel = "sublet.dev/managed-by";
constexpr std::string_view kClaimPrefix = "/sublet/ingresshosts/";

// "" stands for every host.
std::set<std::string> HostsOf(const Json& ingress) {
  std::set<std::string> hosts;
  const Json* rules = kube::Find(ingress, {"spec", "rules"});
  if (rules != nullptr && rules->is_array()) {
    for (const Json& rule : *rules) {
      hosts.insert(std::string(kube::FindString(rule, {"host"})));
    }
  }
  if (kube::Find(ingress, {"spec", "defaultBackend"}) != nullptr || hosts.empty()) {
    hosts.insert("");
  }
  return hosts;
}

// Whether requests for one can be requests for the other: equal, or a wildcard over it.
bool Overlap(const std::string& a, const std::string& b) {
  const auto covers = [](const std::string& wild, const std::string& name) {
    return wild.starts_with("*.") && name.size() > wild.size() - 1 &&
           name.ends_with(wild.substr(1));
  };
  return a == b || covers(a, b) || covers(b, a);
}

std::string ClaimKey(const std::string& host) { return std::string(kClaimPrefix) + host + "/"; }

class Claims {
 public:
  Claims(const AdmissionEnvironment& environment, AdmissionRequest& request)
      : environment_(environment), request_(request) {
    for (const auto& record : ListObjects(environment_, "networking.k8s.io", "ingresses", "")) {
      Json ingress = ParseStored(*record.value);
      if (kube::NamespaceOf(ingress) != request_.namespace_name ||
          kube::NameOf(ingress) != request_.name) {
        others_.push_back(std::move(ingress));
      }
    }
  }

  Result<void> Take() {
    const bool is_tenants = !kube::LabelOf(*request_.object, kTenantLabel).empty();
    for (const std::string& host : HostsOf(*request_.object)) {
      if (is_tenants && HeldElsewhere(host)) {
        return AdmissionForbidden(
            request_, "host \"" + host + "\" is held by an Ingress of another namespace");
      }
      Note(host);
    }
    return Ok();
  }

  void Release(const Json& ingress, const std::set<std::string>& kept) {
    for (const std::string& host : HostsOf(ingress)) {
      const bool still = std::any_of(others_.begin(), others_.end(), [&](const Json& other) {
        return kube::NamespaceOf(other) == request_.namespace_name && HostsOf(other).contains(host);
      });
      const auto record = environment_.store->Get(ClaimKey(host));
      if (!still && !kept.contains(host) && record &&
          record->value->bytes == request_.namespace_name) {
        storage::Op op;
        op.kind = storage::Op::Kind::kDelete;
        op.key = ClaimKey(host);
        request_.companions->push_back(std::move(op));
      }
    }
  }

 private:
  bool HeldElsewhere(const std::string& host) const {
    return std::any_of(others_.begin(), others_.end(), [&](const Json& other) {
      if (kube::NamespaceOf(other) == request_.namespace_name) {
        return false;
      }
      const auto theirs = HostsOf(other);
      return std::any_of(theirs.begin(), theirs.end(),
                         [&host](const std::string& held) { return Overlap(host, held); });
    });
  }

  // A key of its own makes two first claims of one host collide.
  void Note(const std::string& host) {
    if (environment_.store->Get(ClaimKey(host))) {
      return;
    }
    storage::Op op;
    op.kind = storage::Op::Kind::kPut;
    op.key = ClaimKey(host);
    op.expected = 0;
    op.bytes = request_.namespace_name;
    request_.companions->push_back(std::move(op));
  }

  const AdmissionEnvironment& environment_;
  AdmissionRequest& request_;
  std::vector<Json> others_;
};

}  // namespace

AdmissionPlugin IngressHosts(const AdmissionEnvironment& environment) {
  AdmissionPlugin plugin;
  plugin.name = "IngressHosts";
  plugin.operations = Operations({Operation::kCreate, Operation::kUpdate, Operation::kDelete});
  plugin.mutate = [environment](AdmissionRequest& request) -> Result<void> {
    if (!request.Is("networking.k8s.io", "ingresses") || !request.subresource.empty()) {
      return Ok();
    }
    Claims claims(environment, request);
    if (request.operation == Operation::kDelete) {
      claims.Release(*request.old_object, {});
      return Ok();
    }
    SUBLET_RETURN_IF_ERROR(claims.Take());
    if (request.operation == Operation::kUpdate) {
      claims.Release(*request.old_object, HostsOf(*request.object));
    }
    return Ok();
  };
  return plugin;
}

}  // namespace sublet::apiserver
