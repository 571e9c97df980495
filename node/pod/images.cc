#include "node/pod/images.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "kube/timestamp.h"

namespace sublet::node {
namespace {

using kube::Find;
using kube::FindString;
using kube::Json;

bool IsValidReference(std::string_view image) {
  if (image.empty() || image.size() > 1024) {
    return false;
  }
  for (const char c : image) {
    const bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '_' || c == '-' || c == '/' || c == ':' || c == '@';
    if (!fine) {
      return false;
    }
  }
  // Repository names have no capitals; the tag may.
  const auto slash = image.rfind('/');
  const std::string_view last = image.substr(slash == std::string_view::npos ? 0 : slash + 1);
  const std::string_view name = last.substr(0, last.find_first_of(":@"));
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') {
      return false;
    }
  }
  return !name.empty();
}

std::string Seconds(std::chrono::steady_clock::duration duration) {
  return kube::FormatDuration(std::chrono::duration_cast<std::chrono::milliseconds>(duration));
}

RegistryAuth ReadAuth(const Json& entry) {
  RegistryAuth auth;
  auth.username = FindString(entry, {"username"});
  auth.password = FindString(entry, {"password"});
  auth.identity_token = FindString(entry, {"identitytoken"});
  if (const auto basic = FindString(entry, {"auth"}); auth.username.empty() && !basic.empty()) {
    const std::string text = DecodeBase64(basic);
    const auto colon = text.find(':');
    auth.username = text.substr(0, colon);
    auth.password = colon == std::string::npos ? "" : text.substr(colon + 1);
  }
  return auth;
}

}  // namespace

std::string QualifyImage(std::string_view image) {
  std::string out(image);
  const auto slash = out.find('/');
  const std::string first = slash == std::string::npos ? "" : out.substr(0, slash);
  const bool has_registry = first == "localhost" || first.find('.') != std::string::npos ||
                            first.find(':') != std::string::npos;
  if (!has_registry) {
    out = (slash == std::string::npos ? "docker.io/library/" : "docker.io/") + out;
  }
  const auto last = out.rfind('/');
  if (out.find('@') == std::string::npos && out.find(':', last) == std::string::npos) {
    out += ":latest";
  }
  return out;
}

std::string RegistryOf(std::string_view qualified) {
  return std::string(qualified.substr(0, qualified.find('/')));
}

std::optional<RegistryAuth> FindRegistryAuth(const Json& secret, const std::string& registry) {
  std::string text = DecodeBase64(FindString(secret, {"data", ".dockerconfigjson"}));
  const bool old_form = text.empty();
  if (old_form) {
    text = DecodeBase64(FindString(secret, {"data", ".dockercfg"}));
  }
  auto parsed = kube::ParseJson(text);
  if (!parsed.ok()) {
    return std::nullopt;
  }
  const Json* entries = old_form ? &*parsed : Find(*parsed, {"auths"});
  if (entries == nullptr || !entries->is_object()) {
    return std::nullopt;
  }
  for (const auto& [key, entry] : entries->items()) {
    std::string host = key;
    if (const auto scheme = host.find("://"); scheme != std::string::npos) {
      host = host.substr(scheme + 3);
    }
    host = host.substr(0, host.find('/'));
    const bool docker_hub =
        registry == "docker.io" && (host == "index.docker.io" || host == "registry-1.docker.io");
    if (host == registry || docker_hub) {
      return ReadAuth(entry);
    }
  }
  return std::nullopt;
}

Result<ImageInfo> Images::FindLocal(const std::string& image) {
  const std::string qualified = QualifyImage(image);
  auto found = engine_.InspectImage(qualified);
  if (!found.ok() && found.error().Is(Reason::kNotFound) && qualified != image) {
    // Images that were loaded under a short name: Podman keeps them as localhost/NAME, Docker as
    // NAME.
    found = engine_.InspectImage("localhost/" + image);
    if (!found.ok() && found.error().Is(Reason::kNotFound)) {
      found = engine_.InspectImage(image);
    }
  }
  return found;
}

