#include "syncer/kinds/event_syncer.h"

#include <array>
#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "syncer/kinds/translate_fields.h"

namespace sublet::syncer {
namespace {

using client::Outcome;
using kube::Json;

struct EventKind {
  std::string_view kind;
  std::string_view mapping;
  std::string_view resource;
};
constexpr std::array<EventKind, 5> kKinds = {
    {{"Pod", "pods", "pods"},
     {"Service", "services", "services"},
     {"PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaims"},
     {"ConfigMap", "configmaps", "configmaps"},
     {"Secret", "secrets", "secrets"}}};

}  // namespace

EventSyncer::EventSyncer(SyncContext& context)
    : KindSyncer({"events", "/v1, Kind=Event", false}), context_(context) {}

void EventSyncer::Watch(Enqueue enqueue) {
  client::InformerOptions options;
  options.resource = {"", "v1", "events"};
  options.kind = "Event";
  options.namespace_name = context_.tenant.host_namespace;
  host_informer_ = &context_.host_informers.For(options);
  // The host's key stands for the virtual one: which object an Event is about is read when it is
  // worked on.
  host_informer_->AddHandler([enqueue](const client::ObjectPtr&, const client::ObjectPtr& after) {
    if (after != nullptr) {
      enqueue(after->key);
    }
  });
}

client::ObjectPtr EventSyncer::Virtual(const kube::ObjectKey&) const { return nullptr; }

client::ObjectPtr EventSyncer::Host(const kube::ObjectKey& key) const {
  return host_informer_->Get(key);
}

Result<Outcome> EventSyncer::SyncToHost(const Json&) { return Outcome::Done(); }
Result<Outcome> EventSyncer::Sync(const Json&, const Json&) { return Outcome::Done(); }
Result<Outcome> EventSyncer::Gone(const kube::ObjectKey&) { return Outcome::Done(); }

Result<Outcome> EventSyncer::SyncToVirtual(const kube::ObjectKey&, const Json& host) {
  const auto kind = kube::FindString(host, {"involvedObject", "kind"});
  const auto name = kube::FindString(host, {"involvedObject", "name"});
  for (const EventKind& row : kKinds) {
    if (row.kind != kind) {
      continue;
    }
    const auto key = context_.mapping.VirtualOf(row.mapping, name);
    if (!key) {
      return Outcome::Done();
    }
    auto object = context_.virtual_client.Get(
        {{"", "v1", std::string(row.resource)}, key->namespace_name, key->name, ""});
    if (!object.ok()) {
      return Outcome::Done();  // gone meanwhile: nobody asks for its events
    }
    // One virtual event per host event, under its name, so that counting up stays counting up.
    Json event = {{"apiVersion", "v1"},
                  {"kind", "Event"},
                  {"metadata",
                   {{"name", key->name + "." + Hash10(kube::UidOf(host))},
                    {"namespace", key->namespace_name}}},
                  {"involvedObject",
                   {{"apiVersion", "v1"},
                    {"kind", kind},
                    {"namespace", key->namespace_name},
                    {"name", key->name},
                    {"uid", kube::UidOf(*object)},
                    {"fieldPath", kube::FindString(host, {"involvedObject", "fieldPath"})}}},
                  {"message", context_.reporter.Sanitise(kube::FindString(host, {"message"}),
                                                         key->namespace_name)}};
    CopyFields(host, event,
               {"reason", "source", "firstTimestamp", "lastTimestamp", "count", "type",
                "reportingComponent", "reportingInstance", "action", "eventTime", "series"});
    const client::Target target{
        {"", "v1", "events"}, key->namespace_name, std::string(kube::NameOf(event)), ""};
    auto written = context_.virtual_client.Update(target, event);
    if (!written.ok() && !written.error().Is(Reason::kConflict)) {
      return std::move(written).error();
    }
    return Outcome::Done();
  }
  return Outcome::Done();
}

}  // namespace sublet::syncer
