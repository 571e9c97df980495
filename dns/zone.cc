#include "dns/zone.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/object.h"

namespace sublet::dns {
namespace {

using client::ObjectPtr;
using kube::Json;

constexpr std::string_view kServiceIndex = "service";
constexpr std::string_view kAddressIndex = "address";

struct Port {
  std::string name, protocol;
  std::uint16_t port = 0;
};

struct ServiceRecord {
  std::vector<std::string> addresses;  // empty for a headless one
  std::string external_name;
  bool publish_not_ready = false;
  std::vector<Port> ports;
};

struct Endpoint {
  std::vector<std::string> addresses;
  std::string hostname;
  bool ready = true;
};

struct SliceRecord {
  std::string service;
  std::vector<Endpoint> endpoints;
  std::vector<Port> ports;
};

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::vector<Port> PortsOf(const Json& list) {
  std::vector<Port> ports;
  if (list.is_array()) {
    for (const Json& port : list) {
      ports.push_back({std::string(kube::FindString(port, {"name"})),
                       Lower(std::string(kube::FindString(port, {"protocol"}, "TCP"))),
                       static_cast<std::uint16_t>(kube::FindInt(port, {"port"}))});
    }
  }
  return ports;
}

std::shared_ptr<const void> MakeService(const Json& service) {
  auto record = std::make_shared<ServiceRecord>();
  const Json spec = service.value("spec", Json::object());
  for (const Json& address : spec.value("clusterIPs", Json::array())) {
    if (address.is_string() && address != "None") {
      record->addresses.push_back(address.get<std::string>());
    }
  }
  const std::string single(kube::FindString(spec, {"clusterIP"}));
  if (record->addresses.empty() && !single.empty() && single != "None") {
    record->addresses.push_back(single);
  }
  if (kube::FindString(spec, {"type"}) == "ExternalName") {
    record->addresses.clear();
    record->external_name = Lower(std::string(kube::FindString(spec, {"externalName"})));
  }
  record->publish_not_ready = kube::FindBool(spec, {"publishNotReadyAddresses"});
  record->ports = PortsOf(spec.value("ports", Json::array()));
  return record;
}

std::shared_ptr<const void> MakeSlice(const Json& slice) {
  auto record = std::make_shared<SliceRecord>();
  record->service = kube::LabelOf(slice, "kubernetes.io/service-name");
  record->ports = PortsOf(slice.value("ports", Json::array()));
  for (const Json& endpoint : slice.value("endpoints", Json::array())) {
    Endpoint one;
    for (const Json& address : endpoint.value("addresses", Json::array())) {
      if (address.is_string()) {
        one.addresses.push_back(address.get<std::string>());
      }
    }
    one.hostname = kube::FindString(endpoint, {"hostname"});
    one.ready = kube::FindBool(endpoint, {"conditions", "ready"}, true);
    record->endpoints.push_back(std::move(one));
  }
  return record;
}

std::vector<std::string> Labels(std::string_view name) {
  std::vector<std::string> labels;
  while (!name.empty()) {
    const auto dot = name.find('.');
    labels.emplace_back(name.substr(0, dot));
    name = dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1);
  }
  return labels;
}

bool IsV6(const std::string& address) { return address.find(':') != std::string::npos; }

// The records of addresses that the question's type asks for.
void AddAddresses(const Question& question, const std::string& owner,
                  const std::vector<std::string>& addresses, std::vector<Record>& out) {
  for (const std::string& address : addresses) {
    const Type type = IsV6(address) ? Type::kAaaa : Type::kA;
    if (question.type == static_cast<std::uint16_t>(type) ||
        question.type == static_cast<std::uint16_t>(Type::kAny)) {
      Record record;
      record.name = owner;
      record.type = type;
      record.address = address;
      out.push_back(std::move(record));
    }
  }
}

// The label an endpoint is known by below its Service: its hostname, or its address with dashes.
std::string HostLabel(const Endpoint& endpoint) {
  if (!endpoint.hostname.empty()) {
    return Lower(endpoint.hostname);
  }
  std::string label = endpoint.addresses.empty() ? "" : endpoint.addresses.front();
  std::replace(label.begin(), label.end(), '.', '-');
  std::replace(label.begin(), label.end(), ':', '-');
  return label;
}

}  // namespace

