#include "apiserver/crd/definition_controller.h"

#include <pthread.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apiserver/crd/api_services.h"
#include "apiserver/crd/definition.h"
#include "apiserver/crd/definition_strategy.h"
#include "apiserver/handlers/delete_object.h"
#include "apiserver/handlers/write_common.h"
#include "apiserver/registry/builtin.h"
#include "apiserver/registry/kind_ops.h"
#include "apiserver/registry/object_codec.h"
#include "base/log.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::apiserver {
namespace {

using kube::Json;

// How often the objects of a deleted definition are looked at again.
constexpr auto kDeletionPoll = std::chrono::milliseconds(250);

Json NamesOf(const Json& definition) {
  const Json* names = kube::Find(definition, {"spec", "names"});
  return names != nullptr ? *names : Json::object();
}

std::vector<std::string> ResourceWords(const Json& names) {
  std::vector<std::string> words = {std::string(kube::FindString(names, {"plural"})),
                                    std::string(kube::FindString(names, {"singular"}))};
  if (const Json* list = kube::Find(names, {"shortNames"}); list != nullptr && list->is_array()) {
    for (const auto& item : *list) {
      words.push_back(item.is_string() ? item.get<std::string>() : "");
    }
  }
  return words;
}

bool Contains(const std::vector<std::string>& words, std::string_view word) {
  return !word.empty() && std::find(words.begin(), words.end(), word) != words.end();
}

std::string Fingerprint(const Json& definition) {
  const Json* names = kube::Find(definition, {"status", "acceptedNames"});
  return std::to_string(kube::GenerationOf(definition)) + "|" +
         (kube::IsDeleting(definition) ? "deleting" : "") + "|" +
         (names != nullptr ? kube::Dump(*names) : "");
}

}  // namespace

struct DefinitionController::Signal {
  Mutex mutex;
  CondVar changed;
  bool pending SUBLET_GUARDED_BY(mutex) = true;  // a first Pull arms the subscription
  bool stopping SUBLET_GUARDED_BY(mutex) = false;
};

DefinitionController::DefinitionController(const ApiContext* context)
    : context_(context),
      prefix_(StoragePrefix({"apiextensions.k8s.io", "customresourcedefinitions"})),
      signal_(std::make_shared<Signal>()) {}

DefinitionController::~DefinitionController() { Stop(); }

Result<void> DefinitionController::Subscribe() {
  SUBLET_TRY(auto list, context_->store->List(prefix_, "", 0, 0));
  storage::WatchOptions options;
  options.prefix = prefix_;
  options.after = list.revision;
  options.on_ready = [signal = signal_] {
    {
      MutexLock lock(signal->mutex);
      signal->pending = true;
    }
    signal->changed.NotifyOne();
  };
  SUBLET_TRY(subscription_, context_->store->Watch(std::move(options)));
  {
    // A subscription calls on_ready only after a Pull that found nothing: the first one is ours.
    MutexLock lock(signal_->mutex);
    signal_->pending = true;
  }
  std::set<std::string> seen;
  for (const auto& record : list.records) {
    seen.insert(record.key.substr(prefix_.size()));
    Handle(record.value);
  }
  std::vector<std::string> gone;
  for (const auto& [name, entry] : installed_) {
    if (seen.count(name) == 0) {
      gone.push_back(name);
    }
  }
  for (const auto& name : gone) {
    Remove(name);
  }
  SyncApiServices(*context_);
  served_changed_ = false;
  return Ok();
}

Result<void> DefinitionController::Start() {
  SUBLET_RETURN_IF_ERROR(Subscribe());
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "crd");
  return Ok();
}

void DefinitionController::Stop() {
  {
    MutexLock lock(signal_->mutex);
    signal_->stopping = true;
  }
  signal_->changed.NotifyAll();
  if (thread_.joinable()) {
    thread_.join();
  }
  subscription_.reset();
}

