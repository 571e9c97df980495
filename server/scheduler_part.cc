#include "server/scheduler_part.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "apiserver/status_response.h"
#include "base/log.h"
#include "embedded/SchedulerManifests.h"
#include "gpu/api/types.h"
#include "kube/object.h"

namespace sublet::server {
namespace {

using kube::Json;

constexpr const char* kKaiDefinitions[] = {
    "queues.scheduling.run.ai.json", "podgroups.scheduling.run.ai.json",
    "bindrequests.scheduling.run.ai.json", "topologies.kai.scheduler.json"};
constexpr const char* kGpuDefinitions[] = {"gpuslice-crd.yaml", "gpunode-crd.yaml"};

kube::GroupVersionResource ResourceOf(const Json& object) {
  const auto kind = kube::FindString(object, {"kind"});
  if (kind == "CustomResourceDefinition") {
    return {"apiextensions.k8s.io", "v1", "customresourcedefinitions"};
  }
  return kind == "Queue" ? kube::GroupVersionResource{"scheduling.run.ai", "v2", "queues"}
                         : kube::GroupVersionResource{"scheduling.k8s.io", "v1", "priorityclasses"};
}

// Creates what is missing; what a user changed stays.
Result<void> CreateMissing(const client::Client& client, std::string_view text) {
  SUBLET_TRY(const auto documents, kube::ParseYamlDocuments(text));
  for (const Json& document : documents) {
    auto created = client.Create({ResourceOf(document), "", "", ""}, document);
    if (!created.ok() && !created.error().Is(Reason::kAlreadyExists)) {
      return std::move(created).error().Prefixed(std::string(kube::NameOf(document)));
    }
  }
  return Ok();
}

}  // namespace

Result<std::vector<scheduler::Profile>> ProfilesOf(const config::TenantConfig& config) {
  std::vector<config::SchedulerProfile> rows = config.control_plane.scheduler_profiles;
  const auto named = [&rows](std::string_view name) {
    return std::any_of(rows.begin(), rows.end(),
                       [name](const auto& row) { return row.scheduler_name == name; });
  };
  if (!named("default-scheduler")) {
    rows.push_back({"default-scheduler", "default", {}});
  }
  if (config.control_plane.kai_crds && !named("kai-scheduler")) {
    rows.push_back({"kai-scheduler", "kai-0.13", {}});
  }
  std::vector<scheduler::Profile> profiles;
  std::set<std::string> seen;
  for (const auto& row : rows) {
    if (!seen.insert(row.scheduler_name).second) {
      return BadRequest("controlPlane.scheduler.profiles names scheduler " + row.scheduler_name +
                        " twice");
    }
    SUBLET_TRY(scheduler::Profile profile, scheduler::NamedProfile(row.profile));
    profile.scheduler_names = {row.scheduler_name};
    for (const auto& [key, value] : row.arguments) {
      SUBLET_RETURN_IF_ERROR(scheduler::SetArgument(profile, key, value));
    }
    SUBLET_RETURN_IF_ERROR(profile.usage.Check());
    if (!profile.kube && !config.control_plane.kai_crds) {
      return BadRequest("controlPlane.scheduler.profiles: profile " + row.profile +
                        " needs controlPlane.scheduler.kai.enabled");
    }
    profiles.push_back(std::move(profile));
  }
  return profiles;
}

Result<std::unique_ptr<SchedulerPart>> SchedulerPart::Make(SchedulerPartOptions options,
                                                           const Clock& clock) {
  SUBLET_TRY(auto profiles, ProfilesOf(options.config));
  return std::unique_ptr<SchedulerPart>(
      new SchedulerPart(std::move(options), std::move(profiles), clock));
}

SchedulerPart::SchedulerPart(SchedulerPartOptions options, std::vector<scheduler::Profile> profiles,
                             const Clock& clock)
    : options_(std::move(options)), profiles_(std::move(profiles)), clock_(clock) {}

SchedulerPart::~SchedulerPart() { Stop(); }

void SchedulerPart::Start() {
  thread_ = std::thread([this] { Run(); });
}

void SchedulerPart::Stop() {
  std::shared_ptr<scheduler::SchedulerService> service;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    service.swap(service_);
  }
  changed_.NotifyAll();
  if (thread_.joinable()) {
    thread_.join();
  }
  if (service != nullptr) {
    service->Stop();
  }
}

bool SchedulerPart::Serves(const client::Client& client, const std::string& group_version,
                           const std::string& resource) const {
  const auto text = client.GetRaw("/apis/" + group_version);
  const auto list = text.ok() ? kube::ParseJson(*text) : Result<Json>(Json::object());
  if (!list.ok()) {
    return false;
  }
  const Json resources = list->value("resources", Json::array());
  return std::any_of(resources.begin(), resources.end(), [&resource](const Json& entry) {
    return kube::FindString(entry, {"name"}) == resource;
  });
}

