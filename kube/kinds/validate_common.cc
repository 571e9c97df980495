#include "kube/kinds/validate_common.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/int_or_string.h"
#include "kube/kinds/go_shown.h"
#include "kube/quantity.h"

namespace sublet::kube::validate {

const Json& Get(const Json& object, std::string_view key) {
  static const Json kNull;
  const Json* value = Find(object, {key});
  return value == nullptr ? kNull : *value;
}

std::string Str(const Json& object, std::string_view key) {
  return std::string(FindString(object, {key}));
}

bool Has(const Json& object, std::string_view key) { return !Get(object, key).is_null(); }

const Json::array_t& Items(const Json& object, std::string_view key) {
  static const Json::array_t kEmpty;
  const Json& list = Get(object, key);
  return list.is_array() ? list.get_ref<const Json::array_t&>() : kEmpty;
}

void Check(const Path& path, const std::string& value, Problems (*rule)(std::string_view),
           FieldErrors* errors) {
  for (const std::string& problem : rule(value)) {
    errors->Invalid(path, value, problem);
  }
}

void CheckRequired(const Path& path, const std::string& value, Problems (*rule)(std::string_view),
                   FieldErrors* errors) {
  if (value.empty()) {
    errors->Required(path);
  } else {
    Check(path, value, rule, errors);
  }
}

void NotNegative(const Path& path, const Json& value, FieldErrors* errors) {
  if (value.is_number_integer() && value.get<std::int64_t>() < 0) {
    errors->Invalid(path, value, kNotNegative);
  }
}

void NotNegative(const Json& object, std::string_view key, const Path& parent,
                 FieldErrors* errors) {
  NotNegative(parent.Child(key), Get(object, key), errors);
}

void OneOf(const Path& path, const std::string& value,
           std::initializer_list<std::string_view> allowed, bool required, FieldErrors* errors) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) {
    return;
  }
  if (value.empty()) {
    if (required) {
      errors->Required(path);
    }
    return;
  }
  errors->NotSupported(path, value, std::vector<std::string_view>(allowed));
}

void CsiDriverName(const Path& path, const std::string& name, FieldErrors* errors) {
  constexpr std::size_t kMax = 63;
  if (name.empty()) {
    return errors->Required(path);
  }
  if (name.size() > kMax) {
    errors->TooLong(path, static_cast<int>(kMax));
  }
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  for (const std::string& problem : IsDns1123Subdomain(lower)) {
    errors->Invalid(path, name, problem);
  }
}

void Choice(const Path& parent, const Json& object, std::string_view key,
            std::initializer_list<std::string_view> allowed, FieldErrors* errors) {
  const std::string value = Str(object, key);
  if (Has(object, key) && std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
    errors->NotSupported(parent.Child(key), value, std::vector<std::string_view>(allowed));
  }
}

std::string ShownSelector(const Json& selector) { return ShownAsGo("*LabelSelector", selector); }

bool SameMember(const Json& object, const Json& old, std::string_view key) {
  return Get(object, key) == Get(old, key);
}

void Immutable(const Json& object, const Json& old, std::string_view key, const Path& parent,
               FieldErrors* errors) {
  if (!SameMember(object, old, key)) {
    errors->Invalid(parent.Child(key), Get(object, key), kImmutable);
  }
}

void Labels(const Path& path, const Json& labels, FieldErrors* errors) {
  if (!labels.is_object()) {
    return;
  }
  for (const auto& [key, value] : labels.items()) {
    Check(path, key, &IsQualifiedName, errors);
    if (value.is_string()) {
      Check(path, value.get<std::string>(), &IsLabelValue, errors);
    }
  }
}

void Annotations(const Path& path, const Json& annotations, FieldErrors* errors) {
  if (!annotations.is_object()) {
    return;
  }
  for (const auto& [key, value] : annotations.items()) {
    std::string lower = key;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    for (const std::string& problem : IsQualifiedName(lower)) {
      errors->Invalid(path, key, problem);
    }
  }
}

void TemplateMetadata(const Path& path, const Json& metadata, FieldErrors* errors) {
  Annotations(path.Child("annotations"), Get(metadata, "annotations"), errors);
  Labels(path.Child("labels"), Get(metadata, "labels"), errors);
  for (const char* field :
       {"name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation",
        "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences",
        "finalizers", "managedFields"}) {
    if (Has(metadata, field)) {
      errors->Forbidden(path.Child(field), "cannot be set");
    }
  }
}

bool IsEmptySelector(const Json& selector) {
  return Get(selector, "matchLabels").size() + Items(selector, "matchExpressions").size() == 0;
}

