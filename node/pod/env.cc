#include "node/pod/env.h"

#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "kube/quantity.h"

namespace sublet::node {
namespace {

using kube::Find;
using kube::FindBool;
using kube::FindString;
using kube::Json;

// "{k="v"\n...}": a map as the downward API prints it, quoted like Go's %q for plain text.
std::string FormatMap(const Json* map) {
  std::string out;
  if (map == nullptr || !map->is_object()) {
    return out;
  }
  for (const auto& [key, value] : map->items()) {
    if (!out.empty()) {
      out += '\n';
    }
    out += key + "=" + value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return out;
}

std::string Join(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& item : list) {
    out += (out.empty() ? "" : ",") + item;
  }
  return out;
}

class EnvironmentBuilder {
 public:
  EnvironmentBuilder(const PodPlan& plan, const ContainerPlan& container, const PodFacts& facts,
                     ObjectSource& objects)
      : plan_(plan), container_(container), facts_(facts), objects_(objects) {}

  void Set(const std::string& name, std::string value) {
    if (const auto it = values_.find(name); it == values_.end()) {
      order_.push_back(name);
    }
    values_[name] = std::move(value);
  }

  Result<void> AddFrom(const Json& source) {
    const std::string prefix(FindString(source, {"prefix"}));
    for (const bool secret : {false, true}) {
      const Json* ref = Find(source, {secret ? "secretRef" : "configMapRef"});
      if (ref == nullptr) {
        continue;
      }
      auto object = Fetch(secret, std::string(FindString(*ref, {"name"})));
      if (!object.ok()) {
        if (object.error().Is(Reason::kNotFound) && FindBool(*ref, {"optional"})) {
          continue;
        }
        return std::move(object).error();
      }
      if (const Json* data = Find(**object, {"data"}); data != nullptr && data->is_object()) {
        for (const auto& [key, value] : data->items()) {
          if (value.is_string() && key.find('=') == std::string::npos) {
            Set(prefix + key, secret ? DecodeBase64(value.get_ref<const std::string&>())
                                     : value.get<std::string>());
          }
        }
      }
    }
    return {};
  }

  Result<void> AddOne(const Json& item) {
    const std::string name(FindString(item, {"name"}));
    const Json* from = Find(item, {"valueFrom"});
    if (from == nullptr) {
      Set(name, ExpandVariables(FindString(item, {"value"}), values_));
      return {};
    }
    if (const Json* field = Find(*from, {"fieldRef"})) {
      SUBLET_TRY(std::string value, FieldValue(plan_, facts_, FindString(*field, {"fieldPath"})));
      Set(name, std::move(value));
    } else if (const Json* resource = Find(*from, {"resourceFieldRef"})) {
      SUBLET_TRY(std::string value, ResourceValue(plan_, facts_, container_.name, *resource));
      Set(name, std::move(value));
    } else if (const Json* config = Find(*from, {"configMapKeyRef"})) {
      return AddKey(name, *config, false);
    } else if (const Json* secret = Find(*from, {"secretKeyRef"})) {
      return AddKey(name, *secret, true);
    }
    return {};
  }

  Environment Take() {
    Environment out;
    for (const std::string& name : order_) {
      out.emplace_back(name, std::move(values_[name]));
    }
    return out;
  }

 private:
  Result<std::shared_ptr<const Json>> Fetch(bool secret, const std::string& name) {
    auto object = secret ? objects_.GetSecret(plan_.namespace_name, name)
                         : objects_.GetConfigMap(plan_.namespace_name, name);
    if (!object.ok() && object.error().Is(Reason::kNotFound)) {
      return Status(Reason::kNotFound,
                    std::string(secret ? "secret" : "configmap") + " \"" + name + "\" not found");
    }
    return object;
  }

  Result<void> AddKey(const std::string& name, const Json& ref, bool secret) {
    const std::string object_name(FindString(ref, {"name"}));
    const std::string key(FindString(ref, {"key"}));
    const bool optional = FindBool(ref, {"optional"});
    auto object = Fetch(secret, object_name);
    if (!object.ok()) {
      if (optional && object.error().Is(Reason::kNotFound)) {
        return {};
      }
      return std::move(object).error();
    }
    const Json* value = Find(**object, {"data", key});
    const bool binary = !secret && value == nullptr;
    if (binary) {
      value = Find(**object, {"binaryData", key});
    }
    if (value == nullptr || !value->is_string()) {
      if (optional) {
        return {};
      }
      return Status(Reason::kNotFound, "couldn't find key " + key + " in " +
                                           (secret ? "Secret " : "ConfigMap ") +
                                           plan_.namespace_name + "/" + object_name);
    }
    const std::string& text = value->get_ref<const std::string&>();
    Set(name, secret || binary ? DecodeBase64(text) : text);
    return {};
  }

