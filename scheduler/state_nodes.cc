// Nodes in the state: how they come, change and go (scheduler/state.h).
#include <algorithm>
#include <cstdlib>

#include "scheduler/slots.h"
#include "scheduler/state.h"

namespace sublet::scheduler {

namespace {

std::string LabelOr(const Labels& labels, const char* key) {
  const std::string* value = FindLabel(labels, key);
  return value == nullptr ? std::string() : *value;
}

}  // namespace

void State::ReadNodeLabels(Node& node) {
  const NodeSpec& spec = node.spec;
  node.gpu_count = -1;
  if (const std::string count = LabelOr(spec.labels, "nvidia.com/gpu.count"); !count.empty()) {
    node.gpu_count = std::atoll(count.c_str());
  }
  node.gpu_memory = 100;
  node.gpu_memory_synced = false;
  if (const std::string text = LabelOr(spec.labels, "nvidia.com/gpu.memory"); !text.empty()) {
    std::int64_t memory = std::atoll(text.c_str());
    if (memory >= 1024 * 1024) {  // some versions of GPU feature discovery write bytes
      memory /= 1024 * 1024;
    }
    if (memory > 0) {
      node.gpu_memory = memory - memory % 100;
      node.gpu_memory_synced = true;
    }
  }
  node.mig = false;
  const std::string worker = LabelOr(spec.labels, "node-role.kubernetes.io/mig-enabled");
  if (FindLabel(spec.labels, "node-role.kubernetes.io/mig-enabled") != nullptr) {
    node.mig = worker == "true" || worker == "1" || worker == "t" || worker == "T" ||
               worker == "True" || worker == "TRUE";
  } else {
    for (const auto& [name, amount] : spec.scalars) {
      node.mig = node.mig || name.compare(0, 15, "nvidia.com/mig-") == 0;
    }
  }
  const std::string strategy = LabelOr(spec.labels, "nvidia.com/mig.strategy");
  node.mig_single = node.mig && strategy == "single";
  node.mig_mixed = node.mig && strategy == "mixed";
}

void State::FillNode(NodeId id, const NodeSpec& spec) {
  Node& node = nodes[static_cast<std::size_t>(id)];
  NodeHot& h = hot[static_cast<std::size_t>(id)];
  node.spec = spec;
  ReadNodeLabels(node);
  const bool present = h.present;
  const int rank = h.rank;
  h = NodeHot{};
  h.present = true;
  h.rank = rank;
  h.usable = spec.ready && !spec.unschedulable;
  h.cpu = spec.cpu;
  h.gpu = spec.gpus * kDevice;
  h.cpu_only = !node.mig && spec.gpus <= 0 && spec.dra_gpus <= 0;
  h.idle = {spec.cpu, spec.memory, spec.gpus * kDevice, spec.pods};
  node.scalars.clear();
  for (const auto& [name, amount] : spec.scalars) {
    node.scalars.push_back({names.Intern(name), amount, amount, 0});
  }
  node.groups.clear();
  // What others (another tenant, a pod that is not ours) hold of a device is a share nobody here
  // can move.
  for (const GpuDevice& device : spec.devices) {
    const std::int64_t others =
        device.healthy ? device.memory_bytes - device.free_bytes : device.memory_bytes;
    if (others <= 0) {
      continue;
    }
    constexpr std::int64_t kMiB = INT64_C(1) << 20;
    GpuGroup group{group_names.Intern(device.uuid)};
    group.active =
        device.healthy ? std::min((others + kMiB - 1) / kMiB, node.gpu_memory) : node.gpu_memory;
    group.users = 1;
    node.groups.push_back(group);
    h.idle[kGpu] -= kDevice;
    h.has_groups = true;
  }
  std::sort(node.groups.begin(), node.groups.end(), [this](const GpuGroup& a, const GpuGroup& b) {
    return group_names.Name(a.name) < group_names.Name(b.name);
  });
  // Placements are accounted again against the new amounts; a group's share may have changed with
  // them.
  std::vector<std::pair<TaskId, std::size_t>> done;
  for (TaskId occupant : node.tasks) {
    Task& t = task(occupant);
    for (std::size_t i = 0; i < t.placements.size(); ++i) {
      if (t.placements[i].node == id &&
          std::find(done.begin(), done.end(), std::pair{occupant, i}) == done.end()) {
        done.emplace_back(occupant, i);
        Account(id, t.placements[i], t, 1);
        break;
      }
    }
    if (present && t.node == id && CountsForQuota(t.status)) {
      ChargeQueues(occupant, -1);
      t.accepted = AcceptedOn(t, node);
      ChargeQueues(occupant, 1);
      MarkDirty(occupant);
    }
  }
  CountNode(id);
}

void State::CountNode(NodeId id) {
  Node& node = nodes[static_cast<std::size_t>(id)];
  Quota now{};
  if (hot[static_cast<std::size_t>(id)].present && hot[static_cast<std::size_t>(id)].usable) {
    now = {node.spec.cpu, node.spec.memory, node.spec.gpus * kDevice};
    for (const auto& [name, amount] : node.spec.scalars) {
      std::int64_t parts = 0;
      std::int64_t memory_gb = 0;
      if (ParseMigProfile(name, &parts, &memory_gb)) {
        now[kGpu] += parts * amount * kDevice;
      }
    }
    for (TaskId occupant : node.tasks) {
      const Task& t = task(occupant);
      if (t.foreign && ActiveUsed(t.status)) {
        Add(now, t.accepted, -1);
      }
    }
  }
  if (now != node.counted) {
    Add(total, node.counted, -1);
    Add(total, now, 1);
    node.counted = now;
    shares_dirty_ = true;
  }
}

void State::UpsertNode(const NodeSpec& spec) {
  ++capacity_generation;
  ++node_generation;
  auto it = node_index_.find(spec.name);
  if (it != node_index_.end()) {
    FillNode(it->second, spec);
    return;
  }
  const int id = TakeSlot(free_nodes_, nodes);
  hot.resize(nodes.size());
  nodes[static_cast<std::size_t>(id)] = Node{};
  node_index_[spec.name] = id;
  by_name_dirty_ = true;
  FillNode(id, spec);
  auto waiting = waiting_node_.find(spec.name);
  if (waiting != waiting_node_.end()) {
    const std::set<TaskId> arrived = std::move(waiting->second);
    waiting_node_.erase(waiting);
    for (TaskId occupant : arrived) {
      Task& t = task(occupant);
      ChargeQueues(occupant, CountsForQuota(t.status) ? -1 : 0);
      t.node = id;
      Place(occupant, id, t.status, t.groups);
      ChargeQueues(occupant, CountsForQuota(t.status) ? 1 : 0);
      MarkDirty(occupant);
    }
    CountNode(id);
  }
}

void State::DeleteNode(const std::string& name) {
  auto it = node_index_.find(name);
  if (it == node_index_.end()) {
    return;
  }
  const NodeId id = it->second;
  ++capacity_generation;
  ++node_generation;
  const std::vector<TaskId> occupants = nodes[static_cast<std::size_t>(id)].tasks;
  for (TaskId occupant : occupants) {
    Task& t = task(occupant);
    for (std::size_t i = t.placements.size(); i-- > 0;) {
      if (t.placements[i].node == id) {
        Unplace(occupant, i);
      }
    }
    if (t.node == id) {
      t.node = kNone;
      if (t.real) {
        waiting_node_[name].insert(occupant);
      } else {
        if (CountsForQuota(t.status)) {
          t.node = id;
          ChargeQueues(occupant, -1);
          t.node = kNone;
        }
        t.groups.clear();
        SetStatus(occupant, Status::kPending);
      }
    }
  }
  hot[static_cast<std::size_t>(id)].present = false;
  CountNode(id);
  nodes[static_cast<std::size_t>(id)] = Node{};
  hot[static_cast<std::size_t>(id)] = NodeHot{};
  node_index_.erase(it);
  free_nodes_.push_back(id);
  by_name_dirty_ = true;
}

}  // namespace sublet::scheduler