void LabelSelector(const Path& path, const Json& selector, FieldErrors* errors) {
  if (!selector.is_object()) {
    return;
  }
  const Path match_labels = path.Child("matchLabels");
  Labels(match_labels, Get(selector, "matchLabels"), errors);
  const Path expressions = path.Child("matchExpressions");
  std::size_t index = 0;
  for (const Json& expression : Items(selector, "matchExpressions")) {
    const Path at = expressions.Index(index++);
    const std::string op = Str(expression, "operator");
    const auto& values = Items(expression, "values");
    if (op == "In" || op == "NotIn") {
      if (values.empty()) {
        errors->Required(at.Child("values"),
                         "must be specified when `operator` is 'In' or 'NotIn'");
      }
    } else if (op == "Exists" || op == "DoesNotExist") {
      if (!values.empty()) {
        errors->Forbidden(at.Child("values"),
                          "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
      }
    } else {
      errors->Invalid(at.Child("operator"), op, "not a valid selector operator");
    }
    Check(at.Child("key"), Str(expression, "key"), &IsQualifiedName, errors);
    const Path values_path = at.Child("values");
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i].is_string()) {
        Check(values_path.Index(i), values[i].get<std::string>(), &IsLabelValue, errors);
      }
    }
  }
}

bool IsExtendedResource(std::string_view name) {
  const bool native = name.find('/') == std::string_view::npos ||
                      name.find("kubernetes.io/") != std::string_view::npos;
  return !native && !name.starts_with("requests.") &&
         IsQualifiedName("requests." + std::string(name)).empty();
}

