// ServiceAllocation: cluster IPs and node ports. What is taken stands in storage, as IPAddress
// objects and port keys that are written with the Service in one transaction; two Services can
// therefore never get the same, and nothing leaks when a request fails.
// Source: k8s.io/kubernetes pkg/registry/core/service/{storage/alloc.go,ipallocator,portallocator}.
#include <arpa/inet.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "apiserver/admission/registry.h"
#include "apiserver/registry/builtin.h"
#include "apiserver/registry/kind_ops.h"
#include "base/random.h"
#include "kube/field_error.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::apiserver {
namespace {

using kube::FieldErrors;
using kube::Json;

// 10.96.0.0/12, as kubeadm's default; the first address belongs to the Service "kubernetes".
constexpr std::uint32_t kRangeStart = 0x0a600000;
constexpr std::uint32_t kRangeSize = 1u << 20;
constexpr std::string_view kRangeText = "10.96.0.0/12";
// Addresses that are handed out unasked start here; below it people choose their own.
constexpr std::uint32_t kDynamicStart = 4096;
constexpr int kPortMin = 30000;
constexpr int kPortMax = 32767;
constexpr int kDynamicPortStart = 30086;
constexpr int kTriesMax = 256;
constexpr std::string_view kPortPrefix = "/sublet/nodeports/";

std::string IpText(std::uint32_t address) {
  in_addr in{};
  in.s_addr = htonl(address);
  char text[INET_ADDRSTRLEN];
  return inet_ntop(AF_INET, &in, text, sizeof(text));
}

std::optional<std::uint32_t> ParseIp(const std::string& text) {
  in_addr in{};
  if (inet_pton(AF_INET, text.c_str(), &in) != 1) {
    return std::nullopt;
  }
  return ntohl(in.s_addr);
}

std::string AddressKey(std::string_view ip) {
  return StoragePrefix({"networking.k8s.io", "ipaddresses"}) + std::string(ip);
}

std::string PortKey(int port) { return std::string(kPortPrefix) + std::to_string(port); }

bool IsHeadless(const Json& service) {
  return kube::FindString(service, {"spec", "clusterIP"}) == "None";
}

bool NeedsAddress(const Json& service) {
  return kube::FindString(service, {"spec", "type"}) != "ExternalName" && !IsHeadless(service);
}

bool NeedsNodePorts(const Json& service) {
  const auto type = kube::FindString(service, {"spec", "type"});
  return type == "NodePort" ||
         (type == "LoadBalancer" &&
          kube::FindBool(service, {"spec", "allocateLoadBalancerNodePorts"}, true));
}

std::string AddressOf(const Json& service) {
  const auto ip = kube::FindString(service, {"spec", "clusterIP"});
  return ip == "None" ? std::string() : std::string(ip);
}

// All node ports that a Service holds, the health check's included.
std::set<int> PortsOf(const Json& service) {
  std::set<int> ports;
  if (const Json* list = kube::Find(service, {"spec", "ports"});
      list != nullptr && list->is_array()) {
    for (const auto& port : *list) {
      if (const auto number = kube::FindInt(port, {"nodePort"}); number > 0) {
        ports.insert(static_cast<int>(number));
      }
    }
  }
  if (const auto number = kube::FindInt(service, {"spec", "healthCheckNodePort"}); number > 0) {
    ports.insert(static_cast<int>(number));
  }
  return ports;
}

Status InvalidService(const AdmissionRequest& request, FieldErrors errors) {
  return Invalid("", "Service", request.name, errors.Take());
}

// The server's own range.
class OwnRange final : public ServiceAddresses {
 public:
  explicit OwnRange(storage::Store* store) : store_(store) {}
  bool MayBlock() const override { return false; }
  Result<Json> Allocate(const Json&, Deadline) override {
    for (int i = 0; i < kTriesMax; ++i) {
      const std::uint32_t offset =
          kDynamicStart +
          static_cast<std::uint32_t>(RandomUint64() % (kRangeSize - kDynamicStart - 1));
      std::string ip = IpText(kRangeStart + offset);
      if (!store_->Get(AddressKey(ip))) {
        return Json{{"clusterIP", std::move(ip)}};
      }
    }
    return InternalError("failed to allocate a serviceIP: range is full");
  }

 private:
  storage::Store* const store_;
};

class Allocation {
 public:
  Allocation(const AdmissionEnvironment& environment, ServiceAddresses& addresses,
             AdmissionRequest& request)
      : environment_(environment), addresses_(addresses), request_(request) {}

