#include "scheduler/device_search.h"

#include <algorithm>
#include <optional>

#include "scheduler/device_selector.h"
#include "scheduler/filters.h"

namespace sublet::scheduler {

namespace {

// What a shared device gives to a request for `asked`; nullopt when it has no such amount.
std::optional<std::int64_t> RoundedPart(const DevicePart& part, std::optional<std::int64_t> asked) {
  if (!asked.has_value()) {
    return part.ruled && part.fallback.has_value() ? *part.fallback : part.value;
  }
  std::int64_t want = *asked;
  if (!part.values.empty()) {
    const auto it = std::lower_bound(part.values.begin(), part.values.end(), want);
    if (it == part.values.end()) {
      return std::nullopt;
    }
    want = *it;
  } else if (part.least.has_value()) {
    want = std::max(want, *part.least);
    if (part.step.value_or(0) > 0) {
      const std::int64_t over = (want - *part.least) % *part.step;
      want += over == 0 ? 0 : *part.step - over;
    }
    if (part.most.has_value() && want > *part.most) {
      return std::nullopt;
    }
  }
  return want <= part.value ? std::optional(want) : std::nullopt;
}

std::string AttributeText(const DeviceAttribute& attribute) {
  return std::to_string(static_cast<int>(attribute.kind)) + ":" + attribute.text + ":" +
         std::to_string(attribute.number);
}

class Search {
 public:
  Search(const State& state, const std::vector<const ClaimSpec*>& claims, const NodeSpec& node)
      : index_(IndexOf(state)), devices_(DevicesOn(state, node)), claims_(claims), node_(node) {
    for (std::size_t i = 0; i < claims.size(); ++i) {
      values_.emplace_back(claims[i]->constraints.size());
      for (const ClaimRequest& request : claims[i]->requests) {
        slots_.push_back({i, &request});
      }
    }
    held_.resize(claims.size());
  }

  SearchEnd Run(std::vector<ClaimPick>* picks) {
    if (!Slot(0)) {
      return tries_ < 0 ? SearchEnd::kCutOff : SearchEnd::kNothing;
    }
    picks->clear();
    for (const std::vector<Held>& held : held_) {
      picks->push_back(PickOf(held));
    }
    return SearchEnd::kFound;
  }

 private:
  struct SlotOf {
    std::size_t claim;
    const ClaimRequest* request;
  };
  struct Held {
    const DeviceRef* ref;
    const ClaimRequest* request;
    DeviceHold hold;
  };

  // True when the requests from `at` on have their devices.
  bool Slot(std::size_t at) {
    if (at == slots_.size()) {
      return true;
    }
    const ClaimRequest& request = *slots_[at].request;
    if (request.alternatives.empty()) {
      return Begin(at, request);
    }
    return std::any_of(request.alternatives.begin(), request.alternatives.end(),
                       [&](const ClaimRequest& one) { return tries_ >= 0 && Begin(at, one); });
  }

  bool Begin(std::size_t at, const ClaimRequest& request) {
    const std::vector<const DeviceRef*>& candidates = CandidatesOf(request);
    const std::size_t have = held_[slots_[at].claim].size();
    const std::size_t count =
        request.all ? candidates.size() : static_cast<std::size_t>(request.count);
    if (count == 0 || candidates.size() < count || have + count > kDevicesMax ||
        (request.all && kept_off_.at(&request))) {
      return false;
    }
    return Take(at, request, candidates, count, 0);
  }

  // `left` more devices, from candidate `from` on: their order within a request does not matter.
  bool Take(std::size_t at, const ClaimRequest& request,
            const std::vector<const DeviceRef*>& candidates, std::size_t left, std::size_t from) {
    if (left == 0) {
      return Slot(at + 1);
    }
    std::set<std::string> failed;
    for (std::size_t i = from; i + left <= candidates.size(); ++i) {
      if (--tries_ < 0) {
        return false;
      }
      const std::string alike = failed.empty() ? "" : LikenessOf(*candidates[i]);
      if ((!alike.empty() && failed.count(alike) != 0) ||
          !Add(slots_[at].claim, request, *candidates[i])) {
        if (request.all) {
          return false;
        }
        continue;
      }
      if (Take(at, request, candidates, left - 1, i + 1)) {
        return true;
      }
      Undo(slots_[at].claim);
      if (request.all) {
        return false;
      }
      failed.insert(LikenessOf(*candidates[i]));
    }
    return false;
  }

  // Devices that the request may have on this node, if nobody is on them.
  const std::vector<const DeviceRef*>& CandidatesOf(const ClaimRequest& request) {
    const auto [it, added] = candidates_.try_emplace(&request);
    if (!added) {
      return it->second;
    }
    kept_off_[&request] = false;
    for (const DeviceRef& ref : devices_) {
      if (!std::all_of(request.selectors.begin(), request.selectors.end(),
                       [&](const auto& s) { return s->Matches(ref.slice->driver, *ref.device); })) {
        continue;
      }
      const bool free = request.admin || ref.device->shared || index_.taken.count(ref.id) == 0;
      if (ref.device->usable && Tolerated(request, *ref.device) && free &&
          HasCapacity(request, ref)) {
        it->second.push_back(&ref);
      } else {
        kept_off_[&request] = true;
      }
    }
    return it->second;
  }

