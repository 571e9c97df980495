// What was allocated to a resource claim and what its devices say, and the parts that claims, classes
// and slices share.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/go_shown.h"
#include "kube/kinds/validate_devices.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/kinds/validate_status.h"
#include "kube/object.h"

namespace sublet::kube::validate {
namespace {

constexpr std::size_t kConsumersMax = 256;
constexpr std::size_t kConditionsMax = 8;
constexpr std::size_t kDataMax = 10 * 1024;
constexpr std::size_t kInterfaceMax = 256;
constexpr std::size_t kHardwareMax = 128;
constexpr std::size_t kIpsMax = 16;

void Identifier(const Path& path, const std::string& name, FieldErrors* errors) {
  constexpr std::size_t kMax = 32;
  if (name.size() > kMax) {
    errors->TooLong(path, static_cast<int>(kMax));
  }
  Check(path, name, &IsCIdentifier, errors);
}

std::string DeviceId(const Json& device) {
  return Str(device, "driver") + "\n" + Str(device, "pool") + "\n" + Str(device, "device") + "\n" +
         Str(device, "shareID");
}

std::string ShownDevice(const Json& device) {
  return "{\"Driver\":" + GoQuote(Str(device, "driver")) +
         ",\"Pool\":" + GoQuote(Str(device, "pool")) +
         ",\"Device\":" + GoQuote(Str(device, "device")) +
         ",\"ShareID\":" + GoQuote(Str(device, "shareID")) + "}";
}

// An address with the length of its network, as Go writes it.
void InterfaceAddress(const Path& path, const std::string& text, FieldErrors* errors) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos || !IsIpAddress(text.substr(0, slash)).empty() ||
      text.substr(slash + 1).find_first_not_of("0123456789") != std::string::npos ||
      slash + 1 == text.size() ||
      std::stoi(text.substr(slash + 1, 3)) > (text.find(':') == std::string::npos ? 32 : 128)) {
    errors->Invalid(path, text,
                    "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)");
  }
}

void DeviceNames(const Path& at, const Json& device, FieldErrors* errors) {
  CsiDriverName(at.Child("driver"), Str(device, "driver"), errors);
  PoolName(at.Child("pool"), Str(device, "pool"), errors);
  Check(at.Child("device"), Str(device, "device"), &IsDns1123Label, errors);
}

void NetworkData(const Path& path, const Json& data, FieldErrors* errors) {
  if (Str(data, "interfaceName").size() > kInterfaceMax) {
    errors->TooLong(path.Child("interfaceName"), static_cast<int>(kInterfaceMax));
  }
  if (Str(data, "hardwareAddress").size() > kHardwareMax) {
    errors->TooLong(path.Child("hardwareAddress"), static_cast<int>(kHardwareMax));
  }
  Each(path, data, "ips", kIpsMax, errors, [&](const Path& at, const Json& ip) {
    InterfaceAddress(at, ip.get<std::string>(), errors);
  });
  Repeated(path, data, "ips", errors);
}

void DeviceStatuses(const Json& status, FieldErrors* errors) {
  const Path path = kStatus.Child("devices");
  std::set<std::string> allocated;
  for (const Json& result : Items(Get(Get(status, "allocation"), "devices"), "results")) {
    allocated.insert(DeviceId(result));
  }
  std::set<std::string> seen;
  std::size_t index = 0;
  for (const Json& device : Items(status, "devices")) {
    const Path at = path.Index(index++);
    DeviceNames(at, device, errors);
    if (!allocated.contains(DeviceId(device))) {
      errors->InvalidShown(at, ShownDevice(device), "must be an allocated device in the claim");
    }
    if (const std::size_t count = Items(device, "conditions").size(); count > kConditionsMax) {
      errors->TooMany(at.Child("conditions"), static_cast<std::int64_t>(count),
                      static_cast<std::int64_t>(kConditionsMax));
    }
    Conditions(at.Child("conditions"), device, errors);
    if (const Json& data = Get(device, "data"); !data.is_null()) {
      if (Dump(data).size() > kDataMax) {
        errors->TooLong(at.Child("data"), static_cast<int>(kDataMax));
      } else if (!data.is_object()) {
        errors->Invalid(at.Child("data"), "<value omitted>", "must be a valid JSON object");
      }
    }
    NetworkData(at.Child("networkData"), Get(device, "networkData"), errors);
    if (!seen.insert(DeviceId(device)).second) {
      errors->DuplicateShown(at, ShownDevice(device));
    }
  }
}