Zone::Zone(client::InformerFactory& informers, std::string domain) : domain_(std::move(domain)) {
  client::InformerOptions services;
  services.resource = {"", "v1", "services"};
  services.kind = "Service";
  services.keep_bytes = false;
  services.make_record = MakeService;
  services_ = &informers.For(services);
  services_->AddIndex(kAddressIndex, [](const client::CachedObject& object) {
    return object.As<ServiceRecord>().addresses;
  });
  client::InformerOptions slices;
  slices.resource = {"discovery.k8s.io", "v1", "endpointslices"};
  slices.kind = "EndpointSlice";
  slices.keep_bytes = false;
  slices.make_record = MakeSlice;
  slices_ = &informers.For(slices);
  slices_->AddIndex(kServiceIndex, [](const client::CachedObject& object) {
    return std::vector<std::string>{object.key.namespace_name + "/" +
                                    object.As<SliceRecord>().service};
  });
  slices_->AddIndex(kAddressIndex, [](const client::CachedObject& object) {
    std::vector<std::string> all;
    for (const Endpoint& endpoint : object.As<SliceRecord>().endpoints) {
      all.insert(all.end(), endpoint.addresses.begin(), endpoint.addresses.end());
    }
    return all;
  });
}

Answer Zone::NoName() const {
  Answer answer;
  answer.code = Code::kNoName;
  answer.zone = domain_;
  return answer;
}

std::optional<Answer> Zone::Ask(const Question& question) const {
  auto answer = AskOne(question);
  // Stub resolvers do not ask again for the target of an alias; one outside the cluster is left to
  // the client. Two Services may name each other, so the chain is bounded.
  constexpr int kAliasesMax = 8;
  Question next = question;
  for (int hops = 0; hops < kAliasesMax && answer && !answer->records.empty() &&
                     answer->records.back().type == Type::kCname &&
                     question.type != static_cast<std::uint16_t>(Type::kCname);
       ++hops) {
    next.name = answer->records.back().target;
    const auto more = AskOne(next);
    if (!more || more->records.empty()) {
      break;
    }
    answer->records.insert(answer->records.end(), more->records.begin(), more->records.end());
  }
  return answer;
}

std::optional<Answer> Zone::AskOne(const Question& question) const {
  if (question.name.ends_with(".in-addr.arpa")) {
    return AskReverse(question);
  }
  const std::string suffix = "." + domain_;
  if (question.name != domain_ && !question.name.ends_with(suffix)) {
    return std::nullopt;
  }
  auto labels = Labels(
      question.name.substr(0, question.name == domain_ ? 0 : question.name.size() - suffix.size()));
  if (labels.empty() || (labels.size() == 1 && (labels[0] == "svc" || labels[0] == "pod"))) {
    Answer empty;  // the name exists and has no records
    empty.zone = domain_;
    return empty;
  }
  const std::string kind = labels.back();
  labels.pop_back();
  if (kind == "svc") {
    return AskService(question, std::move(labels));
  }
  if (kind == "pod") {
    return AskPod(question, labels);
  }
  if (kind == "dns-version") {
    return NoName();
  }
  return NoName();
}