  static bool Tolerated(const ClaimRequest& request, const SliceDevice& device) {
    return std::all_of(device.taints.begin(), device.taints.end(),
                       [&](const Taint& taint) { return Tolerates(request.tolerations, taint); });
  }

  static std::string PartName(const std::string& name, const DeviceRef& ref) {
    return name.find('/') == std::string::npos ? ref.slice->driver + "/" + name : name;
  }

  static bool HasCapacity(const ClaimRequest& request, const DeviceRef& ref) {
    return std::all_of(request.capacity.begin(), request.capacity.end(), [&](const auto& asked) {
      const auto it = ref.device->parts.find(PartName(asked.first, ref));
      return it != ref.device->parts.end() && asked.second <= it->second.value;
    });
  }

  // Two devices with the same likeness serve the rest of the search equally well; "" = like no other.
  std::string LikenessOf(const DeviceRef& ref) {
    if (!ref.device->uses.empty() || ref.device->shared) {
      return "";
    }
    std::string text;
    const auto add = [&](const ClaimRequest& request) {
      const auto& candidates = CandidatesOf(request);
      text += std::find(candidates.begin(), candidates.end(), &ref) == candidates.end() ? '0' : '1';
    };
    for (const SlotOf& slot : slots_) {
      if (slot.request->alternatives.empty()) {
        add(*slot.request);
      }
      std::for_each(slot.request->alternatives.begin(), slot.request->alternatives.end(), add);
    }
    for (const ClaimSpec* claim : claims_) {
      for (const DeviceConstraint& constraint : claim->constraints) {
        const auto it = ref.device->attributes.find(constraint.attribute);
        text += "|" + (it == ref.device->attributes.end() ? "" : AttributeText(it->second));
      }
    }
    return text;
  }

  bool Add(std::size_t claim, const ClaimRequest& request, const DeviceRef& ref) {
    Held held{&ref, &request, {}};
    held.hold.admin = request.admin;
    if (!request.admin && (!Free(request, ref, &held.hold) || !CountersAllow(ref))) {
      return false;
    }
    if (!ConstraintsAllow(claim, request, ref)) {
      return false;
    }
    if (!request.admin) {
      if (held.hold.shared) {
        for (const auto& [name, amount] : held.hold.parts) {
          parts_[ref.id][name] += amount;
        }
      } else {
        taken_.insert(ref.id);
      }
      Count(ref, 1);
    }
    EachConstraint(claim, request, [&](std::size_t i, const DeviceConstraint& constraint) {
      values_[claim][i].push_back(AttributeText(ref.device->attributes.at(constraint.attribute)));
    });
    held_[claim].push_back(std::move(held));
    return true;
  }

  void Undo(std::size_t claim) {
    const Held held = std::move(held_[claim].back());
    held_[claim].pop_back();
    EachConstraint(claim, *held.request,
                   [&](std::size_t i, const DeviceConstraint&) { values_[claim][i].pop_back(); });
    if (held.hold.admin) {
      return;
    }
    if (held.hold.shared) {
      for (const auto& [name, amount] : held.hold.parts) {
        parts_[held.ref->id][name] -= amount;
      }
    } else {
      taken_.erase(held.ref->id);
    }
    Count(*held.ref, -1);
  }

  bool Free(const ClaimRequest& request, const DeviceRef& ref, DeviceHold* hold) const {
    if (taken_.count(ref.id) != 0 || index_.taken.count(ref.id) != 0) {
      return false;
    }
    if (!ref.device->shared) {
      return true;
    }
    hold->shared = true;
    const auto held = index_.parts.find(ref.id);
    const auto mine = parts_.find(ref.id);
    for (const auto& [name, part] : ref.device->parts) {
      std::optional<std::int64_t> asked;
      for (const auto& [wanted, amount] : request.capacity) {
        asked = PartName(wanted, ref) == name ? std::optional(amount) : asked;
      }
      const std::optional<std::int64_t> gets = RoundedPart(part, asked);
      const auto of = [&, &which = name](const auto& map, const auto& it) {
        return it != map.end() && it->second.count(which) != 0 ? it->second.at(which) : 0;
      };
      if (!gets || of(index_.parts, held) + of(parts_, mine) + *gets > part.value) {
        return false;
      }
      hold->parts[name] = *gets;
    }
    return true;
  }

