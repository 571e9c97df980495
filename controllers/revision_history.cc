#include "controllers/revision_history.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/object.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using kube::Json;

constexpr std::string_view kHashLabel = "controller.kubernetes.io/hash";
constexpr int kCollisionsMax = 8;

}  // namespace

Json RevisionDataOf(const Json& owner) {
  const Json* pod_template = kube::Find(owner, {"spec", "template"});
  Json copy = pod_template != nullptr ? *pod_template : Json::object();
  copy["$patch"] = "replace";
  return {{"spec", {{"template", std::move(copy)}}}};
}

RevisionHistory::RevisionHistory(const Context& context)
    : revisions_(context, kControllerRevisions) {
  AddOwnerIndexes(revisions_);
}

Result<std::vector<Revision>> RevisionHistory::List(const Collection& owners, const Json& owner,
                                                    const kube::LabelSelector& selector) const {
  SUBLET_TRY(const std::vector<ObjectPtr> claimed, Claim(revisions_, owners, owner, selector));
  std::vector<Revision> out;
  for (const ObjectPtr& object : claimed) {
    SUBLET_TRY(Json value, object->Parse());
    Json data = value.value("data", Json());
    out.push_back({object, object->key.name, kube::FindInt(value, {"revision"}), std::move(data)});
  }
  std::stable_sort(out.begin(), out.end(), [](const Revision& a, const Revision& b) {
    return a.number != b.number ? a.number < b.number : a.name < b.name;
  });
  return out;
}

Result<std::string> RevisionHistory::Ensure(const Json& owner, std::vector<Revision>* history,
                                            std::int64_t* collision_count) const {
  const Json data = RevisionDataOf(owner);
  const std::int64_t next = history->empty() ? 1 : history->back().number + 1;
  for (auto at = history->rbegin(); at != history->rend(); ++at) {
    if (at->data != data) {
      continue;
    }
    if (at == history->rbegin()) {
      return at->name;
    }
    // An old template came back: its revision becomes the newest.
    SUBLET_TRY(Json value, at->object->Parse());
    value["revision"] = next;
    SUBLET_RETURN_IF_ERROR(revisions_.Update(value));
    Revision moved = std::move(*at);
    moved.number = next;
    history->erase(std::next(at).base());
    history->push_back(std::move(moved));
    return history->back().name;
  }
  return Create(owner, data, next, history, collision_count);
}

Result<std::string> RevisionHistory::Create(const Json& owner, const Json& data,
                                            std::int64_t number, std::vector<Revision>* history,
                                            std::int64_t* collision_count) const {
  const std::string name_space(kube::NamespaceOf(owner));
  for (int attempt = 0;; ++attempt) {
    const std::string hash = HashOf(data, *collision_count);
    const std::string name = std::string(kube::NameOf(owner)) + "-" + hash;
    Json labels = Json::object();
    if (const Json* given = kube::Find(owner, {"spec", "template", "metadata", "labels"})) {
      labels = *given;
    }
    labels[std::string(kHashLabel)] = hash;
    Json revision = {{"metadata", {{"name", name}, {"namespace", name_space}, {"labels", labels}}},
                     {"data", data},
                     {"revision", number}};
    if (const Json* annotations = kube::AnnotationsOf(owner)) {
      revision["metadata"]["annotations"] = *annotations;
    }
    kube::SetOwner(&revision, kube::ControllerReference(owner));
    auto created = revisions_.Create(name_space, std::move(revision));
    if (!created.ok() && created.error().Is(Reason::kAlreadyExists) && attempt < kCollisionsMax) {
      SUBLET_TRY(const Json live, revisions_.GetLive({name_space, name}));
      if (live.value("data", Json()) != data) {
        ++*collision_count;  // another template of the same hash
        continue;
      }
      created = live;
    }
    if (!created.ok()) {
      return std::move(created).error();
    }
    history->push_back({revisions_.Find({name_space, name}), name, number, data});
    return name;
  }
}

Result<void> RevisionHistory::Truncate(const Json& owner, const std::vector<Revision>& history,
                                       const std::vector<std::string>& live) const {
  std::vector<const Revision*> old;
  for (const Revision& revision : history) {
    if (revision.object && std::find(live.begin(), live.end(), revision.name) == live.end()) {
      old.push_back(&revision);
    }
  }
  const std::int64_t limit = kube::FindInt(owner, {"spec", "revisionHistoryLimit"}, 10);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(old.size()) - limit; ++i) {
    const ObjectPtr& object = old[static_cast<std::size_t>(i)]->object;
    SUBLET_RETURN_IF_ERROR(revisions_.Delete(object->key, object->uid));
  }
  return Ok();
}

}  // namespace sublet::controllers