Result<void> SchedulerPart::Install() {
  const client::Client& client = options_.setup_client;
  for (const char* file : kGpuDefinitions) {
    SUBLET_RETURN_IF_ERROR(CreateMissing(client, embedded::SchedulerManifests(file)));
  }
  if (options_.host_role) {
    SUBLET_RETURN_IF_ERROR(
        CreateMissing(client, embedded::SchedulerManifests("nodeusage-crd.yaml")));
  }
  if (options_.config.control_plane.kai_crds) {
    for (const char* file : kKaiDefinitions) {
      SUBLET_RETURN_IF_ERROR(CreateMissing(client, embedded::SchedulerManifests(file)));
    }
    for (const auto& [group_version, resource] :
         {std::pair<const char*, const char*>{"scheduling.run.ai/v2", "queues"},
          {"scheduling.run.ai/v2alpha2", "podgroups"},
          {"kai.scheduler/v1alpha1", "topologies"}}) {
      if (!Serves(client, group_version, resource)) {
        return ServiceUnavailable(std::string(resource) + " are not served yet");
      }
    }
    SUBLET_RETURN_IF_ERROR(CreateMissing(client, embedded::SchedulerManifests("defaults.yaml")));
  }
  if (!Serves(client, std::string(gpu::kApiVersion), std::string(gpu::kNodeResource))) {
    return ServiceUnavailable("gpunodes are not served yet");
  }
  return Ok();
}

void SchedulerPart::Run() {
  auto delay = std::chrono::milliseconds(5);
  for (;;) {
    const auto installed = Install();
    if (installed.ok()) {
      break;
    }
    log::Debug("scheduler not ready", {{"error", installed.error()}});
    MutexLock lock(mutex_);
    const Deadline until = After(delay);
    while (!stopped_ && changed_.WaitUntil(mutex_, until)) {
    }
    if (stopped_) {
      return;
    }
    delay = std::min<std::chrono::milliseconds>(delay * 2, std::chrono::seconds(2));
  }
  if (!options_.config.control_plane.scheduler_enabled) {
    return;
  }
  scheduler::SchedulerServiceOptions service{profiles_, options_.client};
  service.kai = options_.config.control_plane.kai_crds;
  service.gpu_nodes = true;
  service.storage_classes_known = !options_.host || options_.config.storage_classes;
  service.enforce = options_.config.control_plane.gpu_enforce == "on";
  const client::Client& slices_at = options_.host ? *options_.host : options_.client;
  if (Serves(slices_at, std::string(gpu::kApiVersion), std::string(gpu::kSliceResource))) {
    scheduler::SliceBrokerOptions broker{slices_at, {}};
    if (options_.host) {
      broker.only_namespace = options_.host_namespace;
      broker.slice_namespace = [space = options_.host_namespace](const std::string&) {
        return space;
      };
      broker.tenant = options_.tenant;
    } else {
      broker.slice_namespace = [](const std::string& space) { return space; };
    }
    broker.devices_milli_max =
        options_.config.gpu_devices < 0 ? -1 : options_.config.gpu_devices * 1000;
    broker.memory_bytes_max = options_.config.gpu_memory_bytes;
    service.slices = std::move(broker);
  }
  auto made = std::make_shared<scheduler::SchedulerService>(std::move(service), clock_);
  {
    MutexLock lock(mutex_);
    if (stopped_) {
      return;
    }
    service_ = made;
  }
  made->Start();
  log::Info("scheduler running", {{"profiles", profiles_.size()}});
}

void SchedulerPart::AppendMetrics(std::string& out) {
  std::shared_ptr<scheduler::SchedulerService> service;
  {
    MutexLock lock(mutex_);
    service = service_;
  }
  if (service != nullptr) {
    service->AppendMetrics(out);
  }
}

Result<Json> SchedulerPart::Answer(const apiserver::Request& request) {
  std::shared_ptr<scheduler::SchedulerService> service;
  {
    MutexLock lock(mutex_);
    service = service_;
  }
  if (service == nullptr) {
    return ServiceUnavailable(options_.config.control_plane.scheduler_enabled
                                  ? "the scheduler is starting"
                                  : "the embedded scheduler is off in this tenant");
  }
  if (request.path == "/sublet/scheduler/whatif") {
    if (request.method != "POST") {
      return Status(Reason::kMethodNotAllowed, "only POST is served here");
    }
    SUBLET_TRY(const Json body, kube::ParseJson(request.body));
    const Json* objects = kube::Find(body, {"objects"});
    if (objects == nullptr || !objects->is_array()) {
      return BadRequest("the body must be {\"objects\": [...]}");
    }
    return service->WhatIf(std::vector<Json>(objects->begin(), objects->end()));
  }
  if (request.method != "GET") {
    return Status(Reason::kMethodNotAllowed, "only GET is served here");
  }
  if (request.path == "/sublet/scheduler/queues") {
    return service->Queues();
  }
  if (request.path == "/sublet/scheduler/explain") {
    return service->Explain(std::string(request.query.Get("namespace")),
                            std::string(request.query.Get("pod")));
  }
  return Status(Reason::kNotFound, "no such question: " + request.path);
}

void SchedulerPart::Handle(std::unique_ptr<apiserver::Request> request,
                           apiserver::ResponderPtr responder) {
  auto answer = Answer(*request);
  apiserver::Response response;
  if (answer.ok()) {
    response.body = apiserver::Body(answer->dump());
  } else {
    response = apiserver::StatusResponse(answer.error());
  }
  responder->Send(std::move(response));
}

}  // namespace sublet::server