void Consumers(const Json& object, const Json& old, FieldErrors* errors) {
  const Json& status = Get(object, "status");
  Each(kStatus, status, "reservedFor", kConsumersMax, errors, [&](const Path& at, const Json& one) {
    for (const char* field : {"resource", "name", "uid"}) {
      if (Str(one, field).empty()) {
        errors->Required(at.Child(field));
      }
    }
  });
  const Path path = kStatus.Child("reservedFor");
  std::set<std::string> seen;
  std::size_t index = 0;
  for (const Json& one : Items(status, "reservedFor")) {
    if (const std::string uid = Str(one, "uid"); !seen.insert(uid).second) {
      errors->Duplicate(path.Index(index), uid);
    }
    ++index;
  }
  DeviceStatuses(status, errors);
  const auto& now = Items(status, "reservedFor");
  const auto& before = Items(Get(old, "status"), "reservedFor");
  const bool added = std::any_of(now.begin(), now.end(), [&](const Json& one) {
    return std::find(before.begin(), before.end(), one) == before.end();
  });
  if (!now.empty() && !Has(status, "allocation")) {
    errors->Forbidden(path, "may not be specified when `allocated` is not set");
  } else if (added && IsDeleting(object)) {
    errors->Forbidden(path,
                      "new entries may not be added while `deallocationRequested` or "
                      "`deletionTimestamp` are set");
  }
}

void Allocation(const Path& path, const Json& object, FieldErrors* errors) {
  const Json& allocation = Get(Get(object, "status"), "allocation");
  const std::set<std::string> names = RequestNames(Get(Get(object, "spec"), "devices"));
  const Path devices = path.Child("devices");
  Each(devices, Get(allocation, "devices"), "results", kListMax, errors,
       [&](const Path& at, const Json& result) {
         RequestReference(at.Child("request"), Str(result, "request"), names, errors);
         DeviceNames(at, result, errors);
       });
  Each(devices, Get(allocation, "devices"), "config", 2 * kListMax, errors,
       [&](const Path& at, const Json& config) {
         OneOf(at.Child("source"), Str(config, "source"), {"FromClaim", "FromClass"}, true, errors);
         RequestReferences(at, config, names, errors);
         Config(at, config, errors);
       });
  if (const Json& selector = Get(allocation, "nodeSelector"); selector.is_object()) {
    NodeSelector(path.Child("nodeSelector"), selector, errors);
  }
}

}  // namespace

void Each(const Path& path, const Json& owner, const char* key, std::size_t max,
          FieldErrors* errors, const ItemRule& rule) {
  const auto& items = Items(owner, key);
  const Path list = path.Child(key);
  if (items.size() > max) {
    errors->TooMany(list, static_cast<std::int64_t>(items.size()), static_cast<std::int64_t>(max));
    return;
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    rule(list.Index(i), items[i]);
  }
}

void Repeated(const Path& path, const Json& owner, const char* key, FieldErrors* errors) {
  const Path list = path.Child(key);
  std::set<std::string> seen;
  std::size_t index = 0;
  for (const Json& item : Items(owner, key)) {
    const std::string name = item.is_string() ? item.get<std::string>() : Str(item, "name");
    if (!seen.insert(name).second) {
      errors->Duplicate(list.Index(index), name);
    }
    ++index;
  }
}