namespace {

constexpr std::string_view kCounted[] = {"pods",
                                         "resourcequotas",
                                         "services",
                                         "replicationcontrollers",
                                         "secrets",
                                         "configmaps",
                                         "persistentvolumeclaims",
                                         "services.nodeports",
                                         "services.loadbalancers"};
constexpr std::string_view kComputed[] = {"cpu",
                                          "memory",
                                          "ephemeral-storage",
                                          "requests.cpu",
                                          "requests.memory",
                                          "requests.ephemeral-storage",
                                          "requests.storage",
                                          "limits.cpu",
                                          "limits.memory",
                                          "limits.ephemeral-storage"};

template <std::size_t N>
bool IsIn(const std::string_view (&list)[N], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

bool IsHugePages(std::string_view name) { return name.starts_with("hugepages-"); }
bool IsQuotaHugePages(std::string_view name) {
  return IsHugePages(name) || name.starts_with("requests.hugepages-");
}

bool MayOvercommit(std::string_view name) {
  const bool native = name.find('/') == std::string_view::npos ||
                      name.find("kubernetes.io/") != std::string_view::npos;
  return native && !IsHugePages(name);
}

}  // namespace

bool IsStandardResource(std::string_view name) {
  return IsIn(kCounted, name) || IsIn(kComputed, name) || name == "storage" ||
         IsQuotaHugePages(name);
}

bool IsStandardQuotaResource(std::string_view name) {
  return IsIn(kCounted, name) || IsIn(kComputed, name) || IsQuotaHugePages(name);
}

void ContainerResourceName(const Path& path, const std::string& name, FieldErrors* errors) {
  const std::size_t before = errors->size();
  Check(path, name, &IsQualifiedName, errors);
  const bool plain = name.find('/') == std::string::npos;
  if (errors->size() == before && plain && !IsStandardResource(name)) {
    errors->Invalid(path, name, "must be a standard resource type or fully qualified");
  }
  if (plain) {
    if (name != "cpu" && name != "memory" && name != "ephemeral-storage" && !IsHugePages(name)) {
      errors->Invalid(path, name, "must be a standard resource for containers");
    }
  } else if (name.find("kubernetes.io/") == std::string::npos && !IsExtendedResource(name)) {
    errors->Invalid(path, name, "doesn't follow extended resource name standard");
  }
}

void QuantityValue(const Path& path, const std::string& name, const std::string& value,
                   FieldErrors* errors) {
  const Quantity quantity = Quantity::ParseOrZero(value);
  if (quantity.Sign() < 0) {
    errors->Invalid(path, value, kNotNegative);
  }
  if ((IsIn(kCounted, name) || IsExtendedResource(name)) && quantity.MilliValue() % 1000 != 0) {
    errors->Invalid(path, value, "must be an integer");
  }
}

namespace {

// A request and its limit; `path` names the resources.
void WithinLimit(const Path& path, const Json& limits, const std::string& name,
                 const std::string& text, FieldErrors* errors) {
  const std::string limit = Str(limits, name);
  const Path requests = path.Child("requests");
  if (limit.empty()) {
    if (!MayOvercommit(name)) {
      errors->Required(path.Child("limits"), "Limit must be set for non overcommitable resources");
    }
    return;
  }
  const auto order = Quantity::ParseOrZero(text) <=> Quantity::ParseOrZero(limit);
  if (order != std::strong_ordering::equal && !MayOvercommit(name)) {
    errors->Invalid(requests, text, "must be equal to " + name + " limit of " + limit);
  } else if (order == std::strong_ordering::greater) {
    errors->Invalid(requests, text, "must be less than or equal to " + name + " limit of " + limit);
  }
}

void WholePages(const Path& path, const std::string& name, const std::string& text,
                FieldErrors* errors) {
  if (!IsHugePages(name)) {
    return;
  }
  const auto page = Quantity::Parse(name.substr(std::string_view("hugepages-").size()));
  const bool usable = page.ok() && page->Sign() > 0 && page->MilliValue() % 1000 == 0;
  if (!usable || Quantity::ParseOrZero(text).Value() % page->Value() != 0) {
    errors->Invalid(path, text, text + " is not positive integer multiple of " + name);
  }
}

}  // namespace

void Resources(const Path& path, const Json& resources, FieldErrors* errors,
               void (*rule)(const Path&, const std::string&, FieldErrors*)) {
  const Json& limits = Get(resources, "limits");
  const Json& requests = Get(resources, "requests");
  const Path limits_path = path.Child("limits");
  const Path requests_path = path.Child("requests");
  bool huge = false;
  bool compute = false;
  for (const bool is_limit : {true, false}) {
    const Json& list = is_limit ? limits : requests;
    if (!list.is_object()) {
      continue;
    }
    for (const auto& [name, value] : list.items()) {
      const Path at = (is_limit ? limits_path : requests_path).Key(name);
      const std::string text = value.is_string() ? value.get<std::string>() : "";
      rule(at, name, errors);
      QuantityValue(at, name, text, errors);
      huge |= IsHugePages(name);
      compute |= name == "cpu" || name == "memory";
      if (!is_limit) {
        WithinLimit(path, limits, name, text, errors);
      }
      WholePages(at, name, text, errors);
    }
  }
  if (huge && !compute) {
    errors->Forbidden(path, "HugePages require cpu or memory");
  }
}

void PortNumberOrName(const Path& path, const Json& port, FieldErrors* errors) {
  if (port.is_string()) {
    Check(path, port.get<std::string>(), &IsPortName, errors);
  } else {
    const std::int64_t number = port.is_number_integer() ? port.get<std::int64_t>() : 0;
    errors->InvalidEach(path, number, IsPortNumber(number));
  }
}

void NoBacksteps(const Path& path, const std::string& value, FieldErrors* errors) {
  for (std::size_t start = 0; start <= value.size();) {
    const std::size_t end = std::min(value.find('/', start), value.size());
    if (value.compare(start, end - start, "..") == 0) {
      errors->Invalid(path, value, "must not contain '..'");
      return;
    }
    start = end + 1;
  }
}

void DescendingPath(const Path& path, const std::string& value, FieldErrors* errors) {
  if (value.starts_with('/')) {
    errors->Invalid(path, value, "must be a relative path");
  }
  NoBacksteps(path, value, errors);
}

void LocalPath(const Path& path, const std::string& value, FieldErrors* errors) {
  DescendingPath(path, value, errors);
  if (value.starts_with("..") && !value.starts_with("../")) {
    errors->Invalid(path, value, "must not start with '..'");
  }
}

void Ip(const Path& path, const std::string& value, FieldErrors* errors) {
  Check(path, value, &IsIpAddress, errors);
}
void Cidr(const Path& path, const std::string& value, FieldErrors* errors) {
  Check(path, value, &IsCidr, errors);
}

void RestartAlways(const Json& spec, std::string_view set, FieldErrors* errors) {
  const Json& pod = Get(Get(spec, "template"), "spec");
  const Path spec_path("spec");
  const Path template_path = spec_path.Child("template");
  const Path pod_path = template_path.Child("spec");
  const std::string policy = Str(pod, "restartPolicy");
  if (policy != "Always") {
    errors->NotSupported(pod_path.Child("restartPolicy"), policy, {"Always"});
  }
  if (Has(pod, "activeDeadlineSeconds")) {
    errors->Forbidden(pod_path.Child("activeDeadlineSeconds"),
                      "activeDeadlineSeconds in " + std::string(set) + " is not Supported");
  }
}

void NumberOrPercent(const Path& path, const Json& value, FieldErrors* errors) {
  if (value.is_string()) {
    Check(path, value.get<std::string>(), &IsPercent, errors);
  } else {
    NotNegative(path, value, errors);
  }
}

void AtMostAll(const Path& path, const Json& value, FieldErrors* errors) {
  const auto share = IntOrString::FromJson(&value);
  if (share && share->is_string) {
    const auto scaled = share->Scaled(100, true);
    if (scaled.ok() && *scaled > 100) {
      errors->Invalid(path, value, "must not be greater than 100%");
    }
  }
}

std::int64_t ScaledOf100(const Json& value) {
  const auto share = IntOrString::FromJson(&value);
  if (!share) {
    return 0;
  }
  const auto scaled = share->Scaled(100, true);
  if (!scaled.ok() && value.is_string()) {
    return std::atoi(value.get_ref<const std::string&>().c_str());  // as Go reads what is no share
  }
  return scaled.ok() ? *scaled : 0;
}

}  // namespace sublet::kube::validate