Answer Zone::AskService(const Question& question, std::vector<std::string> labels) const {
  Answer answer;
  answer.zone = domain_;
  const std::string space = labels.back();
  labels.pop_back();
  if (labels.empty()) {
    // A namespace exists as a name when it holds a Service.
    return services_->ListNamespace(space).empty() ? NoName() : answer;
  }
  const std::string name = labels.back();
  labels.pop_back();
  const ObjectPtr service = services_->Get({space, name});
  if (service == nullptr || labels.size() > 2) {
    return NoName();
  }
  const auto& record = service->As<ServiceRecord>();
  const std::string owner = name + "." + space + ".svc." + domain_;
  if (!record.external_name.empty()) {
    if (!labels.empty()) {
      return NoName();
    }
    Record alias;
    alias.name = question.name;
    alias.type = Type::kCname;
    alias.target = record.external_name;
    answer.records.push_back(std::move(alias));
    return answer;
  }
  const auto slices = slices_->ByIndex(kServiceIndex, space + "/" + name);
  const bool headless = record.addresses.empty();
  const auto each_endpoint = [&](auto visit) {
    for (const ObjectPtr& slice : slices) {
      const auto& parsed = slice->As<SliceRecord>();
      for (const Endpoint& endpoint : parsed.endpoints) {
        if (endpoint.ready || record.publish_not_ready) {
          visit(endpoint, parsed);
        }
      }
    }
  };
  if (labels.empty()) {
    if (!headless) {
      AddAddresses(question, question.name, record.addresses, answer.records);
      return answer;
    }
    each_endpoint([&](const Endpoint& endpoint, const SliceRecord&) {
      AddAddresses(question, question.name, endpoint.addresses, answer.records);
    });
    return answer;
  }
  if (labels.size() == 1) {
    bool found = false;
    each_endpoint([&](const Endpoint& endpoint, const SliceRecord&) {
      if (HostLabel(endpoint) == labels[0]) {
        found = true;
        AddAddresses(question, question.name, endpoint.addresses, answer.records);
      }
    });
    return found ? answer : NoName();
  }
  // _port._protocol
  if (!labels[0].starts_with('_') || !labels[1].starts_with('_')) {
    return NoName();
  }
  const std::string port_name = labels[0].substr(1);
  const std::string protocol = labels[1].substr(1);
  bool known = false;
  const auto add = [&](const std::string& target, std::uint16_t port,
                       const std::vector<std::string>& addresses) {
    known = true;
    if (question.type != static_cast<std::uint16_t>(Type::kSrv) &&
        question.type != static_cast<std::uint16_t>(Type::kAny)) {
      return;
    }
    Record srv;
    srv.name = question.name;
    srv.type = Type::kSrv;
    srv.target = target;
    srv.port = port;
    answer.records.push_back(std::move(srv));
    Question addresses_question = question;
    addresses_question.type = static_cast<std::uint16_t>(Type::kAny);
    AddAddresses(addresses_question, target, addresses, answer.additional);
  };
  if (!headless) {
    for (const Port& port : record.ports) {
      if (port.name == port_name && port.protocol == protocol) {
        add(owner, port.port, record.addresses);
      }
    }
  } else {
    each_endpoint([&](const Endpoint& endpoint, const SliceRecord& slice) {
      for (const Port& port : slice.ports) {
        if (port.name == port_name && port.protocol == protocol) {
          add(HostLabel(endpoint) + "." + owner, port.port, endpoint.addresses);
        }
      }
    });
  }
  return known ? answer : NoName();
}

Answer Zone::AskPod(const Question& question, const std::vector<std::string>& labels) const {
  Answer answer;
  answer.zone = domain_;
  if (labels.size() != 2) {
    return labels.size() == 1 ? answer : NoName();
  }
  std::string address = labels[0];
  std::replace(address.begin(), address.end(), '-', '.');
  if (std::count(address.begin(), address.end(), '.') != 3 ||
      address.find_first_not_of("0123456789.") != std::string::npos) {
    return NoName();
  }
  AddAddresses(question, question.name, {address}, answer.records);
  return answer;
}

std::optional<Answer> Zone::AskReverse(const Question& question) const {
  auto labels = Labels(question.name);
  if (labels.size() != 6) {
    return std::nullopt;
  }
  const std::string address = labels[3] + "." + labels[2] + "." + labels[1] + "." + labels[0];
  Answer answer;
  const auto add = [&](std::string target) {
    Record record;
    record.name = question.name;
    record.type = Type::kPtr;
    record.target = std::move(target);
    answer.records.push_back(std::move(record));
  };
  for (const ObjectPtr& service : services_->ByIndex(kAddressIndex, address)) {
    add(service->key.name + "." + service->key.namespace_name + ".svc." + domain_);
  }
  for (const ObjectPtr& slice : slices_->ByIndex(kAddressIndex, address)) {
    const auto& record = slice->As<SliceRecord>();
    const ObjectPtr service = services_->Get({slice->key.namespace_name, record.service});
    if (service == nullptr || !service->As<ServiceRecord>().addresses.empty()) {
      continue;  // only endpoints of headless Services have names of their own
    }
    for (const Endpoint& endpoint : record.endpoints) {
      if (!endpoint.addresses.empty() && endpoint.addresses.front() == address) {
        add(HostLabel(endpoint) + "." + record.service + "." + slice->key.namespace_name + ".svc." +
            domain_);
      }
    }
  }
  if (answer.records.empty()) {
    return std::nullopt;
  }
  return answer;
}

}  // namespace sublet::dns