void QualifiedName(const Path& path, const std::string& name, FieldErrors* errors) {
  const auto slashes = std::count(name.begin(), name.end(), '/');
  if (slashes == 0) {
    Identifier(path, name, errors);
    return;
  }
  if (slashes > 1) {
    return;
  }
  const std::size_t slash = name.find('/');
  if (slash == 0) {
    errors->Invalid(path, "", "the domain must not be empty");
  } else {
    CsiDriverName(path, name.substr(0, slash), errors);
  }
  if (slash + 1 == name.size()) {
    errors->Invalid(path, "", "the name must not be empty");
  } else {
    Identifier(path, name.substr(slash + 1), errors);
  }
}

void PoolName(const Path& path, const std::string& name, FieldErrors* errors) {
  constexpr std::size_t kMax = 253;
  if (name.empty()) {
    return errors->Required(path);
  }
  if (name.size() > kMax) {
    errors->TooLong(path, static_cast<int>(kMax));
  }
  for (std::size_t start = 0; start <= name.size();) {
    const std::size_t end = std::min(name.find('/', start), name.size());
    Check(path, name.substr(start, end - start), &IsDns1123Subdomain, errors);
    start = end + 1;
  }
}

void Config(const Path& at, const Json& config, FieldErrors* errors) {
  const Path opaque = at.Child("opaque");
  const Json& inside = Get(config, "opaque");
  if (!inside.is_object()) {
    errors->Required(opaque);
    return;
  }
  CsiDriverName(opaque.Child("driver"), Str(inside, "driver"), errors);
  const Path parameters = opaque.Child("parameters");
  if (!Has(inside, "parameters")) {
    errors->Required(parameters);
  } else if (!Get(inside, "parameters").is_object()) {
    errors->Invalid(parameters, "<value omitted>", "parameters must be a valid JSON object");
  }
}

std::set<std::string> RequestNames(const Json& devices) {
  std::set<std::string> names;
  for (const Json& request : Items(devices, "requests")) {
    names.insert(Str(request, "name"));
    for (const Json& one : Items(request, "firstAvailable")) {
      names.insert(Str(request, "name") + "/" + Str(one, "name"));
    }
  }
  return names;
}

void RequestReference(const Path& path, const std::string& name, const std::set<std::string>& names,
                      FieldErrors* errors) {
  constexpr std::string_view kUnknown =
      "must be the name of a request in the claim or the name of a request and a subrequest "
      "separated by '/'";
  if (std::count(name.begin(), name.end(), '/') > 1) {
    return errors->Invalid(path, name, kUnknown);
  }
  const std::size_t slash = name.find('/');
  Check(path, name.substr(0, slash), &IsDns1123Label, errors);
  if (slash != std::string::npos) {
    Check(path, name.substr(slash + 1), &IsDns1123Label, errors);
  }
  if (!names.contains(name)) {
    errors->Invalid(path, name, kUnknown);
  }
}

void RequestReferences(const Path& at, const Json& owner, const std::set<std::string>& names,
                       FieldErrors* errors) {
  Each(at, owner, "requests", kListMax, errors, [&](const Path& path, const Json& one) {
    RequestReference(path, one.get<std::string>(), names, errors);
  });
  Repeated(at, owner, "requests", errors);
}

void ResourceClaimStatus(const Json& object, const Json& old, FieldErrors* errors) {
  Consumers(object, old, errors);
  const Path path = kStatus.Child("allocation");
  const Json& now = Get(Get(object, "status"), "allocation");
  const Json& before = Get(Get(old, "status"), "allocation");
  if (now.is_object() && before.is_object()) {
    if (now != before) {
      errors->InvalidShown(path, ShownAsGo("AllocationResult", now), kImmutable);
    }
  } else if (now.is_object()) {
    Allocation(path, object, errors);
  }
}

}  // namespace sublet::kube::validate