void DefinitionController::Run() {
  while (true) {
    {
      MutexLock lock(signal_->mutex);
      const auto deadline = terminating_.empty() ? MonotonicTime::max()
                                                 : std::chrono::steady_clock::now() + kDeletionPoll;
      while (!signal_->pending && !signal_->stopping) {
        if (terminating_.empty()) {
          signal_->changed.Wait(signal_->mutex);
        } else if (!signal_->changed.WaitUntil(signal_->mutex, deadline)) {
          break;
        }
      }
      if (signal_->stopping) {
        return;
      }
      signal_->pending = false;
    }
    HandleAll();
  }
}

void DefinitionController::HandleAll() {
  std::vector<storage::EventPtr> events;
  while (true) {
    events.clear();
    const auto pulled = subscription_->Pull(events, 256);
    if (!pulled.ok()) {
      // Fell behind: look at everything again.
      if (const auto again = Subscribe(); !again.ok()) {
        log::Warn("custom resource definitions cannot be followed", {{"error", again.error()}});
        return;
      }
      continue;
    }
    if (*pulled == 0) {
      break;
    }
    for (const auto& event : events) {
      if (event->type == storage::EventType::kDelete) {
        Remove(event->key.substr(prefix_.size()));
      } else {
        Handle(event->value);
      }
    }
  }
  const auto waiting = terminating_;
  for (const auto& name : waiting) {
    if (const auto record = context_->store->Get(prefix_ + name)) {
      Handle(record->value);
    } else {
      Remove(name);
    }
  }
  if (served_changed_) {
    SyncApiServices(*context_);
    served_changed_ = false;
  }
}

void DefinitionController::Remove(const std::string& name) {
  terminating_.erase(name);
  const auto it = installed_.find(name);
  if (it == installed_.end()) {
    return;
  }
  const std::string group = it->second.group;
  installed_.erase(it);
  context_->catalog->SetCustom(name, {});
  served_changed_ = true;
  // Its names are free now: those who waited for them may have them.
  auto list = context_->store->List(prefix_, "", 0, 0);
  if (!list.ok()) {
    return;
  }
  for (const auto& record : list->records) {
    const Json definition = ParseStored(*record.value);
    if (kube::FindString(definition, {"spec", "group"}) == group &&
        !kube::IsConditionTrue(definition, "NamesAccepted")) {
      Handle(record.value);
    }
  }
}

void DefinitionController::Handle(const storage::ValuePtr& value) {
  Json definition = ParseStored(*value);
  const std::string name(kube::NameOf(definition));
  if (kube::IsDeleting(definition)) {
    terminating_.insert(name);
    Install(definition);
    if (DeleteInstances(definition)) {
      FinishDeletion(name);
    }
    return;
  }
  Json status = DesiredStatus(definition);
  const Json* old = kube::Find(definition, {"status"});
  const bool changed = old == nullptr || *old != status;
  definition["status"] = std::move(status);
  if (kube::IsConditionTrue(definition, "NamesAccepted") && !Install(definition)) {
    return;
  }
  if (changed) {
    WriteStatus(definition);
  }
}

// Puts the definition's resources into the catalog unless they stand there already. False when its
// schemas do not compile.
bool DefinitionController::Install(const Json& definition) {
  const std::string name(kube::NameOf(definition));
  Installed& entry = installed_[name];
  const std::string fingerprint = Fingerprint(definition);
  if (entry.uid == kube::UidOf(definition) && entry.fingerprint == fingerprint) {
    return true;
  }
  auto resources = MakeCustomResources(definition, next_schema_id_++);
  if (!resources.ok()) {
    log::Warn("custom resource definition cannot be served",
              {{"name", name}, {"error", resources.error()}});
    return false;
  }
  if (kube::IsDeleting(definition)) {
    for (auto& resource : *resources) {
      auto ending = std::make_shared<Resource>(*resource);
      ending->terminating = true;
      resource = std::move(ending);
    }
  }
  entry.uid = std::string(kube::UidOf(definition));
  entry.fingerprint = fingerprint;
  entry.group = std::string(kube::FindString(definition, {"spec", "group"}));
  const Json* names = kube::Find(definition, {"status", "acceptedNames"});
  entry.names = names != nullptr ? *names : Json();
  context_->catalog->SetCustom(name, std::move(*resources));
  served_changed_ = true;
  return true;
}

