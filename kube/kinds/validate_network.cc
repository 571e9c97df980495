// Ingresses and network policies.
#include <arpa/inet.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/object.h"

namespace sublet::kube::validate {
namespace {

void Backend(const Path& path, const Json& backend, FieldErrors* errors) {
  const Json& resource = Get(backend, "resource");
  const Json& service = Get(backend, "service");
  if (resource.is_object() && service.is_object()) {
    errors->Invalid(path, "", "cannot set both resource and service backends");
  } else if (resource.is_object()) {
    const Path at = path.Child("resource");
    if (Has(resource, "apiGroup")) {
      Check(at.Child("apiGroup"), Str(resource, "apiGroup"), &IsDns1123Subdomain, errors);
    }
    for (const char* field : {"kind", "name"}) {
      CheckRequired(at.Child(field), Str(resource, field), &IsPathSegmentName, errors);
    }
  } else if (service.is_object()) {
    const Path at = path.Child("service");
    CheckRequired(at.Child("name"), Str(service, "name"), &IsDns1123Label, errors);
    const Json& port = Get(service, "port");
    const std::int64_t number = FindInt(port, {"number"});
    const std::string name = Str(port, "name");
    if (!name.empty() && number != 0) {
      errors->Invalid(path, "", "cannot set both port name & port number");
    } else if (!name.empty()) {
      const Path port_path = at.Child("port");
      Check(port_path.Child("name"), name, &IsPortName, errors);
    } else if (number != 0) {
      const Path port_path = at.Child("port");
      errors->InvalidEach(port_path.Child("number"), number, IsPortNumber(number));
    } else {
      errors->Required(path, "port name or number is required");
    }
  } else {
    errors->Invalid(path, "", "resource or service backend is required");
  }
}

void HttpPath(const Path& at, const Json& one, FieldErrors* errors) {
  const Json& type = Get(one, "pathType");
  const std::string path = Str(one, "path");
  if (!type.is_string()) {
    errors->Required(at.Child("pathType"), "pathType must be specified");
    return;
  }
  const std::string kind = type.get<std::string>();
  if (kind == "Exact" || kind == "Prefix") {
    if (!path.starts_with('/')) {
      errors->Invalid(at.Child("path"), path, "must be an absolute path");
    }
    for (const char* bad : {"//", "/./", "/../", "%2f", "%2F"}) {
      if (path.find(bad) != std::string::npos) {
        errors->Invalid(at.Child("path"), path, "must not contain '" + std::string(bad) + "'");
      }
    }
    for (const char* bad : {"/..", "/."}) {
      if (path.ends_with(bad)) {
        errors->Invalid(at.Child("path"), path, "cannot end with '" + std::string(bad) + "'");
      }
    }
  } else if (kind == "ImplementationSpecific") {
    if (!path.empty() && !path.starts_with('/')) {
      errors->Invalid(at.Child("path"), path, "must be an absolute path");
    }
  } else {
    errors->NotSupported(at.Child("pathType"), kind, {"Exact", "ImplementationSpecific", "Prefix"});
  }
  const Path backend = at.Child("backend");
  Backend(backend, Get(one, "backend"), errors);
}

void Host(const Path& path, const std::string& host, FieldErrors* errors) {
  if (host.find('*') != std::string::npos) {
    Check(path, host, &IsWildcardDns1123Subdomain, errors);
  } else {
    Check(path, host, &IsDns1123Subdomain, errors);
  }
}

void IngressRules(const Json& spec, FieldErrors* errors) {
  const Path rules = kSpec.Child("rules");
  std::size_t index = 0;
  for (const Json& rule : Items(spec, "rules")) {
    const Path at = rules.Index(index++);
    if (const std::string host = Str(rule, "host"); !host.empty()) {
      if (IsIpAddress(host).empty()) {
        errors->Invalid(at.Child("host"), host, "must be a DNS name, not an IP address");
      } else {
        Host(at.Child("host"), host, errors);
      }
    }
    const Json& http = Get(rule, "http");
    if (!http.is_object()) {
      continue;
    }
    const Path http_path = at.Child("http");
    const Path paths = http_path.Child("paths");
    const auto& items = Items(http, "paths");
    if (items.empty()) {
      errors->Required(paths);
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
      HttpPath(paths.Index(i), items[i], errors);
    }
  }
}

// True when `inner` lies within `outer` and is smaller.
bool IsStrictSubset(const std::string& inner, const std::string& outer) {
  const auto parse = [](const std::string& text, unsigned char* bytes) {
    const std::size_t slash = text.find('/');
    const std::string ip = text.substr(0, slash);
    const bool six = ip.find(':') != std::string::npos;
    if (inet_pton(six ? AF_INET6 : AF_INET, ip.c_str(), bytes) != 1) {
      return -1;
    }
    const int bits = std::atoi(text.c_str() + slash + 1);
    return six ? bits + 1000 : bits;
  };
  unsigned char a[16] = {};
  unsigned char b[16] = {};
  const int inner_bits = parse(inner, a);
  const int outer_bits = parse(outer, b);
  if (inner_bits < 0 || outer_bits < 0 || inner_bits <= outer_bits ||
      inner_bits / 1000 != outer_bits / 1000) {
    return false;
  }
  for (int i = 0; i < outer_bits % 1000; ++i) {
    const int shift = 7 - i % 8;
    if (((a[i / 8] ^ b[i / 8]) >> shift & 1) != 0) {
      return false;
    }
  }
  return true;
}

void Peer(const Path& at, const Json& peer, FieldErrors* errors) {
  int peers = 0;
  for (const char* key : {"podSelector", "namespaceSelector"}) {
    if (const Json& selector = Get(peer, key); selector.is_object()) {
      ++peers;
      LabelSelector(at.Child(key), selector, errors);
    }
  }
  const Json& block = Get(peer, "ipBlock");
  if (block.is_object()) {
    ++peers;
    const Path path = at.Child("ipBlock");
    const std::string cidr = Str(block, "cidr");
    const std::size_t before = errors->size();
    if (cidr.empty()) {
      errors->Required(path.Child("cidr"));
    } else {
      Cidr(path.Child("cidr"), cidr, errors);
    }
    const bool readable = errors->size() == before;
    const Path except = path.Child("except");
    std::size_t index = 0;
    for (const Json& one : Items(block, "except")) {
      const Path here = except.Index(index++);
      const std::string text = one.get<std::string>();
      if (!readable) {
        break;
      }
      if (!IsCidr(text).empty()) {
        Cidr(here, text, errors);
      } else if (!IsStrictSubset(text, cidr)) {
        errors->Invalid(here, text, "must be a strict subset of `cidr`");
      }
    }
  }
  if (peers == 0) {
    errors->Required(at, "must specify a peer");
  } else if (peers > 1 && block.is_object()) {
    errors->Forbidden(at, "may not specify both ipBlock and another peer");
  }
}

void PolicyRules(const Json& spec, const char* direction, const char* peers, FieldErrors* errors) {
  const Path rules = kSpec.Child(direction);
  std::size_t index = 0;
  for (const Json& rule : Items(spec, direction)) {
    const Path at = rules.Index(index++);
    const Path ports = at.Child("ports");
    std::size_t i = 0;
    for (const Json& port : Items(rule, "ports")) {
      const Path here = ports.Index(i++);
      const std::string protocol = Str(port, "protocol");
      if (protocol != "TCP" && protocol != "UDP" && protocol != "SCTP") {
        errors->NotSupported(here.Child("protocol"), protocol, {"TCP", "UDP", "SCTP"});
      }
      const Json& number = Get(port, "port");
      if (!number.is_null()) {
        PortNumberOrName(here.Child("port"), number, errors);
      }
      const Json& end = Get(port, "endPort");
      if (end.is_number_integer()) {
        if (number.is_null()) {
          errors->Invalid(here.Child("endPort"), end,
                          "may not be specified when `port` is not specified");
        } else if (number.is_string()) {
          errors->Invalid(here.Child("endPort"), end,
                          "may not be specified when `port` is non-numeric");
        } else {
          if (end.get<std::int64_t>() < number.get<std::int64_t>()) {
            // Upstream shows the port here, not the end of the range.
            errors->Invalid(here.Child("endPort"), number,
                            "must be greater than or equal to `port`");
          }
          errors->InvalidEach(here.Child("endPort"), end, IsPortNumber(end.get<std::int64_t>()));
        }
      }
    }
    const Path from = at.Child(peers);
    i = 0;
    for (const Json& peer : Items(rule, peers)) {
      Peer(from.Index(i++), peer, errors);
    }
  }
}

}  // namespace

void Ingress(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Json& backend = Get(spec, "defaultBackend");
  if (Items(spec, "rules").empty() && !backend.is_object()) {
    errors->Invalid(kSpec, nullptr, "either `defaultBackend` or `rules` must be specified");
  }
  if (backend.is_object()) {
    const Path path = kSpec.Child("defaultBackend");
    Backend(path, backend, errors);
  }
  IngressRules(spec, errors);
  const Path tls = kSpec.Child("tls");
  std::size_t index = 0;
  for (const Json& one : Items(spec, "tls")) {
    const Path at = tls.Index(index++);
    const Path hosts = at.Child("hosts");
    std::size_t i = 0;
    for (const Json& host : Items(one, "hosts")) {
      Host(hosts.Index(i++), host.get<std::string>(), errors);
    }
    if (const std::string secret = Str(one, "secretName"); !secret.empty()) {
      Check(at.Child("secretName"), secret, &IsDns1123Subdomain, errors);
    }
  }
  if (Has(spec, "ingressClassName")) {
    Check(kSpec.Child("ingressClassName"), Str(spec, "ingressClassName"), &IsDns1123Subdomain,
          errors);
  }
  const std::string old_class(AnnotationOf(object, "kubernetes.io/ingress.class"));
  if (!old_class.empty() && Has(spec, "ingressClassName") &&
      Str(spec, "ingressClassName") != old_class) {
    errors->Invalid(Path("annotations").Child("kubernetes.io/ingress.class"), old_class,
                    "must match `ingressClassName` when both are specified");
  }
}

void IngressUpdate(const Json& object, const Json&, FieldErrors* errors) {
  FieldErrors all;
  Ingress(object, &all);
  for (const StatusCause& cause : all.causes()) {
    if (cause.field != "annotations.kubernetes.io/ingress.class") {  // checked on create only
      errors->Add(cause);
    }
  }
}

void IngressClass(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const std::string controller = Str(spec, "controller");
  const std::size_t slash = controller.find('/');
  constexpr std::size_t kMax = 250;
  if (controller.size() > kMax) {
    errors->TooLong(kSpec.Child("controller"), static_cast<int>(kMax));
  }
  if (controller.empty()) {
    errors->Required(kSpec.Child("controller"));
  } else if (slash == 0 || slash == std::string::npos || slash + 1 == controller.size()) {
    errors->Invalid(kSpec.Child("controller"), controller,
                    "must be a domain-prefixed path (such as \"acme.io/foo\")");
  } else {
    Check(kSpec.Child("controller"), controller.substr(0, slash), &IsDns1123Subdomain, errors);
  }
  const Json& parameters = Get(spec, "parameters");
  if (!parameters.is_object()) {
    return;
  }
  const Path path = kSpec.Child("parameters");
  if (Has(parameters, "apiGroup")) {
    Check(path.Child("apiGroup"), Str(parameters, "apiGroup"), &IsDns1123Subdomain, errors);
  }
  for (const char* field : {"kind", "name"}) {
    CheckRequired(path.Child(field), Str(parameters, field), &IsPathSegmentName, errors);
  }
  const std::string scope = Str(parameters, "scope");
  Choice(path, parameters, "scope", {"Cluster", "Namespace"}, errors);
  if (!Has(parameters, "scope")) {
    errors->Required(path.Child("scope"));
  }
  if (scope == "Namespace" && !Has(parameters, "namespace")) {
    errors->Required(path.Child("namespace"), "`parameters.scope` is set to 'Namespace'");
  } else if (scope == "Namespace") {
    Check(path.Child("namespace"), Str(parameters, "namespace"), &IsDns1123Label, errors);
  } else if (scope == "Cluster" && Has(parameters, "namespace")) {
    errors->Forbidden(path.Child("namespace"), "`parameters.scope` is set to 'Cluster'");
  }
}

void IngressClassUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  const std::string controller = Str(Get(object, "spec"), "controller");
  if (controller != Str(Get(old, "spec"), "controller")) {
    errors->Invalid(kSpec.Child("controller"), controller, kImmutable);
  }
  FieldErrors all;
  IngressClass(object, &all);
  for (const StatusCause& cause : all.causes()) {
    // Its form is looked at on create only.
    if (!cause.field.starts_with("spec.controller") || controller.empty()) {
      errors->Add(cause);
    }
  }
}

void NetworkPolicy(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Path selector = kSpec.Child("podSelector");
  LabelSelector(selector, Get(spec, "podSelector"), errors);
  PolicyRules(spec, "ingress", "from", errors);
  PolicyRules(spec, "egress", "to", errors);
  const auto& types = Items(spec, "policyTypes");
  const Path path = kSpec.Child("policyTypes");
  if (types.size() > 2) {
    errors->Invalid(path, Get(spec, "policyTypes"), "may not specify more than two policyTypes");
    return;
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    const std::string type = types[i].get<std::string>();
    if (type != "Ingress" && type != "Egress") {
      errors->NotSupported(path.Index(i), type, {"Ingress", "Egress"});
    }
  }
}

void NetworkPolicyUpdate(const Json& object, const Json&, FieldErrors* errors) {
  NetworkPolicy(object, errors);
}

}  // namespace sublet::kube::validate