  bool CountersAllow(const DeviceRef& ref) const {
    if (ref.device->uses.empty()) {
      return true;
    }
    const auto pool = index_.pools.find({ref.slice->driver, ref.slice->pool});
    if (pool == index_.pools.end()) {
      return false;
    }
    const auto mine = counted_.find({ref.slice->driver, ref.slice->pool});
    for (const CounterUse& use : ref.device->uses) {
      for (const auto& [name, amount] : use.amounts) {
        const DeviceIndex::Counter counter{use.set, name};
        const auto total = pool->second.total.find(counter);
        const auto used = pool->second.used.find(counter);
        std::int64_t sum = amount + (used == pool->second.used.end() ? 0 : used->second);
        if (mine != counted_.end() && mine->second.count(counter) != 0) {
          sum += mine->second.at(counter);
        }
        if (total == pool->second.total.end() || sum > total->second) {
          return false;
        }
      }
    }
    return true;
  }

  void Count(const DeviceRef& ref, std::int64_t sign) {
    for (const CounterUse& use : ref.device->uses) {
      for (const auto& [name, amount] : use.amounts) {
        counted_[{ref.slice->driver, ref.slice->pool}][{use.set, name}] += sign * amount;
      }
    }
  }

  // f(index, constraint) for those that cover the request.
  template <typename F>
  void EachConstraint(std::size_t claim, const ClaimRequest& request, F f) const {
    const std::string parent = request.name.substr(0, request.name.find('/'));
    for (std::size_t i = 0; i < claims_[claim]->constraints.size(); ++i) {
      const DeviceConstraint& constraint = claims_[claim]->constraints[i];
      const auto& names = constraint.requests;
      if (names.empty() || std::find(names.begin(), names.end(), request.name) != names.end() ||
          std::find(names.begin(), names.end(), parent) != names.end()) {
        f(i, constraint);
      }
    }
  }

  bool ConstraintsAllow(std::size_t claim, const ClaimRequest& request,
                        const DeviceRef& ref) const {
    bool allowed = true;
    EachConstraint(claim, request, [&](std::size_t i, const DeviceConstraint& constraint) {
      const auto it = ref.device->attributes.find(constraint.attribute);
      if (it == ref.device->attributes.end()) {
        allowed = false;
        return;
      }
      const std::vector<std::string>& values = values_[claim][i];
      const std::string value = AttributeText(it->second);
      const bool seen = std::find(values.begin(), values.end(), value) != values.end();
      allowed = allowed && (constraint.distinct ? !seen : values.empty() || seen);
    });
    return allowed;
  }

  ClaimPick PickOf(const std::vector<Held>& held) const {
    ClaimPick pick;
    bool here = false;
    bool plain = true;
    NodeTerm all;
    for (const Held& one : held) {
      pick.devices.push_back(one.ref->id);
      pick.requests.push_back(one.request->name);
      pick.holds.push_back(one.hold);
      plain = plain && !one.hold.admin && !one.hold.shared;
      const DeviceSlice& slice = *one.ref->slice;
      const SliceDevice& device = *one.ref->device;
      const auto& terms = slice.each_device_says ? device.nodes : slice.nodes;
      here = here || device.binds_to_node || terms.size() > 1 ||
             !(slice.each_device_says ? device.node : slice.node).empty();
      if (terms.size() == 1) {
        all.labels.insert(all.labels.end(), terms[0].labels.begin(), terms[0].labels.end());
        all.fields.insert(all.fields.end(), terms[0].fields.begin(), terms[0].fields.end());
      }
    }
    if (plain) {
      pick.holds.clear();
    }
    if (here) {
      all = {{}, {{"metadata.name", SelectorOperator::kIn, {node_.name}}}};
    }
    if (!all.labels.empty() || !all.fields.empty()) {
      pick.reach.push_back(std::move(all));
    }
    return pick;
  }

  const DeviceIndex& index_;
  const std::vector<DeviceRef>& devices_;
  const std::vector<const ClaimSpec*>& claims_;
  const NodeSpec& node_;
  std::vector<SlotOf> slots_;
  std::vector<std::vector<Held>> held_;  // by claim
  std::map<const ClaimRequest*, std::vector<const DeviceRef*>> candidates_;
  std::map<const ClaimRequest*, bool> kept_off_;  // All: one of its devices cannot be had
  std::set<ClaimDevice> taken_;
  std::map<ClaimDevice, std::map<std::string, std::int64_t>> parts_;
  std::map<std::pair<std::string, std::string>, std::map<DeviceIndex::Counter, std::int64_t>>
      counted_;
  std::vector<std::vector<std::vector<std::string>>> values_;  // by claim and constraint
  int tries_ = kDeviceTries;
};

}  // namespace

SearchEnd FindDevices(const State& state, const std::vector<const ClaimSpec*>& claims,
                      const NodeSpec& node, std::vector<ClaimPick>* picks) {
  return Search(state, claims, node).Run(picks);
}

}  // namespace sublet::scheduler