// The sentence of the first clash with another definition of the group; "" when there is none.
std::string DefinitionController::NameConflict(const Json& definition, std::string* reason) const {
  const std::string self(kube::NameOf(definition));
  const std::string group(kube::FindString(definition, {"spec", "group"}));
  const Json wanted = NamesOf(definition);
  for (const auto& [name, entry] : installed_) {
    if (name == self || entry.group != group || entry.names.is_null()) {
      continue;
    }
    const auto words = ResourceWords(entry.names);
    const std::vector<std::string> kinds = {
        std::string(kube::FindString(entry.names, {"kind"})),
        std::string(kube::FindString(entry.names, {"listKind"}))};
    const auto check = [&](std::string_view word, const std::vector<std::string>& taken,
                           const char* why) -> std::string {
      if (!Contains(taken, word)) {
        return "";
      }
      *reason = why;
      return "\"" + std::string(word) + "\" is already in use";
    };
    std::string text = check(kube::FindString(wanted, {"plural"}), words, "PluralConflict");
    if (text.empty()) {
      text = check(kube::FindString(wanted, {"singular"}), words, "SingularConflict");
    }
    if (const Json* list = kube::Find(wanted, {"shortNames"});
        text.empty() && list != nullptr && list->is_array()) {
      for (const auto& item : *list) {
        if (text.empty() && item.is_string()) {
          text = check(item.get_ref<const std::string&>(), words, "ShortNamesConflict");
        }
      }
    }
    if (text.empty()) {
      text = check(kube::FindString(wanted, {"kind"}), kinds, "KindConflict");
    }
    if (text.empty()) {
      text = check(kube::FindString(wanted, {"listKind"}), kinds, "ListKindConflict");
    }
    if (!text.empty()) {
      return text;
    }
  }
  return "";
}

Json DefinitionController::DesiredStatus(const Json& definition) const {
  const std::string now = kube::FormatTime(context_->clock->Now());
  // Without the schemas: they are what is large.
  const Json* old = kube::Find(definition, {"status"});
  Json copy = {{"status", old != nullptr ? *old : Json::object()}};
  if (Json* conditions = kube::Find(copy, {"status", "conditions"});
      conditions != nullptr && conditions->is_null()) {
    *conditions = Json::array();
  }
  const auto set = [&](const char* type, bool value, std::string reason, std::string message) {
    kube::Condition condition;
    condition.type = type;
    condition.status = value ? "True" : "False";
    condition.reason = std::move(reason);
    condition.message = std::move(message);
    kube::SetCondition(&copy, condition, now);
  };
  std::string reason;
  const std::string conflict = NameConflict(definition, &reason);
  if (!conflict.empty()) {
    set("NamesAccepted", false, reason, conflict);
    if (!kube::IsConditionTrue(copy, "Established")) {
      set("Established", false, "NotAccepted", "not all names are accepted");
    }
    return copy["status"];
  }
  copy["status"]["acceptedNames"] = NamesOf(definition);
  set("NamesAccepted", true, "NoConflicts", "no conflicts found");
  if (!kube::IsConditionTrue(copy, "Established")) {
    set("Established", true, "InitialNamesAccepted", "the initial names have been accepted");
  }
  if (IsProtectedGroup(kube::FindString(definition, {"spec", "group"}))) {
    const std::string approval(kube::AnnotationOf(definition, kApprovalAnnotation));
    if (approval.starts_with("unapproved")) {
      set("KubernetesAPIApprovalPolicyConformant", false, "UnapprovedAnnotation",
          "not approved: \"" + approval + "\"");
    } else if (!approval.empty()) {
      set("KubernetesAPIApprovalPolicyConformant", true, "ApprovedAnnotation",
          "approved in " + approval);
    }
  }
  return copy["status"];
}

