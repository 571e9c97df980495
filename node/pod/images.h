// Images: makes sure that a container's image is on the machine, by its pull policy, with the
// credentials of the pod, and one pull at a time per image. Failures come back as kubelet's waiting
// reasons. Source: kubelet images/image_manager.go.
// Threads: any; blocks for the pull.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "node/engine/engine.h"
#include "node/pod/env.h"
#include "node/pod/plan.h"
#include "node/pod/state.h"

namespace sublet::node {

// "nginx" -> "docker.io/library/nginx:latest"; names that carry a registry stay.
std::string QualifyImage(std::string_view image);
// The registry host of a qualified name.
std::string RegistryOf(std::string_view qualified);
// The login for `registry` in a Secret of type kubernetes.io/dockerconfigjson or dockercfg.
std::optional<RegistryAuth> FindRegistryAuth(const kube::Json& secret, const std::string& registry);

class Images {
 public:
  using OnEvent =
      std::function<void(bool warning, const std::string& reason, const std::string& message)>;

  Images(ContainerEngine& engine, ObjectSource& objects, int pulls_max)
      : engine_(engine), objects_(objects), pulls_max_(pulls_max) {}

  struct Outcome {
    ImageInfo image;
    std::optional<Failure> failure;  // ErrImagePull, ErrImageNeverPull, InvalidImageName
  };
  Outcome Ensure(const PodPlan& plan, const ContainerPlan& container, const OnEvent& on_event,
                 Canceller* cancel);

 private:
  Result<ImageInfo> FindLocal(const std::string& image);
  Result<void> Pull(const PodPlan& plan, const std::string& qualified, Canceller* cancel);

  ContainerEngine& engine_;
  ObjectSource& objects_;
  const int pulls_max_;
  Mutex mutex_;
  CondVar freed_;
  int pulling_ SUBLET_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int> busy_ SUBLET_GUARDED_BY(mutex_);  // images being pulled
};

}  // namespace sublet::node
