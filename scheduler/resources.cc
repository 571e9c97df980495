#include "scheduler/resources.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace sublet::scheduler {

const std::string* FindLabel(const Labels& labels, const std::string& key) {
  auto it =
      std::lower_bound(labels.begin(), labels.end(), key,
                       [](const auto& entry, const std::string& k) { return entry.first < k; });
  return it != labels.end() && it->first == key ? &it->second : nullptr;
}

namespace {

bool ParseInteger(const std::string& text, std::int64_t* value) {
  if (text.empty()) {
    return false;
  }
  char* end = nullptr;
  *value = std::strtoll(text.c_str(), &end, 10);
  return end != nullptr && *end == '\0';
}

bool MatchesOne(const SelectorRequirement& requirement, const std::string* value) {
  const auto listed = [&] {
    return std::find(requirement.values.begin(), requirement.values.end(), *value) !=
           requirement.values.end();
  };
  switch (requirement.op) {
    case SelectorOperator::kIn: return value != nullptr && listed();
    case SelectorOperator::kNotIn: return value == nullptr || !listed();
    case SelectorOperator::kExists: return value != nullptr;
    case SelectorOperator::kDoesNotExist: return value == nullptr;
    case SelectorOperator::kGt:
    case SelectorOperator::kLt: {
      std::int64_t have = 0;
      std::int64_t want = 0;
      if (value == nullptr || requirement.values.size() != 1 || !ParseInteger(*value, &have) ||
          !ParseInteger(requirement.values[0], &want)) {
        return false;
      }
      return requirement.op == SelectorOperator::kGt ? have > want : have < want;
    }
  }
  return false;
}

}  // namespace

bool Matches(const Selector& selector, const Labels& labels) {
  return std::all_of(selector.begin(), selector.end(), [&](const SelectorRequirement& requirement) {
    return MatchesOne(requirement, FindLabel(labels, requirement.key));
  });
}

int NameTable::Intern(const std::string& name) {
  auto [it, added] = ids_.emplace(name, static_cast<int>(names_.size()));
  if (added) {
    names_.push_back(name);
  }
  return it->second;
}

bool ParseMigProfile(const std::string& name, std::int64_t* slices, std::int64_t* memory_gb) {
  static const std::string kPrefix = "nvidia.com/mig-";
  if (name.compare(0, kPrefix.size(), kPrefix) != 0) {
    return false;
  }
  const std::string rest = name.substr(kPrefix.size());
  const std::size_t dot = rest.find('.');
  if (dot == std::string::npos || dot < 2 || rest[dot - 1] != 'g' || rest.size() < dot + 4 ||
      rest.compare(rest.size() - 2, 2, "gb") != 0) {
    return false;
  }
  return ParseInteger(rest.substr(0, dot - 1), slices) &&
         ParseInteger(rest.substr(dot + 1, rest.size() - dot - 3), memory_gb);
}

std::int64_t GpuAmount(double portion, std::int64_t count) {
  return std::llround(portion * 100) * count * (kDevice / 100);
}

std::int64_t MemoryShare(std::int64_t memory, std::int64_t device) {
  if (device <= 0) {
    return 0;
  }
  const double exact = static_cast<double>(memory) / static_cast<double>(device);
  return static_cast<std::int64_t>(std::ceil(exact * 100)) * (kDevice / 100);
}

Shape MakeShape(const Request& request, const Constraints& constraints, NameTable& names) {
  Shape shape;
  shape.request = request;
  shape.constraints = constraints;
  for (const auto& [name, amount] : request.scalars) {
    shape.scalars.push_back({names.Intern(name), amount});
    std::int64_t slices = 0;
    std::int64_t memory_gb = 0;
    if (ParseMigProfile(name, &slices, &memory_gb)) {
      shape.mig_slices += slices * amount;
      shape.mig_memory += memory_gb * amount;
    }
  }
  shape.shared = request.gpu == GpuKind::kFraction || request.gpu == GpuKind::kMemory;
  if (request.gpu == GpuKind::kWhole) {
    shape.gpus = request.gpu_count * kDevice;
  } else if (request.gpu == GpuKind::kFraction) {
    shape.gpus = GpuAmount(request.portion, request.gpu_count);
  }
  shape.tracked = {request.cpu, request.memory, shape.shared ? 0 : shape.gpus, 1};
  shape.quota = {request.cpu, request.memory, shape.gpus + shape.mig_slices * kDevice};
  // KAI's threshold below which a request counts as nothing: 10 millicores, 10 MiB, 0.01 GPU.
  shape.best_effort = request.cpu < 10 && request.memory < 10 * 1024 * 1024 &&
                      shape.gpus <= kDevice / 100 && request.scalars.empty() &&
                      request.gpu != GpuKind::kMemory;
  shape.node_constraints = !constraints.node_selector.empty() || constraints.has_affinity ||
                           !constraints.volumes.empty();
  shape.pod_constraints = !constraints.affinity.empty() || !constraints.anti_affinity.empty() ||
                          !constraints.preferred_affinity.empty() ||
                          !constraints.preferred_anti_affinity.empty() ||
                          !constraints.spread.empty() || !constraints.ports.empty();
  return shape;
}

}  // namespace sublet::scheduler
