#include "node/net/network_state.h"

#include <pthread.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "kube/object.h"
#include "node/net/firewall.h"

namespace sublet::node {
namespace {

constexpr std::chrono::milliseconds kGather{5};
constexpr std::chrono::milliseconds kRetryFirst{1000};
constexpr std::chrono::milliseconds kRetryMost{30000};

client::InformerOptions Source(const char* group, const char* resource, const char* kind) {
  client::InformerOptions options;
  options.resource = {group, "v1", resource};
  options.kind = kind;
  return options;
}

RulesInput::NamespaceView ParseNamespace(const kube::Json& object) {
  return {std::string(kube::NameOf(object)), ParseLabels(object)};
}

// "my-svc" -> "MY_SVC".
std::string VariableName(std::string text) {
  for (char& c : text) {
    c = c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return text;
}

void AddVariables(const ServiceView& service, Environment* out) {
  const std::string name = VariableName(service.name);
  const std::string host = FormatIpv4(service.addresses[0]);
  out->emplace_back(name + "_SERVICE_HOST", host);
  out->emplace_back(name + "_SERVICE_PORT", std::to_string(service.ports[0].port));
  for (const ServicePort& port : service.ports) {
    if (!port.name.empty()) {
      out->emplace_back(name + "_SERVICE_PORT_" + VariableName(port.name),
                        std::to_string(port.port));
    }
  }
  for (std::size_t i = 0; i < service.ports.size(); ++i) {
    const ServicePort& port = service.ports[i];
    const std::string number = std::to_string(port.port);
    const std::string url = port.protocol + "://" + host + ":" + number;
    if (i == 0) {
      out->emplace_back(name + "_PORT", url);
    }
    std::string protocol = port.protocol;
    for (char& c : protocol) {
      c = static_cast<char>(c - 'a' + 'A');
    }
    const std::string prefix = name + "_PORT_" + number + "_" + protocol;
    out->emplace_back(prefix, url);
    out->emplace_back(prefix + "_PROTO", port.protocol);
    out->emplace_back(prefix + "_PORT", number);
    out->emplace_back(prefix + "_ADDR", host);
  }
}

}  // namespace

template <typename View>
void NetworkState::Follow(client::InformerOptions options, std::map<Key, View>* views,
                          View (*parse)(const kube::Json&)) {
  options.keep_bytes = false;
  options.make_record = [parse](const kube::Json& object) -> std::shared_ptr<const void> {
    return std::make_shared<const View>(parse(object));
  };
  client::Informer& informer = informers_.For(options);
  sources_.push_back(&informer);
  informer.AddHandler(
      [this, views](const client::ObjectPtr& before, const client::ObjectPtr& after) {
        const client::ObjectPtr& any = after != nullptr ? after : before;
        {
          MutexLock lock(mutex_);
          const Key key{any->key.namespace_name, any->key.name};
          if (after == nullptr) {
            views->erase(key);
          } else {
            (*views)[key] = after->As<View>();
          }
        }
        Touch();
      });
}

NetworkState::NetworkState(client::InformerFactory& informers, RulesInput base)
    : informers_(informers), base_(std::move(base)) {
  Follow(Source("", "services", "Service"), &services_, ParseService);
  Follow(Source("discovery.k8s.io", "endpointslices", "EndpointSlice"), &slices_, ParseSlice);
  Follow(Source("", "pods", "Pod"), &pods_, ParsePodView);
  Follow(Source("", "namespaces", "Namespace"), &namespaces_, ParseNamespace);
  Follow(Source("networking.k8s.io", "networkpolicies", "NetworkPolicy"), &policies_, ParsePolicy);
}

void NetworkState::Start() {
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "firewall");
    Run();
  });
}

void NetworkState::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void NetworkState::Touch() {
  {
    MutexLock lock(mutex_);
    ++wanted_;
  }
  changed_.NotifyAll();
}

std::string NetworkState::Script() const {
  RulesInput input = base_;
  const auto copy = [](const auto& from, auto* to) {
    for (const auto& [key, view] : from) {
      to->push_back(view);
    }
  };
  copy(services_, &input.services);
  copy(slices_, &input.slices);
  copy(pods_, &input.pods);
  copy(namespaces_, &input.namespaces);
  copy(policies_, &input.policies);
  return MakeRules(input);
}

void NetworkState::Run() {
  const auto stopped = [&] {
    MutexLock lock(mutex_);
    return stopped_;
  };
  for (client::Informer* source : sources_) {
    while (!source->WaitSynced(After(std::chrono::milliseconds(500)))) {
      if (stopped()) {
        return;
      }
    }
  }
  std::string in_kernel;
  std::chrono::milliseconds backoff{0};
  MonotonicTime not_before{};
  for (;;) {
    std::string script;
    std::int64_t goal = 0;
    {
      MutexLock lock(mutex_);
      while (!stopped_ && wanted_ == loaded_) {
        changed_.Wait(mutex_);
      }
      // More changes mostly follow at once: a Service comes with its slice.
      const MonotonicTime until = std::max(not_before, std::chrono::steady_clock::now() + kGather);
      while (!stopped_ && std::chrono::steady_clock::now() < until) {
        changed_.WaitUntil(mutex_, until);
      }
      if (stopped_) {
        return;
      }
      goal = wanted_;
      script = Script();
    }
    if (script != in_kernel) {
      auto loaded = LoadRules(script);
      if (loaded.ok()) {
        loaded = PassForwardPolicy(base_.veth_prefix, true);
      }
      if (!loaded.ok()) {
        backoff = std::clamp(2 * backoff, kRetryFirst, kRetryMost);
        not_before = std::chrono::steady_clock::now() + backoff;
        log::Error("cannot load the firewall's rules", {{"error", loaded.error()}});
        continue;
      }
      in_kernel = std::move(script);
    }
    backoff = std::chrono::milliseconds(0);
    not_before = {};
    MutexLock lock(mutex_);
    loaded_ = goal;
    changed_.NotifyAll();
  }
}

bool NetworkState::WaitLoaded(Deadline deadline) const {
  MutexLock lock(mutex_);
  const std::int64_t goal = wanted_;
  while (loaded_ < goal) {
    if (!changed_.WaitUntil(mutex_, deadline) && std::chrono::steady_clock::now() >= deadline) {
      return false;
    }
  }
  return true;
}

Environment NetworkState::VariablesOf(const std::string& namespace_name, bool all) const {
  Environment out;
  MutexLock lock(mutex_);
  for (const auto& [key, service] : services_) {
    const bool is_api = key == Key{"default", "kubernetes"};
    if (service.is_headless || service.addresses.empty() || service.ports.empty()) {
      continue;
    }
    // The API server's variables are there for every pod, under the master namespace's name.
    if (is_api || (all && key.first == namespace_name)) {
      AddVariables(service, &out);
    }
  }
  return out;
}

}  // namespace sublet::node