Result<void> Images::Pull(const PodPlan& plan, const std::string& qualified, Canceller* cancel) {
  const std::string registry = RegistryOf(qualified);
  std::vector<RegistryAuth> logins;
  if (const Json* list = Find(*plan.object, {"spec", "imagePullSecrets"});
      list != nullptr && list->is_array()) {
    for (const Json& item : *list) {
      // A missing pull secret is not fatal: the image may be public.
      auto secret =
          objects_.GetSecret(plan.namespace_name, std::string(FindString(item, {"name"})));
      if (secret.ok()) {
        if (auto login = FindRegistryAuth(**secret, registry)) {
          logins.push_back(std::move(*login));
        }
      }
    }
  }
  if (logins.empty()) {
    return engine_.PullImage(qualified, nullptr, cancel);
  }
  Result<void> pulled;
  for (const RegistryAuth& login : logins) {
    pulled = engine_.PullImage(qualified, &login, cancel);
    if (pulled.ok()) {
      break;
    }
  }
  return pulled;
}

Images::Outcome Images::Ensure(const PodPlan& plan, const ContainerPlan& container,
                               const OnEvent& on_event, Canceller* cancel) {
  Outcome outcome;
  const auto fail = [&](const std::string& reason, std::string message) {
    outcome.failure = Failure{reason, std::move(message)};
    return outcome;
  };
  if (!IsValidReference(container.image)) {
    const std::string text = "Failed to apply default image tag \"" + container.image +
                             "\": couldn't parse image name \"" + container.image +
                             "\": invalid reference format";
    on_event(true, "InspectFailed", text);
    return fail("InvalidImageName", text);
  }
  auto local = FindLocal(container.image);
  if (!local.ok() && !local.error().Is(Reason::kNotFound)) {
    on_event(true, "InspectFailed", local.error().message());
    return fail("ImageInspectError", local.error().message());
  }
  const bool want_pull = container.pull_policy == PullPolicy::kAlways ||
                         (container.pull_policy == PullPolicy::kIfNotPresent && !local.ok());
  if (!want_pull) {
    if (local.ok()) {
      on_event(false, "Pulled",
               "Container image \"" + container.image + "\" already present on machine");
      outcome.image = std::move(local).value();
      return outcome;
    }
    const std::string text =
        "Container image \"" + container.image + "\" is not present with pull policy of Never";
    on_event(true, "ErrImageNeverPull", text);
    return fail("ErrImageNeverPull", text);
  }

  const std::string qualified = QualifyImage(container.image);
  on_event(false, "Pulling", "Pulling image \"" + container.image + "\"");
  const auto began = std::chrono::steady_clock::now();
  {
    MutexLock lock(mutex_);
    while (pulling_ >= pulls_max_ || busy_.count(qualified) > 0) {
      freed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + std::chrono::seconds(1));
      if (cancel != nullptr && cancel->cancelled()) {
        return fail("ErrImagePull", "cancelled");
      }
    }
    ++pulling_;
    busy_[qualified] = 1;
  }
  const auto pull_began = std::chrono::steady_clock::now();
  // Someone else may have pulled it while this call waited.
  auto pulled =
      container.pull_policy == PullPolicy::kIfNotPresent && FindLocal(container.image).ok()
          ? Ok()
          : Pull(plan, qualified, cancel);
  {
    MutexLock lock(mutex_);
    --pulling_;
    busy_.erase(qualified);
  }
  freed_.NotifyAll();
  if (!pulled.ok()) {
    on_event(true, "Failed",
             "Failed to pull image \"" + container.image + "\": " + pulled.error().message());
    on_event(true, "Failed", "Error: ErrImagePull");
    return fail("ErrImagePull", pulled.error().message());
  }
  local = FindLocal(container.image);
  if (!local.ok()) {
    return fail("ErrImagePull", local.error().message());
  }
  const auto end = std::chrono::steady_clock::now();
  on_event(false, "Pulled",
           "Successfully pulled image \"" + container.image + "\" in " + Seconds(end - pull_began) +
               " (" + Seconds(end - began) +
               " including waiting). Image size: " + std::to_string(local->size_bytes) + " bytes.");
  outcome.image = std::move(local).value();
  return outcome;
}

}  // namespace sublet::node
