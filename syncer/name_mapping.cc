#include "syncer/name_mapping.h"

namespace sublet::syncer {
namespace {

// "mapping/KIND/NAMESPACE/NAME" → "HOSTNAME\nLAST SYNCED". Kubernetes names hold neither '/' nor a
// line break, so the parts cannot run into each other.
constexpr std::string_view kFactPrefix = "mapping/";

std::string FactKey(std::string_view kind, const kube::ObjectKey& key) {
  std::string text(kFactPrefix);
  return text.append(kind).append("/").append(key.namespace_name).append("/").append(key.name);
}

}  // namespace

Result<void> NameMapping::Load() {
  SUBLET_TRY(const auto facts, facts_.List(kFactPrefix));
  MutexLock lock(mutex_);
  for (const auto& [fact, value] : facts) {
    const std::string_view rest = std::string_view(fact).substr(kFactPrefix.size());
    const auto first = rest.find('/');
    const auto second = rest.find('/', first + 1);
    const auto line = value.find('\n');
    if (first == std::string_view::npos || second == std::string_view::npos ||
        line == std::string::npos) {
      return InternalError("the tenant's file holds a broken name mapping: " + fact);
    }
    const std::string kind(rest.substr(0, first));
    const kube::ObjectKey key{std::string(rest.substr(first + 1, second - first - 1)),
                              std::string(rest.substr(second + 1))};
    Entry entry{value.substr(0, line), value.substr(line + 1)};
    by_host_[{entry.host_name, kind}] = key;
    by_virtual_[{kind, key}] = std::move(entry);
  }
  return Ok();
}

Result<std::string> NameMapping::Claim(std::string_view kind, const kube::ObjectKey& key,
                                       std::string_view formula) {
  const Id id{std::string(kind), key};
  {
    MutexLock lock(mutex_);
    if (const auto found = by_virtual_.find(id); found != by_virtual_.end()) {
      return found->second.host_name;
    }
    const std::pair<std::string, std::string> host{std::string(formula), id.first};
    if (const auto taken = by_host_.find(host); taken != by_host_.end()) {
      return Status(Reason::kForbidden, "its name on the host would be the same as that of " +
                                            std::string(kind) + " " + taken->second.Text() +
                                            "; rename one of them");
    }
    by_host_[host] = key;
    by_virtual_[id] = {host.first, ""};
  }
  if (auto stored = facts_.Put({{FactKey(kind, key), std::string(formula) + "\n"}}); !stored.ok()) {
    MutexLock lock(mutex_);
    by_host_.erase({std::string(formula), id.first});
    by_virtual_.erase(id);
    return std::move(stored).error();
  }
  return std::string(formula);
}

std::optional<std::string> NameMapping::HostNameOf(std::string_view kind,
                                                   const kube::ObjectKey& key) const {
  MutexLock lock(mutex_);
  const auto found = by_virtual_.find({std::string(kind), key});
  return found == by_virtual_.end() ? std::nullopt : std::optional(found->second.host_name);
}

std::optional<kube::ObjectKey> NameMapping::VirtualOf(std::string_view kind,
                                                      std::string_view host_name) const {
  MutexLock lock(mutex_);
  const auto found = by_host_.find({std::string(host_name), std::string(kind)});
  return found == by_host_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<kube::ObjectKey> NameMapping::VirtualOfAny(std::string_view host_name) const {
  MutexLock lock(mutex_);
  const auto found = by_host_.lower_bound({std::string(host_name), ""});
  return found == by_host_.end() || found->first.first != host_name ? std::nullopt
                                                                    : std::optional(found->second);
}

Result<void> NameMapping::Forget(std::string_view kind, const kube::ObjectKey& key) {
  {
    MutexLock lock(mutex_);
    const auto found = by_virtual_.find({std::string(kind), key});
    if (found == by_virtual_.end()) {
      return Ok();
    }
    by_host_.erase({found->second.host_name, std::string(kind)});
    by_virtual_.erase(found);
  }
  return facts_.Put({{FactKey(kind, key), std::nullopt}});
}

std::string NameMapping::LastSynced(std::string_view kind, const kube::ObjectKey& key) const {
  MutexLock lock(mutex_);
  const auto found = by_virtual_.find({std::string(kind), key});
  return found == by_virtual_.end() ? "" : found->second.last_synced;
}

Result<void> NameMapping::NoteSynced(std::string_view kind, const kube::ObjectKey& key,
                                     std::string fields) {
  std::string value;
  {
    MutexLock lock(mutex_);
    const auto found = by_virtual_.find({std::string(kind), key});
    if (found == by_virtual_.end() || found->second.last_synced == fields) {
      return Ok();
    }
    found->second.last_synced = std::move(fields);
    value = found->second.host_name + "\n" + found->second.last_synced;
  }
  return facts_.Put({{FactKey(kind, key), std::move(value)}});
}

std::size_t NameMapping::size() const {
  MutexLock lock(mutex_);
  return by_virtual_.size();
}

}  // namespace sublet::syncer