// Stores the definition with its new status. A lost race needs no retry: the write that won comes
// as an event.
void DefinitionController::WriteStatus(const Json& definition) {
  const std::string key = prefix_ + std::string(kube::NameOf(definition));
  const auto record = context_->store->Get(key);
  if (!record || kube::ResourceVersionOf(definition) != std::to_string(record->mod_revision)) {
    return;
  }
  const CatalogPtr catalog = context_->catalog->Get();
  const Resource* resource =
      catalog->Find("apiextensions.k8s.io", "v1", "customresourcedefinitions");
  Json tracked = definition;
  const Json live = ParseStored(*record->value);
  TrackUpdate(*resource, tracked, &live, "kube-apiserver", "status", context_->clock->Now());
  EncodedObject encoded = EncodeObject(tracked, *resource->type);
  storage::Op op;
  op.kind = storage::Op::Kind::kPut;
  op.key = key;
  op.expected = record->mod_revision;
  op.bytes = std::move(encoded.bytes);
  op.revision_offset = encoded.revision_offset;
  op.attachment = std::move(encoded.facts);
  std::vector<storage::Op> ops;
  ops.push_back(std::move(op));
  context_->store->Transact(std::move(ops), [key](Result<storage::TxnResult> result) {
    if (!result.ok()) {
      log::Warn("status of a custom resource definition was not written",
                {{"key", key}, {"error", result.error()}});
    }
  });
}

// Starts the deletion of all objects of the kind. True when none is left.
bool DefinitionController::DeleteInstances(const Json& definition) {
  const std::string group(kube::FindString(definition, {"spec", "group"}));
  const std::string plural(kube::FindString(definition, {"spec", "names", "plural"}));
  const CatalogPtr catalog = context_->catalog->Get();
  const Resource* resource = catalog->FindAnyVersion(group, plural);
  if (resource == nullptr) {
    return true;
  }
  auto list = context_->store->List(resource->type->prefix, "", 0, 0);
  if (!list.ok() || list->records.empty()) {
    return list.ok();
  }
  for (const auto& record : list->records) {
    if (FactsOf(*record.value).deleting) {
      continue;
    }
    auto call = std::make_shared<Call>();
    call->context = context_;
    call->request = std::make_unique<Request>();
    call->request->user.name = "system:apiserver";
    call->request->user.groups = {"system:masters"};
    call->catalog = catalog;
    call->resource = resource;
    const auto parts = SplitKey(record.key, resource->type->prefix.size(), resource->namespaced());
    auto job = std::make_shared<DeleteJob>();
    job->call = std::move(call);
    job->name = std::string(parts.name);
    job->namespace_name = std::string(parts.namespace_name);
    // Objects that could not be deleted now are found again at the next look.
    job->done = [](Result<DeleteOutcome>) {};
    RunDelete(std::move(job));
  }
  return false;
}

// No object is left: drops our finalizer, and the definition with it when it was the last.
void DefinitionController::FinishDeletion(const std::string& name) {
  const auto record = context_->store->Get(prefix_ + name);
  if (!record) {
    return;
  }
  Json definition = ParseStored(*record->value);
  kube::RemoveFinalizer(&definition, kCleanupFinalizer);
  const Json* left = kube::Find(definition, {"metadata", "finalizers"});
  storage::Op op;
  op.key = record->key;
  op.expected = record->mod_revision;
  if (left == nullptr || left->empty()) {
    op.kind = storage::Op::Kind::kDelete;
  } else {
    const CatalogPtr catalog = context_->catalog->Get();
    EncodedObject encoded = EncodeObject(
        definition,
        *catalog->Find("apiextensions.k8s.io", "v1", "customresourcedefinitions")->type);
    op.kind = storage::Op::Kind::kPut;
    op.bytes = std::move(encoded.bytes);
    op.revision_offset = encoded.revision_offset;
    op.attachment = std::move(encoded.facts);
    if (SameBytes(op, *record->value)) {
      return;  // others hold it
    }
  }
  std::vector<storage::Op> ops;
  ops.push_back(std::move(op));
  context_->store->Transact(std::move(ops), [](Result<storage::TxnResult>) {});
}

}  // namespace sublet::apiserver