  const PodPlan& plan_;
  const ContainerPlan& container_;
  const PodFacts& facts_;
  ObjectSource& objects_;
  std::vector<std::string> order_;
  std::map<std::string, std::string> values_;
};

}  // namespace

std::string ExpandVariables(std::string_view text,
                            const std::map<std::string, std::string>& values) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    if (text[i + 1] == '$') {
      out += '$';
      ++i;
      continue;
    }
    const auto end = text[i + 1] == '(' ? text.find(')', i) : std::string_view::npos;
    if (end == std::string_view::npos) {
      out += '$';
      continue;
    }
    const std::string name(text.substr(i + 2, end - i - 2));
    if (const auto it = values.find(name); it != values.end()) {
      out += it->second;
    } else {
      out += text.substr(i, end - i + 1);
    }
    i = end;
  }
  return out;
}

Result<std::string> FieldValue(const PodPlan& plan, const PodFacts& facts, std::string_view path) {
  const Json& pod = *plan.object;
  if (path == "metadata.name") {
    return plan.name;
  }
  if (path == "metadata.namespace") {
    return plan.namespace_name;
  }
  if (path == "metadata.uid") {
    return plan.uid;
  }
  if (path == "metadata.labels") {
    return FormatMap(kube::LabelsOf(pod));
  }
  if (path == "metadata.annotations") {
    return FormatMap(kube::AnnotationsOf(pod));
  }
  for (const std::string_view kind : {"labels", "annotations"}) {
    const std::string prefix = "metadata." + std::string(kind) + "['";
    if (path.substr(0, prefix.size()) == prefix && path.size() > prefix.size() + 2) {
      const std::string key(path.substr(prefix.size(), path.size() - prefix.size() - 2));
      return std::string(FindString(pod, {"metadata", kind, key}));
    }
  }
  if (path == "spec.nodeName") {
    return plan.node_name;
  }
  if (path == "spec.serviceAccountName") {
    return plan.service_account;
  }
  if (path == "status.hostIP") {
    return facts.host_ips.empty() ? std::string() : facts.host_ips[0];
  }
  if (path == "status.hostIPs") {
    return Join(facts.host_ips);
  }
  if (path == "status.podIP" || path == "status.podIPs") {
    return facts.pod_ip;
  }
  return BadRequest("unsupported fieldPath: " + std::string(path));
}

Result<std::string> ResourceValue(const PodPlan& plan, const PodFacts& facts,
                                  const std::string& default_container, const Json& ref) {
  std::string name(FindString(ref, {"containerName"}));
  if (name.empty()) {
    name = default_container;
  }
  const ContainerPlan* container = plan.Find(name);
  if (container == nullptr) {
    return BadRequest("container " + name + " not found");
  }
  const std::string resource(FindString(ref, {"resource"}));
  const auto dot = resource.find('.');
  const std::string kind = resource.substr(0, dot);
  const std::string amount_name = dot == std::string::npos ? "" : resource.substr(dot + 1);
  if ((kind != "limits" && kind != "requests") || amount_name.empty()) {
    return BadRequest("unsupported container resource : " + resource);
  }
  std::string_view text = FindString(*container->spec, {"resources", kind, amount_name});
  if (text.empty() && kind == "limits" && facts.allocatable != nullptr) {
    text = FindString(*facts.allocatable, {amount_name});
  }
  const kube::Quantity amount = kube::Quantity::ParseOrZero(text);
  kube::Quantity divisor = kube::Quantity::ParseOrZero(FindString(ref, {"divisor"}));
  if (divisor.IsZero()) {
    divisor = kube::Quantity::FromInt(1);
  }
  if (amount_name == "cpu") {
    const std::int64_t by = std::max<std::int64_t>(1, divisor.MilliValue());
    return std::to_string((amount.MilliValue() + by - 1) / by);
  }
  const std::int64_t by = std::max<std::int64_t>(1, divisor.Value());
  const std::int64_t value = amount.Value();
  return std::to_string(value / by + (value % by != 0 ? 1 : 0));
}

Result<Environment> MakeEnvironment(const PodPlan& plan, const ContainerPlan& container,
                                    const PodFacts& facts, const Environment& services,
                                    ObjectSource& objects) {
  EnvironmentBuilder builder(plan, container, facts, objects);
  for (const auto& [name, value] : services) {
    builder.Set(name, value);
  }
  if (const Json* list = Find(*container.spec, {"envFrom"}); list != nullptr && list->is_array()) {
    for (const Json& item : *list) {
      SUBLET_RETURN_IF_ERROR(builder.AddFrom(item));
    }
  }
  if (const Json* list = Find(*container.spec, {"env"}); list != nullptr && list->is_array()) {
    for (const Json& item : *list) {
      SUBLET_RETURN_IF_ERROR(builder.AddOne(item));
    }
  }
  return builder.Take();
}

std::string DecodeBase64(std::string_view text) {
  std::string out;
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) {
      if (c == '\n' || c == '\r') {
        continue;
      }
      break;
    }
    group = group << 6 | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out += static_cast<char>(group >> bits & 255);
    }
  }
  return out;
}

}  // namespace sublet::node