  Result<void> Create() {
    if (AsksOutside()) {
      return FromOutside({}, "");
    }
    SUBLET_RETURN_IF_ERROR(Families());
    SUBLET_RETURN_IF_ERROR(Address(""));
    return Ports({});
  }

  Result<void> Update() {
    Json& service = *request_.object;
    const Json& old = *request_.old_object;
    KeepAllocated(service, old);
    const std::string old_ip = AddressOf(old);
    if (AsksOutside() && (old_ip.empty() || LacksPorts(service, PortsOf(old)))) {
      return FromOutside(PortsOf(old), old_ip);
    }
    SUBLET_RETURN_IF_ERROR(Families());
    if (NeedsAddress(service)) {
      SUBLET_RETURN_IF_ERROR(Address(old_ip));
    } else if (!old_ip.empty() && !IsHeadless(service)) {
      FreeAddress(old_ip);
      service["spec"].erase("clusterIP");
      service["spec"].erase("clusterIPs");
    }
    return Ports(PortsOf(old));
  }

  void Delete() {
    const Json& old = *request_.old_object;
    if (const std::string ip = AddressOf(old); !ip.empty()) {
      FreeAddress(ip);
    }
    for (const int port : PortsOf(old)) {
      FreePort(port);
    }
  }

 private:
  // What the server once gave stays when the client leaves it out.
  static void KeepAllocated(Json& service, const Json& old) {
    Json& spec = kube::EnsureObject(&service, "spec");
    const auto type = kube::FindString(spec, {"type"});
    if (type != "ExternalName" && kube::FindString(old, {"spec", "type"}) != "ExternalName") {
      for (const char* field : {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"}) {
        const Json* kept = kube::Find(old, {"spec", field});
        const auto it = spec.find(field);
        const bool absent =
            it == spec.end() || it->is_null() || *it == Json("") || (it->is_array() && it->empty());
        if (kept != nullptr && absent) {
          spec[field] = *kept;
        }
      }
    }
    if (!NeedsNodePorts(service)) {
      return;
    }
    const Json* old_ports = kube::Find(old, {"spec", "ports"});
    Json* ports = kube::Find(spec, {"ports"});
    if (old_ports == nullptr || ports == nullptr || !ports->is_array()) {
      return;
    }
    for (auto& port : *ports) {
      if (kube::FindInt(port, {"nodePort"}) != 0) {
        continue;
      }
      for (const auto& before : *old_ports) {
        const auto number = kube::FindInt(before, {"nodePort"});
        if (number > 0 && kube::FindInt(before, {"port"}) == kube::FindInt(port, {"port"}) &&
            kube::FindString(before, {"protocol"}) == kube::FindString(port, {"protocol"})) {
          port["nodePort"] = number;
        }
      }
    }
    const auto health = kube::FindInt(old, {"spec", "healthCheckNodePort"});
    if (health > 0 && NeedsHealthPort(service) && !spec.contains("healthCheckNodePort")) {
      spec["healthCheckNodePort"] = health;
    }
  }

  static bool NeedsHealthPort(const Json& service) {
    return kube::FindString(service, {"spec", "type"}) == "LoadBalancer" &&
           kube::FindString(service, {"spec", "externalTrafficPolicy"}) == "Local";
  }

  bool AsksOutside() const {
    return addresses_.MayBlock() && !request_.dry_run && NeedsAddress(*request_.object);
  }

  // Whether a node port is still to be found, or one is asked for that the Service does not hold.
  static bool LacksPorts(const Json& service, const std::set<int>& held) {
    const Json* ports = kube::Find(service, {"spec", "ports"});
    return NeedsNodePorts(service) && ports != nullptr && ports->is_array() &&
           std::any_of(ports->begin(), ports->end(), [&held](const Json& port) {
             return held.count(static_cast<int>(kube::FindInt(port, {"nodePort"}))) == 0;
           });
  }

  // Address and ports as the other side gives them; they are noted here so that they stay unique.
  Result<void> FromOutside(const std::set<int>& held_ports, const std::string& held_ip) {
    Json named = *request_.object;
    kube::EnsureObject(&named, "metadata")["namespace"] = request_.namespace_name;
    SUBLET_TRY(const Json given, addresses_.Allocate(named, request_.deadline));
    Json& spec = kube::EnsureObject(request_.object, "spec");
    for (const char* field :
         {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"}) {
      if (const auto found = given.find(field); found != given.end()) {
        spec[field] = *found;
      }
    }
    const std::string ip(kube::FindString(given, {"clusterIP"}));
    spec["clusterIPs"] = given.value("clusterIPs", Json::array({ip}));
    if (ip != held_ip) {
      TakeAddress(ip);
    }
    const Json* theirs = kube::Find(given, {"ports"});
    for (Json& port : spec["ports"]) {
      for (std::size_t i = 0; theirs != nullptr && i < theirs->size(); ++i) {
        const Json& other = (*theirs)[i];
        if (kube::FindInt(other, {"nodePort"}) > 0 &&
            kube::FindInt(other, {"port"}) == kube::FindInt(port, {"port"}) &&
            kube::FindString(other, {"protocol"}, "TCP") ==
                kube::FindString(port, {"protocol"}, "TCP")) {
          port["nodePort"] = other["nodePort"];
        }
      }
    }
    std::set<int> used;
    for (const int port : PortsOf(*request_.object)) {
      if (held_ports.count(port) == 0) {
        TakePort(port, used);
      }
      used.insert(port);
    }
    for (const int port : held_ports) {
      if (used.count(port) == 0) {
        FreePort(port);
      }
    }
    return Ok();
  }

  // This server has one address family.
  Result<void> Families() {
    Json& service = *request_.object;
    Json& spec = kube::EnsureObject(&service, "spec");
    if (kube::FindString(spec, {"type"}) == "ExternalName") {
      for (const char* field : {"ipFamilies", "ipFamilyPolicy"}) {
        spec.erase(field);
      }
      return Ok();
    }
    FieldErrors errors;
    const Json* families = kube::Find(spec, {"ipFamilies"});
    for (std::size_t i = 0; families != nullptr && families->is_array() && i < families->size();
         ++i) {
      if ((*families)[i] != Json("IPv4") && (*families)[i] != Json("IPv6")) {
        errors.NotSupported("spec.ipFamilies[" + std::to_string(i) + "]", (*families)[i],
                            {"IPv4", "IPv6"});
      } else if ((*families)[i] != Json("IPv4") && !IsHeadless(service)) {
        errors.Invalid("spec.ipFamilies[" + std::to_string(i) + "]", (*families)[i],
                       "not configured on this cluster");
      }
    }
    const auto policy = kube::FindString(spec, {"ipFamilyPolicy"});
    const Json* selector = kube::Find(spec, {"selector"});
    const bool no_selector = selector == nullptr || selector->empty();
    if (policy == "RequireDualStack" && !(IsHeadless(service) && no_selector)) {
      errors.Invalid(std::string("spec.ipFamilyPolicy"), Json("RequireDualStack"),
                     "this cluster is not configured for dual-stack services");
    }
    if (!errors.empty()) {
      return InvalidService(request_, std::move(errors));
    }
    if (IsHeadless(service) && no_selector && policy.empty()) {
      spec["ipFamilyPolicy"] = "RequireDualStack";
      if (families == nullptr || families->empty()) {
        spec["ipFamilies"] = Json::array({"IPv4", "IPv6"});
      }
    }
    if (kube::FindString(spec, {"ipFamilyPolicy"}).empty()) {
      spec["ipFamilyPolicy"] = "SingleStack";
    }
    if (const Json* now = kube::Find(spec, {"ipFamilies"});
        now == nullptr || !now->is_array() || now->empty()) {
      spec["ipFamilies"] = Json::array({"IPv4"});
    }
    if (IsHeadless(service)) {
      spec["clusterIPs"] = Json::array({"None"});
    }
    return Ok();
  }

  // `held` is what this Service has already.
  Result<void> Address(const std::string& held) {
    Json& service = *request_.object;
    if (!NeedsAddress(service)) {
      return Ok();
    }
    Json& spec = service["spec"];
    std::string ip = AddressOf(service);
    if (ip.empty()) {
      if (const Json* list = kube::Find(spec, {"clusterIPs"});
          list != nullptr && list->is_array() && !list->empty() && (*list)[0].is_string()) {
        ip = (*list)[0].get<std::string>();
      }
    }
    const Json* given = kube::Find(spec, {"clusterIPs"});
    if (request_.old_object == nullptr && !ip.empty() && given != nullptr && given->is_array() &&
        !given->empty() && given->front() != Json(ip)) {
      FieldErrors errors;
      errors.Invalid(std::string("spec.clusterIPs"), *given, "first value must match `clusterIP`");
      return InvalidService(request_, std::move(errors));
    }
    if (ip.empty() && request_.dry_run) {
      ip = IpText(kRangeStart);  // a stand-in, as upstream's: nothing is taken
    } else if (ip.empty()) {
      Json named = service;
      kube::EnsureObject(&named, "metadata")["namespace"] = request_.namespace_name;
      SUBLET_TRY(const Json chosen, OwnAddress(named));
      ip = kube::FindString(chosen, {"clusterIP"});
    } else if (ip != held) {
      SUBLET_RETURN_IF_ERROR(CheckChosen(ip));
    }
    spec["clusterIP"] = ip;
    spec["clusterIPs"] = Json::array({ip});
    if (ip != held) {
      TakeAddress(ip);
    }
    return Ok();
  }

  // Dry runs never leave a trace outside.
  Result<Json> OwnAddress(const Json& named) {
    return addresses_.MayBlock() ? OwnRange(environment_.store).Allocate(named, request_.deadline)
                                 : addresses_.Allocate(named, request_.deadline);
  }

  Result<void> CheckChosen(const std::string& ip) {
    FieldErrors errors;
    const Json shown = Json::array({ip});
    const auto address = ParseIp(ip);
    if (!address) {
      return Ok();  // validation says what is wrong with it
    }
    if (*address <= kRangeStart || *address >= kRangeStart + kRangeSize - 1) {
      // A dry run asks the range itself, a real request first looks for a range that fits.
      const std::string problem =
          request_.dry_run ? "the provided IP (" + ip +
                                 ") is not in the valid range. The range of valid IPs is " +
                                 std::string(kRangeText)
                           : "the provided network does not match the current range";
      errors.Invalid(std::string("spec.clusterIPs"), shown,
                     "failed to allocate IP " + ip + ": " + problem);
    } else if (environment_.store->Get(AddressKey(ip)) || *address == kRangeStart + 1) {
      errors.Invalid(std::string("spec.clusterIPs"), shown,
                     "failed to allocate IP " + ip + ": provided IP is already allocated");
    }
    if (!errors.empty()) {
      return InvalidService(request_, std::move(errors));
    }
    return Ok();
  }

  void TakeAddress(const std::string& ip) {
    const std::string now = kube::FormatTime(environment_.clock->Now());
    Json object = {{"apiVersion", "networking.k8s.io/v1"},
                   {"kind", "IPAddress"},
                   {"metadata",
                    {{"name", ip},
                     {"uid", RandomUuid()},
                     {"creationTimestamp", now},
                     {"labels",
                      {{"ipaddress.kubernetes.io/ip-family", "IPv4"},
                       {"ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io"}}}}},
                   {"spec",
                    {{"parentRef",
                      {{"resource", "services"},
                       {"namespace", request_.namespace_name},
                       {"name", request_.name}}}}}};
    const CatalogPtr catalog = environment_.catalog->Get();
    TrackUpdate(*catalog->FindAnyVersion("networking.k8s.io", "ipaddresses"), object, nullptr,
                "kube-apiserver", "", environment_.clock->Now());
    storage::Op op = CreateOp(environment_, "networking.k8s.io", "ipaddresses", object);
    request_.companions->push_back(std::move(op));
  }

  void FreeAddress(const std::string& ip) {
    if (!environment_.store->Get(AddressKey(ip))) {
      return;
    }
    storage::Op op;
    op.kind = storage::Op::Kind::kDelete;
    op.key = AddressKey(ip);
    request_.companions->push_back(std::move(op));
  }

  Result<void> Ports(const std::set<int>& held) {
    Json& service = *request_.object;
    std::set<int> used;
    FieldErrors errors;
    Json* ports = kube::Find(service, {"spec", "ports"});
    if (NeedsNodePorts(service) && ports != nullptr && ports->is_array()) {
      for (std::size_t i = 0; i < ports->size(); ++i) {
        const std::string path = "spec.ports[" + std::to_string(i) + "].nodePort";
        SUBLET_RETURN_IF_ERROR(OnePort((*ports)[i], path, held, used, errors));
      }
    } else if (kube::FindString(service, {"spec", "type"}) == "ClusterIP" && ports != nullptr &&
               ports->is_array() && request_.old_object != nullptr) {
      // A Service that stops being reachable from outside gives its ports back.
      for (auto& port : *ports) {
        if (port.is_object()) {
          port.erase("nodePort");
        }
      }
    }
    if (NeedsHealthPort(service)) {
      Json& spec = service["spec"];
      Json holder = {{"nodePort", kube::FindInt(spec, {"healthCheckNodePort"})}};
      SUBLET_RETURN_IF_ERROR(OnePort(holder, "spec.healthCheckNodePort", held, used, errors));
      spec["healthCheckNodePort"] = holder["nodePort"];
    } else {
      service["spec"].erase("healthCheckNodePort");
    }
    if (!errors.empty()) {
      return InvalidService(request_, std::move(errors));
    }
    for (const int port : held) {
      if (used.count(port) == 0) {
        FreePort(port);
      }
    }
    return Ok();
  }

  Result<void> OnePort(Json& port, const std::string& path, const std::set<int>& held,
                       std::set<int>& used, FieldErrors& errors) {
    const auto wanted = static_cast<int>(kube::FindInt(port, {"nodePort"}));
    if (wanted == 0 && request_.dry_run) {
      const int stand_in = used.empty() ? kPortMax + 2 : *used.rbegin() + 1;
      port["nodePort"] = stand_in;
      used.insert(stand_in);
      return Ok();
    }
    if (wanted == 0) {
      const int chosen = FreeNodePort(used);
      if (chosen == 0) {
        return InternalError("failed to allocate a nodePort: range is full");
      }
      port["nodePort"] = chosen;
      TakePort(chosen, used);
      return Ok();
    }
    // Upstream's dry runs know what is taken, not where the range ends.
    if (!request_.dry_run && (wanted < kPortMin || wanted > kPortMax)) {
      errors.Invalid(path, Json(wanted),
                     "provided port is not in the valid range. The range of valid ports is "
                     "30000-32767");
      return Ok();
    }
    // The same number for TCP and UDP of one Service is fine.
    if (held.count(wanted) != 0 || used.count(wanted) != 0) {
      used.insert(wanted);
      return Ok();
    }
    if (environment_.store->Get(PortKey(wanted))) {
      errors.Invalid(path, Json(wanted), "provided port is already allocated");
      return Ok();
    }
    TakePort(wanted, used);
    return Ok();
  }

  int FreeNodePort(const std::set<int>& used) const {
    for (int i = 0; i < kTriesMax; ++i) {
      const int port = kDynamicPortStart +
                       static_cast<int>(RandomUint64() % static_cast<std::uint64_t>(
                                                             kPortMax - kDynamicPortStart + 1));
      if (used.count(port) == 0 && !environment_.store->Get(PortKey(port))) {
        return port;
      }
    }
    for (int port = kPortMin; port <= kPortMax; ++port) {
      if (used.count(port) == 0 && !environment_.store->Get(PortKey(port))) {
        return port;
      }
    }
    return 0;
  }

  void TakePort(int port, std::set<int>& used) {
    used.insert(port);
    storage::Op op;
    op.kind = storage::Op::Kind::kPut;
    op.key = PortKey(port);
    op.expected = 0;
    op.bytes = request_.namespace_name + "/" + request_.name;
    request_.companions->push_back(std::move(op));
  }

  void FreePort(int port) {
    storage::Op op;
    op.kind = storage::Op::Kind::kDelete;
    op.key = PortKey(port);
    if (environment_.store->Get(op.key)) {
      request_.companions->push_back(std::move(op));
    }
  }

  const AdmissionEnvironment& environment_;
  ServiceAddresses& addresses_;
  AdmissionRequest& request_;
};

}  // namespace

AdmissionPlugin ServiceAllocation(const AdmissionEnvironment& environment) {
  std::shared_ptr<ServiceAddresses> addresses = environment.addresses;
  if (addresses == nullptr) {
    addresses = std::make_shared<OwnRange>(environment.store);
  }
  AdmissionPlugin plugin;
  plugin.name = "ServiceAllocation";
  plugin.operations = Operations({Operation::kCreate, Operation::kUpdate, Operation::kDelete});
  plugin.mutate = [environment, addresses](AdmissionRequest& request) -> Result<void> {
    if (!IsMain(request, "", "services")) {
      return Ok();
    }
    Allocation allocation(environment, *addresses, request);
    switch (request.operation) {
      case Operation::kCreate: return allocation.Create();
      case Operation::kUpdate: return allocation.Update();
      default: allocation.Delete(); return Ok();
    }
  };
  plugin.may_block = [addresses](const AdmissionRequest& request) {
    return addresses->MayBlock() && IsMain(request, "", "services") &&
           request.operation != Operation::kDelete;
  };
  return plugin;
}

}  // namespace sublet::apiserver
